// Locks of fenced for Node, with nothing but the standard library: copy this file.
//
// The lease is for efficiency: ask check() before each step, and stop when it throws.
// The fence is for correctness: send token with every write, and let the store compare it.
'use strict';

const { randomUUID } = require('node:crypto');
const { setTimeout: sleep } = require('node:timers/promises');

const SERVER = process.env.FENCED_ADDR || 'http://127.0.0.1:7420';
const API_KEY = process.env.FENCED_API_KEY;

// A service said no. code is the stable name of the reason: branch on it.
class Refused extends Error {
  constructor(problem) {
    super(`${problem.code}: ${problem.detail || problem.title}`);
    this.code = problem.code;
    this.problem = problem;
  }
}

// The store has seen a newer holder and wrote nothing. Do not repeat it.
class Stale extends Error {
  constructor(token, current) {
    super(`token ${token} is stale, the current one is ${current}`);
    this.token = token;
    this.current = current;
  }
}

// The lease may be over and the lock another's: stop.
class Lost extends Error {}

// No answer, or "not now". What was asked for may have happened: repeat it.
class Unavailable extends Error {}

// send makes one request and resolves to the JSON of the answer, null where it is empty.
async function send(method, url, { body, headers, timeout = 30_000 } = {}) {
  const request = {
    method,
    headers: { 'Content-Type': 'application/json', ...headers },
    body: body && JSON.stringify(body),
    signal: AbortSignal.timeout(Math.ceil(timeout)),
  };
  let answer, problem;
  try {
    answer = await fetch(url, request);
    const text = await answer.text();
    if (answer.ok) return text ? JSON.parse(text) : null;
    if (refuses(answer)) problem = JSON.parse(text);
  } catch (err) {
    throw new Unavailable(String(err.cause || err)); // without the URL: a hold's id is secret
  }
  if (!problem) throw new Unavailable(`HTTP ${answer.status} ${answer.statusText}`);
  if (problem.code === 'stale_token') throw new Stale(problem.presented, problem.current);
  throw new Refused(problem);
}

// refuses tells a no from a fault of the service, which may have done what was asked for.
function refuses(answer) {
  const kind = answer.headers.get('Content-Type') || '';
  return kind.startsWith('application/problem+json') && answer.status !== 429 && answer.status < 500;
}

// api calls the lock server.
function api(method, path, { body, key, timeout } = {}) {
  const headers = {};
  if (API_KEY) headers.Authorization = `Bearer ${API_KEY}`;
  if (key) headers['Idempotency-Key'] = key;
  return send(method, SERVER + path, { body, headers, timeout });
}

// Two clocks, in ms: the first stands still while the machine sleeps, the second may be
// set. What has passed is the more that either says.
const now = () => [performance.now(), Date.now()];
const since = (then) => Math.max(...now().map((t, i) => t - then[i]));

// acquire waits for the lock, at most wait ms (30,000 is the most), and resolves to a Hold.
//
// It rejects with Refused, code lock_held, when another has it still, and Unavailable when
// no server could answer; what that may have left behind ends with its TTL.
async function acquire(lock, { owner, ttl = 15_000, wait = 20_000 }) {
  const body = { lock, owner, ttl: `${ttl}ms`, wait: `${wait}ms` };
  let key = randomUUID(); // names this attempt: a repeat finds the same hold
  for (const pause of [500, 1000, 2000, 4000, 0]) {
    const sent = now();
    try {
      const hold = new Hold(await api('POST', '/v1/holds', { body, key, timeout: wait + 10_000 }), sent);
      await hold.start();
      return hold;
    } catch (err) {
      const ended = err.code === 'hold_gone'; // before its answer was heard: ask anew
      if (!(err instanceof Unavailable || ended) || !pause) throw err;
      if (ended) key = randomUUID();
      await sleep(pause);
    }
  }
}

// A Hold is a lock that is held, and renewed by a timer until it is released or lost.
class Hold {
  #path; #ttl; #sent; #promised; #over = false; #timer;

  constructor(answer, sent) {
    this.lock = answer.lock;
    this.token = answer.token;
    this.#path = `/v1/holds/${answer.hold}`;
    this.#ttl = answer.ttl_ms;
    this.#confirm(answer, sent);
  }

  async start() {
    if (this.#left() < this.#ttl / 2) await this.#renew(5000); // it was waited for: ask for time anew
    this.#schedule(this.#ttl / 3);
  }

  // check returns the ms that are left. It throws Lost once the lease may be over.
  check() {
    const left = this.#left();
    if (left <= 0) this.#over = true; // for good: an answer that comes now revives nothing
    if (this.#over) throw new Lost(`the hold of ${this.lock} with token ${this.token} is over`);
    return left;
  }

  #left() {
    return this.#promised - since(this.#sent);
  }

  // Counted from the sending: the server's own count began later. A tenth is kept back
  // for clocks that do not run alike.
  #confirm(answer, sent) {
    this.#sent = sent;
    this.#promised = answer.expires_in_ms - this.#ttl / 10;
  }

  async #renew(timeout) {
    const sent = now();
    this.#confirm(await api('POST', `${this.#path}/renew`, { timeout }), sent);
  }

  #schedule(pause) {
    if (!this.#over) this.#timer = setTimeout(() => this.#keep(), pause).unref();
  }

  async #keep() {
    try {
      this.check();
      await this.#renew(this.#ttl / 5);
      this.#schedule(this.#ttl / 3);
    } catch (err) {
      if (err instanceof Unavailable) this.#schedule(this.#ttl / 20);
      else this.#over = true; // the server says that it has ended, or the clock does
    }
  }

  // release gives the lock back. If no answer comes, it ends with its TTL.
  async release() {
    this.#over = true;
    clearTimeout(this.#timer);
    await api('DELETE', this.#path, { timeout: 5000 }).catch(() => {});
  }
}

module.exports = { acquire, send, Refused, Stale, Lost, Unavailable };
