// The map: one tile a node. Colour, sign and word say the same; none of them stands alone.

const KINDS = [
  ["sick", "unhealthy, in service", "!"], ["ours", "out of service by sickbay", "↻"],
  ["person", "out of service by people", "‖"], ["down", "down", "×"], ["unknown", "unknown", "?"],
  ["busy", "busy", "●"], ["mixed", "partly busy", "◐"], ["idle", "idle", "○"], ["off", "powered down", "–"],
];
const SIGN = Object.fromEntries(KINDS.map(([kind, , sign]) => [kind, sign]));
const OUT = new Set(["draining", "drained", "rebooting", "maintenance"]);
const NAME_CHARS = 24;
const map = { tiles: new Map(), layout: "", at: null };

function kindOf(node) {
  if (state.stale) return "unknown";
  if (node.state === "down") return "down";
  if (node.state === "powered_down") return "off";
  if (node.owner === "sickbay") return "ours";
  if (node.owner === "foreign" || OUT.has(node.state)) return "person";
  if (node.verdict === "unhealthy") return "sick";
  if (node.verdict !== "healthy" || node.state === "unknown") return "unknown";
  if (node.state === "allocated") return "busy";
  return node.state === "mixed" ? "mixed" : "idle";
}

// A second sign in the corner: out of service, and what the service thinks of it.
function mark(node, kind) {
  if (state.stale || kind === "sick" || kind === "unknown") return "";
  return { unhealthy: "!", unknown: "?" }[node.verdict] || "";
}

const density = () => (state.nodes.length <= 150 ? "" : "dense");

// Long names share their domain and their beginnings: the end tells them apart.
function shortNames(names) {
  const domains = new Set(names.map((name) => name.slice(name.indexOf(".") + 1 || name.length)));
  const shared = names.length > 1 && domains.size === 1 && !domains.has("");
  return new Map(names.map((name) => {
    const short = shared ? name.slice(0, name.indexOf(".")) : name;
    return [name, short.length > NAME_CHARS ? "…" + short.slice(1 - NAME_CHARS) : short];
  }));
}

function buildMap() {
  const pools = new Map();
  for (const node of state.nodes) {
    const pool = node.pool || "no pool";
    if (!pools.has(pool)) pools.set(pool, []);
    pools.get(pool).push(node.name);
  }
  map.tiles.clear();
  const parts = [];
  for (const [pool, names] of [...pools].sort(([a], [b]) => a.localeCompare(b))) {
    const short = shortNames(names);
    const grid = el("div", { cls: `tiles ${density()}` });
    const longest = Math.max(...[...short.values()].map((name) => name.length));
    grid.style.setProperty("--chars", Math.max(longest + 2, 14));
    for (const name of names) {
      const label = el("span", { cls: "name", text: short.get(name) });
      const word = el("span", { cls: "word" });
      const tile = el("button", { onclick: () => choose("node", name), attrs: { tabindex: "-1" } }, label, word);
      tile.dataset.node = name;
      map.tiles.set(name, { tile, label, word });
      grid.append(tile);
    }
    const group = el("div", {}, el("h3", { text: `${pool} · ${plural(names.length, "node")}` }), grid);
    group.dataset.pool = pool;
    parts.push(group);
  }
  swap($("map"), parts);
  if (!map.tiles.has(map.at)) map.at = state.nodes.length ? state.nodes[0].name : null;
}

const chosenNode = () => state.chosen && (state.chosen.kind === "node" ? state.chosen.id : state.chosen.node);

function paintTile(node, kind, chosen) {
  const { tile, label, word } = map.tiles.get(node.name);
  const badge = mark(node, kind);
  const look = `tile c-${kind}${node.incident ? " open" : ""}${node.name === chosen ? " chosen" : ""}`;
  if (tile.className !== look) tile.className = look;
  if (density()) {
    const sign = badge && kind !== "down" ? badge : SIGN[kind];
    if (label.textContent !== sign) label.textContent = sign;
  } else {
    const said = `${SIGN[kind]} ${state.stale ? "was " : ""}${words(node.state)}${badge ? " " + badge : ""}`;
    if (word.textContent !== said) word.textContent = said;
  }
  const owner = { sickbay: ", out of service by sickbay", foreign: ", out of service by somebody else" }[node.owner] || "";
  const said = `${node.name}: ${state.stale ? "unknown, was " : ""}${words(node.state)}, ${node.verdict}${owner}${node.incident ? `, incident ${node.incident}` : ""}`;
  if (tile.title !== said) { tile.title = said; tile.setAttribute("aria-label", said); }
  const stop = node.name === map.at ? "0" : "-1";
  if (tile.getAttribute("tabindex") !== stop) tile.setAttribute("tabindex", stop);
}

function paintMap() {
  const layout = JSON.stringify([density(), state.nodes.map((node) => [node.pool, node.name])]);
  if (layout !== map.layout) { buildMap(); map.layout = layout; }
  const counts = {};
  const chosen = chosenNode();
  for (const node of state.nodes) {
    const kind = kindOf(node);
    counts[kind] = (counts[kind] || 0) + 1;
    paintTile(node, kind, chosen);
  }
  const item = (look, sign, said) => el("li", {}, el("span", { cls: `swatch ${look}`, text: sign, attrs: { "aria-hidden": "true" } }), said);
  const rows = KINDS.filter(([kind]) => counts[kind]).map(([kind, label, sign]) => item(`c-${kind}`, sign, `${label} ${counts[kind]}`));
  const framed = state.nodes.filter((node) => node.incident).length;
  if (framed) rows.push(item("framed", "", `incident open ${framed}`));
  swap($("legend"), rows);
  filterMap();
}

function filterMap() {
  const wanted = $("filter").value.trim().toLowerCase();
  let shown = 0;
  for (const group of $("map").children) {
    const whole = group.dataset.pool.toLowerCase().includes(wanted);
    let here = 0;
    for (const tile of group.querySelectorAll(".tile")) {
      tile.hidden = !(whole || tile.dataset.node.toLowerCase().includes(wanted));
      here += !tile.hidden;
    }
    group.hidden = !here;
    shown += here;
  }
  const note = !state.nodes.length
    ? "The scheduler has named no node yet. If this stays: see whether the controller reaches it (its log says), and what the pools of its configuration match."
    : shown ? "" : `No node and no pool is called like "${$("filter").value.trim()}".`;
  $("map-note").hidden = !note;
  $("map-note").textContent = note;
  // The keyboard's way into the map must not be a tile that the filter hides.
  const at = map.tiles.get(map.at);
  if (shown && at && at.tile.hidden) moveTo([...map.tiles.values()].find(({ tile }) => !tile.hidden).tile, false);
}

function moveTo(tile, focus = true) {
  const before = map.tiles.get(map.at);
  if (before) before.tile.setAttribute("tabindex", "-1");
  map.at = tile.dataset.node;
  tile.setAttribute("tabindex", "0");
  if (focus) tile.focus();
}

// One stop for Tab, then arrows: a thousand stops would lock a keyboard in.
function walkMap(event) {
  const here = event.target.closest(".tile");
  if (!here) return;
  const tiles = [...map.tiles.values()].map(({ tile }) => tile).filter((tile) => !tile.hidden);
  const index = tiles.indexOf(here);
  const last = tiles.length - 1;
  const { left } = here.getBoundingClientRect();
  const row = (list) => list.find((tile) => Math.abs(tile.getBoundingClientRect().left - left) < 2);
  const next = {
    ArrowRight: () => tiles[Math.min(index + 1, last)], ArrowLeft: () => tiles[Math.max(index - 1, 0)],
    ArrowDown: () => row(tiles.slice(index + 1)), ArrowUp: () => row(tiles.slice(0, index).reverse()),
    Home: () => tiles[0], End: () => tiles[last],
  }[event.key];
  if (!next) return;
  event.preventDefault();
  const tile = next();
  if (tile) moveTo(tile);
}

$("filter").addEventListener("input", filterMap);
$("map").addEventListener("keydown", walkMap);
$("map").addEventListener("focusin", (event) => { const tile = event.target.closest(".tile"); if (tile) moveTo(tile, false); });
