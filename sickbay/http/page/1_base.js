"use strict";
// The files of this folder are one script, in the order of their names (sickbay/http/console.py).
// Everything shown is set through textContent: names, reasons and log lines are other people's words.
const $ = (id) => document.getElementById(id);
const CLOSED = new Set(["returned", "cancelled", "handed_over"]);
const ANSWER_MS = 10000;

// me: who we are; nodes, incidents, paused: the controller's last word, of freshAt (ms; null: none yet);
// stale: why that word is old, else null; chosen: {kind: "node" | "incident", id} or null.
const state = {
  me: null, nodes: [], incidents: [], closed: [], paused: [], freshAt: null, stale: null,
  chosen: null, showClosed: false,
};

class Refused extends Error {
  // status 0: no answer at all.
  constructor(status, text) { super(text); this.status = status; }
}

function el(tag, options = {}, ...children) {
  const node = document.createElement(tag);
  const { text, title, onclick, cls, attrs, key } = options;
  if (cls) node.className = cls;
  if (text !== undefined && text !== null) node.textContent = String(text);
  if (title) node.title = title;
  if (key) node.dataset.key = key;
  if (onclick) { node.type = "button"; node.addEventListener("click", onclick); }
  for (const [name, value] of Object.entries(attrs || {})) node.setAttribute(name, value);
  node.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return node;
}

// Put new children in place; whoever stood on a button with a key (keyboard) stands on its successor.
// What is the same stays: a text that is being selected, a button under the mouse. And nothing is replaced
// while a button is pressed down: released over its successor, the click would be lost.
const mouse = { down: null, waiting: new Map() };

function swap(container, children) {
  if (mouse.down && container.contains(mouse.down)) { mouse.waiting.set(container, children); return; }
  const before = [...container.children];
  const after = children.map((child, index) => (before[index] && before[index].isEqualNode(child) ? before[index] : child));
  if (before.length === after.length && after.every((child, index) => child === before[index])) return;
  const held = container.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  const opened = new Set([...container.querySelectorAll("details[open]")].map((box) => box.dataset.key));
  container.replaceChildren(...after);
  for (const box of container.querySelectorAll("details")) if (opened.has(box.dataset.key)) box.open = true;
  if (!held || container.contains(document.activeElement)) return;
  for (const next of container.querySelectorAll("[data-key]")) {
    if (next.dataset.key === held) { next.focus({ preventScroll: true }); return; }
  }
}

function released() {
  mouse.down = null;
  const waiting = [...mouse.waiting];
  mouse.waiting.clear();
  for (const [container, children] of waiting) swap(container, children);
}

addEventListener("pointerdown", (event) => { mouse.down = event.target; }, true);
// After the click that the release makes.
for (const end of ["pointerup", "pointercancel"]) addEventListener(end, () => setTimeout(released, 0), true);

async function call(path, body) {
  const options = body === undefined ? {} : {
    method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body),
  };
  let response;
  try { response = await fetch(path, { ...options, signal: AbortSignal.timeout(ANSWER_MS) }); }
  catch { throw new Refused(0, "the controller does not answer"); }
  const answer = response.status === 204 ? {} : await response.json().catch(() => ({}));
  if (!response.ok) throw new Refused(response.status, String(answer.error || `the controller answered with status ${response.status}`));
  return answer;
}

const api = (path, body) => call("/api/v1" + path, body);
const operator = () => Boolean(state.me) && state.me.role === "operator";
const words = (text) => String(text).replaceAll("_", " ");
const plural = (count, one, many) => `${count} ${count === 1 ? one : many || one + "s"}`;

const two = (number) => String(number).padStart(2, "0");
const day = (date) => `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
const clock = (date) => `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;

// 14:03:21 of today, else 2026-12-01 14:03:21. Absent is absent, never 1970.
function moment(seconds) {
  if (seconds === null || seconds === undefined) return "";
  const date = new Date(seconds * 1000);
  return day(date) === day(new Date()) ? clock(date) : `${day(date)} ${clock(date)}`;
}

function time(seconds) {
  if (seconds === null || seconds === undefined) return null;
  const date = new Date(seconds * 1000);
  return el("time", { text: moment(seconds), title: `${day(date)} ${clock(date)}`, attrs: { datetime: date.toISOString() } });
}

const chip = (look, text) => el("span", { cls: `chip ${look}`, text });
const VERDICTS = { healthy: ["good", "✓ healthy"], unhealthy: ["bad", "! unhealthy"], unknown: ["", "? unknown"] };
const verdictChip = (verdict) => chip(...(VERDICTS[verdict] || ["", `? ${verdict}`]));

// What to say when something was refused: what, and what to do next.
function explain(error) {
  if (error.status === 0) return "The controller does not answer. Whether this was taken is not known: wait until it is back and look before you repeat it.";
  if (error.status === 401) return "Your session has ended; nothing was done. Go back, sign in and try again.";
  const sentence = error.message.charAt(0).toUpperCase() + error.message.slice(1).replace(/\.?$/, ".");
  if (error.status === 403) return `${sentence} Nothing was done.`;
  if (error.status === 404 || error.status === 409) return `${sentence} Go back: the page shows how it is now.`;
  if (error.status === 503) return `${sentence} Nothing was done; try again in a moment.`;
  return sentence;
}
