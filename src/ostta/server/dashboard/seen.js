// What a page has seen of a session: the last points and events, each of them once.

export const MOST = 500;

// A reset begins to count steps anew, and a clock may be set back: only both together name an item.
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

  /** Adds a point or an event; false where it is there already. */
  add(kind, item) {
    this.#arrived?.push([kind, item]);
    return this.#rings[kind].add(item);
  }

  /** Puts what the server remembers in the place of all, and behind it what came in while it was asked. */
  replace(fetched) {
    // Who asks while an answer is under way gets that one.
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
