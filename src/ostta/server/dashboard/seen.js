// The last points and events of a session, without duplicates.

export const MOST = 500;

// A reset restarts the count of steps, and a clock may be set back, so an item is identified by both.
const keyOf = (item) => `${item.step} ${item.time} ${item.kind ?? ""}`;

class Ring {
  constructor() {
    this.items = [];
    this.keys = new Set();
  }

  add(item) {
    const key = keyOf(item);
    if (this.keys.has(key)) return false;
    this.keys.add(key);
    this.items.push(item);
    if (this.items.length > MOST) this.keys.delete(keyOf(this.items.shift()));
    return true;
  }
}

export class Seen {
  #rings = { points: new Ring(), events: new Ring() };
  #arrived = null;
  #replacing = null;

  get points() { return this.#rings.points.items; }

  get events() { return this.#rings.events.items; }

  /** Adds a point or an event; returns false if it is already there. */
  add(kind, item) {
    this.#arrived?.push([kind, item]);
    return this.#rings[kind].add(item);
  }

  /** Replaces everything by the history that the server returns, followed by what arrived during the request. */
  replace(fetched) {
    // A call during a request shares its result.
    this.#replacing ??= this.#replaced(fetched).finally(() => { this.#replacing = this.#arrived = null; });
    return this.#replacing;
  }

  async #replaced(fetched) {
    this.#arrived = [];
    const content = await fetched();
    this.#rings = { points: new Ring(), events: new Ring() };
    for (const kind of ["points", "events"]) content[kind].forEach((item) => this.#rings[kind].add(item));
    this.#arrived.forEach(([kind, item]) => this.#rings[kind].add(item));
  }
}
