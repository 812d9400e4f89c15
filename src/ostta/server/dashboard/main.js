// The frame of all pages: routing, messages, the state of the connection, signing in.

import * as api from "./api.js";
import { html, sentence } from "./dom.js";
import { newSession } from "./new_session.js";
import { overview } from "./overview.js";
import { missing, session } from "./session.js";
import { signIn } from "./sign_in.js";
import { count } from "./words.js";

const CONNECTION = {
  live: "Live",
  polling: "Polling every 2 seconds, because no events arrive",
  lost: "Connection lost, retrying",
  refused: "The server refuses requests, retrying",
};
const SIGNED_IN = "ostta-signed-in";

const byId = (id) => document.getElementById(id);
const main = byId("main");
let page = null;
let messageTimer = 0;

/** Shows a sentence that screen readers announce, until the next one or for 12 seconds. */
function say(text) {
  byId("message").replaceChildren(text ? html("p", {}, sentence(text)) : "");
  clearTimeout(messageTimer);
  if (text) messageTimer = setTimeout(() => say(""), 12000);
}

/** Shows the message of the server until it is closed or the page changes. */
function complain(error) {
  const box = byId("problem");
  if (!error) return box.replaceChildren();
  if (!(error instanceof api.Problem)) throw error;
  box.replaceChildren(
    html("p", {}, sentence(error.message)),
    html("button", { type: "button", class: "quiet", click: () => complain(null) }, "Close this message"),
  );
}

/** Shows the state of the connection if it has changed; `error` is the message of a server that refuses requests. */
function tell(status, error) {
  const before = byId("connection").className;
  if (status === before) return;
  byId("connection").className = status;
  byId("connection").textContent = CONNECTION[status];
  if (status === "refused") complain(error);
  if (before === "refused") complain(null);
  if (before === "lost") say("The connection is back.");
}

/** Shows no state of a connection, because the page has none. */
function quiet() {
  byId("connection").className = byId("connection").textContent = "";
}

/** Runs the action of a button, which is disabled meanwhile. If it fails, the message is shown and the result is undefined. */
async function run(button, action) {
  complain(null);
  button.setAttribute("aria-disabled", "true");
  try {
    return await action();
  } catch (error) {
    return void complain(error);
  } finally {
    button.removeAttribute("aria-disabled");
  }
}

const tools = { say, complain, tell, run, go: (address) => { location.hash = address; } };

function place(next, moveFocus) {
  page?.close?.();
  page = next;
  main.replaceChildren(next.node);
  // A page without automatic requests has no connection to show.
  if (!next.live) quiet();
  document.title = `${next.title} · ostta`;
  if (moveFocus) {
    const heading = main.querySelector("h1");
    heading.tabIndex = -1;
    heading.focus();
    window.scrollTo(0, 0);
  }
}

let drawing = 0;

/** Shows the page of the current address. */
async function route(moveFocus = true, again = false) {
  const [, word, id] = (location.hash || "#/").split("/");
  if (!again) complain(null);
  for (const link of document.querySelectorAll("nav a")) {
    const here = link.getAttribute("href") === `#/${word ?? ""}`;
    if (here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  drawing += 1;
  const mine = drawing;
  try {
    const info = await about();
    const next = word === "sessions" && id ? session(await api.session(id), info, tools) : word === "new" ? newSession(info, tools) : overview(tools);
    if (mine !== drawing) return void next.close?.();
    complain(null);
    place(next, moveFocus);
  } catch (error) {
    if (mine !== drawing) return;
    if (error.status === 404) return void place(missing(error), moveFocus);
    if (!again) complain(error);
    if (error.status !== 401) {
      tell(error.status ? "refused" : "lost", error);
      setTimeout(() => mine === drawing && route(moveFocus, true), 3000);
    }
  }
}

/** Information about the server; requested once, because it does not change while the server runs. */
let known = null;
async function about() {
  if (known === null) {
    known = await api.info();
    byId("about-server").textContent =
      `ostta ${known.version}, backbone ${known.backbone} on ${known.device}, images of ${known.image_size} × ${known.image_size}` +
      (known.save_every ? `. Sessions are saved every ${count(known.save_every)} images.` : ".");
    byId("sign-out").hidden = localStorage.getItem(SIGNED_IN) === null;
  }
  return known;
}

api.whenUnauthorised(() => {
  known = null;
  drawing += 1;
  localStorage.removeItem(SIGNED_IN);
  byId("sign-out").hidden = true;
  quiet();
  if (page?.title === "Sign in") return;
  place(signIn({ ...tools, signedIn: () => { localStorage.setItem(SIGNED_IN, "yes"); say("You are signed in."); route(); } }), true);
  complain(null);
});

byId("sign-out").addEventListener("click", (event) => run(event.currentTarget, async () => {
  await api.logout();
  known = null;
  await route();
}));
// The address of "Skip to the content" is not a page.
document.querySelector(".skip-link").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
window.addEventListener("hashchange", () => route());
route(false);
