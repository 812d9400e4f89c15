// Small graphics: the guard light, sparklines, bars, and the symbols in the keys of charts.

import { html, svg } from "./dom.js";
import { LIGHTS, percent } from "./words.js";

// Each light has a different shape, because not everybody can distinguish the colours.
const SHAPES = {
  off: () => svg("circle", { cx: 8, cy: 8, r: 5.5 }),
  green: () => [svg("circle", { cx: 8, cy: 8, r: 7 }), svg("path", { class: "sign", d: "M4.6 8.2l2.4 2.4 4.4-4.8" })],
  amber: () => [svg("path", { d: "M8 1l7.4 13.5H.6z" }), svg("path", { class: "sign", d: "M8 5.8v4M8 11.6v.6" })],
  red: () => [svg("rect", { x: 1, y: 1, width: 14, height: 14, rx: 2 }), svg("path", { class: "sign", d: "M5 5l6 6M11 5l-6 6" })],
};

/** The guard light: a shape and a word. */
export function light(session) {
  const name = SHAPES[session.guard_light] ? session.guard_light : "off";
  const [word, meaning] = LIGHTS[name];
  return html("span", { class: `light ${name}`, title: meaning },
    svg("svg", { viewBox: "0 0 16 16", width: 16, height: 16, "aria-hidden": "true" }, SHAPES[name]()),
    word);
}

/** Accepted share of the last windows, as a line; windows without images are gaps. */
export function sparkline(shares, width = 120, height = 28) {
  const seen = shares.filter((share) => share !== null);
  const label = seen.length ? `Accepted share: ${percent(seen[0])} at first, ${percent(seen.at(-1))} now.` : "No images yet.";
  const step = width / Math.max(1, shares.length - 1);
  const y = (share) => 2 + (1 - share) * (height - 4);
  const runs = [];
  shares.forEach((share, index) => {
    if (share === null) return;
    const point = `${(index * step).toFixed(1)},${y(share).toFixed(1)}`;
    if (index && shares[index - 1] !== null) runs.at(-1).push(point);
    else runs.push([point]);
  });
  const lines = runs.map((run) => (run.length > 1
    ? svg("polyline", { points: run.join(" ") })
    : svg("circle", { cx: run[0].split(",")[0], cy: run[0].split(",")[1], r: 1.5 })));
  return svg("svg", { class: "sparkline", role: "img", "aria-label": label, viewBox: `0 0 ${width} ${height}`, width, height },
    svg("line", { class: "grid", x1: 0, x2: width, y1: y(0.5), y2: y(0.5) }), lines);
}

/** A bar for a share between 0 and 1. It is hidden from screen readers, because the number is beside it. */
export function bar(share, kind = "known") {
  const length = Math.max(0, Math.min(1, share)) * 100;
  return svg("svg", { class: `bar ${kind}`, "aria-hidden": "true", width: "100%", height: 12 },
    svg("rect", { class: "ground", width: "100%", height: 12, rx: 3 }),
    svg("rect", { class: "length", width: `${length.toFixed(1)}%`, height: 12, rx: 3 }));
}
