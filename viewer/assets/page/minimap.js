// The whole trace in a strip: from above problems, how slow requests were, traffic; and the window that is in view.

import { trace } from "../data/trace.js";
import { wholeView } from "../data/view.js";
import { eachCell, troubleStrength } from "../draw/density.js";
import { currentTheme, palette } from "../draw/palette.js";

const STACK = [0, 1, 2, 5]; // classes from below
const TROUBLE = [3, 4, 6];
const STRIP_PX = 6; // for problems
const SLOW_PX = 16, LEAST_RATIO = 1.25, MOST_RATIO = 32; // for slow requests: how many times as long as usual

export class Minimap {
  constructor(canvas, onMove) {
    this.canvas = canvas;
    this.onMove = onMove;
    this.picture = null;
    this.slowness = null;
    this.attach();
  }

  setOverview(density) {
    this.density = density;
    this.picture = null;
  }

  /** @param {{ bin: Ns, ratio: number[] } | null} slowness for each bin by how much the slowest request was slower than usual */
  setSlowness(slowness) {
    this.slowness = slowness;
    this.picture = null;
  }

  attach() {
    let held = false;
    const move = (event) => this.onMove(this.time(event.offsetX));
    this.canvas.addEventListener("pointerdown", (event) => {
      held = true;
      this.canvas.setPointerCapture(event.pointerId);
      move(event);
    });
    this.canvas.addEventListener("pointermove", (event) => held && move(event));
    this.canvas.addEventListener("pointerup", () => (held = false));
  }

  time(x) {
    const [from, to] = wholeView(trace.meta);
    return from + (x / this.canvas.clientWidth) * (to - from);
  }

  draw(view) {
    const canvas = this.canvas, scale = devicePixelRatio || 1;
    const width = canvas.clientWidth, height = canvas.clientHeight;
    if (!width) return;
    if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(height * scale);
      this.picture = null;
    }
    if (this.density && (!this.picture || this.theme !== currentTheme())) this.render(width, height);
    const context = canvas.getContext("2d");
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, height);
    if (this.picture) context.drawImage(this.picture, 0, 0, width, height);
    this.drawWindow(context, view, width, height);
  }

  drawWindow(context, view, width, height) {
    const [from, to] = wholeView(trace.meta);
    const x = (time) => ((time - from) / (to - from)) * width;
    const left = Math.max(0, x(view.from)), right = Math.min(width, Math.max(x(view.to), left + 3));
    context.fillStyle = palette.paper;
    context.globalAlpha = 0.6;
    context.fillRect(0, 0, left, height);
    context.fillRect(right, 0, width - right, height);
    context.globalAlpha = 1;
    context.strokeStyle = palette.accent;
    context.lineWidth = 2;
    context.strokeRect(left + 1, 1, Math.max(1, right - left - 2), height - 2);
  }

  render(width, height) {
    this.theme = currentTheme();
    this.picture = document.createElement("canvas");
    this.picture.width = width;
    this.picture.height = height;
    const context = this.picture.getContext("2d");
    const columns = this.columns(width);
    const most = Math.max(1, ...columns.map((each) => STACK.reduce((sum, cls) => sum + each[cls], 0)));
    columns.forEach((each, at) => this.drawColumn(context, each, at, height, most));
    if (this.slowness) this.drawSlowness(context, width);
  }

  // Bars upon a line, their height by the logarithm of the ratio.
  drawSlowness(context, width) {
    const [from, to] = wholeView(trace.meta), { bin, ratio } = this.slowness, base = STRIP_PX + SLOW_PX;
    const binAt = (x) => (from + (x / width) * (to - from)) / bin;
    context.fillStyle = palette.slow;
    for (let x = 0; x < width; x++) {
      const worst = Math.max(0, ...ratio.slice(Math.max(0, Math.floor(binAt(x))), Math.max(0, Math.ceil(binAt(x + 1)))));
      if (worst < LEAST_RATIO) continue;
      const height = Math.round(Math.min(1, Math.log(worst) / Math.log(MOST_RATIO)) * SLOW_PX);
      context.fillRect(x, base - height, 1, height);
    }
    context.fillStyle = palette.grid;
    context.fillRect(0, base, width, 1);
  }

  // Counts by class for each px of the strip.
  columns(width) {
    const [from, to] = wholeView(trace.meta);
    const { bins, classes, bin } = this.density;
    const columns = Array.from({ length: Math.ceil(width) }, () => new Array(classes).fill(0));
    eachCell(this.density, (_, cls, counts) => {
      for (let at = 0; at < bins; at++) {
        const time = this.density.from + (at + 0.5) * bin;
        const column = columns[Math.floor(((time - from) / (to - from)) * width)];
        if (column) column[cls] += counts[at];
      }
    });
    return columns;
  }

  drawColumn(context, column, at, height, most) {
    const above = STRIP_PX + (this.slowness ? SLOW_PX : 0);
    let base = height - 1;
    const total = STACK.reduce((sum, cls) => sum + column[cls], 0);
    const scale = total ? (Math.sqrt(total / most) * (height - above - 3)) / total : 0;
    for (const cls of STACK) {
      const size = column[cls] * scale;
      if (!size) continue;
      context.fillStyle = palette.classes[cls];
      context.fillRect(at, base - size, 1, size);
      base -= size;
    }
    const worst = TROUBLE.filter((cls) => column[cls]).pop();
    if (worst === undefined) return;
    const trouble = TROUBLE.reduce((sum, cls) => sum + column[cls], 0);
    context.globalAlpha = 0.3 + 0.7 * troubleStrength(trouble, total);
    context.fillStyle = palette.classes[worst];
    context.fillRect(at - 0.5, 1, 2, STRIP_PX);
    context.globalAlpha = 1;
  }
}
