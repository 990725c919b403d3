// The lanes: rows of writes on a canvas that is as high as what is seen of them, whatever their number.

const lanes = document.getElementById("lanes");
const canvas = document.getElementById("canvas");
const pen = canvas.getContext("2d");
const ROW = 22, AXIS = 26, SMALLEST_VIEW = 1; // pixels, pixels, milliseconds

let rows = []; // {lane, first: whether it is its lane's first, writes: in time, none overlapping another}
let rowOf = new Map(); // write -> place in rows
let toolsOf = new Map(); // lane code -> tool calls, in time
let view = { from: 0, to: 1 };
let selected = null;
let colors = {};

/** Lay out *chosen* (writes in the order they began) in lanes ordered by *order*. */
function layOut(chosen, order) {
  const byLane = new Map();
  for (const row of chosen) {
    const found = byLane.get(laneCode[row]);
    if (found === undefined) byLane.set(laneCode[row], [row]);
    else found.push(row);
  }
  let inOrder = Array.from(byLane.entries());
  if (order === "name") {
    const compare = new Intl.Collator("en", { numeric: true }).compare;
    inOrder.sort((one, other) => compare(laneNames[one[0]], laneNames[other[0]]));
  } else if (order === "worst") {
    const worst = (writes) => writes.reduce((one, other) => (worseFirst(one, other) <= 0 ? one : other));
    inOrder = inOrder.map(([code, writes]) => [code, writes, worst(writes)]);
    inOrder.sort((one, other) => worseFirst(one[2], other[2]));
  }
  rows = [];
  rowOf = new Map();
  for (const [code, writes] of inOrder) {
    const own = [];
    for (const row of writes) {
      let place = own.findIndex((one) => end[one.writes[one.writes.length - 1]] <= begin[row]);
      if (place < 0) place = own.push({ lane: code, first: own.length === 0, writes: [] }) - 1;
      own[place].writes.push(row);
      rowOf.set(row, rows.length + place);
    }
    for (const one of own) rows.push(one);
  }
  document.getElementById("height").style.height = `${Math.max(0, rows.length * ROW + AXIS - lanes.clientHeight)}px`;
}

function sortTools() {
  const code = new Map(laneNames.map((name, at) => [name, at]));
  const name = reader(data.tools.lane);
  for (let at = 0; at < data.tools.begin.length; at += 1) {
    const ours = code.get(name(at));
    if (!toolsOf.has(ours)) toolsOf.set(ours, []);
    toolsOf.get(ours).push(at);
  }
}

function readColors() {
  const style = getComputedStyle(document.documentElement);
  const names = ["ground", "ink", "soft", "line", "band", "gap", "tool", "bad", "cancelled", "chosen", "focus"];
  for (const name of [...names, ...data.phase_names]) colors[name] = style.getPropertyValue(`--${name}`).trim();
}

const labelWidth = () => Math.min(170, Math.round(lanes.clientWidth * 0.28));
const plotWidth = () => Math.max(1, lanes.clientWidth - labelWidth() - 8);
const toX = (ms) => labelWidth() + ((ms - view.from) / (view.to - view.from)) * plotWidth();
const toMs = (x) => view.from + ((x - labelWidth()) / plotWidth()) * (view.to - view.from);

let drawing = 0;
function draw() {
  if (drawing === 0) drawing = requestAnimationFrame(() => { drawing = 0; paint(); });
}

function paint() {
  const width = lanes.clientWidth, height = lanes.clientHeight, ratio = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.fillStyle = colors.ground;
  pen.fillRect(0, 0, width, height);
  pen.font = "12px system-ui, sans-serif";
  pen.textBaseline = "middle";
  const scrolled = lanes.scrollTop;
  const first = Math.floor(scrolled / ROW), last = Math.min(rows.length, Math.ceil((scrolled + height) / ROW));
  for (let place = first; place < last; place += 1) paintRow(rows[place], AXIS + place * ROW - scrolled, width);
  paintAxis(width);
  if (rows.length === 0) {
    pen.fillStyle = colors.soft;
    pen.fillText("No write fits the filters.", labelWidth(), AXIS + 20);
  }
}

function paintRow(row, top, width) {
  if (row.lane % 2 === 1) {
    pen.fillStyle = colors.band;
    pen.fillRect(0, top, width, ROW);
  }
  pen.save();
  pen.beginPath();
  pen.rect(labelWidth(), top, width - labelWidth(), ROW);
  pen.clip();
  let drawnTo = -1; // where something narrow was drawn last: thousands may share one pixel
  for (let at = firstSeen(row.writes); at < row.writes.length; at += 1) {
    const write = row.writes[at], from = toX(begin[write]), to = toX(end[write]);
    if (from > width) break;
    const fine = outcome(write) === "done";
    if (to - from >= 3) paintWrite(write, from, to, top);
    else if (from > drawnTo || !fine || write === selected) {
      pen.fillStyle = fine ? colors.streaming : outcome(write) === "cancelled" ? colors.cancelled : colors.bad;
      pen.fillRect(from, top + 4, 2, ROW - 8);
      drawnTo = from + 1;
    }
    if (write === selected) {
      pen.strokeStyle = colors.focus;
      pen.lineWidth = 2;
      pen.strokeRect(from - 2, top + 2, Math.max(to - from, 2) + 4, ROW - 4);
    }
  }
  if (row.first) paintTools(row.lane, top, width);
  pen.restore();
  if (row.first) {
    pen.fillStyle = colors.ink;
    pen.fillText(fitting(laneNames[row.lane]), 8, top + ROW / 2);
  }
}

/** Return the place of the first write of a row that ends within the view or after it. */
function firstSeen(writes) {
  let low = 0, high = writes.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (end[writes[middle]] < view.from) low = middle + 1;
    else high = middle;
  }
  return low;
}

function paintWrite(write, from, to, top) {
  const parts = data.writes.phases[write];
  let at = from;
  for (let part = 0; part < parts.length; part += 2) {
    const until = toX(parts[part + 1]);
    pen.fillStyle = colors[data.phase_names[parts[part]]];
    pen.fillRect(at, top + 4, until - at, ROW - 8);
    at = until;
  }
  const gaps = data.writes.gaps[write];
  for (let gap = 0; gap < gaps.length; gap += 2) {
    const since = toX(gaps[gap]), until = toX(gaps[gap + 1]);
    if (until - since < 2) continue;
    pen.fillStyle = colors.gap;
    pen.fillRect(since, top + 7, until - since, ROW - 14);
  }
  const how = outcome(write);
  if (limit(write) !== null) {
    pen.fillStyle = colors.bad;
    pen.fillRect(to - 3, top + 1, 4, ROW - 2);
    const width = pen.measureText(limit(write)).width;
    if (to - from > width + 20) {
      pen.fillStyle = colors.ground; // or the text is not to be read on what is under it
      pen.fillRect(to - width - 12, top + 4, width + 8, ROW - 8);
      pen.fillStyle = colors.bad;
      pen.fillText(limit(write), to - width - 8, top + ROW / 2);
    }
  } else if (how === "cancelled") {
    pen.fillStyle = colors.cancelled;
    pen.fillRect(to - 4, top + ROW / 2 - 4, 8, 8);
  } else if (how !== "done") {
    pen.strokeStyle = colors.bad;
    pen.lineWidth = 2.5;
    pen.beginPath();
    for (const slope of [-4, 4]) {
      pen.moveTo(to - 4, top + ROW / 2 - slope);
      pen.lineTo(to + 4, top + ROW / 2 + slope);
    }
    pen.stroke();
  }
}

function paintTools(code, top, width) {
  pen.fillStyle = colors.tool;
  for (const tool of toolsOf.get(code) ?? []) {
    const from = toX(data.tools.begin[tool]), to = toX(data.tools.end[tool]);
    if (to >= labelWidth() && from <= width) pen.fillRect(from, top + ROW - 5, Math.max(2, to - from), 4);
  }
}

function paintAxis(width) {
  pen.fillStyle = colors.ground;
  pen.fillRect(0, 0, width, AXIS);
  pen.strokeStyle = colors.line;
  pen.lineWidth = 1;
  pen.strokeRect(0, AXIS - 0.5, width, 0);
  const step = niceStep((view.to - view.from) / Math.max(2, plotWidth() / 110));
  pen.fillStyle = colors.soft;
  for (let at = Math.ceil(view.from / step) * step; at <= view.to; at += step) {
    pen.fillRect(toX(at), AXIS - 6, 1, 6);
    pen.fillText(duration(at), toX(at) + 4, AXIS / 2);
  }
}

function niceStep(wanted) {
  const known = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 15000, 30000, 60000, 120000, 300000];
  const hours = [600000, 900000, 1800000, 3600000, 7200000, 14400000, 43200000, 86400000];
  return [...known, ...hours].find((step) => step >= wanted) ?? Math.ceil(wanted / 86400000) * 86400000;
}

function fitting(text) {
  const room = labelWidth() - 14;
  let short = text.slice(0, 60); // nothing longer fits, and measuring megabytes would take its time
  if (short.length === text.length && pen.measureText(text).width <= room) return text;
  while (short.length > 1 && pen.measureText(`${short}\u2026`).width > room) short = short.slice(0, -1);
  return `${short}\u2026`;
}

/** Return the write at a point of the canvas; null: there is none. */
function writeAt(x, y) {
  const row = rows[Math.floor((y - AXIS + lanes.scrollTop) / ROW)];
  if (row === undefined || y < AXIS || x < labelWidth()) return null;
  const slack = 4, off = (write) => Math.max(toX(begin[write]) - x, x - toX(end[write]), 0);
  const near = row.writes.filter((write) => off(write) <= slack);
  return near.length === 0 ? null : near.reduce((one, other) => (off(other) < off(one) ? other : one));
}

function setView(from, to) {
  const most = Math.max(SMALLEST_VIEW, data.end), length = Math.min(most, Math.max(SMALLEST_VIEW, to - from));
  const start = Math.min(Math.max(0, from), most - length);
  view = { from: start, to: start + length };
  draw();
}

function zoom(factor, around) {
  const centre = around ?? (view.from + view.to) / 2;
  setView(centre - (centre - view.from) * factor, centre + (view.to - centre) * factor);
}

/** Bring a write into view, and mark it. */
function select(write) {
  selected = write;
  const top = (rowOf.get(write) ?? 0) * ROW;
  if (top < lanes.scrollTop) lanes.scrollTop = top;
  const seen = lanes.clientHeight - AXIS - ROW;
  if (top > lanes.scrollTop + seen) lanes.scrollTop = top - seen;
  const length = view.to - view.from;
  if (end[write] < view.from || begin[write] > view.to) setView(begin[write] - length / 3, begin[write] + length * 2 / 3);
  draw();
}
