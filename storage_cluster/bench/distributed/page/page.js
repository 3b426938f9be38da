// The load page: runs, the chosen one's charts over time, its orders, its slowest requests, another run beside it.
"use strict";
import { bars, curves, duration, follow, heatMap, number } from "/page/charts.js";

const at = (id) => document.getElementById(id);
const COLOURS = ["var(--c0)", "var(--c1)", "var(--c2)", "var(--c3)", "var(--c4)", "var(--c5)"];
const PERCENTS = [["50", "var(--p50)"], ["95", "var(--p95)"], ["99", "var(--p99)"]];
const GOING = ["queued", "running", "paused"];
let picked = location.hash.slice(1), viewer = "", run = null, mine = null, theirs = null, chosen = null;
let lastRefresh = Promise.resolve();
let shownReport = "", shownSlowest = "", shownWindows = "", shownComparison = "";

async function ask(url, options) {
  const answer = await fetch(url, options);
  if (!answer.ok) {
    const text = await answer.text();
    let detail = text;
    try { detail = JSON.parse(text).detail; } catch { /* plain text */ }
    throw new Error(typeof detail === "string" ? detail : JSON.stringify(detail));
  }
  return answer;
}

const order = (url, body = {}) => ask(url, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });

function element(tag, text, className) {
  const made = document.createElement(tag);
  made.textContent = text;
  if (className) made.className = className;
  return made;
}

// What the user does: the page is drawn anew, or says why not.
async function attempt(work) {
  at("error").textContent = "";
  try { await work(); } catch (error) { at("error").textContent = error.message; }
}

function pick(id) {
  picked = id;
  chosen = null;
  mine = theirs = null;
  shownReport = shownSlowest = shownWindows = shownComparison = "";
  at("again").hidden = true;
  at("other").value = at("stage").value = at("operation").value = "";
  history.replaceState(null, "", `#${picked}`);
  return refresh();
}

function filter() {
  return new URLSearchParams({ stage: at("stage").value, operation: at("operation").value }).toString();
}

function offer(select, options) {
  const before = select.value;
  if (JSON.stringify(options) === select.dataset.options) return;
  select.dataset.options = JSON.stringify(options);
  select.replaceChildren(...options.map(([value, text]) => new Option(text, value)));
  select.value = options.some(([value]) => value === before) ? before : "";
}

function showRuns(runs) {
  at("runs").replaceChildren(...runs.map((each) => {
    const row = element("tr", "", each.id === picked ? "picked" : "");
    const state = element("td", each.state, { failed: "bad", done: "good" }[each.state] ?? "");
    if (each.lost.length) state.append(element("div", `lost: ${each.lost.join(", ")}`, "bad"));
    row.append(element("td", each.id), element("td", each.name), state);
    row.tabIndex = 0;
    row.title = `${each.drivers.join(", ")}${each.note ? `: ${each.note}` : ""}`;
    row.onclick = () => attempt(() => pick(each.id));
    row.onkeydown = (event) => { if (event.key === "Enter") row.onclick(); };
    return row;
  }));
  const others = runs.filter((each) => each.id !== picked && !GOING.includes(each.state) && each.state !== "unreadable");
  offer(at("other"), [["", "no other"], ...others.map((each) => [each.id, `${each.id} ${each.name}`])]);
}

// One after the other: what the user chose is not overtaken by the look of every second.
function refresh() {
  const done = lastRefresh.then(refreshNow);
  lastRefresh = done.catch(() => {});
  return done;
}

async function refreshNow() {
  const state = await (await ask("/api/state")).json();
  viewer = state.viewer;
  at("drivers").replaceChildren(...state.drivers.map((driver) => {
    const card = element("div", driver.name, `card ${driver.alive ? "alive" : "dead"}`);
    card.title = `${driver.url}: ${driver.alive ? "answers" : "does not answer"}`;
    return card;
  }));
  showRuns(state.runs);
  at("one").hidden = !picked;
  if (picked) await showOne();
}

async function showOne() {
  run = await (await ask(`/api/runs/${picked}`)).json();
  const lost = run.lost.length ? `; lost: ${run.lost.join(", ")}` : "";
  at("title").textContent = `${run.name} — ${run.state}${run.note ? ` (${run.note})` : ""}${lost}`;
  at("pause").hidden = !["running", "paused"].includes(run.state);
  at("pause").textContent = run.state === "paused" ? "Resume" : "Pause";
  at("stop").hidden = !GOING.includes(run.state);
  at("rerun").disabled = !run.may_rerun;
  at("rerun").title = run.may_rerun ? "" : "its workload was given to an earlier controller; submit the file again";
  const last = run.moments[run.moments.length - 1];
  at("counts").textContent = last
    ? `${last.stage}: ${last.operations_count.toLocaleString()} operations, ${last.failures_count} failed, ${last.retries_count} retries` : "";
  if (run.state === "queued") return;
  const other = at("other").value, key = `${picked} ${run.state} ${filter()} ${other}`;
  if (GOING.includes(run.state) || key !== shownWindows) {
    mine = await (await ask(`/api/runs/${picked}/windows?${filter()}`)).json();
    theirs = other ? await (await ask(`/api/runs/${other}/windows?${filter()}`)).json() : null;
    shownWindows = key;
    offerChoices();
    draw();
  }
  await showComparison(other);
  await showSlowest();
  await showReport();
}

function offerChoices() {
  const stage = at("stage").value;
  const stages = [...new Set(mine.choices.map((each) => each.stage))];
  offer(at("stage"), [["", "all"], ...stages.map((name) => [name, name])]);
  const names = mine.choices.filter((each) => !stage || each.stage === stage).map((each) => `${each.work}/${each.operation}`);
  offer(at("operation"), [["", "all"], ...[...new Set(names)].map((name) => [name, name])]);
}

function legend(id, keys) {
  at(id).replaceChildren(...keys.map(([text, colour, look]) => {
    const made = element("span", text, `key ${look ?? ""}`);
    made.style.setProperty("--colour", colour);
    return made;
  }));
}

const title = (each) => (each.work === each.operation || mine.operations.filter((one) => one.operation === each.operation).length < 2
  ? each.operation : `${each.stage}/${each.work}/${each.operation}`);

function sum(operations, name) {
  const found = operations.map((each) => each[name]);
  return (found[0] ?? []).map((_, n) => (found.every((values) => values[n] === null) ? null : found.reduce((total, values) => total + (values[n] ?? 0), 0)));
}

function draw() {
  if (!mine) return;
  const axis = { endS: Math.max(mine.duration_s, theirs?.duration_s ?? 0), stages: mine.stages, marks: mine.marks, chosen };
  const widthS = mine.width_s, shown = mine.operations.slice(0, COLOURS.length);
  const curvesOf = (name, scale) => {
    const made = (shown.length < mine.operations.length ? [{ values: sum(mine.operations, name) }] : shown.map((each) => ({ values: each[name] })));
    const found = made.map((each, n) => ({ values: each.values.map((value) => (value === null ? null : value * scale)), widthS, colour: COLOURS[n] }));
    if (theirs) found.push({ values: sum(theirs.operations, name).map((value) => (value === null ? null : value * scale)), widthS: theirs.width_s, colour: "var(--other)", dashed: true });
    return theirs && shown.length > 1 ? [{ ...found[0], values: sum(mine.operations, name).map((value) => (value === null ? null : value * scale)) }, found[found.length - 1]] : found;
  };
  const keys = theirs ? [["this run", COLOURS[0]], ["the other", "var(--other)", "dashed"]]
    : shown.length < mine.operations.length ? [["all operations", COLOURS[0]]] : shown.map((each, n) => [title(each), COLOURS[n]]);
  curves(at("rate"), axis, curvesOf("rate", 1));
  legend("rate-legend", keys);
  curves(at("bytes"), axis, curvesOf("bytes_rate", 1e-6));
  legend("bytes-legend", keys);
  const lines = PERCENTS.map(([percent, colour]) => ({ values: mine.percentiles_ns[percent], widthS, colour }));
  const overlaid = theirs ? [lines[2], { values: theirs.percentiles_ns["99"], widthS: theirs.width_s, colour: "var(--other)", dashed: true }] : lines;
  heatMap(at("latency"), axis, mine.heat, widthS, overlaid);
  legend("latency-legend", [["requests", "var(--heat)", "heat"], ...(theirs ? [["99 %", "var(--p99)"], ["99 % of the other", "var(--other)", "dashed"]]
    : PERCENTS.map(([percent, colour]) => [`${percent} %`, colour]))]);
  const perSecond = (found, kind) => found.errors[kind].map((count) => count / found.width_s);
  const kinds = Object.keys(mine.errors);
  const otherErrors = theirs && { widthS: theirs.width_s, colour: "var(--other)",
    values: theirs.percentiles_ns["99"].map((_, n) => Object.keys(theirs.errors).reduce((total, kind) => total + theirs.errors[kind][n] / theirs.width_s, 0)) };
  bars(at("errors"), axis, kinds.map((kind, n) => ({ values: perSecond(mine, kind), colour: COLOURS[(n + 1) % COLOURS.length] })), widthS, otherErrors);
  legend("errors-legend", [...kinds.map((kind, n) => [`${kind} ${mine.errors[kind].reduce((a, b) => a + b, 0).toLocaleString()}`, COLOURS[(n + 1) % COLOURS.length]]),
    ...(theirs ? [["the other", "var(--other)", "dashed"]] : [])]);
  at("marks").replaceChildren(...mine.marks.map((mark) => {
    const span = mark.kind !== "fault" ? "" : mark.to_s === null ? " until the end" : ` to ${mark.to_s.toFixed(1)} s`;
    const line = element("li", `${mark.kind === "fault" ? "fault: " : ""}${mark.text}, ${mark.from_s.toFixed(1)}${mark.kind === "fault" ? `${span === "" ? "" : span}` : " s"} `);
    const button = element("button", "slowest around it");
    button.onclick = () => attempt(() => choose(Math.max(mark.from_s - widthS, 0), (mark.to_s ?? mark.from_s) + 2 * widthS));
    line.append(button);
    return line;
  }));
}

async function choose(from, to) {
  const width = mine.width_s;
  if (from === null) {
    const next = Math.floor((chosen ? chosen[0] : 0) / width + 1e-6) + to;
    from = to = Math.min(Math.max(next, 0), mine.heat.counts.length - 1) * width;
  }
  chosen = [Math.floor(from / width + 1e-6) * width, (Math.floor(to / width + 1e-6) + 1) * width];
  draw();
  await showSlowest();
}

async function showSlowest() {
  const interval = chosen ? `&from_s=${chosen[0]}&to_s=${chosen[1]}` : "", key = `${picked} ${filter()} ${interval} ${GOING.includes(run.state) ? Date.now() : run.state}`;
  if (key === shownSlowest) return;
  const found = await (await ask(`/api/runs/${picked}/slowest?${filter()}${interval}`)).json();
  shownSlowest = key;
  at("interval").textContent = chosen ? `of those that ended from ${chosen[0].toFixed(2)} to ${chosen[1].toFixed(2)} s` : "of the whole run; click or drag in a chart for an interval";
  at("whole").hidden = !chosen;
  at("slowest").tBodies[0].replaceChildren(...found.requests.map((each) => {
    const row = document.createElement("tr"), link = element("td", "");
    if (each.transaction_id) {
      const text = element("span", each.transaction_id);
      text.dataset.id = each.transaction_id;
      link.append(text);
    } else link.append(element("span", `no id; ${each.local_port === null ? "port not recorded" : each.local_port ? `port ${each.local_port}` : "no connection"} of ${each.driver}, ${new Date(Number(BigInt(each.start_ns) / 1000000n)).toISOString()}`, "soft"));
    const took = each.error ? (each.failed_after_ns ? `failed after ${duration(each.failed_after_ns)}` : "failed") : duration(each.latency_ns);
    row.append(element("td", took, `num${each.error ? " bad" : ""}`), element("td", `${each.op} ${each.file}`),
      element("td", `${each.error || (each.status ?? "answer not recorded")}${each.attempt > 1 ? `, attempt ${each.attempt}` : ""}`, each.error ? "bad" : ""),
      element("td", `${each.end_s.toFixed(2)} s`, "num"), link);
    return row;
  }));
  linkToPackets(key);
}

// Ids that the viewer's trace knows become links to it. Not waited for: the viewer may be busy, or not there.
async function linkToPackets(key) {
  const spans = [...at("slowest").querySelectorAll("span[data-id]")];
  at("packets").textContent = "";
  if (!spans.length) return;
  const ids = new URLSearchParams(spans.map((span) => ["id", span.dataset.id]));
  let said;
  try { said = await (await ask(`/api/packets?${ids}`)).json(); } catch { return; } // the loop says that the controller is gone
  if (key !== shownSlowest) return;
  const known = new Set(said.known), linked = spans.filter((span) => said.state === "token" || known.has(span.dataset.id));
  for (const span of linked) {
    const made = element("a", span.dataset.id);
    Object.assign(made, { href: `${viewer}/transaction/${encodeURIComponent(span.dataset.id)}`, target: "_blank", rel: "noreferrer" });
    span.replaceWith(made);
  }
  at("packets").textContent = said.state === "none"
    ? `No viewer answers at ${viewer}. For packets: tracer record -o TRACE -- the load, then tracer view TRACE.`
    : said.state === "token" ? `The viewer at ${viewer} asks for its token.`
      : linked.length ? `${linked.length} of ${spans.length} have their packets in the trace ${said.trace}, open at ${viewer}.`
        : `The trace ${said.trace}, open at ${viewer}, is not of this run: it has none of these.`;
}

async function showComparison(other) {
  at("verdict").hidden = at("compared").hidden = !other;
  const key = `${other} ${picked} ${run.state}`;
  if (!other || key === shownComparison) return;
  const found = await (await ask(`/api/comparison?first=${other}&second=${picked}`)).json();
  shownComparison = key;
  const no = found.obstacles.length > 0;
  at("verdict").className = no ? "no" : found.differences.length ? "warn" : "";
  at("verdict").textContent = `A is ${other}, B this run. ${no ? `Not comparable: ${found.obstacles.join("; ")}.` : "Comparable."}`
    + (found.differences.length ? ` Different besides the store's answers: ${found.differences.join("; ")}.` : no ? "" : " Nothing else differs.");
  at("differences").replaceChildren(...(no ? [element("p", "Their figures are not laid side by side.", "soft")] : found.operations.flatMap(differenceTable)));
}

function differenceTable(each) {
  const head = element("h3", `${each.stage}/${each.operation}`), table = document.createElement("table");
  if (each.note) return [head, element("p", each.note, "soft")];
  const first = document.createElement("tr");
  for (const [text, look] of [["", ""], ["A", "num"], ["B", "num"], ["change", "num"], ["95 % interval", "num"], ["", ""]]) first.append(element("th", text, look));
  table.append(first, ...each.differences.map((one) => {
    const row = document.createElement("tr"), percent = (value) => `${value > 0 ? "+" : ""}${(value * 100).toFixed(1)} %`;
    row.append(element("td", one.name), element("td", `${one.first.toLocaleString("en", { maximumFractionDigits: 2 })} ${one.unit}`, "num"),
      element("td", `${one.second.toLocaleString("en", { maximumFractionDigits: 2 })} ${one.unit}`, "num"), element("td", percent(one.change), "num"),
      element("td", `${percent(one.low)} … ${percent(one.high)}`, "num"), element("td", one.verdict, { better: "good", worse: "bad" }[one.verdict] ?? "soft"));
    return row;
  }));
  return [head, table];
}

async function showReport() {
  const key = `${picked} ${run.state} ${at("form").value}`;
  if (key === shownReport) return;
  shownReport = key;
  if (GOING.includes(run.state)) return at("report").replaceChildren("The run goes on; its report comes at its end.");
  at("report").textContent = await (await ask(`/api/runs/${picked}/report?form=${at("form").value}`)).text();
}

function hint(seconds, event) {
  const box = at("hint");
  box.hidden = seconds === null || !mine;
  if (box.hidden) return;
  const n = Math.min(Math.floor(seconds / mine.width_s), mine.heat.counts.length - 1), table = document.createElement("table");
  const line = (name, value) => { const row = document.createElement("tr"); row.append(element("td", name, "soft"), element("td", value, "num")); table.append(row); };
  line("from", `${(n * mine.width_s).toFixed(2)} s`);
  for (const each of mine.operations.slice(0, COLOURS.length)) line(title(each), `${number(each.rate[n])}/s`);
  for (const [percent] of PERCENTS) line(`${percent} %`, duration(mine.percentiles_ns[percent][n]));
  if (theirs) line("99 % of the other", duration(theirs.percentiles_ns["99"][Math.floor(seconds / theirs.width_s)]));
  for (const [kind, counts] of Object.entries(mine.errors)) if (counts[n]) line(kind, counts[n].toLocaleString());
  for (const mark of mine.marks) if (mark.from_s <= seconds && (mark.to_s ?? (mark.kind === "fault" ? Infinity : mark.from_s + mine.width_s)) >= seconds) line(mark.kind, mark.text);
  box.replaceChildren(table);
  const right = event.clientX + 16 + box.offsetWidth > innerWidth;
  box.style.left = `${right ? event.clientX - 16 - box.offsetWidth : event.clientX + 16}px`;
  box.style.top = `${Math.min(event.clientY + 12, innerHeight - box.offsetHeight - 8)}px`;
}

at("submit").onsubmit = (event) => {
  event.preventDefault();
  attempt(async () => {
    const file = at("file").files[0];
    const settings = Object.fromEntries(at("settings").value.split(/\s+/).filter(Boolean).map((pair) => {
      const cut = pair.indexOf("=");
      return [pair.slice(0, cut), pair.slice(cut + 1)];
    }));
    const body = { file: file.name, content: await file.text(), settings, auth: at("auth").value, user: at("user").value, key: at("key").value };
    await pick((await (await order("/api/runs", body)).json()).id);
  });
};
at("rerun").onclick = () => {
  at("again").hidden = !at("again").hidden;
  at("parameters").replaceChildren(...Object.entries(run.parameters).map(([name, value]) => {
    const label = element("label", name), input = document.createElement("input");
    Object.assign(input, { name, value, defaultValue: value });
    input.oninput = () => input.classList.toggle("changed", input.value !== input.defaultValue);
    label.append(input);
    return label;
  }));
};
at("again").onsubmit = (event) => {
  event.preventDefault();
  const changed = [...at("parameters").querySelectorAll("input")].filter((input) => input.value !== input.defaultValue);
  attempt(async () => pick((await (await order(`/api/runs/${picked}/rerun`, { settings: Object.fromEntries(changed.map((input) => [input.name, input.value])) })).json()).id));
};
at("discard").onclick = () => { at("again").hidden = true; };
at("pause").onclick = () => attempt(async () => { await order(`/api/runs/${picked}/${run.state === "paused" ? "resume" : "pause"}`); await refresh(); });
at("stop").onclick = () => attempt(async () => { await order(`/api/runs/${picked}/cancel`); await refresh(); });
at("whole").onclick = () => attempt(async () => { chosen = null; draw(); await showSlowest(); });
for (const id of ["form", "other", "stage", "operation"]) at(id).onchange = () => attempt(refresh);
follow([at("rate"), at("latency"), at("bytes"), at("errors")], hint, (from, to) => attempt(() => choose(from, to)));
addEventListener("resize", draw);
(async function loop() {
  try {
    await refresh();
    if (at("error").dataset.lost) at("error").textContent = at("error").dataset.lost = "";
  } catch (error) {
    at("error").dataset.lost = "yes";
    at("error").textContent = `The controller does not answer: ${error.message}`;
  }
  setTimeout(loop, 1000);
})();
