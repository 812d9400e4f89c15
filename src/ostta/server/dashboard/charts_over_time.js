// Accepted and rejected images over time, and their probabilities or scores with the threshold.

import { BOTTOM, LEFT, RIGHT, TOP, chart, columns, entry, limits, rows, scale, stripes, ticks } from "./chart.js";
import { svg } from "./dom.js";
import { onScale } from "./scale_of.js";
import { clock, count, counted, percent, plainKind } from "./words.js";

const NOTHING = { label: "No recent images.", content: [], key: ["No recent images."] };
const steps = (points, width, height) => {
  const x = scale(0, Math.max(1, points.length - 1), LEFT, width - RIGHT);
  const places = width < 420 ? [0, points.length - 1] : [0, Math.floor((points.length - 1) / 2), points.length - 1];
  return columns([...new Set(places)], x, width, height, (place) => `step ${count(points[place].step)}`);
};
const when = (points) => `From ${clock(points[0].time)} to ${clock(points.at(-1).time)}.`;

/** Groups points by step, so that a bar does not change while new points arrive; the first and the last may be shorter. */
function cut(points, size) {
  const runs = [];
  const part = (point) => Math.floor((point.step - 1) / size);
  points.forEach((point, index) => {
    if (index && part(point) === part(points[index - 1])) runs.at(-1).push(point);
    else runs.push([point]);
  });
  return runs;
}

function drawAccepted({ points }, width, height) {
  if (!points.length) return NOTHING;
  const size = [10, 20, 50].find((each) => each * 25 >= points.length) ?? 100;
  const base = height - BOTTOM;
  const y = scale(0, 1, base, TOP);
  const [defs, striped] = stripes();
  let before = 0;
  const bars = cut(points, size).map((part) => {
    const share = part.filter((point) => point.known).length / part.length;
    const left = LEFT + (before / points.length) * (width - LEFT - RIGHT) + 0.5;
    before += part.length;
    const wide = Math.max(1, (part.length / points.length) * (width - LEFT - RIGHT) - 1);
    return svg("g", {},
      svg("rect", { class: "known", x: left, width: wide, y: y(share), height: base - y(share) }),
      svg("rect", { fill: striped, x: left, width: wide, y: TOP, height: y(share) - TOP }));
  });
  const share = points.filter((point) => point.known).length / points.length;
  return {
    label: `Shares of accepted and rejected images over the last ${counted(points.length, "image")}, ${size} to a bar: ${percent(share)} accepted in all. ${when(points)}`,
    content: [defs, bars, rows([0, 0.5, 1], y, width, percent), steps(points, width, height)],
    key: [entry("known", `accepted ${percent(share)}`), entry("unknown", `rejected ${percent(1 - share)}`), `${size} images to a bar.`],
  };
}

function drawScores({ points: all, events }, width, height) {
  const { probable, points } = onScale(all);
  if (!points.length) return NOTHING;
  const [low, high] = probable ? [0, 1] : limits(points.map((point) => point.value), points.map((point) => point.line).filter((value) => value !== null));
  const x = scale(0, Math.max(1, points.length - 1), LEFT, width - RIGHT);
  const y = scale(low, high, height - BOTTOM, TOP);
  const dots = points.map((point, index) => (point.known || point.undecided
    ? svg("circle", { class: point.undecided ? "undecided" : "known", cx: x(index).toFixed(1), cy: y(point.value).toFixed(1), r: 2.4 })
    : svg("path", { class: "unknown-cross", d: `M${(x(index) - 2).toFixed(1)} ${(y(point.value) - 2).toFixed(1)}l4 4m0 -4l-4 4` })));
  const lines = [];
  points.forEach((point, index) => {
    if (!Number.isFinite(point.line)) return;
    const corner = `${x(index).toFixed(1)},${y(point.line).toFixed(1)}`;
    if (index && Number.isFinite(points[index - 1].line)) lines.at(-1).push(corner);
    else lines.push([corner]);
  });
  const shown = events.filter((event) => event.time >= points[0].time);
  const marks = shown.map((event) => {
    const place = points.findIndex((point) => point.time >= event.time);
    const at = x(place < 0 ? points.length - 1 : place);
    return svg("line", { class: "event", x1: at, x2: at, y1: TOP, y2: height - BOTTOM }, svg("title", {}, `${plainKind(event.kind)}, step ${event.step}`));
  });
  const undecided = points.some((point) => point.undecided);
  return {
    title: probable ? "Probabilities over time" : "Scores over time",
    label: `${probable ? "Probabilities that the image is known," : "Scores"} of the last ${counted(points.length, "image")} in the order they came, with the threshold and ${counted(shown.length, "event")}. ${when(points)}`,
    content: [rows(ticks(low, high, 4), y, width), marks, dots, lines.map((run) => svg("polyline", { class: "threshold", points: run.join(" ") })), steps(points, width, height)],
    key: [entry("known-dot", "accepted"), entry("unknown-dot", "rejected"), ...(undecided ? [entry("undecided-dot", "undecided")] : []),
      entry("threshold-line", probable ? "smallest accepted probability" : "threshold"), entry("event", "event"), when(points)],
  };
}

export const acceptedChart = () => chart({ title: "Accepted and rejected over time", height: 250, draw: drawAccepted });
export const scoresChart = () => chart({ title: "Scores over time", height: 240, draw: drawScores, wide: true });
