// The feed of events, newest first.

import { el, name, painter } from "./dom.js";
import { clock, dateTime, mark } from "./format.js";
import { lockHref } from "./list.js";

function item({ kind, event }) {
  const time = new Date(event.time);
  const facts = [];
  if (event.owner) facts.push(name(event.owner, { class: "name who" }));
  if (event.token !== undefined) facts.push(el("span", { class: "num tok" }, `token ${event.token}`));
  if (event.reason) facts.push(el("q", null, name(event.reason)));
  return el("li", { class: `k-${kind}` },
    mark(kind),
    el("span", { class: "kind" }, kind),
    el("time", { class: "num", datetime: event.time, title: dateTime(time) }, clock(time)),
    el("a", { class: "lock-link", href: lockHref(event.lock), title: event.lock }, name(event.lock)),
    el("span", { class: "facts" }, ...facts));
}

// feedPanel shows the last `most` events of app.recent and those that follow. Many
// at once are drawn together, and no more of them than fit.
export function feedPanel(app, most) {
  const list = el("ol", { class: "feed", role: "log", "aria-live": "off", "aria-label": "Events, newest first" });
  const empty = el("p", { class: "empty" }, "Nothing yet. Grants, releases, expiries and breaks appear here as they happen.");
  const node = el("div", null, list, empty);
  let drawn = 0;

  function draw() {
    if (!app.live) return;
    const fresh = Math.min(app.total - drawn, most, app.recent.length);
    drawn = app.total;
    list.prepend(...app.recent.slice(app.recent.length - fresh).reverse().map(item));
    while (list.children.length > most) list.lastChild.remove();
    empty.hidden = list.children.length > 0;
  }
  draw();
  return { node, event: painter(draw, 200) };
}

export function eventsPage(app) {
  const feed = feedPanel(app, 300);
  const node = el("section", { class: "panel wide", "aria-labelledby": "events-title" },
    el("h1", { id: "events-title" }, "Events"), feed.node);
  return { node, title: "Events", event: feed.event, changed() {}, tick() {}, key() {} };
}
