// Keeping up with the controller, and saying so when that fails: what is old is marked, never shown as health.

const POLL_MS = 15000;
const RETRY_MS = 3000;
const TOO_OLD_MS = 45000;
const live = { source: null, last: null, timer: null, busy: false, again: false };

async function readNodes() {
  const found = [];
  let after = null, paused = [];
  do {
    const page = await api("/nodes?limit=5000" + (after ? "&after=" + encodeURIComponent(after) : ""));
    found.push(...page.items);
    paused = page.paused || [];
    after = page.next;
  } while (after);
  state.nodes = found;
  state.paused = paused;
}

function summarise() {
  const count = (verdict) => state.nodes.filter((node) => node.verdict === verdict).length;
  const open = state.incidents.length, waiting = state.incidents.filter(awaitsPerson).length;
  const parts = state.stale ? [plural(state.nodes.length, "node"), "state unknown now"]
    : [plural(state.nodes.length, "node"), `${count("unhealthy")} unhealthy`, `${count("unknown")} unknown`, `${open} open`,
      waiting ? `${waiting} ${waiting === 1 ? "waits" : "wait"} for a person` : ""];
  const text = parts.filter(Boolean).join(" · ");
  if ($("summary").textContent !== text) $("summary").textContent = text;
  document.title = `${state.stale ? "(stale) " : open ? `(${open}) ` : ""}sickbay`;
}

function paintStale() {
  $("stale").hidden = !state.stale;
  if (!state.stale) return;
  const since = state.freshAt === null ? "Nothing known yet" : `Stale since ${clock(new Date(state.freshAt))}`;
  const next = state.freshAt === null ? "" : " What you see is how it was then; whether it still is so, nobody knows.";
  const text = `⚠ ${since}: ${state.stale}.${next} Asking again every ${RETRY_MS / 1000} s.`;
  if ($("stale").textContent !== text) $("stale").textContent = text;
}

function paint() {
  document.body.classList.toggle("stale", Boolean(state.stale));
  paintStale(); paintMap(); paintIncidents(); paintPaused(); summarise(); paintLive();
}

function troubled(error) {
  if (!(error instanceof Refused)) throw error;
  if (error.status === 401 && !state.me) return; // the answer to a question asked before the sign-out
  if (error.status === 401) { signedOut("Your session has ended: it lasts 12 hours, and no longer than the controller runs. Sign in again; the page comes back to where you were."); return; }
  state.stale = error.message.replace(/\.$/, "");
  if (state.me) paint(); else paintStale();
}

async function refresh() {
  if (live.busy) { live.again = true; return; }
  live.busy = true;
  try {
    await readNodes();
    await readIncidents();
    state.stale = null;
    state.freshAt = Date.now();
    await paintDetail();
    paint();
  } catch (error) { troubled(error); }
  finally {
    live.busy = false;
    if (live.again) { live.again = false; refreshSoon(); }
  }
}

function refreshSoon() {
  if (live.timer) return;
  const wait = state.nodes.length > 1500 ? 3000 : state.nodes.length > 300 ? 1200 : 300;
  live.timer = setTimeout(() => { live.timer = null; if (state.me) refresh(); }, wait);
}

function paintLive() {
  const open = live.source && live.source.readyState === EventSource.OPEN && !state.stale;
  $("live").className = open ? "live on" : "live off";
  $("live").textContent = open ? "live" : state.stale ? "no connection" : `not live: asking every ${POLL_MS / 1000} s`;
}

function listen() {
  if (live.source) live.source.close();
  const source = live.source = new EventSource("/api/v1/stream" + (live.last === null ? "" : `?after=${live.last}`));
  source.onopen = () => { paintLive(); refreshSoon(); };
  source.onerror = () => {
    paintLive();
    refreshSoon();
    // A refused stream is not retried by the browser; a lost one is.
    if (source.readyState === EventSource.CLOSED) setTimeout(() => { if (state.me && live.source === source) listen(); }, 5000);
  };
  source.onmessage = (message) => {
    let line;
    try { line = JSON.parse(message.data); } catch { return; }
    live.last = Number(message.lastEventId) || live.last;
    const placeholder = $("feed").querySelector(".first");
    if (placeholder) placeholder.remove();
    addDecision(line);
    refreshSoon();
  };
}

// -- who we are

function signedOut(why) {
  state.me = null;
  state.stale = null;
  if (live.source) live.source.close();
  live.source = null;
  // The next person may be another one: nothing of this one's view stays on the screen.
  for (const id of ["main", "pause", "logout", "paused", "stale", "notice"]) $(id).hidden = true;
  for (const id of ["summary", "who", "live"]) $(id).textContent = "";
  $("live").className = "live";
  if ($("ask").open) $("ask").close();
  document.title = "sickbay";
  $("login-why").textContent = why || "";
  $("login-why").hidden = !why;
  $("login").hidden = false;
  $("token").focus();
}

async function begin() {
  try { state.me = await api("/session"); }
  catch (error) {
    if (error.status === 401) signedOut("");
    else if (error.status === 403) { signedOut(""); $("login-error").textContent = explain(error); }
    else { troubled(error); $("summary").textContent = ""; setTimeout(begin, RETRY_MS); }
    return;
  }
  $("login").hidden = true;
  $("main").hidden = false;
  $("who").textContent = `${state.me.name}${state.me.method === "anonymous" ? "" : ` (${state.me.role})`}`;
  $("logout").hidden = state.me.method !== "session";
  $("zone").textContent = `Times are this browser's: ${Intl.DateTimeFormat().resolvedOptions().timeZone}.`;
  await refresh();
  if (!state.me) return;
  await follow().catch(troubled);
  if (!state.me) return;
  await firstDecisions();
  listen();
}

async function signIn() {
  $("login-error").textContent = "";
  try { await call("/login", { token: $("token").value.trim() }); }
  catch (error) {
    if (!(error instanceof Refused)) throw error;
    $("login-error").textContent = error.status === 0
      ? "The controller does not answer. See whether it runs, then try again."
      : error.status === 401 ? "Nobody has this token. Check that it was copied whole, without the line's end." : explain(error);
    $("token").select();
    return;
  }
  $("token").value = "";
  await begin();
}

async function signOut() {
  try { await call("/logout", {}); signedOut("You are signed out."); }
  catch (error) {
    if (!(error instanceof Refused)) throw error;
    notice(`You are still signed in: ${error.message}. Try again.`);
  }
}

function watch() {
  if (!state.me) return;
  if (!state.stale && state.freshAt !== null && Date.now() - state.freshAt > TOO_OLD_MS) troubled(new Refused(0, "the controller has not answered in time"));
  if (state.stale || Date.now() - (state.freshAt || 0) >= POLL_MS) refresh();
}

$("login").addEventListener("submit", (event) => { event.preventDefault(); signIn(); });
$("logout").addEventListener("click", signOut);
setInterval(watch, RETRY_MS);
begin();
