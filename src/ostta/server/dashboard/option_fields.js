// Fields for the options of the chosen components, with their descriptions from the server.

import { html, sentence } from "./dom.js";

/** Creates an input for a kind of value: "true or false", "one of a, b", "a whole number", "a number", or text. */
function inputFor(option) {
  if (option.kind.startsWith("true or false")) {
    return html("select", {}, html("option", { value: "" }), ["true", "false"].map((value) => html("option", { value }, value)));
  }
  if (option.kind.startsWith("one of ")) {
    return html("select", {}, html("option", { value: "" }), option.kind.slice(7).split(", ").map((value) => html("option", { value }, value)));
  }
  const number = /^a (whole )?number/.test(option.kind) && !option.kind.includes(" or ");
  return html("input", { type: "text", inputmode: number ? "decimal" : null, autocomplete: "off", spellcheck: "false" });
}

/** Shows in the field the value that applies if it stays empty: that of the profile, or the default. */
function showUsual(input, option, profile) {
  const value = option.profiles?.[profile] ?? option.default;
  const usual = `left alone: ${Array.isArray(value) ? value.join(", ") || "none" : value}`;
  if (input.options) input.options[0].textContent = usual;
  else input.placeholder = usual;
}

/** Converts the text of a field: numbers and booleans to their types; other text stays as it is for the server to parse. */
function meant(text, kind) {
  if (kind.startsWith("true or false")) return text === "true";
  if (/^a (whole )?number/.test(kind) && text.trim() !== "" && Number.isFinite(Number(text))) return Number(text);
  return text;
}

/**
 * `options` are lists by owner: by the names of methods, scores and identifiers, and "adapter" and "guard". `chosen()` returns
 * the owners whose options apply, and `profile()` the current profile. Fields of other owners are hidden; their text is kept but not sent.
 */
export function optionFields(options, chosen, profile) {
  const node = html("div", { class: "options" });
  const inputs = new Map();

  // A score and an identifier may have the same name.
  const owners = () => [...new Set(chosen())].filter((owner) => options[owner]?.length);

  function line(owner, option) {
    const key = `${owner}/${option.name}`;
    if (!inputs.has(key)) inputs.set(key, inputFor(option));
    const input = inputs.get(key);
    showUsual(input, option, profile());
    const id = `option-${owner}-${option.name}`;
    input.id = id;
    input.setAttribute("aria-describedby", `${id}-help`);
    return html("p", { class: "field" }, html("label", { for: id }, html("code", {}, option.name)), input,
      html("small", { id: `${id}-help` }, sentence(`${option.about} (${option.kind})`)));
  }

  function draw() {
    node.replaceChildren(...owners().map((owner) => html("details", {},
      html("summary", {}, `Options of ${owner === "adapter" || owner === "guard" ? `the ${owner}` : owner}`),
      html("div", { class: "grid" }, options[owner].map((option) => line(owner, option))))));
  }

  function values() {
    const found = {};
    for (const owner of owners()) {
      for (const option of options[owner]) {
        const typed = inputs.get(`${owner}/${option.name}`).value;
        if (typed !== "") found[option.name] = meant(typed, option.kind);
      }
    }
    return found;
  }

  draw();
  return { node, draw, values };
}
