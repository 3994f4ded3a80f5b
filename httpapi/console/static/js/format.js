// Numbers, durations and times for people, and the marks of what happened.

import { svg } from "./dom.js";

const whole = new Intl.NumberFormat("en");

export const count = (n) => whole.format(n);

export function duration(ms) {
  if (ms < 0) ms = 0;
  if (ms < 1) return "under 1 ms";
  if (ms < 999.5) return `${Math.round(ms)} ms`;
  const s = ms / 1000;
  if (s < 9.95) return `${s.toFixed(1)} s`;
  if (s < 99.5) return `${Math.round(s)} s`;
  const m = Math.round(s / 60);
  if (m < 10) return `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
  if (m < 60) return `${m} min`;
  if (m < 48 * 60) return m % 60 === 0 ? `${m / 60} h` : `${Math.floor(m / 60)} h ${m % 60} min`;
  return `${Math.round(m / 1440)} d`;
}

// left counts down: tenths only where they matter, and in few characters.
export function left(ms) {
  if (ms < 9950) return `${(Math.max(0, ms) / 1000).toFixed(1)} s`;
  return ms < 600_000 && ms >= 99_500 ? `${Math.round(ms / 60_000)} min` : duration(ms);
}

const pad = (n) => String(n).padStart(2, "0");

export function clock(date) {
  return `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}`;
}

export function dateTime(date) {
  const day = `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}`;
  return `${day} ${clock(date)}`;
}

// when leaves today's date out.
export function when(date, now = new Date()) {
  return date.toDateString() === now.toDateString() ? clock(date) : dateTime(date);
}

// Each kind has a shape of its own, so that colour is never the only difference.
const shapes = {
  queued: ["path", { d: "M6 1.8a4.2 4.2 0 1 0 0 8.4a4.2 4.2 0 1 0 0-8.4z", class: "line" }],
  granted: ["path", { d: "M2.5 1.2l8 4.8l-8 4.8z" }],
  held: ["path", { d: "M2.5 1.2l8 4.8l-8 4.8z" }],
  released: ["path", { d: "M6 1.4a4.6 4.6 0 1 0 0 9.2a4.6 4.6 0 1 0 0-9.2z" }],
  expired: ["path", { d: "M6 .6l5.4 5.4l-5.4 5.4l-5.4-5.4z" }],
  broken: ["path", { d: "M2 2l8 8M10 2l-8 8", class: "line thick" }],
  cancelled: ["path", { d: "M1.5 6h9", class: "line thick" }],
  unknown: ["path", { d: "M2 2h8v8h-8z", class: "line" }],
};

// mark draws the sign of a kind, 12 by 12.
export function mark(kind, props) {
  const [tag, attrs] = shapes[kind] ?? shapes.unknown;
  return svg("svg", { class: `mark k-${kind}`, viewBox: "0 0 12 12", width: 12, height: 12, "aria-hidden": "true", ...props }, svg(tag, attrs));
}
