// A question in a dialog of the browser's own: the rest of the page waits, Escape says no, and the focus goes back afterwards.

import { html, newId } from "./dom.js";

/** Asks, and says whether the answer was yes. `field` is a label with its input, if one is to be filled in. */
export function ask({ title, said, yes, danger = false, field = null }) {
  const [titleId, saidId, fieldId] = [newId("title"), newId("said"), newId("field")];
  if (field) field[1].id = fieldId;
  const dialog = html("dialog", { "aria-labelledby": titleId, "aria-describedby": saidId });
  const no = html("button", { type: "button", click: () => dialog.close("") }, "Cancel");
  dialog.append(html("form", { method: "dialog" },
    html("h2", { id: titleId }, title),
    html("p", { id: saidId }, said),
    field && html("p", { class: "field" }, html("label", { for: fieldId }, field[0]), field[1]),
    html("p", { class: "buttons" }, html("button", { value: "yes", class: danger ? "danger" : "main" }, yes), no)));
  document.body.append(dialog);
  dialog.showModal();
  // Where something would be lost, a key press too many does nothing.
  (field ? field[1] : no).focus();
  // Whoever goes to another page has not said yes.
  const leave = () => dialog.close("");
  window.addEventListener("hashchange", leave);
  return new Promise((answered) => {
    dialog.addEventListener("close", () => {
      window.removeEventListener("hashchange", leave);
      dialog.remove();
      answered(dialog.returnValue === "yes");
    });
  });
}
