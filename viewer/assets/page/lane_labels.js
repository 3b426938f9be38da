// The names beside the rows: drawn for those in sight, moved by dragging or by keys; and the menu that arranges them.

import { listen } from "../data/events.js";
import {
  arrangement, GROUPINGS, groupLanes, hideLanes, laneOrder, moveLane, resetLanes, rowName, rowTable, showLanes, splitLanes,
  splitOf, toggleGroup, toggleSplit, waysToSplit,
} from "../data/rows.js";
import { state, trace } from "../data/trace.js";
import { textScale } from "../draw/palette.js";
import { byId, element, queryAll } from "./elements.js";

const LEAST_GAPS = { close: 64, closer: 49, tight: 34 }; // px for a name with an address and two lines, one, or none
const DRAG_PX = 5; // less movement than this is a click
let hostBoxes = null;
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
}

const keyOf = (row) => (row.kind === "group" ? `group ${row.name} ${row.size} ${row.open}` : `${row.lane}/${row.kind}/${row.service ?? row.process}`);

function newBox(row, key) {
  const made = element("div", undefined, `row ${row.kind}`);
  made.dataset.key = key;
  const title = row.kind === "group" ? `${row.open ? "▾" : "▸"} ${row.name}` : rowName(row);
  made.append(element("b", title));
  if (row.kind === "group") made.append(element("span", plural(row.size, "host")));
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
    if (row) held = { row, box, y: event.clientY, moved: false };
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
  });
}

function drop(row, clientY) {
  const view = state.view, y = clientY - byId("plot").getBoundingClientRect().top;
  const distances = rowTable.rows.map((each, at) => (each.kind === "host" ? Math.abs(view.y(at) - y) : Infinity));
  const nearest = rowTable.rows[distances.indexOf(Math.min(...distances))];
  if (nearest.lane !== row.lane) moveLane(row.lane, nearest.lane);
}

// Alt with an arrow key moves the host; Enter opens a group or splits a host, with Shift by process; Delete hides.
function onKey(event) {
  const [row, box] = rowAt(event.target);
  if (!row) return;
  const acts = {
    ArrowUp: () => (event.altKey ? step(row, -1) : focusRow(Number(box.dataset.row) - 1)),
    ArrowDown: () => (event.altKey ? step(row, 1) : focusRow(Number(box.dataset.row) + 1)),
    Enter: () => (row.kind === "group" ? toggleGroup(row.name) : toggleSplit(row.lane, event.shiftKey ? "processes" : "services")),
    Delete: () => hideLanes(row.kind === "group" ? row.lanes : [row.lane]),
  };
  if (!acts[event.key]) return;
  event.preventDefault();
  event.stopPropagation();
  acts[event.key]();
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
    button("as at first", resetLanes), element("h2", `Hosts${hidden.size ? `, ${hidden.size} hidden` : ""}`),
    ...(hidden.size ? [button("show all", () => showLanes(all))] : []),
    ...laneOrder().map((lane) => hostChoice(lane, hidden)),
  );
  byId("lanes-summary").textContent = hidden.size ? `hosts (${hidden.size} hidden) ▾` : "hosts ▾";
}

/** Splits all hosts in a way, or joins their rows again. @param {LaneNumber[]} lanes @param {SplitWay} way */
function splitButton(lanes, way) {
  const able = lanes.filter((lane) => waysToSplit(lane).includes(way));
  const whole = able.every((lane) => splitOf(lane) === way);
  return able.length ? [button(whole ? `join ${way}` : `split hosts into ${way}`, () => splitLanes(able, whole ? "" : way))] : [];
}

/** By what one host is split. @param {LaneNumber} lane */
function splitChoice(lane) {
  const ways = waysToSplit(lane), select = element("select");
  if (!ways.length) return [];
  for (const [way, text] of [["", "one row"], ...ways.map((each) => [each, `by ${each}`])]) {
    select.add(new Option(text, way, false, way === splitOf(lane)));
  }
  select.setAttribute("aria-label", `Rows of ${trace.meta.lanes[lane]}`);
  select.addEventListener("change", () => splitLanes([lane], /** @type {SplitWay} */ (select.value)));
  return [select];
}

function hostChoice(lane, hidden) {
  const label = element("label", ` ${trace.meta.lanes[lane]}`), input = element("input");
  Object.assign(input, { type: "checkbox", checked: !hidden.has(lane) });
  input.addEventListener("change", () => (input.checked ? showLanes([lane]) : hideLanes([lane])));
  label.prepend(input);
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
  lanes.addEventListener("keydown", onKey);
  lanes.addEventListener("wheel", (event) => (bar.scrollTop += event.deltaY), { passive: true });
  bar.addEventListener("scroll", () => timeline.scrollLanes(bar.scrollTop));
  byId("lanes-box").addEventListener("toggle", fillMenu);
  listen("arranged", () => byId("lanes-box").open && fillMenu());
  fillMenu();
}
