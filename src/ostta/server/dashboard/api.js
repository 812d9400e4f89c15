// Requests to the server. A failed request throws a Problem with the message of the server.

export class Problem extends Error {
  constructor(sentence, status = 0) {
    super(sentence);
    this.status = status;
  }
}

export const LOST = "The server does not respond. The page retries automatically.";
const SECONDS = 30;

/** Called when the server requires a token. */
let onUnauthorised = () => {};
export const whenUnauthorised = (call) => { onUnauthorised = call; };

async function sentenceOf(response) {
  const text = await response.text().catch(() => "");
  try {
    const content = JSON.parse(text);
    if (typeof content.detail === "string") return content.detail;
    if (typeof content.title === "string") return content.title;
  } catch { /* not a problem of this server, for example the page of a proxy */ }
  return `The server answered ${response.status} ${response.statusText}`.trim() + ".";
}

async function request(method, path, { body, type, seconds = SECONDS } = {}) {
  let response;
  try {
    response = await fetch(path, {
      method, body, headers: type ? { "Content-Type": type } : {}, signal: AbortSignal.timeout(seconds * 1000),
    });
  } catch (error) {
    throw new Problem(error.name === "TimeoutError" ? `The server has not answered for ${seconds} seconds.` : LOST);
  }
  if (response.ok) return response;
  const problem = new Problem(await sentenceOf(response), response.status);
  if (response.status === 401 && path !== "login") onUnauthorised();
  throw problem;
}

const read = async (path, options) => (await request("GET", path, options)).json();
const send = async (method, path, content) =>
  (await request(method, path, content === undefined ? {} : { body: JSON.stringify(content), type: "application/json" }));

const at = (id) => `sessions/${encodeURIComponent(id)}`;

export const info = () => read("info");
export const sessions = async (seconds) => (await read("sessions", { seconds })).sessions;
export const session = (id, seconds) => read(at(id), { seconds });
export const recent = (id, limit) => read(`${at(id)}/recent?limit=${limit}`);
export const kept = async (id, which) => (await read(`${at(id)}/kept?which=${which}`)).images;
export const create = async (asked) => (await send("POST", "sessions", asked)).json();
export const rename = async (id, name) => (await send("PATCH", at(id), { name })).json();
export const remove = (id) => request("DELETE", at(id));
/** Performs freeze, thaw, roll-back, reset or save. */
export const act = async (id, verb) => (await send("POST", `${at(id)}/${verb}`)).json();
export const login = (token) => send("POST", "login", { token });
export const logout = () => send("POST", "logout");

/** Returns the answer to one image file, without learning from it. */
export const predict = async (id, file) =>
  (await request("POST", `${at(id)}/images?learn=false&evidence=true`, { body: file, type: file.type || "application/octet-stream" })).json();

const OCTETS = "application/octet-stream";
export const exported = async (id) => (await request("GET", `${at(id)}/state`, { seconds: 120 })).blob();
export const imported = async (file, name) =>
  (await request("POST", `sessions/import${name ? `?name=${encodeURIComponent(name)}` : ""}`, { body: file, type: OCTETS, seconds: 120 })).json();
export const replaced = async (id, file) => (await request("PUT", `${at(id)}/state`, { body: file, type: OCTETS, seconds: 120 })).json();
export const eventsOf = (id) => `${at(id)}/events`;
