"use strict";
// What the log told, as columns; see page.py. Nothing here is ever put on the page as markup.

const data = JSON.parse(document.getElementById("data").textContent);

/** Return a function from a row to its value in a column, null for none. */
function reader(column) {
  if (column === undefined) return () => null;
  if (Array.isArray(column)) return (row) => column[row] ?? null;
  return (row) => (column.at[row] < 0 ? null : column.values[column.at[row]]);
}

const begin = Float64Array.from(data.writes.begin);
const end = Float64Array.from(data.writes.end);
const laneCode = data.writes.lane.at;
const laneNames = data.writes.lane.values;
const lane = reader(data.writes.lane);
const outcome = reader(data.writes.outcome);
const limit = reader(data.writes.limit);
const facts = new Map(Object.entries(data.facts).map(([key, column]) => [key, reader(column)]));
const fact = (row, key) => (facts.has(key) ? facts.get(key)(row) : null);
const allWrites = Array.from(begin.keys());

/** Compare two writes: those that got stuck first, then those that met another limit, the slowest first. */
function worseFirst(one, other) {
  return rank(one) - rank(other) || (end[other] - begin[other]) - (end[one] - begin[one]) || one - other;
}

function rank(row) {
  return limit(row) === "stuck" ? 0 : limit(row) !== null ? 1 : 2;
}

/** Return milliseconds for people: `12 ms`, `3.40 s`, `2:05 min`, `1:02:05 h`. */
function duration(ms) {
  if (ms === null || ms === undefined) return "";
  if (ms < 1000) return `${ms < 10 ? Math.round(ms * 10) / 10 : Math.round(ms)} ms`;
  if (ms < 119995) return `${(ms / 1000).toFixed(ms < 10000 ? 2 : 1)} s`;
  const seconds = Math.round(ms / 1000);
  const two = (number) => String(number).padStart(2, "0");
  if (seconds < 3600) return `${Math.floor(seconds / 60)}:${two(seconds % 60)} min`;
  return `${Math.floor(seconds / 3600)}:${two(Math.floor(seconds / 60) % 60)}:${two(seconds % 60)} h`;
}

const grouped = (number) => Number(number).toLocaleString("en");

/** Return one write in a sentence. */
function inWords(row) {
  const number = fact(row, "write");
  const fell = limit(row) === null ? "" : `, ${limit(row)} limit`;
  const took = duration(end[row] - begin[row]);
  return `${lane(row)}, write ${number ?? row + 1}: ${outcome(row)}${fell}, took ${took}, began at ${duration(begin[row])}`;
}

/** Return a new element with text and attributes. */
function element(tag, text = "", attributes = {}) {
  const made = document.createElement(tag);
  made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}
