// An answer with its evidence: the class or "unknown", the best classes, and the similarity to stored images.

import { html } from "./dom.js";
import { bar } from "./marks.js";
import { figure, plainKind } from "./words.js";

const MOST_CLASSES = 5;
// Evidence that is shown as bars, not in the list of numbers.
const LIKENESS = { known: "known", unknown: "unknown" };

function bars(caption, rows, kinds) {
  return html("table", { class: "bars" }, html("caption", {}, caption),
    html("tbody", {}, rows.map(([name, value, share], index) => html("tr", {},
      html("th", { scope: "row" }, name), html("td", { class: "course" }, bar(share, kinds(index))), html("td", {}, figure(value))))));
}

/** The best classes; the length of a bar is the difference between its score and the lowest score. */
function bestClasses(scores, known) {
  const sorted = Object.entries(scores).sort((one, other) => other[1] - one[1]);
  const [highest, lowest] = [sorted[0][1], sorted.at(-1)[1]];
  const share = (value) => (highest > lowest ? (value - lowest) / (highest - lowest) : 1);
  const caption = sorted.length > MOST_CLASSES ? `Best ${MOST_CLASSES} of ${sorted.length} classes` : "Classes, the best first";
  return bars(caption, sorted.slice(0, MOST_CLASSES).map(([name, value]) => [name, value, share(value)]), (index) => (index || !known ? "plain" : "known"));
}

function likeness(evidence) {
  const rows = Object.entries(LIKENESS).filter(([key]) => Number.isFinite(evidence[key])).map(([key, name]) => [name, evidence[key], evidence[key], key]);
  if (!rows.length) return html("p", { class: "note" }, "This score stores no images to compare with, or too few so far, so no similarity is shown.");
  return bars("Similarity to the nearest known and unknown images: 1 means identical, 0 or less means not similar", rows, (index) => rows[index][3]);
}

function verdict(prediction) {
  const { score, threshold, known } = prediction;
  if (Number.isFinite(prediction.probability)) {
    const guess = `The probability that it is known is ${prediction.probability.toFixed(2)}: ${known ? "accepted" : "rejected"}.`;
    return guess + (prediction.undecided ? " This is a provisional answer: the session has seen too few images to decide." : "");
  }
  const sure = String(prediction.verdict).startsWith("reliable") ? "far from" : "near";
  const compared = Number.isFinite(threshold) ? `Score ${figure(score)}, threshold ${figure(threshold)}: ${known ? "accepted" : "rejected"}, ${sure} the line.`
    : `Score ${figure(score)}: ${known ? "accepted" : "rejected"}.`;
  return compared + (prediction.warming_up ? " The session is warming up: the threshold is too young to be trusted." : "");
}

/** The answer in a few words: a class or "unknown", marked as a guess if undecided, with the probability if there is one. */
export function said({ known, label, undecided, probability }) {
  const guess = known ? label : "unknown";
  return (undecided ? `undecided (${guess}?)` : guess) + (Number.isFinite(probability) ? `, ${probability.toFixed(2)}` : "");
}

export function answer(prediction, address, fileName) {
  const { known, undecided, best, reason, evidence = {}, class_scores: scores } = prediction;
  const picture = html("img", { src: address, alt: `The image ${fileName || "that was pasted"}` });
  if (!prediction.verdict) {
    return html("div", { class: "judged" }, picture, html("p", { class: "said" }, `Nothing could be seen in this image. ${reason ?? ""}`));
  }
  const others = Object.entries(evidence).filter(([key]) => !(key in LIKENESS));
  return html("div", { class: "judged" }, picture,
    html("div", {},
      html("p", { class: `said ${undecided ? "" : known ? "known" : "unknown"}` }, said(prediction)),
      !known && best && html("p", {}, "The class that fits best is ", html("b", {}, best), ", but not well enough."),
      html("p", {}, verdict(prediction)),
      prediction.explanation && html("p", {}, prediction.explanation),
      scores && bestClasses(scores, known),
      !prediction.explanation && likeness(evidence),
      others.length > 0 && html("p", { class: "note" }, `Other evidence: ${others.map(([key, value]) => `${plainKind(key)} ${figure(value)}`).join(", ")}.`)));
}
