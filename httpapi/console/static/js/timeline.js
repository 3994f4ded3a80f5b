// The picture of one lock: a row a grant, newest on top, over one axis of time.
// Spans in which nobody held or wanted the lock are folded, so that a grant of
// seconds is still seen beside a pause of days.

import { el, svg } from "./dom.js";
import { clock, duration, mark, when } from "./format.js";

const shownGrants = 20;
const shownWaits = 5;
const rowHeight = 26;
const foldWidth = 36;
const axisHeight = 22;
const ends = ["released", "expired", "broken", "unknown"];

export function legend() {
  return el("ul", { class: "legend", "aria-label": "Signs" },
    ...["held", "queued", ...ends].map((kind) => el("li", { class: `k-${kind}` }, mark(kind), kind === "queued" ? "waiting" : kind)));
}

// spans lists what is drawn, newest first: places in the queue, the holder, the past.
function spans(lock, now) {
  const list = lock.queue.slice(0, shownWaits).reverse().map((w) => (
    { kind: "queued", owner: w.owner, token: null, from: Date.parse(w.since), to: now }));
  if (lock.holder) {
    list.push({ kind: "held", owner: lock.holder.owner, token: lock.holder.token, from: Date.parse(lock.holder.since), to: now });
  }
  for (const e of lock.history.slice(0, shownGrants)) {
    list.push({ kind: e.ended, owner: e.owner, token: e.token ?? null, from: Date.parse(e.since), to: Date.parse(e.ended_at), reason: e.reason });
  }
  for (const span of list) span.from = Math.min(span.from, span.to);
  return list;
}

// busy merges spans into the stretches of time in which something was going on.
function busy(list) {
  const merged = [];
  for (const { from, to } of [...list].sort((a, b) => a.from - b.from)) {
    const last = merged.at(-1);
    if (last && from <= last.to) last.to = Math.max(last.to, to);
    else merged.push({ from, to });
  }
  return merged;
}

// fold joins stretches whose gap is short beside them, and returns a scale from
// time to x in which the other gaps have a fixed width.
function scaleOf(list, left, width, now) {
  const stretches = busy(list);
  if (now - stretches.at(-1).to > 0) stretches.push({ from: now, to: now });
  const total = stretches.reduce((sum, s) => sum + s.to - s.from, 0);
  const short = Math.max(total * 0.12, 500);
  const parts = [];
  for (const s of stretches) {
    const last = parts.at(-1);
    if (last && (s.from - last.to <= short || parts.length > 7)) last.to = s.to;
    else parts.push({ ...s });
  }
  const span = parts.reduce((sum, p) => sum + p.to - p.from, 0) || 1;
  const room = Math.max(40, width - (parts.length - 1) * foldWidth);
  let x = left;
  for (const p of parts) {
    p.x = x;
    p.width = ((p.to - p.from) / span) * room;
    x += p.width + foldWidth;
  }
  const at = (t) => {
    const p = parts.findLast((part) => t >= part.from) ?? parts[0];
    const share = p.to > p.from ? Math.min(1, Math.max(0, (t - p.from) / (p.to - p.from))) : 0;
    return p.x + share * p.width;
  };
  return { at, parts };
}

const clip = (text, chars) => {
  const letters = [...text];
  return letters.length > chars ? `${letters.slice(0, chars - 1).join("")}…` : text;
};

// timeline draws lock for a picture of the given width in pixels.
export function timeline(lock, now, width) {
  const list = spans(lock, now);
  if (list.length === 0) return el("p", { class: "empty" }, "Nobody has held it in the time this server remembers.");
  const narrow = width < 560;
  const left = narrow ? 6 : 210;
  const height = narrow ? rowHeight + 12 : rowHeight;
  const right = narrow ? 86 : 100;
  const scale = scaleOf(list, left, width - left - right, now);
  const tall = list.length * height + axisHeight;
  const picture = svg("svg", { class: "timeline", width, height: tall, viewBox: `0 0 ${width} ${tall}`, role: "img", "aria-label": inWords(lock, list) });
  picture.append(...axis(scale, list.length * height, now));
  list.forEach((span, i) => picture.append(line(span, i * height, { scale, narrow, left, height })));
  return picture;
}

function inWords(lock, list) {
  const past = list.filter((s) => s.kind !== "held" && s.kind !== "queued");
  const counts = ends.map((kind) => [kind, past.filter((s) => s.kind === kind).length]).filter(([, n]) => n > 0);
  const told = counts.map(([kind, n]) => `${n} ${kind}`).join(", ");
  return `Timeline of ${past.length} past grants${told ? `: ${told}` : ""}. ${lock.holder ? "Held now." : "Free now."} The table below has them all.`;
}

function axis({ parts }, bottom, now) {
  const end = parts.at(-1).x + parts.at(-1).width;
  const nodes = [svg("text", { class: "tick end", x: end, y: bottom + 15 }, `now, ${clock(new Date(now))}`)];
  let last = -Infinity;
  parts.forEach((p, i) => {
    nodes.push(svg("line", { class: "grid", x1: p.x, x2: p.x, y1: 0, y2: bottom }));
    if (p.x - last > 70 && end - p.x > 190 && p.to > p.from) {
      last = p.x;
      nodes.push(svg("text", { class: "tick", x: p.x, y: bottom + 15 }, when(new Date(p.from))));
    }
    const next = parts[i + 1];
    if (!next) return;
    const x = p.x + p.width + 4;
    nodes.push(svg("rect", { class: "fold", x, y: 0, width: foldWidth - 8, height: bottom }),
      svg("text", { class: "fold-text", x: x + (foldWidth - 8) / 2, y: bottom / 2, transform: `rotate(-90 ${x + (foldWidth - 8) / 2} ${bottom / 2})` }, `free ${duration(next.from - p.to)}`));
  });
  return nodes;
}

function line(span, top, { scale, narrow, left, height }) {
  const x = scale.at(span.from);
  const wide = Math.max(3, scale.at(span.to) - x);
  const y = top + height - rowHeight / 2;
  const group = svg("g", { class: `span k-${span.kind}` }, svg("title", null, titleOf(span)));
  const label = svg("text", { class: "who", x: narrow ? left : left - 12, y: narrow ? top + 12 : y + 4, "text-anchor": narrow ? "start" : "end" },
    svg("tspan", null, clip(span.owner || "not known", narrow ? 28 : 18)),
    svg("tspan", { class: "tok", dx: 8 }, span.token === null ? "waits" : String(span.token)));
  group.append(label);
  if (span.kind === "queued") group.append(svg("line", { class: "waitline", x1: x, x2: x + wide, y1: y, y2: y }));
  else group.append(svg("rect", { class: "hold", x, y: y - 5, width: wide, height: 10, rx: 2 }));
  group.append(mark(span.kind, { x: x + wide + 4, y: y - 6 }));
  group.append(svg("text", { class: "for", x: x + wide + 21, y: y + 4 }, duration(span.to - span.from)));
  return group;
}

function titleOf(span) {
  const token = span.token === null ? "" : `, token ${span.token}`;
  const verb = { queued: "waits", held: "holds it" }[span.kind] ?? `${span.kind} at ${clock(new Date(span.to))}`;
  return `${span.owner || "not known"}${token}: from ${when(new Date(span.from))}, ${duration(span.to - span.from)}, ${verb}${span.reason ? `: ${span.reason}` : ""}`;
}
