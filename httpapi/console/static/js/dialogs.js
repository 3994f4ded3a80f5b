// The two forms: breaking a hold, and signing in.

import { call, session } from "./api.js";
import { el, name } from "./dom.js";

const longestReason = 256;
const bytes = (text) => new TextEncoder().encode(text).length;

// askBreak shows what would be broken, as it was seen, and breaks it on a yes.
export function askBreak(dialog, lock, holder, done) {
  const reason = el("input", { type: "text", id: "break-reason", required: true, autocomplete: "off", "aria-describedby": "break-error" });
  const error = el("p", { class: "error", id: "break-error", role: "alert" });
  const yes = el("button", { type: "submit", class: "danger solid" }, `Break token ${holder.token}`);
  const no = el("button", { type: "button", onclick: () => dialog.close() }, "Keep it");
  const form = el("form", { novalidate: true },
    el("h2", { id: "break-title" }, "Break this hold?"),
    el("dl", { class: "facts-list" },
      el("dt", null, "Lock"), el("dd", null, name(lock)),
      el("dt", null, "Holder"), el("dd", null, name(holder.owner)),
      el("dt", null, "Token seen"), el("dd", { class: "num" }, String(holder.token))),
    el("p", { class: "warn" }, el("strong", null, "A break does not fence. "),
      "The lock passes on, but the old holder may still run and still write. Its writes are refused only once a higher token has reached the store. For PostgreSQL, ",
      el("code", null, `fencectl pg advance RESOURCE --token ${holder.token + 1}`), " does that at once."),
    el("label", { for: "break-reason" }, "Reason, for the record"), reason, error,
    el("div", { class: "buttons" }, no, yes));
  form.addEventListener("submit", async (e) => {
    e.preventDefault();
    error.textContent = wrongReason(reason.value);
    if (error.textContent) { reason.focus(); return; }
    yes.disabled = true;
    try {
      await call("/v1/break", { body: { lock, token: holder.token, reason: reason.value } });
      dialog.close();
      done();
    } catch (err) {
      error.textContent = explain(err);
      if (err.code === "holder_changed") done();
    } finally {
      yes.disabled = false;
    }
  });
  dialog.replaceChildren(form);
  dialog.showModal();
  reason.focus();
}

function wrongReason(text) {
  if (text === "") return "Say why: it is kept with the break.";
  if (bytes(text) > longestReason) return `The reason may have ${longestReason} bytes at most.`;
  return "";
}

function explain(err) {
  if (err.code === "holder_changed") return "The holder has changed since; nothing was broken. Close this and look again.";
  if (err.status === 403) return "Nothing was broken: this needs a key with the role admin over this lock.";
  if (err.code === "outcome_unknown" || !err.status) return "The answer was lost; it may or may not be broken. Close this and look again.";
  return `Nothing was broken: ${err.message}`;
}

// signInPage asks for a key; why says what was wrong with the one before.
export function signInPage(why, done) {
  const key = el("input", { type: "password", id: "key", required: true, autocomplete: "off", spellcheck: "false" });
  const prefix = el("input", { type: "text", id: "prefix", autocomplete: "off", spellcheck: "false" });
  prefix.value = session.prefix;
  const error = el("p", { class: "error", role: "alert" }, why);
  const form = el("form", { class: "panel sign-in" },
    el("h1", null, "Sign in"),
    el("p", null, "This server asks for an API key. It stays in this tab and is forgotten when the tab is closed."),
    el("label", { for: "key" }, "API key"), key,
    el("label", { for: "prefix" }, "Only locks whose names start with (optional)"), prefix,
    el("p", { class: "note" }, "A key that is limited to a prefix needs that prefix here."),
    error,
    el("div", { class: "buttons" }, el("button", { type: "submit", class: "solid" }, "Sign in")));
  form.addEventListener("submit", (e) => {
    e.preventDefault();
    if (key.value.trim() === "") { error.textContent = "Give a key."; key.focus(); return; }
    session.signIn(key.value.trim(), prefix.value);
    done();
  });
  return { node: form, title: "Sign in", changed() {}, event() {}, tick() {}, key() {}, focus: () => key.focus() };
}
