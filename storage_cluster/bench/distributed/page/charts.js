// Charts over one time axis: curves, stacked bars, a heat map. Each draws stages and marks, and notes what is pointed at.
// A value that is absent is null and is left out: a curve has a gap there, never a 0.
"use strict";

const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const EVENT_COLOURS = { fault: "var(--bad)", "driver lost": "var(--bad)", stopped: "var(--bad)", paused: "var(--warn)", resumed: "var(--warn)" };
export const DAMPED = 0.35; // exponent of the heat map's opacity: a single slow request stays visible among thousands

export const number = (value) => (value === null || value === undefined ? "–" : compact.format(value));

export function duration(ns) {
  if (ns === null || ns === undefined) return "–";
  const [unit, size] = ns < 1e3 ? ["ns", 1] : ns < 1e6 ? ["µs", 1e3] : ns < 1e9 ? ["ms", 1e6] : ["s", 1e9];
  return `${Number((ns / size).toPrecision(3))} ${unit}`;
}

function rem() { return parseFloat(getComputedStyle(document.documentElement).fontSize); }

class Canvas {
  constructor(svg, endS) {
    this.svg = svg;
    this.unit = rem();
    this.width = svg.clientWidth || 320;
    this.height = svg.clientHeight || 150;
    this.left = 3.9 * this.unit;
    this.right = this.width - 0.6 * this.unit;
    this.top = 2.2 * this.unit; // two rows of names
    this.bottom = this.height - 1.4 * this.unit;
    this.endS = Math.max(endS, 1e-9);
    svg.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    svg.replaceChildren();
  }

  x(s) { return this.left + (s / this.endS) * (this.right - this.left); }

  secondsAt(pixels) { return Math.min(Math.max((pixels - this.left) / (this.right - this.left), 0), 1) * this.endS; }

  add(name, attributes, text) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    this.svg.append(made);
    return made;
  }

  timeAxis() {
    const step = niceStep(this.endS / Math.max(Math.floor((this.right - this.left) / (6 * this.unit)), 1));
    for (let s = 0; s <= this.endS + 1e-9; s += step) {
      const anchor = s === 0 ? "start" : this.x(s) > this.right - 2 * this.unit ? "end" : "middle";
      this.add("text", { x: this.x(s), y: this.height - 0.35 * this.unit, "text-anchor": anchor }, clock(s));
    }
  }

  // Stages as dashed lines, faults as bands, moments as lines; named at the top, as far as there is room.
  marks(stages, marks) {
    for (const mark of marks.filter((each) => each.kind === "fault")) {
      const from = this.x(Math.max(mark.from_s, 0)), to = this.x(Math.min(mark.to_s ?? this.endS, this.endS));
      this.add("rect", { class: "fault", x: from, y: this.top, width: Math.max(to - from, 1), height: this.bottom - this.top });
    }
    const free = [-Infinity, -Infinity];
    const label = (x, text, colour) => {
      const row = free.findIndex((end) => x >= end);
      if (row < 0) return;
      const y = this.top - (0.3 + 0.95 * row) * this.unit;
      const shown = this.add("text", { class: "mark", x: x + 3, y, style: colour ? `fill: ${colour}` : "" }, text);
      let length = shown.getComputedTextLength();
      for (let cut = text.length - 1; x + 3 + length > this.right && cut > 4; cut--) {
        shown.textContent = `${text.slice(0, cut)}…`;
        length = shown.getComputedTextLength();
      }
      free[row] = x + length + this.unit;
    };
    const named = [...marks.map((mark) => ({ ...mark, colour: EVENT_COLOURS[mark.kind] ?? "var(--ink)" })),
      ...stages.map((stage) => ({ from_s: stage.from_s, text: stage.name, kind: "stage" }))].sort((a, b) => a.from_s - b.from_s);
    for (const each of named) {
      const x = this.x(Math.min(Math.max(each.from_s, 0), this.endS));
      const look = each.kind === "stage" ? { class: "stage" } : { class: "event", style: `stroke: ${each.colour}` };
      this.add("line", { ...look, x1: x, x2: x, y1: this.top, y2: this.bottom });
      label(x, each.text, each.colour);
    }
  }

  band(interval) {
    if (!interval) return;
    const from = this.x(interval[0]), to = this.x(Math.min(interval[1], this.endS));
    this.add("rect", { class: "chosen", x: from, y: this.top, width: Math.max(to - from, 2), height: this.bottom - this.top });
  }

  // A curve in pieces: absent values are gaps, a value between two gaps is a dot.
  curve(values, widthS, y, colour, dashed) {
    let path = "", open = false;
    values.forEach((value, n) => {
      const point = value === null ? "" : `${this.x(Math.min((n + 0.5) * widthS, this.endS)).toFixed(1)},${y(value).toFixed(1)}`;
      const alone = value !== null && !open && (values[n + 1] ?? null) === null;
      if (alone) {
        const [cx, cy] = point.split(",");
        this.add("circle", { class: "dot", cx, cy, r: 0.18 * this.unit, style: `fill: ${colour}` });
      } else if (value !== null) path += `${open ? "L" : "M"}${point}`;
      open = value !== null;
    });
    if (path) this.add("path", { class: `curve${dashed ? " dashed" : ""}`, d: path, style: `stroke: ${colour}` });
  }
}

function niceStep(least) {
  for (const step of [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600]) if (step >= least) return step;
  return 86400;
}

function clock(s) {
  if (s < 60) return `${Number(s.toFixed(1))} s`;
  const minutes = Math.floor(s / 60), rest = String(Math.round(s % 60)).padStart(2, "0");
  return minutes < 60 ? `${minutes}:${rest}` : `${Math.floor(minutes / 60)}:${String(minutes % 60).padStart(2, "0")}:${rest}`;
}

// Curves from 0 up. `series`: [{ values, widthS, colour, dashed }]
export function curves(svg, axis, series) {
  const canvas = new Canvas(svg, axis.endS);
  const highest = Math.max(1e-9, ...series.flatMap((each) => each.values.filter((value) => value !== null)));
  const y = (value) => canvas.bottom - (value / highest) * (canvas.bottom - canvas.top);
  for (const share of [0, 0.5, 1]) {
    canvas.add("line", { class: "grid", x1: canvas.left, x2: canvas.right, y1: y(highest * share), y2: y(highest * share) });
    canvas.add("text", { x: canvas.left - 5, y: y(highest * share) + 4, "text-anchor": "end" }, compact.format(highest * share));
  }
  finish(canvas, axis, () => { for (const each of series) canvas.curve(each.values, each.widthS, y, each.colour, each.dashed); });
}

// Bars on top of each other. `series`: [{ values, colour }], `line`: one more series as a dashed curve of sums
export function bars(svg, axis, series, widthS, line) {
  const canvas = new Canvas(svg, axis.endS);
  const count = Math.max(0, ...series.map((each) => each.values.length));
  const sums = Array.from({ length: count }, (_, n) => series.reduce((sum, each) => sum + (each.values[n] ?? 0), 0));
  const highest = Math.max(...sums, ...(line ? line.values : []), 0);
  const y = (value) => canvas.bottom - (highest ? value / highest : 0) * (canvas.bottom - canvas.top);
  for (const share of highest ? [0, 0.5, 1] : [0]) {
    canvas.add("line", { class: "grid", x1: canvas.left, x2: canvas.right, y1: y(highest * share), y2: y(highest * share) });
    canvas.add("text", { x: canvas.left - 5, y: y(highest * share) + 4, "text-anchor": "end" }, compact.format(highest * share));
  }
  if (!highest) canvas.add("text", { x: (canvas.left + canvas.right) / 2, y: (canvas.top + canvas.bottom) / 2, "text-anchor": "middle" }, "none");
  finish(canvas, axis, () => {
    const base = new Array(count).fill(0);
    for (const each of series) {
      each.values.forEach((value, n) => {
        if (!value) return;
        const x = canvas.x(n * widthS), to = canvas.x(Math.min((n + 1) * widthS, axis.endS));
        const from = y(base[n]), height = Math.max(from - y(base[n] + value), 1);
        canvas.add("rect", { x, y: from - height, width: Math.max(to - x - 0.5, 1), height, style: `fill: ${each.colour}` });
        base[n] += value;
      });
    }
    if (line) canvas.curve(line.values, line.widthS, y, line.colour, true);
  });
}

// The heat map of response times, on a logarithmic axis, with curves over it. `series` as in `curves`, values in ns.
export function heatMap(svg, axis, heat, widthS, series) {
  const canvas = new Canvas(svg, axis.endS);
  const values = series.flatMap((each) => each.values.filter((value) => value));
  const rows = heat.counts.reduce((most, column) => Math.max(most, column.length), 0);
  const low = Math.min(rows ? heat.low_ns : Infinity, ...values, 1e15), high = Math.max(rows ? heat.low_ns * heat.ratio ** rows : 0, ...values, 1);
  if (!rows && !values.length) {
    canvas.add("text", { x: (canvas.left + canvas.right) / 2, y: (canvas.top + canvas.bottom) / 2, "text-anchor": "middle" }, "nothing went well");
    return finish(canvas, axis, () => {});
  }
  const span = Math.max(Math.log(high / low), 0.7);
  const y = (ns) => canvas.bottom - (Math.log(ns / low) / span) * (canvas.bottom - canvas.top);
  const most = Math.max(1, ...heat.counts.flat());
  heat.counts.forEach((column, n) => column.forEach((count, row) => {
    if (!count) return;
    const from = heat.low_ns * heat.ratio ** row, x = canvas.x(n * widthS), to = canvas.x(Math.min((n + 1) * widthS, axis.endS));
    const opacity = (0.12 + 0.78 * (count / most) ** DAMPED).toFixed(2);
    canvas.add("rect", { x: x.toFixed(1), y: y(from * heat.ratio).toFixed(1), width: (to - x + 0.3).toFixed(1), height: (y(from) - y(from * heat.ratio) + 0.3).toFixed(1), style: `fill: var(--heat); opacity: ${opacity}` });
  }));
  const room = (canvas.bottom - canvas.top) / (1.3 * canvas.unit);
  const decades = span / Math.LN10, steps = decades > room ? [1] : decades * 3 > room ? [1] : [1, 2, 5];
  for (let power = Math.floor(Math.log10(low)); 10 ** power <= high; power++) {
    for (const step of steps) {
      const ns = step * 10 ** power;
      if (ns < low || ns > high * 1.001) continue;
      canvas.add("line", { class: "grid", x1: canvas.left, x2: canvas.right, y1: y(ns), y2: y(ns) });
      canvas.add("text", { x: canvas.left - 5, y: y(ns) + 4, "text-anchor": "end" }, duration(ns));
    }
  }
  finish(canvas, axis, () => { for (const each of series) canvas.curve(each.values, each.widthS, y, each.colour, each.dashed); });
}

function finish(canvas, axis, draw) {
  canvas.band(axis.chosen);
  draw();
  canvas.marks(axis.stages, axis.marks);
  canvas.timeAxis();
  const cross = canvas.add("line", { class: "cross", y1: canvas.top, y2: canvas.bottom, x1: -9, x2: -9 });
  canvas.svg.shown = { canvas, cross };
}

// Points in all charts at once: `look(seconds, event)` while the pointer moves (null when it leaves), `choose(from, to)`
// after a click (from = to) or a drag, and with the arrow keys.
export function follow(svgs, look, choose) {
  let from = null;
  for (const svg of svgs) {
    const at = (event) => svg.shown.canvas.secondsAt(event.clientX - svg.getBoundingClientRect().left);
    svg.addEventListener("pointermove", (event) => {
      if (!svg.shown) return;
      cross(svgs, at(event));
      look(at(event), event);
    });
    svg.addEventListener("pointerleave", () => { cross(svgs, null); look(null); });
    svg.addEventListener("pointerdown", (event) => { if (svg.shown && event.button === 0) from = at(event); });
    svg.addEventListener("pointerup", (event) => {
      if (from === null || !svg.shown) return;
      choose(Math.min(from, at(event)), Math.max(from, at(event)));
      from = null;
    });
    svg.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step) return;
      event.preventDefault();
      choose(null, step);
    });
  }
}

function cross(svgs, seconds) {
  for (const { shown } of svgs) {
    if (!shown) continue;
    const x = seconds === null ? -9 : shown.canvas.x(seconds);
    shown.cross.setAttribute("x1", x);
    shown.cross.setAttribute("x2", x);
  }
}
