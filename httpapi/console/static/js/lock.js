// The page of one lock: its holder, its queue, its past as a picture and a table.

import { call, serverNow } from "./api.js";
import { el, name, painter, setText } from "./dom.js";
import { count, dateTime, duration, mark, when } from "./format.js";
import { countDown } from "./list.js";
import { legend, timeline } from "./timeline.js";

const shownWaiters = 50;
const shownHistory = 100;

const fact = (term, ...value) => [el("dt", null, term), el("dd", null, ...value)];

export function lockPage(app, lock) {
  const state = { lock: null, holder: null, asking: false, again: false };
  const holderBox = el("div", { class: "holder" });
  const queue = el("div");
  const picture = el("div", { class: "picture" });
  const past = el("div");
  const since = el("p", { class: "note" });
  const badge = el("span", { class: "badge" });
  const problem = el("p", { class: "error", role: "alert", hidden: true });
  const breakButton = el("button", { type: "button", class: "danger", hidden: true, onclick: () => app.askBreak(lock, state.holder, refresh) }, "Break…");
  const node = el("article", { class: "lock-page" },
    el("p", { class: "crumb" }, el("a", { href: "#/" }, "All locks")),
    el("header", { class: "lock-head" }, el("h1", null, name(lock)), badge, breakButton),
    problem,
    el("section", { class: "panel", "aria-label": "Holder" }, el("h2", null, "Holder"), holderBox),
    el("section", { class: "panel", "aria-label": "Queue" }, el("h2", null, "Queue"), queue),
    el("section", { class: "panel full", "aria-label": "Timeline" },
      el("div", { class: "panel-head" }, el("h2", null, "Who held it"), legend()), picture),
    el("section", { class: "panel full", "aria-label": "History" }, el("h2", null, "Past grants"), past, since));

  const bar = el("span", { class: "timebar", "aria-hidden": "true" });
  const fill = el("i");
  bar.append(fill);
  const time = el("span", { class: "num" });

  async function refresh() {
    if (state.asking) { state.again = true; return; }
    state.asking = true;
    try {
      state.lock = await call("/v1/lock", { query: { name: lock } });
      problem.hidden = true;
      if (app.live) paint();
    } catch (err) {
      if (err.status !== 401 || !app.refused(err)) {
        setText(problem, err.status ? err.message : "The server cannot be reached; what stands here may be old.");
        problem.hidden = false;
      }
    } finally {
      state.asking = false;
      if (state.again) { state.again = false; soon(); }
    }
  }
  const soon = painter(refresh, 250);

  function paint() {
    const { holder } = state.lock;
    const known = holder?.expires_in_ms !== undefined;
    state.holder = holder ? { ...holder, ttl: holder.ttl_ms, until: known ? performance.now() + holder.expires_in_ms : null, asked: true } : null;
    setText(badge, holder ? "held" : "free");
    badge.dataset.state = holder ? "held" : "free";
    paintHolder(holder);
    paintQueue();
    paintPast();
    draw();
    tick();
  }

  // The holder's facts are made anew only when they are another holder's, so that
  // a selection in them survives.
  let shownRef = null;
  function paintHolder(holder) {
    if (shownRef === (holder?.ref ?? "")) return;
    shownRef = holder?.ref ?? "";
    if (!holder) {
      holderBox.replaceChildren(el("p", { class: "empty" }, "Nobody holds it."));
      return;
    }
    const meta = Object.entries(holder.metadata ?? {}).flatMap(([k, v]) => [el("dt", null, name(k)), el("dd", null, name(v))]);
    holderBox.replaceChildren(el("dl", { class: "facts-list" },
      ...fact("Owner", name(holder.owner)),
      ...fact("Token", el("span", { class: "num big" }, String(holder.token))),
      ...fact("Time left", el("span", { class: "left" }, bar, time)),
      ...fact("TTL", duration(holder.ttl_ms)),
      ...fact("Held since", dateTime(new Date(holder.since))),
      ...fact("Ref", el("code", null, holder.ref)),
      ...(holder.session ? fact("Session", el("code", null, holder.session)) : []),
      ...meta));
  }

  function paintQueue() {
    const list = state.lock.queue;
    if (list.length === 0) {
      queue.replaceChildren(el("p", { class: "empty" }, "Nobody waits."));
      return;
    }
    const now = serverNow();
    const rows = list.slice(0, shownWaiters).map((w) => el("li", null,
      el("span", { class: "num pos" }, String(w.position)), name(w.owner),
      el("span", { class: "num wait", title: dateTime(new Date(w.since)) }, duration(now - Date.parse(w.since)))));
    const more = state.lock.waiters - rows.length;
    queue.replaceChildren(el("ol", { class: "queue" }, ...rows), ...(more > 0 ? [el("p", { class: "note" }, `and ${count(more)} more`)] : []));
  }

  let shownPast = null;
  function paintPast() {
    const { history, history_since: from } = state.lock;
    const stamp = history.length ? history[0].ref + history[0].ended_at + history.length : "none";
    if (shownPast === stamp) return;
    shownPast = stamp;
    setText(since, `This server remembers ends since ${dateTime(new Date(from))}.`);
    if (history.length === 0) {
      past.replaceChildren(el("p", { class: "empty" }, "No grant of it has ended in that time."));
      return;
    }
    past.replaceChildren(el("div", { class: "scroll" }, el("table", { class: "past" },
      el("caption", { class: "unseen" }, "Grants that ended, newest first"),
      el("thead", null, el("tr", null, ...["Ended", "Token", "Owner", "Held since", "For", "Reason"].map((t) => el("th", { scope: "col", class: columnClass[t] }, t)))),
      el("tbody", null, ...history.slice(0, shownHistory).map(pastRow)))));
  }

  function draw() {
    const width = picture.clientWidth;
    if (state.lock && width) picture.replaceChildren(timeline(state.lock, serverNow(), width));
  }

  function tick() {
    countDown(state.holder, bar, fill, time);
    breakButton.hidden = !state.holder || !app.mayBreak(lock);
  }

  const resized = new ResizeObserver(painter(draw, 100));
  resized.observe(picture);
  refresh();
  const timer = setInterval(() => { if (!document.hidden) soon(); }, 2000);
  return {
    node, title: lock, tick, changed() {}, key() {},
    event(event) { if (event?.lock === lock) soon(); },
    leave() { clearInterval(timer); resized.disconnect(); },
  };
}

const columnClass = { Token: "num", For: "num", "Held since": "since" };

function pastRow(e) {
  const held = Date.parse(e.ended_at) - Date.parse(e.since);
  return el("tr", null,
    el("td", { class: `end k-${e.ended}` }, mark(e.ended), e.ended),
    el("td", { class: "num" }, e.token === undefined ? "not known" : String(e.token)),
    el("td", null, name(e.owner)),
    el("td", { class: "since", title: dateTime(new Date(e.since)) }, when(new Date(e.since))),
    el("td", { class: "num" }, duration(held)),
    el("td", null, e.reason ? name(e.reason) : ""));
}
