// Updates from the server: server-sent events if they arrive, otherwise polling.
// A slow poll runs beside the events, to detect a server that is gone and a proxy that buffers events.

import { Problem } from "./api.js";

const FAST = 2000;
const SLOW = 10000;

export class Live {
  /**
   * `address` is that of the events; `listeners` are functions of the data of an event, by event name; `opened` is awaited
   * when the connection opens; `poll` requests the current state; `tell` is called with "live", "polling", "refused" or "lost".
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

  /** A hidden page requests nothing and releases its connection, because browsers open at most six per server. */
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
      // A refused request shows that the server can be reached; the page shows the message.
      if (error.status) return void this.tell("refused", error);
      // A connection to a machine that is gone can look open for hours, so a new one is opened.
      this.source.close();
      this.tell("lost", error);
    }
  }
}
