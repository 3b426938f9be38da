// When the picture is drawn, and how large.

import { rowTable } from "../data/rows.js";
import { ticks } from "../data/time.js";
import { state, trace } from "../data/trace.js";
import { makeView } from "../data/view.js";
import { countsAlpha } from "../draw/bands.js";
import { densityPicture } from "../draw/density.js";
import { stripsRoom } from "../draw/footer.js";
import { drawScene } from "../draw/scene.js";
import { placeLanes } from "../page/lane_labels.js";
import { Minimap } from "../page/minimap.js";
import { drawChip, showBadge, showBase } from "../page/notices.js";

const SOON_MS = 40; // the answer to a jump mostly comes within, and the old picture stays until then
let canvas, context, minimap, isScheduled = false, timer = 0, scroll = 0;

/** Draw on this canvas, and the whole trace in that strip. @param {HTMLCanvasElement} on @param {Minimap} strip */
export function startDrawing(on, strip) {
  [canvas, minimap] = [on, strip];
  context = canvas.getContext("2d");
}

/** Draw in the next frame. */
export function redraw() {
  if (isScheduled) return;
  isScheduled = true;
  requestAnimationFrame(() => {
    isScheduled = false;
    draw();
  });
}

/** Draw a little later, if nothing else has drawn by then. */
export function redrawSoon() {
  clearTimeout(timer);
  timer = setTimeout(redraw, SOON_MS);
}

export function draw() {
  clearTimeout(timer);
  makeCurrentView();
  const ruler = ticks(state.from, state.to, state.view.width);
  showBase(ruler.base);
  const inView = drawScene(context, state.view, state, ruler);
  minimap.draw(state);
  if (!state.moving) showBadge(state, inView);
}

/** The geometry of what is drawn, from the state and the size of the canvas. */
export function makeCurrentView() {
  const { clientWidth, clientHeight } = canvas.parentElement, rows = rowTable.rows.length;
  state.view = makeView(state.from, state.to, clientWidth, clientHeight, trace.meta.rulerHeight, rows, scroll, stripsRoom());
}

/** Give the canvas the pixels of its place on the page. */
export function fitCanvas() {
  const box = canvas.parentElement, scale = devicePixelRatio || 1;
  canvas.width = Math.round(box.clientWidth * scale);
  canvas.height = Math.round(box.clientHeight * scale);
  context.setTransform(scale, 0, 0, scale, 0, 0);
  makeCurrentView();
  placeLanes(state.view);
  repaint();
}

/** Scroll the rows that do not fit. */
export function scrollRows(px) {
  scroll = px;
  makeCurrentView();
  scroll = state.view.scroll;
  placeLanes(state.view);
  repaint();
}

/** Draw after a change of the rows. */
export function redrawRows() {
  makeCurrentView();
  scrollRows(scroll);
}

/** A picture of counts; null where there is nothing to count. `alpha`: of all but problems. */
export function paint(density, alpha = 1) {
  const isCounts = density && ["density", "ends"].includes(density.mode);
  return isCounts ? densityPicture(density, state.view, state.hidden, alpha) : null;
}

/** Paint all pictures of counts again. */
export function repaint() {
  state.picture = paint(state.data, countsAlpha(state));
  state.overviewPicture = paint(state.overview, countsAlpha(state));
  if (state.selected) state.selected.picture = paint(state.selected);
  state.still = null;
  redraw();
}

/** Draw the legend's arrows. */
export function drawChips() {
  document.querySelectorAll("[data-class] .chip").forEach((chip) => drawChip(chip, Number(chip.parentElement.dataset.class)));
}

/** Draw after a change of the theme. */
export function redrawTheme() {
  drawChips();
  repaint();
}
