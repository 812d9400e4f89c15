// Buttons for the actions on a session, with confirmation dialogs for actions that lose data.

import * as api from "./api.js";
import { ask } from "./ask.js";
import { html, setText } from "./dom.js";
import { counted } from "./words.js";

const fileName = (name) => `${name.replace(/[^\p{L}\p{N}._-]+/gu, "-").replace(/^[-.]+/, "") || "session"}.ostta`;

/** Hands a file to the browser as a download. */
function download(blob, name) {
  const address = URL.createObjectURL(blob);
  html("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60000);
}

/** The buttons; `changed` is called with the session after each change. */
export function actions(id, { run, say, go }, changed) {
  let session = null;

  const act = async (verb, otherwise) => {
    const { event, session: next } = await api.act(id, verb);
    changed(next);
    say(event?.sentence || otherwise);
  };
  const button = (name, action, kind = "") => {
    const made = html("button", {
      type: "button", class: kind,
      click: () => session !== null && made.getAttribute("aria-disabled") === null && run(made, action),
    }, name);
    return made;
  };

  const freeze = button("Freeze", () => (session.frozen ? act("thaw", "It may learn again.") : act("freeze", "The session no longer learns.")));
  const rollBack = button("Roll back", async () => {
    const said = `“${session.name}” returns to the last state that the guard kept, and forgets what it has learned since then. This cannot be undone; export the state first if you may need it again.`;
    if (await ask({ title: "Roll back this session?", said, yes: "Roll back", danger: true })) await act("roll-back", "The session was rolled back to the last snapshot of the guard.");
  });
  const reset = button("Reset", async () => {
    const said = `“${session.name}” forgets all it has learned from ${counted(session.images, "image")}. This cannot be taken back; export the state first if you may want it again.`;
    if (await ask({ title: "Reset this session?", said, yes: "Reset", danger: true })) await act("reset", "The session was reset.");
  });
  const save = button("Save", () => act("save", "The session is saved."));
  const exporting = button("Export", async () => {
    download(await api.exported(id), fileName(session.name));
    say("The state file was downloaded.");
  });
  const replace = button("Replace state", async () => {
    const file = html("input", { type: "file", accept: ".ostta", required: true });
    const said = "A state file of the same backbone replaces the learned state, the classes and the options of this session.";
    if (await ask({ title: "Replace the state?", said, yes: "Replace", danger: true, field: ["State file", file] })) {
      const next = await api.replaced(id, file.files[0]);
      changed(next.session ?? next);
      say("The state is replaced.");
    }
  });
  const rename = button("Rename", async () => {
    const name = html("input", { type: "text", value: session.name, required: true, autocomplete: "off" });
    if (await ask({ title: "Rename this session", said: "The address stays the same.", yes: "Rename", field: ["New name", name] })) {
      changed(await api.rename(id, name.value));
      say("The session was renamed.");
    }
  });
  const remove = button("Delete", async () => {
    const said = `“${session.name}” and its saved state are deleted. This cannot be taken back.`;
    if (await ask({ title: "Delete this session?", said, yes: "Delete", danger: true })) {
      await api.remove(id);
      go("#/");
      say(`“${session.name}” is deleted.`);
    }
  }, "danger");

  const node = html("div", { class: "actions", role: "group", "aria-label": "Actions for this session" },
    freeze, rollBack, reset, save, exporting, replace, rename, remove);
  return {
    node,
    show(next) {
      session = next;
      setText(freeze, next.frozen ? "Thaw" : "Freeze");
    },
  };
}
