// The main numbers at the top of a page.

import { html, setText } from "./dom.js";

/** Boxes with numbers by name; `show` updates the boxes of the names that it is given. */
export function figures(names) {
  const values = new Map(names.map((name) => [name, html("dd", {}, "–")]));
  const node = html("dl", { class: "figures" }, names.map((name) => html("div", {}, html("dt", {}, name), values.get(name))));
  return {
    node,
    show(content) {
      for (const [name, value] of Object.entries(content)) setText(values.get(name), value);
    },
  };
}
