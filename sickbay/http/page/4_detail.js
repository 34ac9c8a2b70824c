// One incident step by step, or one node: what is, why, and what stands before the next step.

const STAGES = [
  ["Found", () => true], ["Confirmed", () => true], ["Out of service", ["cordon", "drain"]],
  ["Repair", ["reset_gpu", "reboot", "power_cycle"]], ["Verified", ["verify"]], ["Back in service", ["uncordon"]],
];
const STAGE_OF = {
  suspected: 0, confirmed: 1, awaiting_approval: 1, cordoning: 2, draining: 2, drained: 2, repairing: 3, verifying: 4, probation: 5,
};
let painting = 0;

function choose(kind, id) { location.hash = `${kind}/${encodeURIComponent(id)}`; }

function chosenFromAddress() {
  const found = /^#(node|incident)\/(.+)$/.exec(location.hash);
  if (!found) return null;
  try { return { kind: found[1], id: decodeURIComponent(found[2]) }; } catch { return null; }
}

function closeDetail() { history.pushState(null, "", location.pathname); follow(); }

// The address says what is chosen: links, reload and the browser's Back button work.
async function follow() {
  const before = state.chosen;
  state.chosen = chosenFromAddress();
  const open = Boolean(state.chosen);
  $("detail").hidden = !open;
  $("list").hidden = open;
  document.body.classList.toggle("detail-open", open);
  if (!state.me) return;
  if (open) {
    $("detail-title").textContent = state.chosen.id;
    $("detail-id").textContent = "";
    swap($("detail-body"), [el("p", { cls: "quiet", text: "loading" })]);
    $("side").scrollTop = 0;
    $("detail-title").focus({ preventScroll: true });
    await paintDetail();
  } else if (before) {
    const key = `open ${before.id}`;
    const row = [...$("incidents").querySelectorAll("[data-key]")].find((button) => button.dataset.key === key);
    const tile = before.kind === "node" && map.tiles.get(before.id);
    if (row) row.focus(); else if (tile) tile.tile.focus();
  }
  paintMap();
}

const block = (title, ...children) => el("section", { cls: "part", attrs: { "aria-label": title } }, el("h3", { text: title }), ...children);

function rail(incident) {
  const done = (steps) => incident.steps.some((line) => steps.includes(line.step) && line.phase === "effect" && ["done", "already"].includes(line.outcome));
  const closed = CLOSED.has(incident.state);
  const at = closed ? STAGES.length : STAGE_OF[incident.state];
  const blocked = !closed && incident.blocked_by.length > 0;
  const items = STAGES.map(([label, how], index) => {
    const reached = typeof how === "function" ? index < at : done(how) && index !== at;
    const look = index === at ? (blocked ? "blocked" : "now") : reached ? "done" : "open";
    const sign = { done: "✓", now: "●", blocked: "✕", open: "○" }[look];
    const note = { done: "done", now: "now", blocked: "blocked before the next", open: closed ? "not reached" : "not yet" }[look];
    return el("li", { cls: look, title: `${label}: ${note}`, attrs: index === at ? { "aria-current": "step" } : {} },
      el("span", { text: sign, attrs: { "aria-hidden": "true" } }), label, el("span", { cls: "hear", text: `, ${note}` }));
  });
  return el("ol", { cls: "rail", attrs: { "aria-label": "How far it is" } }, ...items);
}

const PHASE = { intent: "intent", attempt: "attempt", effect: "effect", decision: "decided" };

function stepRow(line) {
  const bad = ["refused", "failed"].includes(line.outcome);
  const sign = bad ? "✕" : line.outcome === "done" || line.outcome === "already" ? "✓" : line.phase === "intent" ? "→" : line.outcome ? "?" : "";
  const look = bad ? "bad" : sign === "✓" ? "good" : sign === "?" ? "warn" : "";
  const what = [line.step ? words(line.step) : PHASE[line.phase] || line.phase, line.step && (line.outcome ? words(line.outcome) : PHASE[line.phase])];
  return el("li", { cls: line.actor === "person" ? "person" : "" }, time(line.at), chip(look, `${sign} ${what.filter(Boolean).join(" · ")}`.trim()),
    el("span", { cls: "said" }, line.reason || "", line.actor && line.actor !== "sickbay" ? el("span", { cls: "quiet", text: ` (${line.actor})` }) : null));
}

function gateRow(gate) {
  return el("li", {}, chip(gate.blocks ? "bad" : "good", gate.blocks ? "✕ blocks" : "✓ passes"),
    el("strong", { text: words(gate.gate) }), el("span", { cls: "said", text: gate.reason }));
}

function gatesBlock(why, title) {
  const gates = [...why.gates].sort((a, b) => b.blocks - a.blocks);
  return block(title, gates.length ? el("ul", { cls: "gates" }, ...gates.map(gateRow)) : el("p", { cls: "quiet", text: "Nothing to decide." }));
}

const shownValue = (value) => (value === null || value === undefined ? "—" : typeof value === "object" ? JSON.stringify(value) : String(value));

function findingRow(finding) {
  const look = { critical: "bad", warning: "warn" }[finding.severity] || "";
  const evidence = Object.entries(finding.evidence || {});
  return el("li", { cls: finding.cleared_at ? "past" : "" },
    el("div", { cls: "line" }, el("strong", { text: finding.rule }), chip(look, finding.severity), el("span", { cls: "quiet", text: `asks for: ${words(finding.response)}` }),
      finding.cleared_at ? chip("", "cleared") : null),
    finding.sentence ? el("p", { text: finding.sentence }) : null,
    el("div", { cls: "quiet" }, finding.gpu ? `GPU ${finding.gpu} · ` : "", "since ", time(finding.since), finding.cleared_at ? ", cleared " : "", finding.cleared_at ? time(finding.cleared_at) : null),
    evidence.length ? el("details", { key: finding.id }, el("summary", { text: "Evidence" }),
      el("dl", { cls: "facts" }, ...evidence.flatMap(([key, value]) => [el("dt", { text: words(key) }), el("dd", { text: shownValue(value) })]))) : null);
}

function findingsBlock(findings, none) {
  return block("Findings", findings.length ? el("ul", { cls: "findings" }, ...findings.map(findingRow)) : el("p", { cls: "quiet", text: none }));
}

function nodeBlock(why, node) {
  const rows = [
    ["Verdict", [verdictChip(why.verdict), why.because || ""]],
    ["Scheduler", [words(node.state || why.state || "unknown") + (node.reason ? `: ${node.reason}` : "")]],
    ["Out of service by", [{ sickbay: "sickbay", foreign: "somebody else" }[why.owner] || "nobody"]],
    ["Pool", [node.pool || "none"]],
  ];
  if (node.gpus_total !== undefined) rows.push(["GPUs", [node.gpus_total === null ? "not known" : String(node.gpus_total)]]);
  if (why.metrics) rows.push(["Exporter", why.metrics.last_answer === null ? ["has not answered yet"] : ["last answered ", time(why.metrics.last_answer)]]);
  for (const said of (why.metrics && [...why.metrics.pending, ...why.metrics.unknown]) || []) rows.push(["", [shownValue(said)]]);
  return block(`Node ${why.node}`, el("dl", { cls: "facts" }, ...rows.flatMap(([name, parts]) => [el("dt", { text: name }), el("dd", {}, ...parts)])));
}

function nowBlock(incident, why) {
  const blocks = incident && !CLOSED.has(incident.state) ? why.gates.filter((gate) => gate.blocks) : [];
  const next = why.next_step;
  const parts = [];
  if (incident && CLOSED.has(incident.state)) parts.push(el("p", {}, ...stateChips(incident), " ", incident.reason || "", " ", time(incident.closed_at)));
  else if (next && blocks.length) parts.push(el("p", {}, chip("bad", `✕ ${words(next.step)} is blocked`), ` by ${blocks.map((gate) => words(gate.gate)).join(", ")}: ${blocks[0].reason}`));
  else if (next) parts.push(el("p", {}, chip("good", `→ next: ${words(next.step)}`), " ", next.reason));
  else if (why.waiting) parts.push(el("p", { text: why.waiting.charAt(0).toUpperCase() + why.waiting.slice(1) }));
  if (incident && awaitsPerson(incident)) parts.push(el("p", { cls: "call" }, chip("warn", "◆ a person decides"), operator() ? " Approve says yes to the next step; whatever else blocks goes on blocking. Cancel ends the incident." : " An operator can approve or cancel it."));
  if (incident && incident.approved_by) parts.push(el("p", { cls: "quiet", text: `Approved by ${incident.approved_by}.` }));
  return parts.length ? el("div", { cls: "now-box" }, ...parts) : null;
}

async function incidentParts(id) {
  const incident = await api("/incidents/" + encodeURIComponent(id));
  const why = await api(`/nodes/${encodeURIComponent(incident.node)}/why`);
  const node = state.nodes.find((item) => item.name === incident.node) || {};
  const open = !CLOSED.has(incident.state);
  const mine = open && (why.incident ? why.incident.id === incident.id : true);
  const title = incident.node;
  const parts = [
    el("div", { cls: "line" }, ...stateChips(incident), el("span", { cls: "quiet" }, "since ", time(incident.opened_at))),
    nowBlock(incident, mine ? why : { ...why, next_step: null, waiting: null, gates: [] }), rail(incident), acts(incident.node, why, open ? incident : null),
    mine ? gatesBlock(why, "Gates before the next step") : null,
    block("Step by step", incident.steps.length ? el("ol", { cls: "steps" }, ...incident.steps.map(stepRow)) : el("p", { cls: "quiet", text: "Nothing was written yet." })),
    findingsBlock(incident.findings, "None is stored."), nodeBlock(why, node),
  ];
  return { title, id: `incident ${incident.id}`, node: incident.node, parts };
}

async function nodeParts(name) {
  const why = await api(`/nodes/${encodeURIComponent(name)}/why`);
  const past = await api(`/incidents?limit=20&node=${encodeURIComponent(name)}`);
  const node = state.nodes.find((item) => item.name === name) || {};
  const rows = past.items.map((incident) => el("li", {}, el("div", { cls: "line" },
    el("button", { cls: "link", text: incident.id, key: `open ${incident.id}`, onclick: () => choose("incident", incident.id) }), ...stateChips(incident),
    el("span", { cls: "quiet" }, (incident.rules || []).join(", "), " · since ", time(incident.opened_at)))));
  const notes = [...(why.notes || [])].map((note) => el("li", {}, time(note.at), el("span", { cls: "said", text: note.reason })));
  const parts = [
    nodeBlock(why, node), nowBlock(why.incident, why), acts(name, why, why.incident),
    block("Incidents", rows.length ? el("ul", { cls: "findings" }, ...rows) : el("p", { cls: "quiet", text: "This node has had none." })),
    findingsBlock(why.findings, "No finding holds."),
    gatesBlock(why, why.incident ? "Gates before the next step" : "Gates, if it had to be taken out of service now"),
  ];
  if (notes.length) parts.push(block("Notes", el("ol", { cls: "steps" }, ...notes)));
  return { title: name, id: "node", node: name, parts };
}

async function paintDetail() {
  const chosen = state.chosen;
  if (!chosen) return;
  const turn = ++painting;
  const stillWanted = () => turn === painting && state.chosen === chosen;
  try {
    const { title, id, node, parts } = await (chosen.kind === "node" ? nodeParts(chosen.id) : incidentParts(chosen.id));
    if (!stillWanted()) return;
    chosen.node = node;
    $("detail-title").textContent = title;
    $("detail-id").textContent = id;
    swap($("detail-body"), parts.filter(Boolean));
  } catch (error) {
    if (error.status === 401 || error.status === 0 || !stillWanted()) { if (stillWanted()) throw error; return; }
    swap($("detail-body"), [el("p", { cls: "error", text: explain(error) })]);
  }
}

$("detail-close").addEventListener("click", closeDetail);
addEventListener("hashchange", () => { follow().catch(troubled); });
addEventListener("popstate", () => { if (!location.hash && state.chosen) follow().catch(troubled); });
document.addEventListener("keydown", (event) => { if (event.key === "Escape" && !$("ask").open && state.chosen) closeDetail(); });
