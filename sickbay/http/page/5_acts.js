// Human word: each act asks once. What takes something away, or stops something, wants a reason.

let noticeTimer = null;

function notice(text) {
  $("notice").textContent = text;
  $("notice").hidden = false;
  clearTimeout(noticeTimer);
  noticeTimer = setTimeout(() => { $("notice").hidden = true; }, 8000);
}

function approve(incident) {
  ask({ title: `Approve ${incident.id}`, text: `Says yes to the next step: ${incident.node} may be taken out of service as soon as no other gate blocks.`, ok: "Approve", done: `Approved ${incident.id}.` },
    (body) => api(`/incidents/${encodeURIComponent(incident.id)}/approve`, body));
}

function cancelIncident(incident) {
  ask({ title: `Cancel ${incident.id}`, text: `The incident on ${incident.node} ends. What was written about it stays in the ledger.`, ok: "Cancel the incident", danger: true, needed: true, done: `Cancelled ${incident.id}.` },
    (body) => api(`/incidents/${encodeURIComponent(incident.id)}/cancel`, body));
}

function hold(name) {
  ask({ title: `Hold ${name}`, text: "Sickbay goes on watching this node and keeps its hands off it, until released. It survives restarts.", ok: "Hold", needed: true, minutes: true, done: `${name} is on hold.` },
    (body) => api(`/nodes/${encodeURIComponent(name)}/hold`, body));
}

function release(name) {
  ask({ title: `Release ${name}`, text: "Ends the hold, and a cool-off if one runs: sickbay may act on this node again.", ok: "Release", done: `${name} is released.` },
    (body) => api(`/nodes/${encodeURIComponent(name)}/release`, body));
}

function pause() {
  ask({ title: "Pause all action", text: "Sickbay goes on watching and stops acting, until resumed. It survives restarts.", ok: "Pause", danger: true, needed: true, minutes: true, pool: true, done: "Paused: no step is begun." },
    (body) => api("/pause", body));
}

function resume(pool) {
  const where = pool === null ? "the whole fleet" : `pool ${pool}`;
  ask({ title: `Resume ${where}`, text: "Ends the pause: sickbay acts again where nothing else blocks.", ok: "Resume", done: `Resumed ${where}.` },
    (body) => api("/resume", pool === null ? body : { ...body, pool }));
}

// What an operator can do with a node and its open incident.
function acts(name, why, incident) {
  if (!operator()) return null;
  const held = why.gates.some((gate) => (gate.gate === "hold" || gate.gate === "cooldown") && gate.blocks);
  const onHold = why.gates.some((gate) => gate.gate === "hold" && gate.blocks);
  const buttons = [];
  if (incident && awaitsPerson(incident)) buttons.push(el("button", { text: "Approve", key: "approve", onclick: () => approve(incident) }));
  if (incident && !CLOSED.has(incident.state)) buttons.push(el("button", { cls: "plain", text: "Cancel the incident", key: "cancel", onclick: () => cancelIncident({ ...incident, node: name }) }));
  if (!onHold) buttons.push(el("button", { cls: "plain", text: `Hold ${name}`, key: "hold", onclick: () => hold(name) }));
  if (held) buttons.push(el("button", { cls: "plain", text: `Release ${name}`, key: "release", onclick: () => release(name) }));
  return el("div", { cls: "acts" }, ...buttons);
}

function bodyOf(options) {
  const reason = $("ask-reason").value.trim();
  if (options.needed && !reason) throw new Refused(400, "a reason is needed: who looks at this later should know why");
  const body = { reason: reason || null };
  const minutes = $("ask-minutes");
  if (options.minutes && !minutes.validity.valid) throw new Refused(400, "minutes must be a whole number from 1 to 527040 (a year), or empty");
  if (options.minutes && minutes.value) body.expires_in_seconds = Number(minutes.value) * 60;
  if (options.pool && $("ask-pool").value) body.pool = $("ask-pool").value;
  return body;
}

async function submitAsk(options, send) {
  $("ask-error").textContent = "";
  $("ask-ok").disabled = true;
  try {
    await send(bodyOf(options));
    $("ask").close();
    notice(options.done);
    await refresh();
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    $("ask-error").textContent = explain(error);
    if (error.status === 400) $("ask-reason").focus();
  } finally { $("ask-ok").disabled = false; }
}

function ask(options, send) {
  $("ask-title").textContent = options.title;
  $("ask-text").textContent = options.text;
  $("ask-ok").textContent = options.ok;
  $("ask-ok").className = options.danger ? "danger" : "";
  $("ask-reason").value = $("ask-minutes").value = $("ask-error").textContent = "";
  $("ask-reason").setAttribute("aria-required", String(Boolean(options.needed)));
  $("ask-optional").textContent = options.needed ? "(needed)" : "(optional)";
  $("ask-minutes-row").hidden = !options.minutes;
  $("ask-pool-row").hidden = !options.pool;
  const pools = [...new Set(state.nodes.map((node) => node.pool).filter(Boolean))].sort();
  $("ask-pool").replaceChildren(el("option", { text: "the whole fleet", attrs: { value: "" } }),
    ...pools.map((pool) => el("option", { text: `pool ${pool}`, attrs: { value: pool } })));
  $("ask").querySelector("form").onsubmit = (event) => { event.preventDefault(); submitAsk(options, send); };
  $("ask").showModal();
  $("ask-reason").focus();
}

function paintPaused() {
  const rows = state.paused.map((word) => {
    const where = word.pool ? `Pool ${word.pool} is paused` : "Paused: the whole fleet";
    const until = word.expires_at ? ` until ${moment(word.expires_at)}` : "";
    return el("div", { cls: "line" }, el("span", { cls: "grow", text: `‖ ${where}${until}, by ${word.author}: ${word.reason}` }),
      operator() ? el("button", { cls: "plain", text: "Resume", key: `resume ${word.pool}`, onclick: () => resume(word.pool || null), attrs: { "aria-label": `Resume ${word.pool || "the whole fleet"}` } }) : null);
  });
  swap($("paused"), rows);
  $("paused").hidden = !rows.length;
  $("pause").hidden = !operator() || state.paused.some((word) => !word.pool);
}

$("pause").addEventListener("click", pause);
$("ask-cancel").addEventListener("click", () => $("ask").close());
