// One write: how it went, what its limits allowed, and everything that the log tells about it.

const dialog = document.getElementById("write");

function show(write) {
  const number = fact(write, "write") ?? write + 1;
  const fell = limit(write) === null ? "" : `, ${limit(write)} limit`;
  document.getElementById("write-title").textContent =
    `Write ${number} of ${lane(write)}: ${outcome(write)}${fell}`;
  const body = document.getElementById("write-body");
  body.replaceChildren();
  const model = [fact(write, "endpoint"), fact(write, "model")].filter((part) => part !== null).join("/");
  const ended = fact(write, "timestamp");
  body.append(element("p", `${model}; took ${duration(end[write] - begin[write])}, ended ${ended}`));
  if (fact(write, "error") !== null) body.append(element("p", fact(write, "error"), { class: "error" }));
  body.append(strip(write), ...phaseTable(write), ...budgetTable(write), ...gapTable(write), ...answer(write));
  body.append(...factTable(write));
  dialog.showModal();
  dialog.scrollTop = 0;
  document.getElementById("write-title").focus();
}

function strip(write) {
  const bar = element("div", "", { class: "strip", "aria-hidden": "true" });
  const whole = Math.max(end[write] - begin[write], 0.001);
  const put = (kind, from, to) => {
    const piece = element("i", "", { class: kind });
    piece.style.left = `${((from - begin[write]) / whole) * 100}%`;
    piece.style.width = `${((to - from) / whole) * 100}%`;
    bar.append(piece);
  };
  for (const [name, from, to] of phasesOf(write)) put(name, from, to);
  for (const [from, to] of gapsOf(write)) put("gap", from, to);
  if (limit(write) !== null) bar.append(element("i", "", { class: "end" }));
  return bar;
}

function phasesOf(write) {
  const parts = data.writes.phases[write], found = [];
  let from = begin[write];
  for (let at = 0; at < parts.length; at += 2) {
    found.push([data.phase_names[parts[at]], from, parts[at + 1]]);
    from = parts[at + 1];
  }
  return found;
}

function gapsOf(write) {
  const marks = data.writes.gaps[write], found = [];
  for (let at = 0; at < marks.length; at += 2) found.push([marks[at], marks[at + 1]]);
  return found;
}

/** Return a table under a heading; cells of the columns in *numbers* to the right. */
function tableOf(title, heads, lines, numbers = []) {
  const table = element("table"), top = element("tr"), kind = (at) => (numbers.includes(at) ? { class: "number" } : {});
  heads.forEach((head, at) => top.append(element("th", head, { scope: "col", ...kind(at) })));
  table.append(element("thead"), element("tbody"));
  table.tHead.append(top);
  for (const line of lines) {
    const row = element("tr");
    line.forEach((cell, at) => {
      const long = String(cell).length > 40 ? { class: "long" } : {};
      row.append(at === 0 ? element("th", cell, { scope: "row" }) : element("td", cell, { ...long, ...kind(at) }));
    });
    table.tBodies[0].append(row);
  }
  const frame = element("div", "", { class: "wide", tabindex: "0", role: "region", "aria-label": title });
  frame.append(table);
  return [element("h3", title), frame];
}

function phaseTable(write) {
  const lines = phasesOf(write).map(([name, from, to]) => [name, duration(from - begin[write]), duration(to - from)]);
  return tableOf("Phases", ["phase", "from", "took"], lines, [1, 2]);
}

/** Return the arithmetic of the three limits, as far as the log knows them. */
function budgetTable(write) {
  const lines = [], fell = limit(write);
  const add = (name, budget, how, used, what) => {
    if (budget === null) return;
    const left = fell === name ? "none: it fell" : used === null ? "" : duration(Math.max(0, budget - used));
    lines.push([name, `${how}${duration(budget)}`, used === null ? "" : `${duration(used)} ${what}`, left]);
  };
  const connect = fact(write, "connect_budget_ms"), bytes = fact(write, "body_bytes");
  const base = connect !== null && bytes !== null ? connect - bytes : null;
  const sum = base === null ? "" : `${duration(base)} + ${grouped(bytes)} bytes \u00d7 1 ms = `;
  const silence = fact(write, "silence_ms");
  add("connect", connect, sum, fact(write, "connect_ms") ?? (fell === "connect" ? silence : null), "to the head");
  const stuck = fact(write, "stuck_budget_ms") ?? (fell === "stuck" ? fact(write, "limit_budget_ms") : null);
  add("stuck", stuck, "", fact(write, "longest_gap_ms"), "the longest gap");
  const overall = fact(write, "overall_budget_ms") ?? (fell === "overall" ? fact(write, "limit_budget_ms") : null);
  add("overall", overall, "", fact(write, "total_ms"), "in all, queue left out");
  if (lines.length === 0) return [];
  return tableOf("Budgets", ["limit", "budget", "used", "left"], lines);
}

function gapTable(write) {
  const gaps = gapsOf(write), pings = fact(write, "keepalives");
  const told = pings === null ? [] : [element("p", pings === 1 ? "1 keep-alive came, which is not progress."
    : `${pings} keep-alives came, which are not progress.`)];
  if (gaps.length === 0) {
    const longest = fact(write, "longest_gap_ms");
    const text = longest === null ? "No message data came." : `No place is known of one; the longest took ${duration(longest)}.`;
    return [element("h3", "Gaps"), element("p", text), ...told];
  }
  const lines = gaps.map(([from, to]) => [duration(from - begin[write]), duration(to - from)]);
  return [...tableOf("Gaps", ["from", "silence"], lines, [1]), ...told];
}

/** Return what came of the answer: content where somebody logged it, else how much. */
function answer(write) {
  const title = element("h3", outcome(write) === "done" ? "Answer" : "Partial answer");
  const content = fact(write, "partial") ?? fact(write, "message");
  if (content !== null) {
    return [title, element("pre", typeof content === "string" ? content : JSON.stringify(content, null, 2))];
  }
  if (fact(write, "text_chars") === null) return [title, element("p", "Nothing, or the log does not tell.")];
  const parts = [`${grouped(fact(write, "text_chars"))} characters of text`], calls = fact(write, "tool_calls") ?? 0;
  parts.push(`${grouped(fact(write, "thinking_chars") ?? 0)} of thinking`, `${calls} tool call${calls === 1 ? "" : "s"}`);
  return [title, element("p", `${parts.join(", ")}. The log does not keep content.`)];
}

function factTable(write) {
  const lines = [];
  for (const [key, read] of facts) {
    const value = read(write);
    if (value !== null) lines.push([key, typeof value === "object" ? JSON.stringify(value) : String(value)]);
  }
  return tableOf("The log line", ["key", "value"], lines);
}
