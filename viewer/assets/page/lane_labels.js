// The names beside the rows: drawn for those in sight, moved by dragging or by keys, renamed and
// merged by hand; and the menu that arranges them.

import { listen } from "../data/events.js";
import { labels, laneName, mergedName, mergedOf, shortName } from "../data/names.js";
import {
  arrangement, GROUPINGS, groupLanes, hideLanes, laneOrder, mergeLanes, moveLane, renameRow, resetLanes, rowName, rowTable,
  showLanes, splitLanes, splitOf, takeApart, toggleGroup, toggleSplit, undoNames, waysToSplit,
} from "../data/rows.js";
import { state, trace } from "../data/trace.js";
import { textScale } from "../draw/palette.js";
import { byId, element, queryAll } from "./elements.js";

const LEAST_GAPS = { close: 64, closer: 49, tight: 34 }; // px for a name with an address and two lines, one, or none
const DRAG_PX = 5; // less movement than this is a click
const LONG_NAME = 16, KEPT_END = 7; // signs
const NAMED = ["host", "merged"]; // rows that the user can name and merge
let hostBoxes = null;
const chosen = /** @type {Set<LaneNumber>} */ (new Set()); // to be merged
/** @type {Timeline} */
let timeline;
const plural = (count, what) => `${count} ${what}${count === 1 ? "" : "s"}`;

// Put a name beside each row that is in sight.
export function placeLanes(view) {
  const box = byId("lanes"), kept = new Map([...box.querySelectorAll(".row")].map((each) => [each.dataset.key, each]));
  hostBoxes = hostBoxes || [...box.querySelectorAll(".lane")];
  const wanted = [];
  rowTable.rows.forEach((row, at) => {
    const y = view.y(at), seen = y > view.ruler - 8 && y < view.height + 8;
    if (seen) wanted.push([row, y, at]);
  });
  for (const host of hostBoxes) host.hidden = true;
  for (const [row, y, at] of wanted) placeRow(box, kept, row, y, at, view);
  for (const left of kept.values()) left.remove();
  placeScroll(view);
}

function placeRow(box, kept, row, y, at, view) {
  const key = keyOf(row);
  let made = row.kind === "host" ? hostBoxes[row.lane] : kept.get(key);
  kept.delete(key);
  if (!made) box.append((made = newBox(row, key)));
  made.hidden = false;
  made.dataset.row = at;
  made.tabIndex = 0;
  made.style.top = `${y}px`;
  for (const [name, least] of Object.entries(LEAST_GAPS)) made.classList.toggle(name, view.gap < least * textScale());
  made.classList.toggle("in-group", Boolean(row.inGroup));
  if (row.kind === "group") made.setAttribute("aria-expanded", row.open);
  if (NAMED.includes(row.kind)) showName(made, row);
}

function showName(box, row) {
  const name = box.querySelector("b"), text = row.kind === "host" ? shortName(row.lane) : rowName(row);
  if (name.textContent !== text) fillName(name, text);
  box.classList.toggle("renamed", row.kind === "host" && labels.names.has(row.lane));
  box.classList.toggle("chosen", isChosen(row));
  if (row.kind === "merged") box.title = `Shown as one: ${row.lanes.map((lane) => trace.meta.lanes[lane]).join(", ")}`;
}

// What does not fit is left out amid a long name: the ends of hosts' names are what differs.
function fillName(name, text) {
  const at = text.length > LONG_NAME ? text.length - KEPT_END : 0;
  name.classList.toggle("long", at > 0);
  if (at) name.replaceChildren(element("bdi", text.slice(0, at)), element("bdi", text.slice(at)));
  else name.textContent = text;
}

const isChosen = (row) => row.lanes.some((lane) => chosen.has(lane));

const keyOf = (row) => (row.kind === "group" ? `group ${row.name} ${row.size} ${row.open}` : row.kind === "merged" ? `merged ${row.lanes}` : `${row.lane}/${row.kind}/${row.service ?? row.process}`);

function newBox(row, key) {
  const made = element("div", undefined, `row ${row.kind}`);
  made.dataset.key = key;
  const title = row.kind === "group" ? `${row.open ? "▾" : "▸"} ${row.name}` : rowName(row);
  made.append(element("b", title));
  if (row.kind === "group") made.append(element("span", plural(row.size, "host")));
  if (row.kind === "merged") made.append(element("span", `${plural(row.lanes.length, "host")} as one`));
  made.title = row.kind === "group"
    ? `${plural(row.size, "host")}; click or Enter to ${row.open ? "close" : "open"}` : `${title} on ${trace.meta.lanes[row.lane]}`;
  made.setAttribute("role", "button");
  return made;
}

function placeScroll(view) {
  const bar = byId("lane-scroll"), hidden = view.content <= view.height;
  bar.hidden = hidden;
  bar.firstChild.style.height = `${view.content - view.ruler}px`;
  if (Math.abs(bar.scrollTop - view.scroll) > 1) bar.scrollTop = view.scroll;
}

// --- dragging and keys

const rowAt = (target) => {
  const box = target.closest && target.closest("#lanes .lane, #lanes .row");
  return box ? [rowTable.rows[Number(box.dataset.row)], box] : [null, null];
};

function attachDrag(lanes) {
  let held = null;
  lanes.addEventListener("pointerdown", (event) => {
    const [row, box] = rowAt(event.target);
    if (row && !isInput(event.target)) held = { row, box, y: event.clientY, moved: false };
  });
  document.addEventListener("pointermove", (event) => {
    if (!held) return;
    const by = event.clientY - held.y;
    held.moved = held.moved || Math.abs(by) > DRAG_PX;
    if (!held.moved || held.row.lane === undefined) return;
    held.box.classList.add("held");
    held.box.style.marginTop = `${by}px`;
  });
  document.addEventListener("pointerup", (event) => {
    if (!held) return;
    const { row, box, moved } = held;
    held = null;
    box.classList.remove("held");
    box.style.marginTop = "";
    if (moved && row.lane !== undefined) drop(row, event.clientY);
    else if (!moved && row.kind === "group") toggleGroup(row.name);
    else if (!moved && (event.ctrlKey || event.metaKey)) choose(row);
  });
}

function drop(row, clientY) {
  const view = state.view, y = clientY - byId("plot").getBoundingClientRect().top;
  const distances = rowTable.rows.map((each, at) => (each.kind === "host" ? Math.abs(view.y(at) - y) : Infinity));
  const nearest = rowTable.rows[distances.indexOf(Math.min(...distances))];
  if (nearest.lane !== row.lane) moveLane(row.lane, nearest.lane);
}

const isInput = (target) => target instanceof HTMLInputElement;

// Alt with an arrow key moves the host; F2 renames it; Space chooses it, m merges what is chosen or takes it apart; Enter opens a group or splits a host, with Shift by process; Delete hides.
function onKey(event) {
  const [row, box] = rowAt(event.target);
  if (!row || isInput(event.target)) return;
  if ((event.ctrlKey || event.metaKey) && event.key === "z") {
    event.preventDefault();
    undoNames();
    return keepFocus(box);
  }
  const acts = {
    F2: () => startNaming(row, box),
    " ": () => choose(row),
    m: () => mergeOrPart(row),
    ArrowUp: () => (event.altKey ? step(row, -1) : focusRow(Number(box.dataset.row) - 1)),
    ArrowDown: () => (event.altKey ? step(row, 1) : focusRow(Number(box.dataset.row) + 1)),
    Enter: () => row.kind !== "merged" && (row.kind === "group" ? toggleGroup(row.name) : toggleSplit(row.lane, event.shiftKey ? "processes" : "services")),
    Delete: () => hideLanes(row.lane === undefined ? row.lanes : [row.lane]),
  };
  if (!acts[event.key]) return;
  event.preventDefault();
  event.stopPropagation();
  acts[event.key]();
  keepFocus(box);
}

/** A row that is drawn anew loses the focus: the row in its place has it then. */
function keepFocus(box) {
  if (document.activeElement === document.body) focusRow(Math.min(Number(box.dataset.row), rowTable.rows.length - 1));
}

// --- names and merging

/** An input in the place of a name: Enter or leaving it keeps the name, Escape does not; none at all is the host's own. */
function startNaming(row, box) {
  if (!NAMED.includes(row.kind) || box.querySelector("input")) return;
  const input = element("input"), own = trace.meta.lanes[row.lanes[0]];
  Object.assign(input, { type: "text", value: rowName(row), maxLength: 80, placeholder: row.kind === "host" ? own : "" });
  input.setAttribute("aria-label", `Name of ${row.kind === "host" ? own : "the merged hosts"}`);
  let isOver = false;
  const end = (keep) => {
    if (isOver) return;
    isOver = true;
    input.remove();
    if (keep) renameRow(row, input.value);
    keepFocus(box);
  };
  input.addEventListener("keydown", (event) => {
    event.stopPropagation();
    if (event.key === "Enter" || event.key === "Escape") end(event.key === "Enter");
  });
  input.addEventListener("blur", () => end(true));
  box.append(input);
  input.select();
  input.focus();
}

function choose(row) {
  if (!NAMED.includes(row.kind)) return;
  const wanted = !isChosen(row);
  for (const lane of row.lanes) wanted ? chosen.add(lane) : chosen.delete(lane);
  showChosen();
}

const chosenRows = () => rowTable.rows.filter((row) => NAMED.includes(row.kind) && isChosen(row));

function showChosen() {
  const count = chosenRows().length, button = byId("merge-chosen");
  button.hidden = count < 2;
  button.textContent = `merge ${count} rows (m)`;
  placeLanes(state.view);
}

function mergeChosen() {
  const lanes = [...chosen], merged = chosenRows().length > 1;
  chosen.clear();
  if (merged) mergeLanes(lanes);
  showChosen();
}

function mergeOrPart(row) {
  if (chosenRows().length > 1) mergeChosen();
  else if (row.kind === "merged") takeApart(row.lanes[0]);
}

function step(row, by) {
  if (row.lane === undefined) return;
  const hosts = rowTable.rows.filter((each) => each.kind === "host").map((each) => each.lane);
  const next = hosts[hosts.indexOf(row.lane) + by];
  if (next === undefined) return;
  moveLane(row.lane, next);
  focusRow(rowTable.rows.findIndex((each) => each.kind === "host" && each.lane === row.lane));
}

function focusRow(at) {
  if (at < 0 || at >= rowTable.rows.length) return;
  timeline.scrollToRow(at);
  const [box] = queryAll(`#lanes [data-row="${at}"]:not([hidden])`);
  if (box) box.focus();
}

// --- the menu

function fillMenu() {
  const { hidden, group } = arrangement, box = byId("lane-menu");
  const choices = GROUPINGS.map((name) => {
    const label = element("label", ` ${name === "none" ? "no groups" : `by ${name}`}`), input = element("input");
    Object.assign(input, { type: "radio", name: "lane-group", checked: name === group });
    input.addEventListener("change", () => groupLanes(name));
    label.prepend(input);
    return label;
  });
  const all = trace.meta.lanes.map((_, lane) => lane);
  box.replaceChildren(
    element("h2", "Group hosts"), ...choices, element("h2", "Rows"),
    ...splitButton(all, "services"), ...splitButton(all, "processes"),
    button("as at first", resetLanes), ...namesMenu(), element("h2", `Hosts${hidden.size ? `, ${hidden.size} hidden` : ""}`),
    ...(hidden.size ? [button("show all", () => showLanes(all))] : []),
    ...laneOrder().map((lane) => hostChoice(lane, hidden)),
  );
  byId("lanes-summary").textContent = hidden.size ? `hosts (${hidden.size} hidden) ▾` : "hosts ▾";
}

/** What was merged, to be taken apart; and the way back. */
function namesMenu() {
  const apart = labels.merged.map((each) => button(`take apart: ${mergedName(each)}`, () => takeApart(each.lanes[0])));
  const undo = labels.past.length ? [button("undo the last name or merging", undoNames)] : [];
  const hint = element("p", "Double click on a name (F2) renames it; Ctrl and click (Space) chooses rows to merge (m).", "hint");
  return [element("h2", "Names"), hint, ...apart, ...undo];
}

/** Splits all hosts in a way, or joins their rows again. @param {LaneNumber[]} lanes @param {SplitWay} way */
function splitButton(lanes, way) {
  const able = lanes.filter((lane) => waysToSplit(lane).includes(way));
  const whole = able.every((lane) => splitOf(lane) === way);
  return able.length ? [button(whole ? `join ${way}` : `split hosts into ${way}`, () => splitLanes(able, whole ? "" : way))] : [];
}

/** By what one host is split. @param {LaneNumber} lane */
function splitChoice(lane) {
  const ways = mergedOf(lane) ? [] : waysToSplit(lane), select = element("select");
  if (!ways.length) return [];
  for (const [way, text] of [["", "one row"], ...ways.map((each) => [each, `by ${each}`])]) {
    select.add(new Option(text, way, false, way === splitOf(lane)));
  }
  select.setAttribute("aria-label", `Rows of ${trace.meta.lanes[lane]}`);
  select.addEventListener("change", () => splitLanes([lane], /** @type {SplitWay} */ (select.value)));
  return [select];
}

function hostChoice(lane, hidden) {
  const label = element("label", ` ${laneName(lane)}`), input = element("input");
  Object.assign(input, { type: "checkbox", checked: !hidden.has(lane) });
  input.addEventListener("change", () => (input.checked ? showLanes([lane]) : hideLanes([lane])));
  label.prepend(input);
  if (labels.names.has(lane)) label.title = trace.meta.lanes[lane];
  const row = element("div", undefined, "host-choice");
  row.append(label, ...splitChoice(lane));
  return row;
}

function button(text, act) {
  const made = element("button", text);
  made.addEventListener("click", act);
  return made;
}

/** Follow the pointer and the keys. @param {Timeline} of */
export function startLaneLabels(of) {
  timeline = of;
  const lanes = byId("lanes"), bar = byId("lane-scroll");
  attachDrag(lanes);
  lanes.addEventListener("dblclick", (event) => {
    const [row, box] = rowAt(event.target);
    if (row) startNaming(row, box);
  });
  byId("merge-chosen").addEventListener("click", mergeChosen);
  lanes.addEventListener("keydown", onKey);
  lanes.addEventListener("wheel", (event) => (bar.scrollTop += event.deltaY), { passive: true });
  bar.addEventListener("scroll", () => timeline.scrollLanes(bar.scrollTop));
  byId("lanes-box").addEventListener("toggle", fillMenu);
  listen("arranged", () => byId("lanes-box").open && fillMenu());
  fillMenu();
}
