// The overview of all sessions.

import * as api from "./api.js";
import { html, setText } from "./dom.js";
import { Live } from "./live.js";
import { light, sparkline } from "./marks.js";
import { figures } from "./figures.js";
import { ago, count, counted, percent, rate } from "./words.js";

const URGENCY = { red: 0, amber: 1, green: 2, off: 2 };
const urgency = (session) => (session.problem ? 0 : URGENCY[session.guard_light] ?? 2);
const byName = (one, other) => one.name.localeCompare(other.name, "en", { numeric: true });
const ORDERS = {
  attention: ["what needs attention first", (one, other) => urgency(one) - urgency(other) || byName(one, other)],
  name: ["name", byName],
  newest: ["newest first", (one, other) => other.created - one.created],
  busiest: ["most images a second first", (one, other) => other.images_per_second - one.images_per_second || byName(one, other)],
};
const COLUMNS = [
  ["session", "name"], ["guard", "guard"], ["accepted lately", "accepted"],
  ["images a second", "rate"], ["images", "images"], ["last image", "last"], ["method", "method"],
];

/** The cells of one session. They are reused, so that a link keeps its focus while figures change. */
class Row {
  constructor(id) {
    this.link = html("a", { href: `#/sessions/${encodeURIComponent(id)}` });
    this.note = html("small");
    this.share = html("span");
    this.course = html("span");
    this.cells = Object.fromEntries(COLUMNS.slice(1).map(([, key]) => [key, html("td", { class: key })]));
    this.cells.accepted.append(html("div", {}, this.course, this.share));
    this.node = html("tr", {}, html("th", { scope: "row", class: "name" }, this.link, this.note), Object.values(this.cells));
  }

  show(session) {
    const { cells } = this;
    setText(this.link, session.name || session.id);
    setText(this.note, session.problem ?? [session.frozen && "frozen", session.warming_up && "warming up"].filter(Boolean).join(", "));
    this.note.className = session.problem ? "bad" : "";
    if (this.light !== session.guard_light) cells.guard.replaceChildren(light(session));
    this.light = session.guard_light;
    setText(this.share, percent(session.accepted_share));
    const course = JSON.stringify(session.sparkline);
    if (this.drawn !== course) this.course.replaceChildren(sparkline(session.sparkline));
    this.drawn = course;
    setText(cells.rate, rate(session.images_per_second));
    setText(cells.images, count(session.images));
    setText(cells.last, ago(session.last_image));
    setText(cells.method, `${session.method}, ${session.score}, ${session.identifier}`);
  }
}

export function overview({ tell }) {
  const rows = new Map();
  let sessions = null;
  const totals = figures(["sessions", "images a second", "accepted lately", "need attention"]);
  const body = html("tbody");
  const table = html("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Sessions", hidden: true },
    html("table", { class: "sessions" },
      html("caption", {}, "All sessions. Select a name to open the session."),
      html("thead", {}, html("tr", {}, COLUMNS.map(([name, key]) => html("th", { scope: "col", class: key }, name)))),
      body));
  const nothing = html("p", { class: "lead" });
  const first = html("p", { hidden: true }, html("a", { class: "button main", href: "#/new" }, "Make the first session"));
  const filter = html("input", { id: "filter", type: "search", input: () => draw() });
  const order = html("select", { id: "order", change: () => draw() },
    Object.entries(ORDERS).map(([value, [name]]) => html("option", { value }, name)));
  const controls = html("form", { class: "controls", role: "search", submit: (event) => event.preventDefault(), hidden: true },
    html("p", { class: "field" }, html("label", { for: "filter" }, "Name or class contains"), filter),
    html("p", { class: "field" }, html("label", { for: "order" }, "Order"), order));

  function draw() {
    if (sessions === null) return;
    const text = filter.value.trim().toLowerCase();
    const fits = (session) => !text || [session.name, ...session.classes].some((each) => each.toLowerCase().includes(text));
    const shown = sessions.filter(fits).sort(ORDERS[order.value][1]);
    for (const id of rows.keys()) if (!sessions.some((session) => session.id === id)) rows.delete(id);
    const nodes = shown.map((session) => {
      if (!rows.has(session.id)) rows.set(session.id, new Row(session.id));
      rows.get(session.id).show(session);
      return rows.get(session.id).node;
    });
    // Moving a row removes the focus from its link, so rows move only if the order has changed.
    if (nodes.length !== body.children.length || nodes.some((node, index) => node !== body.children[index])) {
      const focused = document.activeElement;
      body.replaceChildren(...nodes);
      if (body.contains(focused)) focused.focus();
    }
    const judged = sessions.filter((session) => session.accepted_share !== null);
    // Weighted by images per second; if no images arrive at this time, all sessions have the same weight.
    const weight = (session) => session.images_per_second + 1e-6;
    const weights = judged.reduce((sum, session) => sum + weight(session), 0);
    const share = judged.reduce((sum, session) => sum + session.accepted_share * weight(session), 0);
    const attention = sessions.filter((session) => urgency(session) < 2).length;
    totals.show({
      sessions: count(sessions.length),
      "images a second": rate(sessions.reduce((sum, session) => sum + session.images_per_second, 0)),
      "accepted lately": judged.length ? percent(share / weights) : "–",
      "need attention": count(attention),
    });
    controls.hidden = !sessions.length;
    first.hidden = sessions.length > 0;
    table.hidden = !shown.length;
    setText(nothing, !sessions.length
      ? "There are no sessions yet. A session is a stream of images, such as those of a camera, with its own classes."
      : shown.length ? "" : `None of ${counted(sessions.length, "session")} has this in its name or classes.`);
  }

  const take = (list) => { sessions = list; draw(); };
  const live = new Live({
    address: "events",
    listeners: { sessions: take },
    poll: async () => take(await api.sessions(8)),
    tell,
  });
  const node = html("div", {},
    html("h1", {}, "Sessions"), totals.node, controls, nothing, first, table);
  return { title: "Sessions", node, live, close: () => live.close() };
}
