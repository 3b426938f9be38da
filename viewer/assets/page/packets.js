// The list of packets: only the rows in sight exist; pages of them are loaded when they are scrolled to. It is how the
// timeline is read without seeing it, so all of it works by keyboard.

import { addAddressPart, writeAddress } from "../data/address.js";
import { listen } from "../data/events.js";
import { hostText } from "../data/names.js";
import { fetchMessage, onlyPart } from "../data/server.js";
import { exactTime } from "../data/time.js";
import { state, trace } from "../data/trace.js";
import { addAction } from "./actions.js";
import { byId, element } from "./elements.js";
import { kindText } from "./tip.js";

const ROW_PX = 24, HEAD_PX = 24, PAGE = 200, TALLEST_PX = 8e6, AROUND = 6; // browsers end elements at some 30 million px
const KEYS = new Set(["ArrowUp", "ArrowDown", "PageUp", "PageDown", "Home", "End", "Enter", " "]);
const list = { of: "", path: "", count: 0, pages: new Map(), active: 0, first: -1, last: -1, chosen: null, earlyKeys: [] };
let scroller, rows, title, isWanted = false;
/** @type {Timeline} */
let timeline;

const isOpen = () => !byId("packets").hidden;
const number = (value) => value.toLocaleString("en");

function toggle() {
  const box = byId("packets");
  box.hidden = !box.hidden;
  writeAddress(state);
  if (box.hidden) return byId("arrows").focus();
  refresh();
  scroller.focus();
}

// What is listed follows the selection or, without one, the view.
function refresh() {
  if (!isOpen()) return;
  const { from, to, selection } = state, request = selection.request;
  const path = request === null ? `api/packets?from=${Math.floor(from)}&to=${Math.ceil(to)}${onlyPart()}` : `api/requests/${request}/packets?`;
  if (path === list.path) return markSelected();
  Object.assign(list, { path, of: request === null ? (state.only ? `in view of requests that ${state.only} finds` : "in view") : `of request #${request + 1}`, active: 0, count: 0, pages: new Map(), chosen: null });
  scroller.scrollTop = 0;
  load(0);
}

function load(page) {
  const { path, pages } = list;
  if (pages.has(page)) return;
  pages.set(page, null);
  fetchMessage(`${path}&first=${page * PAGE}&rows=${PAGE}`)
    .then((arrows) => {
      if (path !== list.path) return;
      pages.set(page, arrows);
      list.count = arrows.count;
      title.textContent = `${number(list.count)} packet${list.count === 1 ? "" : "s"} ${list.of}`;
      scroller.setAttribute("aria-rowcount", list.count);
      show(true);
      markSelected();
      list.earlyKeys.splice(0).forEach(obey);
      if (list.chosen !== null && arrowsAt(list.chosen)[0]) choose(list.chosen);
    })
    .catch(() => {
      pages.delete(page);
      title.textContent = "The packets could not be read; is `tracer view` still running?";
    });
}

const height = () => Math.min(list.count * ROW_PX, TALLEST_PX);
const fitting = () => Math.max(1, Math.floor(scroller.clientHeight / ROW_PX) - 1); // the head takes a row

// The row on top: past the tallest element, scrolling jumps over rows in proportion; keys still reach each.
function topRow() {
  const room = height() + HEAD_PX - scroller.clientHeight;
  if (list.count * ROW_PX <= TALLEST_PX || room <= 0) return Math.floor(scroller.scrollTop / ROW_PX);
  return Math.round((scroller.scrollTop / room) * (list.count - fitting()));
}

function show(anew) {
  const first = Math.max(0, topRow() - AROUND), last = Math.min(list.count, topRow() + fitting() + AROUND);
  if (!anew && first === list.first && last === list.last) return;
  [list.first, list.last] = [first, last];
  rows.style.height = `${height()}px`;
  const made = [];
  for (let row = first; row < last; row++) made.push(rowAt(row));
  rows.replaceChildren(...made);
  mark();
}

function arrowsAt(row) {
  const page = Math.floor(row / PAGE), arrows = list.pages.get(page);
  if (!arrows) load(page);
  return [arrows, row - page * PAGE];
}

function rowAt(row) {
  const [arrows, at] = arrowsAt(row), made = element("div", undefined, "packet-row");
  made.setAttribute("role", "row");
  made.setAttribute("aria-rowindex", row + 1);
  made.id = `packet-row-${row}`;
  made.dataset.row = row;
  const scaled = list.count * ROW_PX > TALLEST_PX;
  made.style.top = `${scaled ? scroller.scrollTop + (row - topRow()) * ROW_PX : row * ROW_PX}px`;
  const texts = arrows ? packetTexts(arrows, at) : ["…", "", "", "", "", "", "", ""];
  texts.forEach((text) => {
    const cell = element("span", text);
    cell.setAttribute("role", "gridcell");
    made.append(cell);
  });
  if (arrows) {
    made.dataset.number = arrows.number[at];
    made.classList.add(`class-${arrows.cls[at]}`);
  }
  return made;
}

/** The host at an end (0: the sender) of a packet; or, if it was not captured, what its address is called. */
const place = (arrows, at, end) => hostText(arrows[end ? "target" : "source"][at], arrows.peers?.[at][end] || "?");

export function packetTexts(arrows, at) {
  const when = (time) => (Number.isNaN(time) ? "not seen" : exactTime(time));
  const again = arrows.attempt[at] > 1 ? ` #${arrows.attempt[at]}` : "";
  const request = arrows.request[at] < 0 ? "" : `#${arrows.request[at] + 1}`;
  return [
    number(arrows.number[at]), when(arrows.sent[at]), when(arrows.received[at]),
    `${place(arrows, at, 0)} → ${place(arrows, at, 1)}`, kindText(arrows, at) + again,
    arrows.size[at] ? number(arrows.size[at]) : "", trace.meta.states[arrows.state[at]].replace("_", " "), request,
  ];
}

function mark() {
  for (const row of rows.children) {
    row.classList.toggle("active", Number(row.dataset.row) === list.active);
    row.setAttribute("aria-selected", Number(row.dataset.number) === state.selection.hop);
  }
  scroller.setAttribute("aria-activedescendant", `packet-row-${list.active}`);
}

// An arrow that was clicked is found among the rows that are there.
function markSelected() {
  const { hop } = state.selection;
  for (const [page, arrows] of list.pages) {
    const at = arrows && hop !== null ? arrows.number.indexOf(hop) : -1;
    if (at >= 0 && page * PAGE + at !== list.active) return move(page * PAGE + at);
  }
  mark();
}

function move(row) {
  list.active = Math.min(Math.max(row, 0), Math.max(0, list.count - 1));
  const shownFrom = topRow(), shownTo = shownFrom + fitting() - 1;
  if (list.active < shownFrom || list.active > shownTo) {
    const top = list.active < shownFrom ? list.active : list.active - fitting() + 1;
    const room = height() + HEAD_PX - scroller.clientHeight, scaled = list.count * ROW_PX > TALLEST_PX;
    scroller.scrollTop = scaled ? (top / (list.count - fitting())) * room : top * ROW_PX;
  }
  show(true);
}

function choose(row) {
  const [arrows, at] = arrowsAt(row);
  list.active = row;
  list.chosen = arrows ? null : row; // a row that is not there yet is chosen when it arrives
  if (!arrows) return;
  const request = arrows.request[at] < 0 ? null : arrows.request[at];
  const time = Number.isNaN(arrows.sent[at]) ? arrows.received[at] : arrows.sent[at];
  if (state.selection.request !== null) timeline.select(state.selection.request, arrows.number[at]);
  else timeline.select(request, arrows.number[at]);
  const half = (state.to - state.from) / 2;
  if (time < state.from || time > state.to) timeline.glide(time - half, time + half);
  mark();
}

function obey(key) {
  const steps = { ArrowUp: -1, ArrowDown: 1, PageUp: -fitting(), PageDown: fitting(), Home: -Infinity, End: Infinity };
  if (key in steps) move(list.active + steps[key]);
  else choose(list.active);
}

// Keys that are faster than the first page of rows wait for it.
function onKey(event) {
  if (event.key === "Escape") toggle();
  else if (!KEYS.has(event.key)) return;
  else if (list.pages.get(0) === null) list.earlyKeys.push(event.key);
  else obey(event.key);
  event.preventDefault();
  event.stopPropagation();
}

addAddressPart("list", {
  read: (text) => (isWanted = text === "1"),
  write: () => (isOpen() ? "1" : ""),
});

/** Add the action that shows the list, and show it if the address wants it. @param {Timeline} of */
export function startPackets(of) {
  timeline = of;
  scroller = byId("packet-scroll");
  rows = byId("packet-rows");
  title = byId("packets-title");
  addAction("packets", toggle, "l");
  scroller.addEventListener("scroll", () => requestAnimationFrame(() => show(list.count * ROW_PX > TALLEST_PX)));
  scroller.addEventListener("keydown", onKey);
  rows.addEventListener("click", (event) => {
    const row = event.target.closest(".packet-row");
    if (row) choose(Number(row.dataset.row));
  });
  new ResizeObserver(() => show(true)).observe(scroller);
  listen("settled", refresh);
  listen("selected", refresh);
  if (isWanted) toggle();
}
