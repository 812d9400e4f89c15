// The most and least certain recent images, if the server keeps images.

import * as api from "./api.js";
import { said } from "./answer.js";
import { html } from "./dom.js";
import { count, figure } from "./words.js";

const EVERY = 5000;
const STRIPS = { most: "Most certain", least: "Least certain" };

function strip(images) {
  if (!images.length) return html("p", { class: "note" }, "None yet.");
  return html("ul", { class: "strip" }, images.map((image) => {
    const probable = Number.isFinite(image.probability);
    const answer = said(image) + (probable ? "" : `, score ${figure(image.score)}`);
    return html("li", {},
      html("img", { src: image.thumbnail, alt: `Step ${image.step}: ${answer}` }),
      html("small", {}, `${answer}, step ${count(image.step)}`));
  }));
}

export function keptImages(id, info) {
  const places = Object.fromEntries(Object.keys(STRIPS).map((which) => [which, html("div")]));
  const node = html("section", { "aria-labelledby": "kept-title" }, html("h2", { id: "kept-title" }, "Certain and uncertain images"));
  if (!info.keeps_images) {
    node.append(html("p", { class: "note" }, "This server keeps no images, so none are shown here. " +
      "The operator can start it with --keep-images, which keeps thumbnails of recent images. They may show people and private places."));
    return { node, show() {} };
  }
  node.append(html("p", { class: "note" }, "This server keeps thumbnails of recent images. Everyone with access to this session can see them."),
    ...Object.entries(STRIPS).flatMap(([which, title]) => [html("h3", {}, title), places[which]]));
  let [seen, next] = [-1, 0];

  /** Requests the images again if there are new ones, at most once every few seconds. */
  async function show(session) {
    if (!session || session.images === seen || Date.now() < next) return;
    [seen, next] = [session.images, Date.now() + EVERY];
    for (const which of Object.keys(STRIPS)) {
      try {
        places[which].replaceChildren(strip(await api.kept(id, which)));
      } catch (error) {
        if (!(error instanceof api.Problem)) throw error;
        places[which].replaceChildren(html("p", { class: "note" }, error.message));
      }
    }
  }

  return { node, show };
}
