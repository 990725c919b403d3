// The page: filters, the list, keys and mouse.

const byId = (id) => document.getElementById(id);
const PAGE = 100;
const COLUMNS = [
  ["write", (row) => fact(row, "write") ?? row + 1],
  ["agent", lane],
  ["model", (row) => fact(row, "model") ?? ""],
  ["outcome", outcome],
  ["limit", (row) => limit(row) ?? ""],
  ["began", (row) => duration(begin[row])],
  ["queued", (row) => duration(fact(row, "queued_ms"))],
  ["connect", (row) => duration(fact(row, "connect_ms"))],
  ["first event", (row) => duration(fact(row, "first_event_ms"))],
  ["longest gap", (row) => duration(fact(row, "longest_gap_ms"))],
  ["took", (row) => duration(end[row] - begin[row])],
  ["keep-alives", (row) => fact(row, "keepalives") ?? ""],
];
const FIRST_NUMBER = 5; // of COLUMNS
let listed = []; // the chosen writes, the stuck and the slowest first
let page = 0;

function fill() {
  const failed = allWrites.filter((row) => outcome(row) !== "done").length;
  const parts = [`${grouped(allWrites.length)} writes in ${duration(data.end)} from ${new Date(data.began_ms).toISOString().slice(0, 19).replace("T", " ")} UTC`];
  parts.push(`${grouped(failed)} not done`, `${grouped(laneNames.length)} lanes`);
  if (data.unread > 0) parts.push(`${grouped(data.unread)} unreadable line${data.unread === 1 ? "" : "s"} left out`);
  byId("summary").textContent = `${parts.join("; ")}.`;
  const counts = (read) => {
    const found = new Map();
    for (const row of allWrites) found.set(read(row), (found.get(read(row)) ?? 0) + 1);
    return Array.from(found.entries()).filter(([value]) => value !== null).sort();
  };
  for (const [value, count] of counts(outcome)) byId("outcome").append(new Option(`${value} (${grouped(count)})`, value));
  for (const [value, count] of counts(limit)) byId("limit").append(new Option(`${value} (${grouped(count)})`, value));
  COLUMNS.forEach(([name], at) => {
    byId("heads").append(element("th", name, { scope: "col", ...(at >= FIRST_NUMBER ? { class: "number" } : {}) }));
  });
}

function applyFilters() {
  const how = byId("outcome").value, which = byId("limit").value, part = byId("agent").value.toLowerCase();
  const fitting = laneNames.map((name) => name.toLowerCase().includes(part));
  const chosen = allWrites.filter((row) =>
    (how === "" || outcome(row) === how) && (which === "" || limit(row) === which) && fitting[laneCode[row]]);
  listed = chosen.slice().sort(worseFirst);
  page = 0;
  layOut(chosen, byId("order").value);
  if (!rowOf.has(selected)) selected = null;
  lanes.scrollTop = 0;
  byId("shown").textContent = `${grouped(chosen.length)} of ${grouped(allWrites.length)} writes shown`;
  list();
  draw();
}

function list() {
  const shown = listed.slice(page * PAGE, (page + 1) * PAGE);
  byId("rows").replaceChildren(...shown.map((row) => {
    const line = element("tr");
    COLUMNS.forEach(([, read], at) => {
      if (at > 0) {
        line.append(element("td", read(row), at >= FIRST_NUMBER ? { class: "number" } : {}));
        return;
      }
      const head = element("th", "", { scope: "row" });
      const button = element("button", read(row), { type: "button", "aria-label": `Show ${inWords(row)}` });
      button.addEventListener("click", () => { select(row); show(row); });
      head.append(button);
      line.append(head);
    });
    return line;
  }));
  const last = Math.max(1, Math.ceil(listed.length / PAGE));
  byId("page").textContent = `Page ${page + 1} of ${grouped(last)}`;
  byId("previous").disabled = page === 0;
  byId("next").disabled = page + 1 >= last;
}

function turn(by) {
  page += by;
  list();
  byId("list").focus();
}

/** Return the write that an arrow leads to from the selected one. */
function neighbour(key) {
  if (rows.length === 0) return null;
  if (selected === null || key === "Home") return rows[0].writes[0];
  const place = rowOf.get(selected), writes = rows[place].writes, at = writes.indexOf(selected);
  if (key === "End") return rows[rows.length - 1].writes[0];
  if (key === "ArrowLeft" || key === "ArrowRight") return writes[at + (key === "ArrowLeft" ? -1 : 1)] ?? selected;
  const there = rows[place + (key === "ArrowUp" ? -1 : 1)];
  if (there === undefined) return selected;
  const off = (write) => Math.abs(begin[write] - begin[selected]);
  return there.writes.reduce((one, other) => (off(other) < off(one) ? other : one));
}

function pressed(event) {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  const length = view.to - view.from, centre = selected === null ? undefined : (begin[selected] + end[selected]) / 2;
  if (event.shiftKey && (event.key === "ArrowLeft" || event.key === "ArrowRight")) {
    const by = (event.key === "ArrowLeft" ? -0.2 : 0.2) * length;
    setView(view.from + by, view.to + by);
  } else if (["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End"].includes(event.key)) {
    const write = neighbour(event.key);
    if (write !== null) {
      select(write);
      byId("said").textContent = inWords(write);
    }
  } else if ((event.key === "Enter" || event.key === " ") && selected !== null) show(selected);
  else if (event.key === "+" || event.key === "=") zoom(0.5, centre);
  else if (event.key === "-") zoom(2, centre);
  else if (event.key === "0") setView(0, data.end);
  else return;
  event.preventDefault();
}

let grip = null; // {x, from, to, moved}: the mouse holds the view there
function listenToMouse() {
  canvas.addEventListener("pointerdown", (event) => {
    grip = { x: event.offsetX, from: view.from, to: view.to, moved: false };
    if (event.pointerType === "mouse") canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (grip === null) return;
    const by = event.offsetX - grip.x;
    if (Math.abs(by) > 4) grip.moved = true;
    const ms = (by / plotWidth()) * (grip.to - grip.from);
    if (grip.moved) setView(grip.from - ms, grip.to - ms);
  });
  canvas.addEventListener("pointerup", (event) => {
    const write = grip === null || grip.moved ? null : writeAt(event.offsetX, event.offsetY);
    grip = null;
    if (write !== null) {
      select(write);
      show(write);
    }
  });
  canvas.addEventListener("pointercancel", () => { grip = null; });
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    zoom(event.deltaY < 0 ? 0.8 : 1.25, toMs(event.offsetX));
  }, { passive: false });
}

fill();
readColors();
sortTools();
setView(0, data.end);
applyFilters();
for (const id of ["outcome", "limit", "order"]) byId(id).addEventListener("change", applyFilters);
byId("agent").addEventListener("input", applyFilters);
byId("filters").addEventListener("submit", (event) => event.preventDefault());
byId("zoom-in").addEventListener("click", () => zoom(0.5));
byId("zoom-out").addEventListener("click", () => zoom(2));
byId("zoom-fit").addEventListener("click", () => setView(0, data.end));
byId("previous").addEventListener("click", () => turn(-1));
byId("next").addEventListener("click", () => turn(1));
lanes.addEventListener("keydown", pressed);
lanes.addEventListener("scroll", draw);
new ResizeObserver(draw).observe(lanes);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readColors(); draw(); });
listenToMouse();
