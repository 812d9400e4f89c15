// Elements are made by calls, never from text with markup: what a server or a person wrote stays text.

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

/** An HTML element. An attribute whose value is a function is a listener for the event of that name. */
export function html(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** An SVG element. */
export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

/** Puts `content` in the place of what `node` holds; nothing happens where the text is the same already. */
export function setText(node, content) {
  if (node.textContent !== content) node.textContent = content;
}

/** The nodes of a sentence in which `backquotes` mark what is typed. */
export function sentence(text) {
  return String(text).split("`").map((part, index) => (index % 2 ? html("code", {}, part) : part));
}

let made = 0;

/** A name that no other element has, for labels and descriptions. */
export function newId(word) {
  made += 1;
  return `${word}-${made}`;
}
