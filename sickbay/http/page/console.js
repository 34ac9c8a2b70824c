"use strict";
// Everything shown is set through textContent: names, reasons and log lines are other people's words.
const $ = (id) => document.getElementById(id);
const CLOSED = new Set(["returned", "cancelled", "handed_over"]);
const MAX_FEED = 200;
const KINDS = [
  ["busy", "busy", ""], ["mixed", "partly busy", ""], ["idle", "idle", ""], ["sick", "unhealthy", "!"],
  ["ours", "held by sickbay", "↻"], ["person", "held by people", "‖"], ["down", "down", "×"],
  ["unknown", "unknown", "?"], ["off", "powered down", ""],
];
const GLYPH = Object.fromEntries(KINDS.map(([kind, , glyph]) => [kind, glyph]));
const state = { me: null, nodes: [], incidents: [], tiles: new Map(), layout: "", chosen: null, source: null, paused: [] };

class Refused extends Error { constructor(status, text) { super(text); this.status = status; } }

function el(tag, options = {}, ...children) {
  const node = document.createElement(tag);
  const { text, title, onclick, cls, attrs } = options;
  if (cls) node.className = cls;
  if (text !== undefined && text !== null) node.textContent = String(text);
  if (title) node.title = title;
  if (onclick) { node.type = "button"; node.addEventListener("click", onclick); }
  for (const [name, value] of Object.entries(attrs || {})) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

async function call(path, body) {
  const options = body === undefined ? {} : {
    method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body),
  };
  let response;
  try { response = await fetch(path, options); }
  catch { throw new Refused(0, "the controller does not answer"); }
  const answer = response.status === 204 ? {} : await response.json().catch(() => ({}));
  if (!response.ok) throw new Refused(response.status, answer.error || `status ${response.status}`);
  return answer;
}

const api = (path, body) => call("/api/v1" + path, body);
const clock = (seconds) => seconds ? new Date(seconds * 1000).toLocaleTimeString([], { hour12: false }) : "";
const moment = (seconds) => seconds ? new Date(seconds * 1000).toLocaleString([], { hour12: false }) : "";
const words = (text) => String(text).replaceAll("_", " ");

// -- the fleet

function kindOf(node) {
  if (node.state === "down") return "down";
  if (node.state === "powered_down") return "off";
  if (node.owner === "sickbay") return "ours";
  if (node.verdict === "unhealthy") return "sick";
  if (node.owner === "foreign" || node.state === "maintenance") return "person";
  if (node.verdict === "unknown" || node.state === "unknown") return "unknown";
  if (["draining", "drained", "rebooting"].includes(node.state)) return "person";
  if (node.state === "allocated") return "busy";
  return node.state === "mixed" ? "mixed" : "idle";
}

async function allNodes() {
  const found = [];
  let after = null, paused = [];
  do {
    const page = await api("/nodes?limit=5000" + (after ? "&after=" + encodeURIComponent(after) : ""));
    found.push(...page.items);
    paused = page.paused || paused;
    after = page.next;
  } while (after);
  state.paused = paused;
  return found;
}

function density() {
  if (state.nodes.length <= 150) return "";
  return state.nodes.length <= 1500 ? "medium" : "small";
}

function buildMap() {
  const pools = new Map();
  for (const node of state.nodes) {
    const pool = node.pool || "no pool";
    if (!pools.has(pool)) pools.set(pool, []);
    pools.get(pool).push(node);
  }
  state.tiles.clear();
  const parts = [];
  for (const [pool, nodes] of [...pools].sort(([a], [b]) => a.localeCompare(b))) {
    const grid = el("div", { cls: "tiles " + density() });
    for (const node of nodes) {
      const tile = el("button", { onclick: () => choose(node.name) });
      state.tiles.set(node.name, tile);
      grid.append(tile);
    }
    const group = el("div", {}, el("h3", { text: `${pool} · ${nodes.length}` }), grid);
    group.dataset.pool = pool;
    parts.push(group);
  }
  $("map").replaceChildren(...parts);
}

function paintMap() {
  const counts = {};
  const small = density();
  for (const node of state.nodes) {
    const kind = kindOf(node);
    counts[kind] = (counts[kind] || 0) + 1;
    const tile = state.tiles.get(node.name);
    const look = `tile c-${kind}${node.incident ? " open" : ""}${node.name === state.chosen ? " chosen" : ""}`;
    if (tile.className !== look) tile.className = look;
    const text = small ? GLYPH[kind] : `${GLYPH[kind]} ${node.name}`.trim();
    if (tile.textContent !== text) tile.textContent = text;
    const said = `${node.name}: ${words(node.state)}, ${node.verdict}, owner ${node.owner}`;
    if (tile.title !== said) { tile.title = said; tile.setAttribute("aria-label", said); }
  }
  $("legend").replaceChildren(...KINDS.filter(([kind]) => counts[kind]).map(([kind, label, glyph]) =>
    el("li", {}, el("span", { cls: `swatch c-${kind}`, text: glyph }), `${label} ${counts[kind]}`)));
  filterMap();
}

function filterMap() {
  const wanted = $("filter").value.trim().toLowerCase();
  for (const group of $("map").children) {
    const whole = group.dataset.pool.toLowerCase().includes(wanted);
    let shown = 0;
    for (const node of state.nodes) {
      if ((node.pool || "no pool") !== group.dataset.pool) continue;
      const tile = state.tiles.get(node.name);
      tile.hidden = !(whole || node.name.toLowerCase().includes(wanted));
      shown += !tile.hidden;
    }
    group.hidden = shown === 0;
  }
}

function summarise() {
  const count = (test) => state.nodes.filter(test).length;
  const sick = count((node) => node.verdict === "unhealthy");
  const unknown = count((node) => node.verdict === "unknown");
  const parts = [`${state.nodes.length} nodes`, sick ? `${sick} unhealthy` : "none unhealthy"];
  if (unknown) parts.push(`${unknown} unknown`);
  const blocked = state.incidents.filter((incident) => incident.blocked_by.length).length;
  if (blocked) parts.push(`${blocked} blocked`);
  $("summary").textContent = parts.join(" · ");
  document.title = sick ? `(${sick}) sickbay` : "sickbay";
}

function paintPaused() {
  $("paused").hidden = state.paused.length === 0;
  $("paused").textContent = state.paused.map((pause) =>
    `Paused (${pause.pool || "whole fleet"}) by ${pause.author}: ${pause.reason}`).join(" — ");
}

// -- incidents

async function openIncidents() {
  const page = await api("/incidents?limit=200");
  const open = page.items.filter((incident) => !CLOSED.has(incident.state));
  const known = new Set(open.map((incident) => incident.id));
  const older = state.nodes.map((node) => node.incident).filter((id) => id && !known.has(id)).slice(0, 50);
  const rest = await Promise.all(older.map((id) => api("/incidents/" + encodeURIComponent(id)).catch(() => null)));
  return open.concat(rest.filter((incident) => incident && !CLOSED.has(incident.state)));
}

function paintIncidents() {
  $("incident-count").textContent = state.incidents.length;
  const rows = state.incidents.map((incident) => {
    const row = el("li", {},
      el("button", { cls: "link", text: incident.node, onclick: () => choose(incident.node) }), " ",
      el("span", { cls: incident.state === "awaiting_approval" ? "chip warn" : "chip", text: words(incident.state) }),
      ...incident.blocked_by.map((gate) => el("span", { cls: "chip bad", text: "blocked: " + words(gate) })),
      el("div", { cls: "quiet", text: `${incident.id} · ${(incident.rules || []).join(", ")} · since ${moment(incident.opened_at)}` }));
    if (incident.state === "awaiting_approval" && operator()) {
      row.append(el("div", { cls: "acts" }, el("button", { text: "Approve", onclick: () => approve(incident) })));
    }
    return row;
  });
  $("incidents").replaceChildren(...(rows.length ? rows : [el("li", { cls: "quiet", text: "No open incidents." })]));
}

// -- decisions

function feedRow(line) {
  const what = line.step ? words(line.step) : line.state ? words(line.state) : "";
  const row = el("li", {}, el("time", { text: clock(line.at) }));
  if (line.node && line.node !== "-") row.append(el("button", { cls: "link", text: line.node, onclick: () => choose(line.node) }), " ");
  if (what) row.append(el("span", { cls: "chip", text: what }));
  row.append(line.reason || line.outcome || "");
  return row;
}

function feed(line) {
  $("feed").prepend(feedRow(line));
  while ($("feed").children.length > MAX_FEED) $("feed").lastChild.remove();
}

async function firstFeed() {
  const newest = state.incidents.slice(0, 10);
  const details = await Promise.all(newest.map((incident) => api("/incidents/" + encodeURIComponent(incident.id)).catch(() => null)));
  const lines = details.filter(Boolean).flatMap((incident) =>
    (incident.steps || []).map((step) => ({ ...step, node: incident.node })));
  lines.sort((a, b) => a.at - b.at).slice(-50).forEach(feed);
}

// -- why

async function choose(name) {
  state.chosen = name;
  $("why").hidden = false;
  $("why-title").textContent = name;
  paintMap();
  await paintWhy();
}

function section(title, ...children) { return [el("h3", { text: title }), ...children]; }

function chip(verdict) {
  const look = { healthy: "chip good", unhealthy: "chip bad" }[verdict] || "chip";
  return el("span", { cls: look, text: verdict });
}

function findingRow(finding) {
  const evidence = Object.entries(finding.evidence || {}).map(([key, value]) =>
    `${key}: ${typeof value === "object" ? JSON.stringify(value) : value}`).join(", ");
  return el("li", {}, el("strong", { text: finding.rule }), ` ${finding.severity}, ${words(finding.response)}`,
    finding.gpu ? ` · GPU ${finding.gpu}` : "", el("div", { cls: "quiet", text: `since ${moment(finding.since)} ${evidence}` }));
}

async function paintWhy() {
  const name = state.chosen;
  if (!name) return;
  let why;
  try { why = await api(`/nodes/${encodeURIComponent(name)}/why`); }
  catch (error) { if (name === state.chosen) $("why-body").replaceChildren(el("p", { cls: "error", text: error.message })); return; }
  if (name !== state.chosen) return;
  const node = state.nodes.find((item) => item.name === name) || {};
  const facts = el("dl", { cls: "facts" },
    el("dt", { text: "Verdict" }), el("dd", {}, chip(why.verdict), why.because || ""),
    el("dt", { text: "State" }), el("dd", { text: words(node.state || "unknown") + (node.reason ? ` — ${node.reason}` : "") }),
    el("dt", { text: "Drained by" }), el("dd", { text: { sickbay: "sickbay", foreign: "somebody else" }[why.owner] || "nobody" }),
    el("dt", { text: "Next step" }), el("dd", { text: why.next_step ? [why.next_step.step && words(why.next_step.step), why.next_step.reason].filter(Boolean).join(": ") : why.waiting || "none" }));
  const gates = [...why.gates].sort((a, b) => b.blocks - a.blocks).map((gate) => el("li", {},
    el("span", { cls: gate.blocks ? "chip bad" : "chip good", text: gate.blocks ? "block" : "pass" }),
    el("strong", { text: words(gate.gate) }), el("span", { text: gate.reason })));
  const parts = [facts];
  if (why.incident) parts.push(...section("Incident", el("div", { text: `${why.incident.id} · ${words(why.incident.state)}` })));
  parts.push(...section("Findings", why.findings.length ? el("ul", {}, ...why.findings.map(findingRow)) : el("p", { cls: "quiet", text: "No finding holds." })));
  parts.push(...section("Gates", gates.length ? el("ul", { cls: "gates" }, ...gates) : el("p", { cls: "quiet", text: "Nothing to decide." })));
  if ((why.notes || []).length) parts.push(...section("Notes", el("ul", { cls: "steps" }, ...[...why.notes].reverse().map((note) => el("li", {}, el("time", { text: moment(note.at) }), note.reason)))));
  if (operator()) parts.push(nodeActs(name, why));
  $("why-body").replaceChildren(...parts);
}

function nodeActs(name, why) {
  const path = "/nodes/" + encodeURIComponent(name);
  const acts = el("div", { cls: "acts" },
    el("button", { text: "Hold", onclick: () => ask({ title: `Hold ${name}`, text: "Sickbay keeps its hands off this node.", ok: "Hold", needed: true, minutes: true }, (body) => api(path + "/hold", body)) }),
    el("button", { cls: "plain", text: "Release", onclick: () => ask({ title: `Release ${name}`, text: "Ends the hold.", ok: "Release" }, (body) => api(path + "/release", body)) }));
  const incident = why.incident;
  if (incident && !CLOSED.has(incident.state)) {
    if (incident.state === "awaiting_approval") acts.prepend(el("button", { text: "Approve", onclick: () => approve(incident) }));
    acts.append(el("button", { cls: "plain", text: "Cancel incident", onclick: () => ask({ title: `Cancel ${incident.id}`, text: "The incident ends; the evidence stays in the ledger.", ok: "Cancel incident", needed: true }, (body) => api(`/incidents/${encodeURIComponent(incident.id)}/cancel`, body)) }));
  }
  return acts;
}

// -- human word

const operator = () => state.me && state.me.role === "operator";

function approve(incident) {
  ask({ title: `Approve ${incident.id}`, text: `Lets the next step on ${incident.node} happen.`, ok: "Approve" },
    (body) => api(`/incidents/${encodeURIComponent(incident.id)}/approve`, body));
}

function ask(options, send) {
  $("ask-title").textContent = options.title;
  $("ask-text").textContent = options.text;
  $("ask-ok").textContent = options.ok;
  $("ask-ok").className = options.danger ? "danger" : "";
  $("ask-reason").value = $("ask-minutes").value = $("ask-error").textContent = "";
  $("ask-reason").required = Boolean(options.needed);
  $("ask-optional").hidden = Boolean(options.needed);
  $("ask-minutes-row").hidden = !options.minutes;
  $("ask-pool-row").hidden = !options.pool;
  const pools = [...new Set(state.nodes.map((node) => node.pool).filter(Boolean))].sort();
  $("ask-pool").replaceChildren(el("option", { text: "the whole fleet", attrs: { value: "" } }),
    ...pools.map((pool) => el("option", { text: pool, attrs: { value: pool } })));
  $("ask").querySelector("form").onsubmit = async (event) => {
    event.preventDefault();
    const body = { reason: $("ask-reason").value.trim() || null };
    if (options.minutes && $("ask-minutes").value) body.expires_in_seconds = Number($("ask-minutes").value) * 60;
    if (options.pool && $("ask-pool").value) body.pool = $("ask-pool").value;
    try { await send(body); $("ask").close(); refreshSoon(); }
    catch (error) { $("ask-error").textContent = error.message; }
  };
  $("ask").showModal();
  $("ask-reason").focus();
}

// -- keeping up

let refreshing = false, again = false, timer = null;

async function refresh() {
  if (refreshing) { again = true; return; }
  refreshing = true;
  try {
    state.nodes = await allNodes();
    state.incidents = await openIncidents();
    const layout = density() + state.nodes.map((node) => `${node.pool}/${node.name}`).join();
    if (layout !== state.layout) { buildMap(); state.layout = layout; }
    paintMap(); paintIncidents(); paintPaused(); summarise();
    await paintWhy();
    $("trouble").hidden = true;
  } catch (error) {
    if (error.status === 401) { signedOut(); }
    else { $("trouble").textContent = `What you see may be old: ${error.message}`; $("trouble").hidden = false; }
  } finally {
    refreshing = false;
    if (again) { again = false; refreshSoon(); }
  }
}

function refreshSoon() {
  if (timer) return;
  timer = setTimeout(() => { timer = null; refresh(); }, state.nodes.length > 1500 ? 3000 : 400);
}

function live(on) {
  $("live").className = on ? "live on" : "live off";
  $("live").textContent = on ? "live" : "reconnecting";
}

function listen() {
  if (state.source) state.source.close();
  const source = state.source = new EventSource("/api/v1/stream");
  source.onopen = () => { live(true); refreshSoon(); };
  source.onerror = () => {
    live(false);
    // A refused stream is not retried by the browser; a lost one is.
    if (source.readyState === EventSource.CLOSED) setTimeout(() => { if (state.me && state.source === source) listen(); }, 5000);
  };
  source.onmessage = (message) => {
    let line;
    try { line = JSON.parse(message.data); } catch { return; }
    feed(line);
    refreshSoon();
  };
}

function signedOut() {
  state.me = null;
  if (state.source) state.source.close();
  $("main").hidden = $("pause").hidden = $("resume").hidden = $("logout").hidden = $("why").hidden = true;
  $("summary").textContent = $("who").textContent = $("live").textContent = "";
  $("login").hidden = false;
  $("token").focus();
}

async function begin() {
  try { state.me = await api("/session"); }
  catch (error) {
    if (error.status === 401 || error.status === 403) { signedOut(); if (error.status === 403) $("login-error").textContent = error.message; }
    else { $("trouble").textContent = error.message; $("trouble").hidden = false; setTimeout(begin, 3000); }
    return;
  }
  $("trouble").hidden = $("login").hidden = true;
  $("main").hidden = false;
  $("who").textContent = `${state.me.name} (${state.me.role})`;
  $("pause").hidden = $("resume").hidden = !operator();
  $("logout").hidden = state.me.method !== "session";
  await refresh();
  if (!state.me) return;
  await firstFeed();
  listen();
}

$("login").addEventListener("submit", async (event) => {
  event.preventDefault();
  $("login-error").textContent = "";
  try { await call("/login", { token: $("token").value.trim() }); $("token").value = ""; await begin(); }
  catch (error) { $("login-error").textContent = error.message; }
});
$("logout").addEventListener("click", async () => { try { await call("/logout", {}); } finally { signedOut(); } });
$("pause").addEventListener("click", () => ask({ title: "Pause all action", text: "Sickbay keeps watching and stops acting, until resumed. It survives restarts.", ok: "Pause", danger: true, needed: true, minutes: true, pool: true }, (body) => api("/pause", body)));
$("resume").addEventListener("click", () => ask({ title: "Resume", text: "Ends a pause; action goes on.", ok: "Resume", pool: true }, (body) => api("/resume", body)));
$("why-close").addEventListener("click", () => { state.chosen = null; $("why").hidden = true; paintMap(); });
$("ask-cancel").addEventListener("click", () => $("ask").close());
$("filter").addEventListener("input", filterMap);
document.addEventListener("keydown", (event) => { if (event.key === "Escape" && !$("ask").open && !$("why").hidden) $("why-close").click(); });
setInterval(() => { if (state.me) refresh(); }, 15000);
begin();
