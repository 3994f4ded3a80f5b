// The page as a whole: routes, the stream of events, and when to read what again.

import { call, follow, pause, session } from "./api.js";
import { el, setText } from "./dom.js";
import { count } from "./format.js";
import { askBreak, signInPage } from "./dialogs.js";
import { eventsPage } from "./feed.js";
import { listPage } from "./list.js";
import { lockPage } from "./lock.js";
import { Model, pageSize } from "./model.js";

const kept = 300; // events
const byID = (id) => document.getElementById(id);
const main = byID("main");

const app = {
  model: new Model(),
  recent: [], total: 0,
  filter: "",
  live: true,
  page: null,
  grants: [], // what the signed-in key may do, once it is known
  refused,
  mayBreak: (lock) => app.grants.some((g) => g.role === "admin" && g.prefixes.some((p) => lock.startsWith(p))),
  askBreak(lock, holder, done) { if (holder) askBreak(byID("break"), lock, holder, done); },
};

const figures = new Map(); // the header's numbers, by name

let run = null; // the AbortController of what works in the background

// refused handles the two answers that mean "sign in", and says whether err was one.
function refused(err) {
  if (err.status !== 401 && !(err.status === 403 && err.code === "forbidden")) return false;
  stop();
  let why = "";
  if (err.status === 403) why = err.message;
  else if (session.key) why = "The server does not know this key.";
  byID("pause").hidden = true;
  byID("stats").replaceChildren();
  figures.clear();
  show(signInPage(why, start));
  connection("signed out");
  return true;
}

function connection(state) {
  const conn = byID("conn");
  conn.dataset.state = state;
  setText(conn.lastElementChild, state === "live" && !app.live ? "paused" : state);
}

function show(page, moveFocus) {
  app.page?.leave?.();
  app.page = page;
  main.replaceChildren(page.node);
  document.title = page.title === "Locks" ? "fenced" : `${page.title} · fenced`;
  if (page.focus) page.focus();
  else if (moveFocus) main.focus({ preventScroll: true });
}

function route(moveFocus) {
  const [path, query] = location.hash.slice(1).split(/\?(.*)/s);
  const lock = new URLSearchParams(query ?? "").get("name");
  const where = path === "/lock" && lock ? "lock" : path === "/events" ? "events" : "locks";
  for (const link of document.querySelectorAll("[data-route]")) {
    if (link.dataset.route === where) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (where === "lock") show(lockPage(app, lock), moveFocus);
  else show(where === "events" ? eventsPage(app) : listPage(app), moveFocus);
  if (moveFocus) scrollTo(0, 0);
}

// readChunk reads one page of the list.
async function readChunk(chunk, signal) {
  const query = { limit: pageSize };
  if (session.prefix) query.prefix = session.prefix;
  if (chunk.cursor) query.cursor = chunk.cursor;
  app.model.merge(chunk, await call("/v1/locks", { query, signal }));
  app.page?.changed();
}

// nextChunk chooses what to read: first what has never been read, then what is in
// view, and now and then the longest unread, in view or not.
function nextChunk(round) {
  const { chunks } = app.model;
  const fresh = chunks.find((chunk) => chunk.fetched === -Infinity);
  if (fresh) return fresh;
  const seen = app.page?.chunks?.();
  return app.model.stalest(seen?.size && round % 4 !== 0 ? seen : chunks);
}

// keepReading holds the list up to date: renewals are no events, so the time left
// has to be read again. A hidden page reads nothing.
async function keepReading(signal) {
  for (let round = 1; !signal.aborted; round++) {
    if (document.hidden) { await pause(500, signal); continue; }
    const chunk = nextChunk(round);
    const first = chunk.fetched === -Infinity;
    try {
      await readChunk(chunk, signal);
    } catch (err) {
      if (signal.aborted || refused(err)) return;
      await pause(2000, signal);
      continue;
    }
    app.model.sweep();
    if (!first || app.model.complete) await pause(app.page?.hasUnknown?.() ? 300 : 1200, signal);
  }
}

async function keepStatus(signal) {
  while (!signal.aborted) {
    if (!document.hidden) {
      try {
        showStatus(await call("/v1/status", { signal }));
        if (app.grants.length === 0) app.grants = (await call("/v1/whoami", { signal })).grants;
      } catch (err) {
        if (signal.aborted) return;
        if (err.status === 401 && refused(err)) return;
      }
    }
    await pause(3000, signal);
  }
}

function figure(term, value) {
  let dd = figures.get(term);
  if (!dd) {
    dd = el("dd", { class: "num" });
    figures.set(term, dd);
    byID("stats").append(el("div", null, el("dt", null, term), dd));
  }
  setText(dd, value);
}

function showStatus(s) {
  figure("locks", count(s.locks));
  figure("waiting", count(s.waiters));
  figure("sessions", count(s.sessions));
  figure("revision", count(s.revision));
  const banner = byID("banner");
  setText(banner, s.ready ? "" : `This server grants nothing now: ${s.not_ready || "it is not ready"}`);
  banner.hidden = s.ready;
}

function took(kind, event, id) {
  if (kind === "resync") {
    app.model.clear();
  } else {
    app.model.apply(kind, event, id);
    app.recent.push({ kind, event });
    app.total++;
    if (app.recent.length > 2 * kept) app.recent = app.recent.slice(-kept);
  }
  app.page?.changed();
  app.page?.event(event);
}

function stop() {
  run?.abort();
  run = null;
}

function start() {
  stop();
  run = new AbortController();
  const { signal } = run;
  app.model.clear();
  app.recent = []; // what one key saw is not for the next
  app.grants = [];
  app.total = 0;
  byID("sign-out").hidden = !session.key;
  byID("pause").hidden = false;
  route(false);
  connection("connecting");
  const on = { event: took, state: connection, open() {} };
  follow(on, signal).catch((err) => { if (!refused(err)) connection("reconnecting"); });
  keepReading(signal);
  keepStatus(signal);
}

byID("pause").addEventListener("click", (e) => {
  app.live = !app.live;
  e.target.setAttribute("aria-pressed", String(!app.live));
  setText(e.target, app.live ? "Pause" : "Resume");
  connection(byID("conn").dataset.state);
  if (app.live) { app.page.changed(); app.page.event(); }
});
byID("sign-out").addEventListener("click", () => { session.signOut(); start(); });
addEventListener("hashchange", () => { if (run) route(true); });
document.querySelector(".skip").addEventListener("click", (e) => { e.preventDefault(); main.focus(); });
document.addEventListener("keydown", (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || e.target.closest("input, dialog")) return;
  if (e.key === "Escape" && location.hash.startsWith("#/lock")) location.hash = "#/";
  else app.page?.key(e);
});
setInterval(() => { if (app.live && !document.hidden) app.page?.tick(); }, 200);
start();
