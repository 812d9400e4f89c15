// Events of a session, caused by the guard or by a person, with their evidence.

import { html, sentence } from "./dom.js";
import { clock, count, figure, plainKind } from "./words.js";

const MOST = 30;

export function eventList() {
  const list = html("ol", { class: "events", reversed: true });
  const nothing = html("p", { class: "note" });
  const node = html("section", { "aria-labelledby": "events-title" }, html("h2", { id: "events-title" }, "Events"), list, nothing);
  let drawn = "";

  function item(event) {
    const numbers = Object.entries(event.evidence ?? {}).map(([name, value]) => `${plainKind(name)} ${typeof value === "number" ? figure(value) : value}`);
    return html("li", { class: event.kind },
      html("b", {}, plainKind(event.kind)), ` at step ${count(event.step)}, ${clock(event.time)}: `, sentence(event.sentence),
      numbers.length > 0 && html("small", {}, `Evidence: ${numbers.join(", ")}`));
  }

  /** Shows the last events, newest first. */
  function show(events) {
    const now = `${events.length} ${events.at(-1)?.time}`;
    if (now === drawn) return;
    drawn = now;
    list.replaceChildren(...events.slice(-MOST).reverse().map(item));
    nothing.textContent = events.length > MOST ? `${count(events.length - MOST)} earlier events are not shown.`
      : events.length ? "" : "No events yet. Actions of the guard, with their reasons, and actions by hand are listed here.";
  }

  return { node, show };
}
