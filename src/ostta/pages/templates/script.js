// Copy buttons and the filter by method. Without this script the page is complete, and has neither.
for (const box of document.querySelectorAll(".command")) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    const code = box.querySelector("code");
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch {
      // A file opened from the disk may not write to the clipboard: the text is selected instead.
      getSelection().selectAllChildren(code);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
  box.append(button);
}
const filter = document.querySelector(".filter");
if (filter) {
  filter.hidden = false;
  filter.addEventListener("change", () => {
    const hidden = new Set([...filter.querySelectorAll("input:not(:checked)")].map((input) => input.value));
    for (const part of document.querySelectorAll("[data-method]")) part.hidden = hidden.has(part.dataset.method);
  });
}
