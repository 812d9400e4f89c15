// A question in a modal dialog: the rest of the page is inert, Escape cancels, and the focus returns afterwards.

import { html, newId } from "./dom.js";

/** Shows the dialog and returns whether the user confirmed. `field` is an optional label with its input. */
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
  // For an action that loses data, an accidental key press must not confirm.
  (field ? field[1] : no).focus();
  // Leaving the page cancels.
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
