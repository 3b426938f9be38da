// The entry of the page of days: moves through a series, and opens its periods.

import { addressTime, dayText, lengthText, momentText, periodName, stretchText, timeOfAddress, timeOfDay } from "../data/calendar.js";
import { listen } from "../data/events.js";
import { fetchJson } from "../data/server.js";
import { duration } from "../data/time.js";
import { drawDays, drawStrip, FEW_REQUESTS, fillPeriod, gutter, rowsOf } from "../draw/days.js";
import { addAction, attachKeys, runAction } from "../page/actions.js";
import { fillChoice, fillWorst, showPeriod } from "../page/days_panel.js";
import { byId, element, queryAll, targetOf } from "../page/elements.js";
import { attachPointer } from "../page/gestures.js";
import { startTheme, switchTheme } from "../page/theme.js";
import { provideCallbacks } from "./callbacks.js";

const MINUTE = 60, HOUR = 3600;
const NARROWEST = 10 * MINUTE, NEAR = 3 * HOUR;
const CLICK_STEP = 5 * MINUTE; // of wider columns a click zooms in
const SETTLE_MS = 60, FOLLOW_MS = 3000;
const MOST_SLOW = 100; // that are known: the worst
const ROWS = ["latency", "requests", "failed", "packets"];

const state = {
  from: 0, to: 1, span: null, known: null, part: null, whole: null, stretches: [], length: HOUR, worst: [], cursor: null, hover: null,
  shown: new Set(ROWS), number: "", host: "", inner: "", period: null, settledCount: 0, settledAt: 0, moving: true, version: 0,
};
let asking = null, loadedView = "", settleTimer = 0, drawing = 0, picture = null, strip = null;

const choice = () => `class=${state.number}&host=${encodeURIComponent(state.host)}&inner=${state.inner}`;

// A gap of a minute at both ends, so that the first and the last column are seen whole.
const wholeView = () => {
  const room = Math.max(MINUTE, (state.span[1] - state.span[0]) * 0.005);
  return [state.span[0] - room, state.span[1] + room];
};

function setView(from, to, jump = false) {
  const [first, last] = wholeView(), width = Math.min(Math.max(to - from, NARROWEST), last - first);
  const middle = Math.min(Math.max((from + to) / 2, first + width / 2), last - width / 2);
  [state.from, state.to] = [middle - width / 2, middle + width / 2];
  state.moving = true;
  drawSoon();
  clearTimeout(settleTimer);
  settleTimer = jump ? 0 : setTimeout(settle, SETTLE_MS);
  if (jump) load();
}

// The gesture has ended: what it came to is loaded, if it is not on its way.
function settle() {
  settleTimer = 0;
  if (asking && asking.view === viewText()) return;
  if (!asking && loadedView === viewText()) finish();
  else load();
}

const viewText = () => `${state.from} ${state.to}`;

const zoom = (factor, at, jump = false) => setView(at - (at - state.from) * factor, at + (state.to - at) * factor, jump);
const shift = (share) => setView(state.from + share * (state.to - state.from), state.to + share * (state.to - state.from), !asking);
const middle = () => (state.from + state.to) / 2;

// What is in view, with a quarter of it on either side, so that a short move finds it there.
async function load() {
  if (asking) asking.control.abort();
  const mine = (asking = { control: new AbortController(), view: viewText() }), margin = (state.to - state.from) / 4;
  const [first, last] = state.span, from = Math.max(first, Math.floor(state.from - margin)), to = Math.min(last, Math.ceil(state.to + margin));
  try {
    const part = await fetchJson(`api/series/part?from=${from}&to=${Math.max(to, from + MINUTE)}&${choice()}`, mine.control.signal);
    if (mine !== asking) return;
    [state.part, asking, loadedView] = [part, null, mine.view];
    showBanner("");
    drawSoon();
    if (!settleTimer) settle();
  } catch (error) {
    if (mine !== asking) return;
    asking = null;
    showBanner(`This stretch could not be loaded: ${error.message}. The picture shows what was loaded before.`);
  }
}

function finish() {
  state.moving = false;
  writeAddress();
  draw();
  requestAnimationFrame(() => requestAnimationFrame(() => {
    if (state.moving) return;
    state.settledCount += 1;
    state.settledAt = performance.now();
  }));
}

function drawSoon() {
  if (!drawing) drawing = requestAnimationFrame(draw);
}

function draw() {
  drawing = 0;
  if (!state.span) return;
  drawDays(...contextOf(picture), state);
  drawStrip(...contextOf(strip), { ...state, part: state.whole });
  byId("days-title").textContent = state.part ? titleText() : "loading…";
  byId("days-about").textContent = badgeText();
}

function contextOf(canvas) {
  const scale = devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
  }
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  return [context, width, height];
}

const titleText = () => `${stretchText(Math.max(state.from, state.span[0]), Math.min(state.to, state.span[1]))}${slowText()}`;

function slowText() {
  const inView = state.worst.filter((each) => each.at >= state.from && each.at < state.to);
  if (!inView.length) return ": no slow minute";
  const least = state.worst.length >= MOST_SLOW ? "at least " : "";
  const worst = inView.reduce((one, other) => (other.p99 / other.usual > one.p99 / one.usual ? other : one));
  return `: ${least}${inView.length} slow minute${inView.length > 1 ? "s" : ""}; the worst ${dayText(worst.at)} ${timeOfDay(worst.at)}, p99 ${duration(worst.p99)}, usually ${duration(worst.usual)}`;
}

function badgeText() {
  if (!state.part) return "";
  const { part } = state, left = part.classes - part.courses.length;
  const others = left > 0 && state.shown.has("latency") ? `; ${left} more class${left > 1 ? "es" : ""}: choose one` : "";
  return `a column is ${lengthText(part.step)}; band p50–p90–p99, points where fewer than ${FEW_REQUESTS} requests${others}`;
}

function showBanner(text) {
  byId("banner").textContent = text;
  byId("banner").classList.toggle("shown", Boolean(text));
}

// The address holds the view and all choices.

function writeAddress() {
  const given = { from: addressTime(state.from), to: addressTime(state.to), class: state.number, host: state.host, inner: state.inner, period: state.period || "" };
  if (state.shown.size < ROWS.length) given.show = [...state.shown].join(",");
  history.replaceState(null, "", "#" + new URLSearchParams(Object.entries(given).filter(([, value]) => value)));
}

function readAddress() {
  const given = new URLSearchParams(location.hash.replace(/^#/, ""));
  state.number = /^\d{1,6}$/.test(given.get("class") || "") ? given.get("class") : "";
  state.host = given.get("host") || "";
  state.inner = given.get("inner") === "1" ? "1" : "";
  const rows = (given.get("show") || "").split(",").filter((each) => ROWS.includes(each));
  state.shown = new Set(rows.length ? rows : ROWS);
  state.period = /^\d{8}T\d{6}Z$/.test(given.get("period") || "") ? given.get("period") : null;
  return [timeOfAddress(given.get("from")), timeOfAddress(given.get("to"))];
}

// What there is: asked again and again, since a series grows.

async function look(isAgain) {
  const answer = await fetchJson(`api/series/state?${choice()}${isAgain ? `&version=${state.version}` : ""}`);
  showBanner(answer.trouble ? `What is new could not be read: ${answer.trouble}` : "");
  if (answer.version === state.version && isAgain) return false;
  const wasAtEnd = state.span && state.to >= state.span[1], grown = state.span && answer.span ? answer.span[1] - state.span[1] : 0;
  const wasWhole = state.span && state.to - state.from >= state.span[1] - state.span[0];
  Object.assign(state, { version: answer.version, span: answer.span, stretches: answer.stretches, length: answer.length, worst: answer.worst });
  if (!answer.span) return false;
  const kept = answer.classes.some((each) => `${each.number}` === state.number);
  if (!kept) state.number = "";
  const classes = answer.classes.filter((each) => !state.host || each.host === state.host);
  fillChoice("days-class", [["", "all"], ...classes.map((each) => [`${each.number}`, each.words])], state.number);
  fillChoice("days-host", [["", "all"], ...answer.hosts.map((each) => [each, each])], state.host);
  fillChoice("days-inner", [["", "clients' requests"], ["1", "calls between services"]], state.inner);
  fillWorst(state.worst, (each) => goTo(each.at));
  state.whole = await fetchJson(`api/series/part?from=${answer.span[0]}&to=${answer.span[1]}&${choice()}`);
  if (wasWhole) setView(...wholeView(), true);
  else if (wasAtEnd && grown) setView(state.from + grown, state.to + grown, true);
  return true;
}

async function follow() {
  try {
    if (await look(true)) load();
  } catch {
    showBanner("The viewer's server does not answer. This page shows what it had loaded; start `tracer view` again and reload.");
  }
  setTimeout(follow, FOLLOW_MS);
}

async function choose() {
  await look(false);
  load();
}

// Slow minutes, and the way into periods.

function goTo(at) {
  state.cursor = at + MINUTE / 2;
  const half = Math.min(state.to - state.from, NEAR) / 2;
  setView(state.cursor - half, state.cursor + half, true);
  selectPeriod(stretchAt(at) ? nameAt(at) : null);
}

function step(backwards) {
  const from = state.cursor === null ? (backwards ? state.to : state.from) : state.cursor - MINUTE / 2;
  const times = state.worst.map((each) => each.at).sort((one, other) => one - other);
  if (!times.length) return;
  const next = backwards ? times.filter((at) => at < from).pop() : times.find((at) => at > from);
  goTo(next === undefined ? (backwards ? times[times.length - 1] : times[0]) : next);
}

const stretchAt = (at) => state.stretches.find((each) => each.from <= at && at < each.to) || null;
const nameAt = (at) => periodName(Math.floor(at / state.length) * state.length);

function selectPeriod(name) {
  state.period = name;
  writeAddress();
  return showPeriod(name, () => state.period === name);
}

function open(at) {
  const stretch = stretchAt(at);
  if (!stretch || stretch.state === "nothing") return selectNothing(stretch);
  if (stretch.state !== "trace") return selectPeriod(nameAt(at));
  location.assign(`period/${nameAt(at)}/at/${Math.floor(at / MINUTE) * MINUTE}`);
}

function selectNothing(stretch) {
  selectPeriod(null);
  const words = stretch ? `${stretchText(stretch.from, stretch.to)}: nothing was captured` : "Before the first period, or after the last";
  byId("days-period").replaceChildren(element("h2", words), element("p", "No packet was captured then, so nothing is known of it; that is not the same as no request."));
}

// The pointer and the keys.

const timeAt = (x) => state.from + ((x - gutter()) / (picture.clientWidth - gutter())) * (state.to - state.from);

const actor = {
  zoom: (factor, x) => zoom(factor, timeAt(x)),
  pan: (px) => setView(state.from + (px / (picture.clientWidth - gutter())) * (state.to - state.from), state.to + (px / (picture.clientWidth - gutter())) * (state.to - state.from)),
  click(x) {
    if (x < gutter() || !state.part) return;
    const at = timeAt(x);
    if (state.part.step > CLICK_STEP) {
      state.cursor = at;
      setView(at - NEAR / 2, at + NEAR / 2, true);
    } else open(at);
  },
  point: showTip,
  leave() {
    state.hover = null;
    byId("tip").classList.remove("shown");
    drawSoon();
  },
  zoomIn() {},
};

const WORDS = { trace: "trace kept", summary: "summary only, its trace was removed", failed: "failed: no trace could be made", nothing: "nothing captured" };

function showTip(x, y) {
  if (x < gutter() || !state.part) return actor.leave();
  const at = timeAt(x), { part } = state, column = Math.floor((at - part.from) / part.step), stretch = stretchAt(at);
  state.hover = at;
  drawSoon();
  const row = rowsOf(part, state.shown, picture.clientHeight).find((each) => y >= each.top - 4 && y <= each.top + each.height + 4);
  const lines = stretch ? [WORDS[stretch.state] + (stretch.problem ? `: ${stretch.problem}` : "")] : ["outside of the series"];
  if (column >= 0 && column < part.covered.length) lines.unshift(...columnLines(part, column, row));
  const canOpen = stretch && stretch.state !== "nothing";
  const hint = part.step > CLICK_STEP ? "click: zoom in to minutes" : canOpen ? `click: ${stretch.state === "trace" ? "open its timeline here" : "what the summary knows"}` : "";
  const begin = part.from + column * part.step;
  const box = byId("tip"), bounds = picture.getBoundingClientRect();
  box.replaceChildren(element("b", part.step < 24 * HOUR ? stretchText(begin, begin + part.step) : momentText(begin)), ...lines.map((text) => element("div", text)), element("div", hint, "hint"));
  box.classList.add("shown");
  const left = bounds.left + x, width = box.offsetWidth;
  box.style.transform = `translate(${left + 16 + width > innerWidth ? left - width - 12 : left + 16}px, ${Math.min(bounds.top + y + 14, innerHeight - box.offsetHeight - 8)}px)`;
}

function columnLines(part, at, row) {
  if (!part.covered[at]) return ["no summary: not known, not zero"];
  const kind = row ? row.kind : "requests", count = (number) => number.toLocaleString("en");
  if (kind === "packets") return [`${count(part.hops[at])} packets, ${count(part.lost[at])} lost`];
  const course = row && row.course ? row.course : part.total, [middleNs, ninety, high] = course.percentiles.map((each) => each[at]);
  const lines = [`${course === part.total ? "chosen classes" : course.words}: ${count(course.counts[at])} requests, ${count(course.failed[at])} failed`];
  if (middleNs !== null) lines.push(`p50 ${duration(middleNs)}, p90 ${duration(ninety)}, p99 ${duration(high)}`);
  if (middleNs !== null && course.counts[at] < FEW_REQUESTS) lines.push("few requests: a percentile is a single one");
  if (part.covered[at] < part.step) lines.push(`summaries of ${lengthText(part.covered[at])} of ${lengthText(part.step)}`);
  return lines;
}

function attachStrip() {
  let begin = null;
  const time = (event) => state.span[0] + (event.offsetX / strip.clientWidth) * (state.span[1] - state.span[0]);
  strip.addEventListener("pointerdown", (event) => {
    begin = time(event);
    strip.setPointerCapture(event.pointerId);
  });
  strip.addEventListener("pointermove", (event) => {
    if (begin === null) return;
    const end = time(event);
    if (Math.abs(end - begin) * strip.clientWidth > 4 * (state.span[1] - state.span[0])) setView(Math.min(begin, end), Math.max(begin, end));
  });
  strip.addEventListener("pointerup", (event) => {
    if (begin === null) return;
    const end = time(event), half = (state.to - state.from) / 2;
    if (Math.abs(end - begin) * strip.clientWidth <= 4 * (state.span[1] - state.span[0])) setView(end - half, end + half, true);
    begin = null;
  });
}

function attachControls() {
  const choices = { "days-class": "number", "days-host": "host", "days-inner": "inner" };
  for (const [id, name] of Object.entries(choices)) {
    byId(id).addEventListener("change", (event) => {
      state[name] = event.target.value;
      if (name !== "number") state.number = "";
      choose();
    });
  }
  document.addEventListener("click", (event) => {
    const button = /** @type {HTMLElement | null} */ (targetOf(event).closest("[data-action], [data-show], [data-width]"));
    if (!button) return;
    if (button.dataset.action) runAction(button.dataset.action);
    if (button.dataset.show) toggleRow(button.dataset.show);
    if (button.dataset.width) setView(middle() - (Number(button.dataset.width) * HOUR) / 2, middle() + (Number(button.dataset.width) * HOUR) / 2, true);
  });
}

function toggleRow(name) {
  if (!state.shown.delete(name)) state.shown.add(name);
  if (!state.shown.size) state.shown.add(name);
  markShown();
  writeAddress();
  drawSoon();
}

const markShown = () => queryAll("[data-show]").forEach((button) => button.setAttribute("aria-pressed", `${state.shown.has(button.dataset.show)}`));

// A key is a gesture of its own, unless it comes so soon that the answer to the one before is still on its way.
function addKeys() {
  addAction("pan-left", () => shift(-0.2), "ArrowLeft", "a");
  addAction("pan-right", () => shift(0.2), "ArrowRight", "d");
  addAction("zoom-in", () => zoom(0.6, state.cursor !== null && state.cursor > state.from && state.cursor < state.to ? state.cursor : middle(), !asking), "+", "=", "ArrowUp", "w");
  addAction("zoom-out", () => zoom(1 / 0.6, middle(), !asking), "-", "ArrowDown", "s");
  addAction("whole", () => setView(...wholeView(), true), "0");
  addAction("first", () => setView(state.span[0], state.span[0] + state.to - state.from, true), "Home");
  addAction("last", () => setView(state.span[1] - (state.to - state.from), state.span[1], true), "End");
  addAction("next-slow", () => step(false), "n");
  addAction("previous-slow", () => step(true), "N");
  addAction("open", () => open(state.cursor === null ? middle() : state.cursor));
  addAction("theme", switchTheme, "t");
  addAction("help", () => byId("help").showModal(), "?");
  addAction("close", () => {
    state.cursor = null;
    selectPeriod(null);
    drawSoon();
  }, "Escape");
  attachKeys();
  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !targetOf(event).closest("button, a, select, dialog")) runAction("open");
  });
}

const drawChips = () => queryAll("[data-state]").forEach((chip) => {
  const canvas = /** @type {HTMLCanvasElement} */ (chip), context = canvas.getContext("2d");
  context.clearRect(0, 0, 44, 24);
  fillPeriod(context, canvas.dataset.state, 2, 3, 40, 18);
});

async function startDays() {
  [picture, strip] = [byId("days-picture"), byId("days-strip")];
  const [from, to] = readAddress();
  markShown();
  drawChips();
  attachControls();
  addKeys();
  listen("theme", () => {
    drawChips();
    drawSoon();
  });
  addEventListener("resize", drawSoon);
  await look(false).catch((error) => showBanner(`The series could not be read: ${error.message}`));
  if (!state.span) {
    byId("days-title").textContent = "No period yet: this page follows, and shows the first one when its trace is made";
    return waitForFirst();
  }
  attachPointer(picture, actor);
  attachStrip();
  begin(from, to);
  setTimeout(follow, FOLLOW_MS);
}

function begin(from, to) {
  const given = from !== null && to !== null && to > from;
  const [first, last] = wholeView();
  const begins = state.period && !given ? stretchOf(state.period) : null;
  setView(given ? from : begins ? begins - 2 * state.length : first, given ? to : begins ? begins + 3 * state.length : last, true);
  if (state.period) selectPeriod(state.period);
}

// When a period begins, by its name.
function stretchOf(name) {
  return Date.parse(name.replace(/^(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z$/, "$1-$2-$3T$4:$5:$6Z")) / 1000 || null;
}

function waitForFirst() {
  setTimeout(async () => {
    await look(true).catch(() => null);
    if (state.span) location.reload();
    else waitForFirst();
  }, FOLLOW_MS);
}

startTheme();
provideCallbacks({ startDays: () => void startDays() });
window.twintap = Object.freeze({ state, timeAt, gutter });
