// Calls of the public API, and the stream of events.

const KEY = "fenced.key";
const SCOPE = "fenced.prefix";

// silence is how long a stream may say nothing before it is taken for dead; the
// server sends a comment every 10 s.
const silence = 25_000;

export const session = {
  get key() { return sessionStorage.getItem(KEY) ?? ""; },
  get prefix() { return sessionStorage.getItem(SCOPE) ?? ""; },
  signIn(key, prefix) {
    sessionStorage.setItem(KEY, key);
    sessionStorage.setItem(SCOPE, prefix);
  },
  signOut() {
    sessionStorage.removeItem(KEY);
    sessionStorage.removeItem(SCOPE);
  },
};

export class Problem extends Error {
  constructor(status, body) {
    super(body.detail || body.title || `the server answered ${status}`);
    this.status = status;
    this.code = body.code ?? "";
    this.title = body.title ?? "";
  }
}

// skew is how far the server's clock is ahead of this one, in milliseconds. Its
// Date header has whole seconds, so smaller differences count as none.
let skew = 0;
export const serverNow = () => Date.now() + skew;

function learnSkew(response) {
  const date = Date.parse(response.headers.get("Date") ?? "");
  if (Number.isNaN(date)) return;
  const off = date + 500 - Date.now();
  skew = Math.abs(off) > 1500 ? off : 0;
}

function headers(more) {
  const all = { ...more };
  if (session.key) all.Authorization = `Bearer ${session.key}`;
  return all;
}

async function fail(response) {
  let body = {};
  try { body = await response.json(); } catch { /* a proxy's answer, not ours */ }
  return new Problem(response.status, body);
}

// call returns the decoded answer or throws a Problem; a TypeError means that the
// server could not be reached.
export async function call(path, { query, body, signal } = {}) {
  const url = query ? `${path}?${new URLSearchParams(query)}` : path;
  const init = { headers: headers(), signal, cache: "no-store", credentials: "omit" };
  if (body) {
    init.method = "POST";
    init.headers["Content-Type"] = "application/json";
    init.body = JSON.stringify(body);
  }
  const response = await fetch(url, init);
  learnSkew(response);
  if (!response.ok) throw await fail(response);
  return response.json();
}

// Parser takes text/event-stream apart, in pieces of any size. Its id is that of the last
// event that is whole: a stream that is cut within one goes on before it.
export class Parser {
  constructor(emit) {
    this.emit = emit;
    this.rest = "";
    this.reset();
  }
  reset() { this.kind = ""; this.data = []; }
  feed(text) {
    const lines = (this.rest + text).split("\n");
    this.rest = lines.pop();
    for (const line of lines) this.line(line.endsWith("\r") ? line.slice(0, -1) : line);
  }
  line(line) {
    if (line === "") {
      this.id = this.next;
      if (this.kind) this.emit(this.kind, this.data.join("\n"), this.id);
      this.reset();
      return;
    }
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "id") this.next = value;
    else if (field === "event") this.kind = value;
    else if (field === "data") this.data.push(value);
  }
}

// follow reads events until signal: on.event(kind, data, id) for each, on.state for
// what the connection does, on.open once it is there. It comes back after every
// cut, behind the last event seen. It throws only what asking again cannot mend.
export async function follow(on, signal) {
  const parser = { id: undefined };
  for (let failures = 0; !signal.aborted; failures++) {
    try {
      await readOnce(on, signal, parser, () => { failures = 0; });
    } catch (err) {
      if (signal.aborted) return;
      if (err instanceof Problem && err.status < 500 && err.status !== 429) throw err;
    }
    if (signal.aborted) return;
    on.state("reconnecting");
    await pause(Math.min(500 * 2 ** failures, 8000) * (0.75 + Math.random() / 2), signal);
  }
}

async function readOnce(on, signal, place, opened) {
  const quiet = new AbortController();
  const stop = () => quiet.abort();
  signal.addEventListener("abort", stop);
  let timer = setTimeout(stop, silence);
  try {
    const more = place.id ? { "Last-Event-ID": place.id } : {};
    const query = session.prefix ? `?${new URLSearchParams({ prefix: session.prefix })}` : "";
    const response = await fetch(`/v1/events${query}`, { headers: headers(more), signal: quiet.signal, cache: "no-store", credentials: "omit" });
    if (!response.ok) throw await fail(response);
    opened();
    on.open();
    on.state("live");
    const parser = new Parser((kind, data, id) => on.event(kind, JSON.parse(data), id));
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(stop, silence);
      parser.feed(value);
      if (parser.id) place.id = parser.id;
    }
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", stop);
    quiet.abort();
  }
}

export function pause(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener("abort", () => { clearTimeout(timer); resolve(); }, { once: true });
  });
}
