// Texts and marks of the page beside the canvas: the badge, notes, banner and cursor, pressed buttons, the legend.

import { CLASS, CLASS_NAMES } from "../data/constants.js";
import { duration, exactTime } from "../data/time.js";
import { drawArrows } from "../draw/arrows.js";
import { byId, queryAll } from "./elements.js";

const LEAST_NOTE_MS = 2000, NOTE_MS = 50; // of each letter
export const badge = { text: "" }; // what the badge says of the view, also while a note stands in its place
let noteTimer = 0;

export function showBase(text) {
  const box = byId("base");
  if (box.textContent !== text) box.textContent = text;
  box.classList.toggle("shown", Boolean(text));
}

export function showBadge(state, inView) {
  const data = state.data;
  if (!data) return;
  const width = duration(state.to - state.from, 4);
  const count = (number) => number.toLocaleString("en");
  const drawn = data.number ? (data.step > 1 ? `; 1 of ${count(data.step)} drawn` : "") : "";
  const clocks = (state.raw ? ", by raw clocks" : "") + (state.only ? `, only of requests that ${state.only} finds` : "");
  const what = data.mode !== "arrows" ? `density of ${count(data.count)} packets${drawn}` : `${count(inView)} arrow${inView === 1 ? "" : "s"}`;
  badge.text = `${what} in ${width}${clocks}`;
  if (!noteTimer) byId("badge").textContent = badge.text;
}

export function showBanner(text) {
  byId("banner").textContent = text;
  byId("banner").classList.toggle("shown", Boolean(text));
}

// In the badge's place, for as long as it takes to read it.
export function showNote(text) {
  byId("badge").textContent = text;
  byId("badge").classList.add("note");
  clearTimeout(noteTimer);
  noteTimer = setTimeout(() => {
    noteTimer = 0;
    byId("badge").classList.remove("note");
    byId("badge").textContent = badge.text;
  }, LEAST_NOTE_MS + NOTE_MS * text.length);
}

export function showCursor(x, view) {
  const box = byId("cursor");
  box.classList.toggle("shown", x !== null);
  if (x === null) return;
  box.style.transform = `translateX(${x}px)`;
  box.classList.toggle("left", x > view.width - 170);
  box.dataset.time = exactTime(view.time(x));
}

export function markClocks(raw) {
  queryAll('[data-action="clocks"]').forEach((button) => button.setAttribute("aria-pressed", `${raw}`));
  byId("plot").classList.toggle("raw", raw);
}

export function markRequest(request) {
  queryAll("[data-request]").forEach((button) => {
    const chosen = Number(button.dataset.request) === request;
    button.setAttribute("aria-current", chosen ? "true" : "false");
  });
}

export function markClasses(hidden) {
  queryAll("[data-class]").forEach((button) => {
    button.setAttribute("aria-pressed", hidden.has(Number(button.dataset.class)) ? "false" : "true");
  });
}

// A legend entry: an arrow as it looks in the timeline.
export function drawChip(chip, cls) {
  const context = chip.getContext("2d");
  const lone = cls === CLASS.LOST || cls === CLASS.ONE_SIDED;
  const arrows = {
    number: [0], fromRow: [0], toRow: [1], cls: [cls], kind: [0], attempt: [1], size: [0],
    sent: [0], received: [lone ? NaN : 1], begin: [0], end: [1], byClass: CLASS_NAMES.map(() => []),
  };
  arrows.byClass[cls] = [0];
  const view = { from: 0, to: 1, width: 22, height: 12, ruler: 0, rows: 2, gap: 8, top: 2, x: (t) => 2 + 18 * t, y: (row) => 2 + 8 * row };
  context.setTransform(2, 0, 0, 2, 0, 0);
  context.clearRect(0, 0, 22, 12);
  drawArrows(context, view, /** @type {any} */ (arrows), { hidden: new Set(), alpha: 1, moving: true });
}
