// The list of incidents, and the decisions as they are made.

const MAX_FEED = 200;
const MAX_NAMES = 8;
const LOOKED_UP = 100;
const CLOSED_SHOWN = 50;
const feed = { ids: new Set(), last: null };

// A person's word lets it go on: the mode is approve, or a burst froze it.
const awaitsPerson = (incident) => incident.state === "awaiting_approval"
  || ((incident.blocked_by || []).includes("burst") && !incident.approved_by && !CLOSED.has(incident.state));

// Those of the newest page that are open, and those that nodes name and the page does not hold.
async function readIncidents() {
  const page = await api("/incidents?limit=500");
  const open = page.items.filter((incident) => !CLOSED.has(incident.state));
  const known = new Set(page.items.map((incident) => incident.id));
  const older = state.nodes.map((node) => node.incident).filter((id) => id && !known.has(id)).slice(0, LOOKED_UP);
  const rest = await Promise.all(older.map((id) => api("/incidents/" + encodeURIComponent(id)).catch((error) => {
    if (error.status === 404) return null;
    throw error;
  })));
  state.incidents = open.concat(rest.filter((incident) => incident && !CLOSED.has(incident.state)));
  state.incidents.sort((a, b) => awaitsPerson(b) - awaitsPerson(a) || b.opened_at - a.opened_at);
  state.closed = page.items.filter((incident) => CLOSED.has(incident.state)).slice(0, CLOSED_SHOWN);
}

const END = { returned: ["good", "✓ returned"], cancelled: ["", "– cancelled"], handed_over: ["warn", "→ handed over"] };

function stateChips(incident) {
  const blocked = CLOSED.has(incident.state) ? [] : incident.blocked_by || [];
  const waits = incident.state === "awaiting_approval";
  const first = END[incident.state] || [waits ? "warn" : "", waits ? "◆ awaits approval" : words(incident.state)];
  return [chip(...first), ...blocked.map((gate) => chip("bad", `✕ ${words(gate)} blocks`))];
}

function incidentRow(incident) {
  const acts = awaitsPerson(incident) && operator()
    ? [el("button", { text: "Approve", key: `approve ${incident.id}`, onclick: () => approve(incident), attrs: { "aria-label": `Approve ${incident.id} on ${incident.node}` } }),
      el("button", { cls: "plain", text: "Cancel", key: `cancel ${incident.id}`, onclick: () => cancelIncident(incident), attrs: { "aria-label": `Cancel ${incident.id} on ${incident.node}` } })] : [];
  return el("li", {},
    el("div", { cls: "line" },
      el("button", { cls: "link", text: incident.node, key: `open ${incident.id}`, onclick: () => choose("incident", incident.id) }),
      ...stateChips(incident)),
    el("p", { cls: "clamp", text: incident.reason || (incident.rules || []).join(", ") }),
    el("div", { cls: "line" },
      el("span", { cls: "quiet grow" }, `${incident.id} · ${(incident.rules || []).join(", ")} · since `, time(incident.opened_at)), ...acts));
}

function paintIncidents() {
  const shown = state.showClosed ? state.closed : state.incidents;
  const open = state.incidents.length;
  $("list-title").textContent = state.showClosed ? "Closed incidents" : `Open incidents${open ? ` (${open})` : ""}`;
  $("show-open").setAttribute("aria-pressed", String(!state.showClosed));
  $("show-closed").setAttribute("aria-pressed", String(state.showClosed));
  const none = state.showClosed ? "None has been closed lately." : state.freshAt === null ? "" : "No incident is open.";
  swap($("incidents"), shown.length ? shown.map(incidentRow) : [el("li", { cls: "quiet", text: none })]);
}

// -- decisions

function feedLine(line) {
  const what = [line.step ? words(line.step) : "", line.outcome ? words(line.outcome) : line.phase === "intent" ? "intent" : ""];
  const look = { refused: "bad", failed: "bad", unknown: "warn", done: "good", already: "good" }[line.outcome] || "";
  const text = what.filter(Boolean).join(" · ");
  const names = el("span", { cls: "names" });
  const row = el("li", { cls: line.actor === "person" ? "person" : "" }, time(line.at), names, text ? chip(look, text) : null,
    line.actor === "person" ? chip("", "person") : null, el("span", { text: line.reason || "" }));
  return { row, names, of: JSON.stringify([line.step, line.phase, line.outcome, line.reason]), nodes: [] };
}

function nameIn(entry, line) {
  if (!line.node || line.node === "-" || entry.nodes.includes(line.node)) return;
  entry.nodes.push(line.node);
  if (entry.nodes.length > MAX_NAMES) {
    const more = entry.names.querySelector(".more") || entry.names.appendChild(el("span", { cls: "more quiet" }));
    more.textContent = `and ${entry.nodes.length - MAX_NAMES} more`;
    return;
  }
  const [kind, id] = line.incident ? ["incident", line.incident] : ["node", line.node];
  entry.names.append(el("button", { cls: "link", text: line.node, onclick: () => choose(kind, id) }));
}

// The same sentence about several nodes in a row is one line with several names.
function addDecision(line) {
  if (line.id !== undefined) {
    if (feed.ids.has(line.id)) return;
    feed.ids.add(line.id);
  }
  const entry = feedLine(line);
  if (feed.last && feed.last.of === entry.of) { nameIn(feed.last, line); return; }
  nameIn(entry, line);
  feed.last = entry;
  $("feed").prepend(entry.row);
  while ($("feed").children.length > MAX_FEED) $("feed").lastChild.remove();
}

// What was said before this page was opened: the last lines of the newest incidents.
async function firstDecisions() {
  if ($("feed").children.length) return;
  const newest = [...state.incidents, ...state.closed].sort((a, b) => b.opened_at - a.opened_at).slice(0, 10);
  const details = await Promise.all(newest.map((incident) => api("/incidents/" + encodeURIComponent(incident.id)).catch(() => null)));
  const lines = details.filter(Boolean).flatMap((incident) =>
    (incident.steps || []).map((step) => ({ ...step, node: incident.node, incident: incident.id })));
  lines.sort((a, b) => a.at - b.at).slice(-50).forEach(addDecision);
  feed.last = null;
  if (!lines.length && !$("feed").children.length) $("feed").append(el("li", { cls: "quiet first", text: "None since this page was opened." }));
}

$("show-open").addEventListener("click", () => { state.showClosed = false; paintIncidents(); });
$("show-closed").addEventListener("click", () => { state.showClosed = true; paintIncidents(); });
