// The form that creates a session, and the form that creates one from a state file.

import * as api from "./api.js";
import { html } from "./dom.js";
import { optionFields } from "./option_fields.js";

const EXAMPLE = "cat\ndog\nship";

/** Parses classes, one per line or separated by commas, with descriptions after a colon and a space: returns names, or descriptions by name. */
export function readClasses(text) {
  // Descriptions may contain commas.
  const typed = text.split("\n").flatMap((line) => (line.includes(": ") ? [line] : line.split(",")));
  const lines = typed.map((line) => line.trim()).filter(Boolean).map((line) => {
    const [name, ...behind] = line.split(": ");
    return [name.trim(), behind.join(": ").split(";").map((part) => part.trim()).filter(Boolean)];
  });
  if (!lines.some(([, descriptions]) => descriptions.length)) return lines.map(([name]) => name);
  const twice = lines.find(([name], index) => lines.findIndex(([other]) => other === name) !== index);
  if (twice) throw new api.Problem(`The class “${twice[0]}” is there twice: once is enough.`);
  return Object.fromEntries(lines);
}

const field = (id, label, input, help) => {
  input.id = id;
  if (help) input.setAttribute("aria-describedby", `${id}-help`);
  return html("p", { class: "field" }, html("label", { for: id }, label), input, help && html("small", { id: `${id}-help` }, help));
};
const choice = (names, first) => html("select", {}, html("option", { value: "" }, first), names.map((name) => html("option", { value: name }, name)));

const PARTS = ["method", "score", "identifier"];

/** Returns the profile that applies: `reference` if a component is chosen, unless another profile is chosen. */
const profileOf = (choices) => choices.profile.value || (PARTS.some((part) => choices[part].value) ? "reference" : "field");

/** Returns the method, score and identifier of the session: those that are chosen, and those of the profile for the rest. */
function parts(info, choices) {
  const own = info.profile_choices[profileOf(choices)];
  const found = Object.fromEntries(PARTS.map((part) => [part, choices[part].value || own[part]]));
  // A chosen identifier may require a certain score.
  if (!choices.score.value && choices.identifier.value) found.score = "";
  return found;
}

export function newSession(info, { run, go, say }) {
  const name = html("input", { type: "text", autocomplete: "off" });
  const classes = html("textarea", { rows: 6, required: true, placeholder: EXAMPLE, spellcheck: "false" });
  const choices = {
    profile: choice(info.profiles, "as recommended"), method: choice(info.methods, "as the profile says"),
    score: choice(info.scores, "as the profile says"), identifier: choice(info.identifiers, "as the profile says"),
  };
  const guard = html("select", {}, html("option", { value: "" }, "on"), html("option", { value: "false" }, "off"));
  const seed = html("input", { type: "number", min: 0, step: 1, placeholder: "0" });
  const owners = () => [...Object.values(parts(info, choices)), "adapter", guard.value ? "" : "guard"];
  const options = optionFields(info.options, owners, () => profileOf(choices));
  const redraw = () => {
    options.draw();
    const found = parts(info, choices);
    for (const part of PARTS) choices[part].options[0].textContent = `as the profile says${found[part] && !choices[part].value ? `: ${found[part]}` : ""}`;
  };
  for (const input of [...Object.values(choices), guard]) input.addEventListener("change", redraw);
  redraw();
  const make = html("button", { class: "main" }, "Create the session");

  const asked = () => {
    const wanted = { classes: readClasses(classes.value) };
    if (name.value.trim()) wanted.name = name.value.trim();
    for (const [key, input] of Object.entries(choices)) if (input.value) wanted[key] = input.value;
    if (guard.value) wanted.guard = false;
    if (seed.value) wanted.seed = Number(seed.value);
    const chosen = options.values();
    if (Object.keys(chosen).length) wanted.options = chosen;
    return wanted;
  };
  const arrive = (session, how) => { go(`#/sessions/${encodeURIComponent(session.id)}`); say(how); };
  const submit = (event) => {
    event.preventDefault();
    run(make, async () => arrive(await api.create(asked()), "The session was created and waits for images."));
  };

  const file = html("input", { type: "file", accept: ".ostta", required: true });
  const importName = html("input", { type: "text", autocomplete: "off" });
  const take = html("button", {}, "Import");
  const submitFile = (event) => {
    event.preventDefault();
    run(take, async () => arrive(await api.imported(file.files[0], importName.value.trim()), "The session was created from the state file."));
  };

  const node = html("div", { class: "narrow" },
    html("h1", {}, "New session"),
    html("form", { submit, "aria-label": "New session" },
      field("name", "Name (may be left empty)", name, "For example, the location of the camera."),
      field("classes", "Classes, one per line", classes, "Names may also be separated by commas. If the backbone has a text tower, descriptions may follow a name: a colon and a space, then one or more with semicolons between them. Images of anything else are answered with “unknown”."),
      html("details", {},
        html("summary", {}, "Method, score, identifier and options"),
        html("p", { class: "note" }, "By default, the profile “field” chooses them. If you choose a method, a score or an identifier, the default profile is “reference”."),
        html("div", { class: "grid" },
          field("profile", "Profile", choices.profile), field("method", "Method: what adapts", choices.method),
          field("score", "Score: how much an image looks like a known class", choices.score), field("identifier", "Identifier: how the threshold is chosen", choices.identifier),
          field("guard", "Guard: undoes harmful updates", guard), field("seed", "Seed", seed)),
        options.node),
      make),
    html("h2", {}, "From a state file"),
    html("form", { submit: submitFile, "aria-label": "From a state file" },
      html("p", { class: "note" }, "A state that was exported here, or saved by ", html("code", {}, "ostta stream"), ", continues from its last step. It must have the same backbone."),
      field("state-file", "State file", file), field("import-name", "Name (optional)", importName), take));
  return { title: "New session", node };
}
