// The few numbers at the head of a page.

import { html, setText } from "./dom.js";

/** Boxes of numbers by their names; `show` takes the values by name and leaves out what has none. */
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
