// What the page knows of locks. Two sources feed it: pages of the list, which
// stand for a revision, and events, which have one each. Whatever is newer wins,
// in whichever order they arrive.

// A free lock stays in view for a moment, so that people see it go; it also keeps
// a page of the list that was under way from bringing the old holder back.
const lingers = 5000;

// most bounds what a browser is asked to keep and sort.
export const most = 20_000;
export const pageSize = 1000;

// compare orders names as the server does, by the bytes of their UTF-8: UTF-16
// units of a pair stand below U+E000 and their characters above it.
const rank = (unit) => (unit >= 0xe000 ? unit - 0x800 : unit >= 0xd800 ? unit + 0x2000 : unit);
export function compare(a, b) {
  const n = Math.min(a.length, b.length);
  for (let i = 0; i < n; i++) {
    const x = a.charCodeAt(i);
    const y = b.charCodeAt(i);
    if (x !== y) return rank(x) - rank(y);
  }
  return a.length - b.length;
}

// An event's place: its revision, and its index among that revision's events. A
// page of the list stands behind all events of its revision.
function parseID(id) {
  const [revision, index] = id.split(".").map(Number);
  return { revision, index };
}

const isNewer = (place, lock) => place.revision > lock.revision || (place.revision === lock.revision && place.index > lock.index);

export class Model {
  constructor() {
    this.clear();
  }

  clear() {
    this.locks = new Map();
    // chunks are the pages of the list: each from behind `start` up to `end`, both
    // names; the last one has no end.
    this.chunks = [{ cursor: "", start: "", end: null, fetched: -Infinity }];
    this.complete = false;
    this.membership = 0; // rises when a lock comes or goes
  }

  get capped() { return this.chunks.length * pageSize >= most && this.chunks.at(-1).closed === true; }

  // inUse leaves out the free locks that linger.
  get inUse() {
    let n = 0;
    for (const lock of this.locks.values()) if (lock.freed === null) n++;
    return n;
  }

  // apply takes one event.
  apply(kind, event, id) {
    const place = parseID(id);
    let lock = this.locks.get(event.lock);
    if (!lock) {
      if (this.beyond(event.lock) || (kind !== "granted" && kind !== "queued")) return;
      lock = this.add(event.lock);
    }
    if (!isNewer(place, lock)) return;
    lock.revision = place.revision;
    lock.index = place.index;
    changes[kind]?.(lock, event);
  }

  beyond(name) {
    const last = this.chunks.at(-1);
    return last.closed === true && compare(name, last.end) > 0;
  }

  add(name) {
    const lock = { name, lower: name.toLowerCase(), holder: null, waiters: 0, revision: -1, index: -1, freed: null };
    this.locks.set(name, lock);
    this.membership++;
    return lock;
  }

  // merge takes one page of the list, fetched for chunk.
  merge(chunk, page) {
    const place = { revision: page.revision, index: Infinity };
    const now = performance.now();
    const seen = new Set();
    for (const item of page.locks) {
      seen.add(item.lock);
      const lock = this.locks.get(item.lock) ?? this.add(item.lock);
      if (isNewer(place, lock) || place.revision === lock.revision) this.replace(lock, item, place, now);
    }
    chunk.fetched = now;
    this.resize(chunk, page);
    for (const lock of this.locks.values()) {
      if (!seen.has(lock.name) && this.covers(chunk, lock.name) && isNewer(place, lock) && lock.freed === null) {
        free(lock);
      }
    }
  }

  replace(lock, item, place, now) {
    lock.revision = place.revision;
    lock.index = place.index;
    lock.waiters = item.waiters;
    if (!item.holder) {
      free(lock);
      return;
    }
    const h = item.holder;
    const known = h.expires_in_ms !== undefined;
    lock.holder = { ref: h.ref, owner: h.owner, token: h.token, ttl: h.ttl_ms, until: known ? now + h.expires_in_ms : null, asked: true };
    lock.freed = null;
  }

  // resize keeps the chunks side by side and without gaps, whatever came or went.
  resize(chunk, page) {
    const at = this.chunks.indexOf(chunk);
    if (!page.cursor) {
      chunk.end = null;
      chunk.closed = false;
      this.chunks.length = at + 1;
      this.complete = true;
      return;
    }
    chunk.end = page.locks.at(-1).lock;
    while (at + 1 < this.chunks.length && this.chunks[at + 1].end !== null && compare(this.chunks[at + 1].end, chunk.end) <= 0) {
      this.chunks.splice(at + 1, 1);
    }
    const next = this.chunks[at + 1];
    if (next && compare(next.start, chunk.end) <= 0) return;
    if (this.chunks.length * pageSize >= most && !next) {
      chunk.closed = true;
      this.complete = true;
      return;
    }
    this.chunks.splice(at + 1, 0, { cursor: page.cursor, start: chunk.end, end: next?.start ?? null, fetched: -Infinity });
  }

  covers(chunk, name) {
    return compare(name, chunk.start) > 0 && (chunk.end === null || compare(name, chunk.end) <= 0);
  }

  chunkOf(name) { return this.chunks.find((chunk) => this.covers(chunk, name)) ?? this.chunks.at(-1); }

  // stalest is the chunk that has waited longest for a read among those given.
  stalest(chunks) {
    let oldest = null;
    for (const chunk of chunks) if (!oldest || chunk.fetched < oldest.fetched) oldest = chunk;
    return oldest;
  }

  // sweep lets go of locks that have been free for long enough.
  sweep() {
    const limit = performance.now() - lingers;
    for (const lock of this.locks.values()) {
      if (lock.freed !== null && lock.freed < limit) {
        this.locks.delete(lock.name);
        this.membership++;
      }
    }
  }
}

function free(lock) {
  lock.holder = null;
  lock.waiters = 0;
  lock.freed ??= performance.now();
}

// An end with a token ended a holder, one without a place in the queue.
function end(lock, event) {
  if (event.token === undefined) {
    lock.waiters = Math.max(0, lock.waiters - 1);
  } else if (!lock.holder || lock.holder.token <= event.token) {
    lock.holder = null;
    if (lock.waiters === 0) free(lock);
  }
}

const changes = {
  queued(lock) { lock.waiters++; },
  // A lock with waiters is granted to the first of them, and to nobody else.
  granted(lock, event) {
    lock.waiters = Math.max(0, lock.waiters - 1);
    lock.holder = { ref: event.ref, owner: event.owner, token: event.token, ttl: null, until: null, asked: false };
    lock.freed = null;
  },
  released: end, expired: end, broken: end, cancelled: end, unknown: end,
};
