// Shared parts of all charts: a figure with heading and key, a drawing that fills the available width, axes with round numbers.

import { html, newId, setText, svg } from "./dom.js";

export const LEFT = 46;
export const RIGHT = 8;
export const TOP = 10;
export const BOTTOM = 26;

/** Returns about `wanted` round numbers from `low` to `high`. */
export function ticks(low, high, wanted = 4) {
  const rough = (high - low) / wanted;
  const size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * size).find((each) => each >= rough);
  const found = [];
  for (let number = Math.ceil(low / step); number * step <= high + step * 1e-6; number += 1) found.push(Number((number * step).toPrecision(12)));
  return found;
}

/** Returns the range of an axis without 0.5 % of the values at each end, so that outliers do not stretch it. */
export function limits(values, also = []) {
  const sorted = values.filter((value) => Number.isFinite(value)).sort((one, other) => one - other);
  const rest = also.filter((value) => Number.isFinite(value));
  if (!sorted.length && !rest.length) return [0, 1];
  const out = Math.floor(sorted.length / 200);
  const inner = sorted.slice(out, sorted.length - out).concat(rest);
  const [low, high] = [Math.min(...inner), Math.max(...inner)];
  const room = high > low ? (high - low) * 0.04 : Math.abs(high) * 0.1 || 0.1;
  return [low - room, high + room];
}

export const scale = (low, high, from, to) => (value) => from + ((Math.min(Math.max(value, low), high) - low) / (high - low)) * (to - from);

const plain = (value) => String(value).replace("-", "−");

/** Lines and numbers of the vertical axis. */
export function rows(values, y, width, text = plain) {
  return values.map((value) => svg("g", {},
    svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) }),
    svg("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, text(value))));
}

/** Numbers of the horizontal axis; the first and the last stay inside the chart. */
export function columns(values, x, width, height, text = plain) {
  return values.map((value) => {
    const anchor = x(value) < LEFT + 14 ? "start" : x(value) > width - RIGHT - 18 ? "end" : "middle";
    return svg("text", { x: x(value), y: height - 8, "text-anchor": anchor }, text(value));
  });
}

/** Stripes, so that rejected images can be recognised without colours. */
export function stripes() {
  const id = newId("stripes");
  const pattern = svg("pattern", { id, width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
    svg("rect", { class: "stripe-ground", width: 5, height: 5 }), svg("rect", { class: "stripe", width: 2.5, height: 5 }));
  return [svg("defs", {}, pattern), `url(#${id})`];
}

/**
 * A chart. `draw(seen, width, height)` returns { label, content, key }, and `title` if it differs from the default.
 */
export function chart({ title, height, draw, wide = false }) {
  const place = html("div", { class: "drawing" });
  const key = html("figcaption", { class: "key" });
  const heading = html("h2", {}, title);
  const node = html("figure", { class: wide ? "chart wide" : "chart" }, heading, place, key);
  return {
    node,
    show(seen) {
      const width = Math.max(240, Math.floor(place.clientWidth));
      const drawn = draw(seen, width, height);
      place.replaceChildren(svg("svg", { role: "img", "aria-label": drawn.label, viewBox: `0 0 ${width} ${height}`, width, height }, drawn.content));
      key.replaceChildren(...drawn.key);
      setText(heading, drawn.title ?? title);
    },
  };
}

/** One entry of a key: a symbol and its meaning. */
export function entry(kind, text) {
  const signs = {
    known: () => svg("rect", { class: "known", x: 1, y: 3, width: 12, height: 10, rx: 2 }),
    unknown: () => { const [defs, fill] = stripes(); return [defs, svg("rect", { fill, x: 1, y: 3, width: 12, height: 10, rx: 2 })]; },
    "known-dot": () => svg("circle", { class: "known", cx: 7, cy: 8, r: 4 }),
    "unknown-dot": () => svg("path", { class: "unknown-cross", d: "M3.5 4.5l7 7M10.5 4.5l-7 7" }),
    "undecided-dot": () => svg("circle", { class: "undecided", cx: 7, cy: 8, r: 4 }),
    threshold: () => svg("line", { class: "threshold", x1: 7, x2: 7, y1: 0, y2: 16 }),
    "threshold-line": () => svg("line", { class: "threshold", x1: 0, x2: 14, y1: 8, y2: 8 }),
    "mean-known": () => svg("path", { class: "known", d: "M7 3l6 10H1z" }),
    "mean-unknown": () => svg("path", { class: "mean-unknown", d: "M7 3l6 10H1z" }),
    event: () => svg("line", { class: "event", x1: 7, x2: 7, y1: 0, y2: 16 }),
  };
  return html("span", {}, svg("svg", { viewBox: "0 0 14 16", width: 14, height: 16, "aria-hidden": "true" }, signs[kind]()), text);
}
