// Recent probabilities as a histogram, or recent scores with both means; with the threshold.

import { BOTTOM, LEFT, RIGHT, TOP, chart, columns, entry, limits, rows, scale, stripes, ticks } from "./chart.js";
import { svg } from "./dom.js";
import { onScale } from "./scale_of.js";
import { count, counted, figure } from "./words.js";

/** Counts accepted and rejected values in `bins` equal parts; values outside the range are in the first or the last part. */
export function binned(points, low, high, bins) {
  const found = Array.from({ length: bins }, () => [0, 0]);
  for (const { value, known } of points) {
    const place = Math.floor(((value - low) / (high - low)) * bins);
    found[Math.min(Math.max(place, 0), bins - 1)][known ? 0 : 1] += 1;
  }
  return found;
}

function draw({ points: all }, width, height) {
  const { probable, points } = onScale(all);
  const last = points.at(-1);
  if (!last) return { label: "No recent scores.", content: [], key: ["No recent images."] };
  const { line: threshold, mu_desired: desired, mu_undesired: undesired } = last;
  const [low, high] = probable ? [0, 1] : limits(points.map((point) => point.value), [threshold, desired, undesired]);
  const bins = binned(points, low, high, Math.max(12, Math.min(40, Math.floor(width / 16))));
  const most = Math.max(...bins.map(([known, unknown]) => known + unknown));
  // The means are between the bars and the numbers.
  const base = height - BOTTOM - 10;
  const x = scale(low, high, LEFT, width - RIGHT);
  const y = scale(0, most, base, TOP + 8);
  const step = (width - RIGHT - LEFT) / bins.length;
  const [defs, striped] = stripes();
  const bars = bins.map(([known, unknown], index) => {
    const left = LEFT + index * step + 0.5;
    return svg("g", {},
      unknown > 0 && svg("rect", { fill: striped, x: left, width: step - 1, y: y(unknown), height: base - y(unknown) }),
      known > 0 && svg("rect", { class: "known", x: left, width: step - 1, y: y(known + unknown), height: y(unknown) - y(known + unknown) }));
  });
  const mean = (value, kind) => Number.isFinite(value) && svg("path", { class: kind, d: `M${x(value)} ${base + 1}l6 9h-12z` });
  const line = Number.isFinite(threshold) && svg("line", { class: "threshold", x1: x(threshold), x2: x(threshold), y1: TOP - 6, y2: base });
  const accepted = points.filter((point) => point.known).length;
  const values = probable ? counted(points.length, "probability", "probabilities") : counted(points.length, "score");
  const decides = probable ? "smallest accepted probability" : "threshold";
  const means = !probable && [entry("mean-known", `mean of the desired ${figure(desired)}`), entry("mean-unknown", `mean of the undesired ${figure(undesired)}`)];
  return {
    title: probable ? "Recent probabilities" : "Recent scores",
    label: `Histogram of the last ${values}, from ${figure(low)} to ${figure(high)}: ${count(accepted)} accepted, ${count(points.length - accepted)} rejected. ` +
      (probable ? `The smallest accepted probability is ${figure(threshold)}.`
        : `Threshold ${figure(threshold)}, mean of the desired ${figure(desired)}, of the undesired ${figure(undesired)}.`),
    content: [defs, rows(ticks(0, most, 3).filter(Number.isInteger), y, width, count), columns(ticks(low, high, width < 420 ? 3 : 6), x, width, height), bars,
      !probable && mean(desired, "known"), !probable && mean(undesired, "mean-unknown"), line],
    key: [
      entry("known", `accepted ${count(accepted)}`), entry("unknown", `rejected ${count(points.length - accepted)}`),
      entry("threshold", Number.isFinite(threshold) ? `${decides} ${figure(threshold)}` : `no single ${decides}`), ...(means || []),
    ],
  };
}

export const histogram = () => chart({ title: "Recent scores", height: 250, draw });
