// The page of all locks: a filter, a table of a hundred rows at a time, a feed.

import { el, name, painter, setAttr, setText } from "./dom.js";
import { count, left } from "./format.js";
import { compare, most } from "./model.js";
import { feedPanel } from "./feed.js";

const perPage = 100;

const sorts = {
  lock: (a, b) => compare(a.name, b.name),
  holder: (a, b) => compare(a.holder?.owner ?? "\uffff", b.holder?.owner ?? "\uffff") || sorts.lock(a, b),
  token: (a, b) => (b.holder?.token ?? 0) - (a.holder?.token ?? 0) || sorts.lock(a, b),
  waiters: (a, b) => b.waiters - a.waiters || sorts.lock(a, b),
};
const directions = { lock: "ascending", holder: "ascending", token: "descending", waiters: "descending" };

export const lockHref = (lock) => `#/lock?${new URLSearchParams({ name: lock })}`;

// row makes the cells of one row once; show fills them, and touches only what
// changed.
function row() {
  const link = el("a", { class: "lock-link" });
  const owner = name("");
  const token = el("span");
  const fill = el("i");
  const time = el("span", { class: "num" });
  const bar = el("span", { class: "timebar", "aria-hidden": "true" }, fill);
  const waiters = el("span");
  const node = el("tr", null,
    el("th", { scope: "row", class: "c-lock" }, link),
    el("td", { class: "c-holder" }, owner),
    el("td", { class: "c-token num" }, token),
    el("td", { class: "c-left" }, bar, time),
    el("td", { class: "c-waiters num" }, waiters));
  const label = name("");
  link.append(label);
  const r = { node, link, lock: null };
  r.show = (lock) => {
    if (r.lock?.name !== lock.name) {
      link.setAttribute("href", lockHref(lock.name));
      link.title = lock.name;
      setText(label, lock.name);
    }
    r.lock = lock;
    const held = lock.holder !== null;
    setAttr(node, "data-state", held ? "held" : "free");
    setText(owner, held ? lock.holder.owner ?? "" : "free");
    if (held) owner.title = lock.holder.owner ?? "";
    setText(token, held ? String(lock.holder.token) : "");
    setText(waiters, lock.waiters ? count(lock.waiters) : "");
    waiters.title = lock.waiters ? `${count(lock.waiters)} waiting` : "";
    r.tick();
  };
  r.tick = () => countDown(r.lock.holder, bar, fill, time);
  return r;
}

// countDown shows what is left of a hold, as a bar and in words.
export function countDown(holder, bar, fill, time) {
  const known = holder !== null && holder.until !== null;
  bar.hidden = holder === null;
  const ms = known ? Math.max(0, holder.until - performance.now()) : 0;
  const part = known ? Math.min(1, ms / holder.ttl) : 0;
  fill.style.transform = `scaleX(${part.toFixed(3)})`;
  setAttr(bar, "data-level", !known ? "unknown" : part < 0.2 ? "low" : part < 0.4 ? "mid" : "full");
  if (known) setText(time, left(ms));
  else setText(time, holder?.asked ? "not known" : "");
}

export function listPage(app) {
  const { model } = app;
  const view = { filter: app.filter, sort: "lock", page: 0, rows: [], ordered: [], order: { membership: -1 } };
  const rows = [];

  const input = el("input", {
    type: "search", id: "filter", placeholder: "Filter by lock, holder or token", autocomplete: "off", spellcheck: "false",
    "aria-label": "Filter by lock, holder or token", "aria-controls": "locks", "aria-keyshortcuts": "/",
  });
  input.value = view.filter;
  const summary = el("span", { class: "summary", id: "summary", role: "status" });
  const body = el("tbody");
  const empty = el("div", { class: "empty", hidden: true });
  const heads = {};
  const table = el("table", { class: "locks", id: "locks" },
    el("caption", { class: "unseen" }, "Locks in use"),
    el("thead", null, el("tr", null,
      head("lock", "Lock"), head("holder", "Holder"), head("token", "Token", "num"),
      el("th", { scope: "col", class: "c-left" }, "Time left"), head("waiters", "Waiting", "num"))),
    body);
  const pager = pagerOf((step) => { view.page += step; paint(); table.scrollIntoView({ block: "nearest" }); });
  const feed = feedPanel(app, 60);
  const node = el("div", { class: "split" },
    el("section", { class: "panel", "aria-label": "Locks" },
      el("div", { class: "tools" }, input, summary), table, empty, pager.node),
    el("aside", { class: "panel side", "aria-label": "Events" }, el("h2", null, "Events"), feed.node));

  function head(key, text, kind) {
    const button = el("button", { type: "button", onclick: () => { view.sort = key; view.page = 0; view.order.membership = -1; paint(); } }, text);
    heads[key] = el("th", { scope: "col", class: `c-${key} ${kind ?? ""}` }, button);
    return heads[key];
  }

  const matches = (lock, needle) => lock.lower.includes(needle) ||
    (lock.holder !== null && ((lock.holder.owner ?? "").toLowerCase().includes(needle) || String(lock.holder.token) === needle));

  // arrange sorts and filters. By name, that is only due when a lock came or went.
  function arrange() {
    const stamp = { membership: model.membership, sort: view.sort };
    if (view.sort !== "lock" || stamp.membership !== view.order.membership || stamp.sort !== view.order.sort) {
      view.ordered = [...model.locks.values()].sort(sorts[view.sort]);
      view.order = stamp;
    }
    const needle = view.filter.toLowerCase();
    view.rows = needle ? view.ordered.filter((lock) => matches(lock, needle)) : view.ordered;
  }

  function paint() {
    arrange();
    const pages = Math.max(1, Math.ceil(view.rows.length / perPage));
    view.page = Math.min(Math.max(view.page, 0), pages - 1);
    const from = view.page * perPage;
    const shown = view.rows.slice(from, from + perPage);
    while (rows.length < shown.length) rows.push(row());
    shown.forEach((lock, i) => {
      rows[i].show(lock);
      if (!rows[i].node.isConnected) body.append(rows[i].node);
    });
    for (let i = shown.length; i < rows.length && rows[i].node.isConnected; i++) rows[i].node.remove();
    view.shown = shown;
    for (const [key, th] of Object.entries(heads)) setAttr(th, "aria-sort", key === view.sort ? directions[key] : "none");
    describe(from, shown.length, pages);
  }

  function describe(from, n, pages) {
    const total = model.inUse;
    let text = view.filter ? `${count(view.rows.length)} of ${count(total)} locks` : `${count(total)} ${total === 1 ? "lock" : "locks"}`;
    if (!model.complete) text += ", still reading";
    else if (model.capped) text = `the first ${count(most)} locks; give a prefix to see others`;
    setText(summary, text);
    pager.show(from, n, view.rows.length, view.page, pages);
    empty.hidden = n > 0 || !model.complete;
    table.hidden = n === 0 && model.complete;
    if (!empty.hidden) setText(empty, view.filter ? "No lock matches the filter." : "No lock is in use. This page shows the first one the moment it is taken.");
  }

  input.addEventListener("input", () => {
    view.filter = app.filter = input.value;
    view.page = 0;
    paint();
  });
  input.addEventListener("keydown", (e) => {
    if (e.key === "ArrowDown" && rows[0]?.node.isConnected) { e.preventDefault(); rows[0].link.focus(); }
  });
  body.addEventListener("keydown", (e) => moveFocus(e, rows, input));

  paint();
  return {
    node, title: "Locks",
    changed: painter(() => app.live && paint(), 200),
    event: feed.event,
    tick() { for (const r of rows) if (r.node.isConnected) r.tick(); },
    // chunks are the pages of the list that the rows in view stand on; fresh ones
    // are wanted soonest where a row does not know its time.
    chunks: () => new Set((view.shown ?? []).map((lock) => model.chunkOf(lock.name))),
    hasUnknown: () => (view.shown ?? []).some((lock) => lock.holder !== null && !lock.holder.asked),
    key(e) {
      if (e.key === "/") { e.preventDefault(); input.focus(); input.select(); }
    },
  };
}

// moveFocus makes the arrows, Home and End walk the rows; Tab does so too.
function moveFocus(e, rows, above) {
  const shown = rows.filter((r) => r.node.isConnected);
  const at = shown.findIndex((r) => r.link === document.activeElement);
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: shown.length - 1 }[e.key];
  if (to === undefined || at < 0) return;
  e.preventDefault();
  (to < 0 ? above : shown[Math.min(to, shown.length - 1)].link).focus();
}

function pagerOf(turn) {
  const back = el("button", { type: "button", onclick: () => turn(-1) }, "Previous");
  const on = el("button", { type: "button", onclick: () => turn(1) }, "Next");
  const where = el("span");
  const node = el("nav", { class: "pager", "aria-label": "Pages of the list" }, back, where, on);
  return {
    node,
    show(from, n, total, page, pages) {
      node.hidden = pages < 2;
      setText(where, `${count(from + 1)} to ${count(from + n)} of ${count(total)}`);
      back.disabled = page === 0;
      on.disabled = page >= pages - 1;
    },
  };
}
