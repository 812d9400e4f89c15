// News from the server: server-sent events where they come through, polling where they do not.
// A slow poll goes on beside the events: it notices a server that is gone, and a proxy that holds events back.

import { Problem } from "./api.js";

const FAST = 2000;
const SLOW = 10000;

export class Live {
  /**
   * `address` is of the events; `listeners` are functions of an event's data by its name; `opened` is awaited when events begin
   * to come, and `poll` asks for the state of things; `tell` hears "live", "polling" or "lost".
   */
  constructor({ address, listeners, opened = async () => {}, poll, tell }) {
    Object.assign(this, { address, listeners, opened, poll, tell });
    this.closed = false;
    this.visible = () => (document.hidden ? this.pause() : this.start());
    this.network = () => this.running && this.next(0);
    document.addEventListener("visibilitychange", this.visible);
    for (const name of ["online", "offline"]) window.addEventListener(name, this.network);
    this.start();
  }

  start() {
    if (this.closed || this.running) return;
    this.running = true;
    this.connect();
    this.next(0);
  }

  /** A page that nobody sees asks for nothing, and leaves its connection to others: browsers have six a server. */
  pause() {
    this.running = false;
    this.source?.close();
    clearTimeout(this.timer);
  }

  close() {
    this.closed = true;
    this.pause();
    document.removeEventListener("visibilitychange", this.visible);
    for (const name of ["online", "offline"]) window.removeEventListener(name, this.network);
  }

  connect() {
    this.source?.close();
    const source = new EventSource(this.address);
    this.source = source;
    source.addEventListener("open", () => this.guarded(this.opened));
    for (const [name, listener] of Object.entries(this.listeners)) {
      source.addEventListener(name, (event) => this.running && listener(JSON.parse(event.data)));
    }
    source.addEventListener("error", () => this.running && this.next(FAST / 4));
  }

  get eventsCome() {
    return this.source?.readyState === EventSource.OPEN;
  }

  next(wait) {
    clearTimeout(this.timer);
    this.timer = setTimeout(async () => {
      await this.guarded(this.poll);
      if (!this.running) return;
      if (this.source.readyState === EventSource.CLOSED) this.connect();
      this.next(this.eventsCome ? SLOW : FAST);
    }, wait);
  }

  async guarded(call) {
    try {
      await call({ eventsCome: this.eventsCome });
      if (this.running) this.tell(this.eventsCome ? "live" : "polling");
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      if (!this.running) return;
      // An answer that refuses is still an answer: the page that asked says what it was.
      if (error.status) return void this.tell("refused", error);
      // A connection to a machine that is gone can look open for hours: a new one is made.
      this.source.close();
      this.tell("lost", error);
    }
  }
}
