// The page of one session.

import * as api from "./api.js";
import { actions } from "./actions.js";
import { acceptedChart, scoresChart } from "./charts_over_time.js";
import { classTable } from "./class_table.js";
import { html, setText } from "./dom.js";
import { eventList } from "./event_list.js";
import { figures } from "./figures.js";
import { histogram } from "./histogram.js";
import { keptImages } from "./kept_images.js";
import { Live } from "./live.js";
import { light } from "./marks.js";
import { MOST, Seen } from "./seen.js";
import { tryImage } from "./try_image.js";
import { ago, count, listed, percent, rate } from "./words.js";

// Minimum times between two drawings, and between two requests for the session, in milliseconds.
const PAUSE = 250;
const ASK = 1000;

/** The page for a session that was deleted or does not exist. */
export function missing(problem) {
  const node = html("div", {}, html("h1", {}, "No such session"), html("p", {}, problem.message), html("p", {}, html("a", { href: "#/" }, "All sessions")));
  return { title: "No such session", node };
}

/** The page of a session; `first` is the session as it was last requested. */
export function session(first, info, tools) {
  const { tell, say } = tools;
  const { id } = first;
  const seen = new Seen();
  let current = null;
  const heading = html("h1");
  const lamp = html("p", { class: "lamp" });
  const about = html("p", { class: "lead" });
  const problem = html("p", { class: "bad", hidden: true });
  // Only servers with tokens have a button to sign out.
  const token = document.getElementById("sign-out").hidden ? "" : ` -H "Authorization: Bearer $TOKEN"`;
  const address = new URL(`sessions/${encodeURIComponent(id)}/images`, document.baseURI.split("#")[0]);
  const howToSend = html("p", { class: "note", hidden: true }, "Send it an image: ",
    html("code", {}, `curl${token} --data-binary @image.jpg ${address.href}`));
  const numbers = figures(["images", "images a second", "accepted lately", "unknown", "undecided", "not readable", "last image", "saved at step"]);
  const parts = [histogram(), acceptedChart(), scoresChart()];
  const [table, list, kept] = [classTable(), eventList(), keptImages(id, info)];
  const trial = tryImage(id, tools);
  const bar = actions(id, tools, (changed) => { show(changed); live.guarded(refresh); });

  function show(next) {
    current = next;
    document.title = `${next.name} · ostta`;
    setText(heading, next.name);
    if (lamp.dataset.light !== next.guard_light + next.frozen) {
      lamp.replaceChildren(html("span", {}, "Guard: "), light(next), next.frozen ? html("strong", { class: "frozen" }, "frozen: nothing is learned") : "");
    }
    lamp.dataset.light = next.guard_light + next.frozen;
    setText(about, `Method ${next.method}, score ${next.score}, identifier ${next.identifier}, profile ${next.profile}.` +
      (next.unfamiliar?.length ? ` The model was not trained on ${listed(next.unfamiliar)}: its answers for such classes mean little.` : "") +
      (next.warming_up ? " It is warming up: too few images have been seen to decide reliably." : ""));
    howToSend.hidden = next.images > 0;
    problem.hidden = !next.problem;
    setText(problem, next.problem ?? "");
    numbers.show({
      images: count(next.images), "images a second": rate(next.images_per_second), "accepted lately": percent(next.accepted_share),
      "unknown": count(next.rejected), undecided: count(next.undecided), "not readable": count(next.refused), "last image": ago(next.last_image),
      "saved at step": count(next.saved_steps),
    });
    table.show(next);
    bar.show(next);
  }

  let waiting = 0;
  /** Schedules one drawing of the charts for many images. */
  function redraw() {
    if (waiting) return;
    waiting = setTimeout(() => {
      waiting = 0;
      parts.forEach((part) => part.show(seen));
      list.show(seen.events);
      kept.show(current);
    }, PAUSE);
  }

  let asking = 0;
  /** Schedules one request for the figures of the session for many images. */
  function update() {
    asking ||= setTimeout(() => {
      asking = 0;
      live.guarded(async () => show(await api.session(id, 8)));
    }, ASK);
  }

  async function refresh() {
    await seen.replace(() => api.recent(id, MOST));
    redraw();
  }

  function take(kind, item) {
    if (!seen.add(kind, item)) return false;
    redraw();
    update();
    return true;
  }

  const live = new Live({
    address: api.eventsOf(id),
    listeners: {
      prediction: (point) => take("points", point),
      guard: (event) => take("events", event) && say(event.sentence),
      session: (event) => {
        take("events", event);
        // The server has dropped the points of the former state.
        if (event.kind === "reset" || event.kind === "replaced") live.guarded(refresh);
      },
      gap: () => live.guarded(refresh),
    },
    opened: refresh,
    poll: async ({ eventsCome }) => {
      show(await api.session(id, 8));
      if (!eventsCome) await refresh();
    },
    tell: (status, error) => {
      if (error?.status !== 404) return void tell(status, error);
      live.close();
      node.replaceChildren(missing(error).node);
    },
  });

  const resized = new ResizeObserver(redraw);
  const charts = html("div", { class: "charts" }, parts.map((part) => part.node));
  resized.observe(charts);
  const node = html("div", {},
    html("p", { class: "back" }, html("a", { href: "#/" }, "All sessions")),
    html("div", { class: "title" }, heading, lamp), about, howToSend, problem, numbers.node, bar.node,
    charts, html("div", { class: "columns" }, table.node, list.node, trial.node, kept.node));
  show(first);
  return { title: first.name, node, live, close: () => { live.close(); trial.close(); resized.disconnect(); clearTimeout(waiting); clearTimeout(asking); } };
}
