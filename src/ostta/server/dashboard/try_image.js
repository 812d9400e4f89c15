// Shows the answer to an image that is dropped, chosen or pasted, with its evidence. The session does not learn from it.

import * as api from "./api.js";
import { answer } from "./answer.js";
import { html } from "./dom.js";

const isImage = (item) => item.type.startsWith("image/");

export function tryImage(id, { run, complain }) {
  let shown = null;
  const result = html("div", { class: "answer", "aria-live": "polite" });
  const input = html("input", { id: "image", type: "file", accept: "image/jpeg,image/png,image/webp", change: () => input.files.length && judge(input.files[0]) });

  async function judge(file) {
    // The old answer must not be mistaken for the answer to this image.
    result.replaceChildren();
    const prediction = await run(input, () => api.predict(id, file));
    if (prediction === undefined) return;
    if (shown) URL.revokeObjectURL(shown);
    shown = URL.createObjectURL(file);
    result.replaceChildren(answer(prediction, shown, file.name));
    // Allows the same file to be chosen again.
    input.value = "";
  }

  function take(transfer) {
    const file = [...transfer.files].find(isImage) ?? transfer.files[0];
    if (file) judge(file);
    else complain(new api.Problem("This is not an image file: drop, choose or paste a JPEG, PNG or WebP image."));
  }

  const zone = html("div", { class: "drop" },
    html("label", { for: "image" }, "Drop an image on this page, paste one, or choose a file"), input);

  const section = html("section", { "aria-labelledby": "try-title" },
    html("h2", { id: "try-title" }, "Try an image"),
    html("p", { class: "note" }, "The current answer of the session. The session does not learn from this image and does not count it."),
    zone, result);
  // Dropping and pasting work anywhere on the page, because a browser would open an image that is dropped elsewhere.
  const listeners = {
    dragover: (event) => { event.preventDefault(); zone.classList.add("over"); },
    dragleave: () => zone.classList.remove("over"),
    drop: (event) => {
      event.preventDefault();
      zone.classList.remove("over");
      take(event.dataTransfer);
      section.scrollIntoView({ block: "nearest" });
    },
    paste: (event) => {
      if (event.target.closest?.("textarea, dialog, input:not([type=file])") || !event.clipboardData.files.length) return;
      take(event.clipboardData);
    },
  };
  for (const [name, listener] of Object.entries(listeners)) document.addEventListener(name, listener);
  return {
    node: section,
    close() {
      for (const [name, listener] of Object.entries(listeners)) document.removeEventListener(name, listener);
      if (shown) URL.revokeObjectURL(shown);
    },
  };
}
