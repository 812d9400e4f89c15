// Elements are created by calls, never from markup, so that text of servers and users is never interpreted.

const SVG = "http://www.w3.org/2000/svg";

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(name, value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** Creates an HTML element. An attribute whose value is a function is a listener for the event of that name. */
export function html(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** Creates an SVG element. */
export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

/** Replaces the content of `node` by `content`, unless the text is the same already. */
export function setText(node, content) {
  if (node.textContent !== content) node.textContent = content;
}

/** Returns the nodes of a sentence in which `backquotes` mark code. */
export function sentence(text) {
  return String(text).split("`").map((part, index) => (index % 2 ? html("code", {}, part) : part));
}

let made = 0;

/** Returns a unique id, for labels and descriptions. */
export function newId(word) {
  made += 1;
  return `${word}-${made}`;
}
