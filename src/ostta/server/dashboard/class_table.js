// The number of images of each class.

import { html } from "./dom.js";
import { bar } from "./marks.js";
import { count, counted, percent } from "./words.js";

// Maximum number of classes in the table; the others are summed up.
const MOST = 40;

export function classTable() {
  const body = html("tbody");
  const caption = html("caption");
  const node = html("section", { "aria-labelledby": "answers" },
    html("h2", { id: "answers" }, "Answers"),
    html("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Answers" },
      html("table", { class: "classes" }, caption,
        html("thead", {}, html("tr", {}, html("th", { scope: "col" }, "answer"), html("td", { class: "course" }),
          html("th", { scope: "col" }, "images"), html("th", { scope: "col" }, "share"))),
        body)));
  let drawn = "";

  /** Shows the classes by number of images; classes without images keep their order. */
  function show(session) {
    const counts = session.classes.map((name) => [name, session.class_counts[name] ?? 0]).sort((one, other) => other[1] - one[1]);
    const now = JSON.stringify([counts, session.rejected]);
    if (now === drawn) return;
    drawn = now;
    const rows = counts.slice(0, MOST).map(([name, number]) => [name, number, "known"]);
    const rest = counts.slice(MOST);
    if (rest.length) rows.push([counted(rest.length, "more class", "more classes"), rest.reduce((sum, [, number]) => sum + number, 0), "known"]);
    rows.push(["unknown", session.rejected, "unknown"]);
    const all = rows.reduce((sum, [, number]) => sum + number, 0);
    const most = Math.max(1, ...rows.map(([, number]) => number));
    caption.textContent = `${counted(session.classes.length, "class", "classes")}, ${counted(all, "answer")}.`;
    body.replaceChildren(...rows.map(([name, number, kind]) => html("tr", { class: kind },
      html("th", { scope: "row" }, name), html("td", { class: "course" }, bar(number / most, kind)),
      html("td", {}, count(number)), html("td", {}, all ? percent(number / all) : "–"))));
  }

  return { node, show };
}
