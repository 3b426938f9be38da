// The view moves: at once in a gesture, or gliding to a place. When it has come to rest, and all of it is loaded, it is
// settled, and that is announced.

import { writeAddress } from "../data/address.js";
import { listen, notify } from "../data/events.js";
import { state, trace } from "../data/trace.js";
import { wholeView } from "../data/view.js";
import { prepareStill } from "../draw/scene.js";
import { redraw, redrawSoon } from "./drawing.js";
import { isLoading, load } from "./loading.js";

const SETTLE_MS = 60; // without an event, a gesture has ended
const LEAST_NS = 20;
const GLIDE_MS = 220;
let settleTimer = 0, finishing = 0, gliding = 0;

export const middle = () => (state.from + state.to) / 2;

/** The view, moved by a share of its width. */
export const shift = (share) => [state.from + share * (state.to - state.from), state.to + share * (state.to - state.from)];

/** Show [from, to], kept within the trace. `jump`: this is where the view stays, not a moment of a gesture. */
export function setView(from, to, jump = false) {
  [state.from, state.to] = within(from, to);
  state.moving = true;
  state.hover = null;
  notify("moved");
  clearTimeout(settleTimer);
  settleTimer = jump ? 0 : setTimeout(settle, SETTLE_MS);
  if (!isLoading() || jump) load(); // not only when the gesture has ended
  if (!jump) {
    redraw();
    return;
  }
  settle();
  if (isLoading()) redrawSoon();
}

function within(from, to) {
  const whole = wholeView(trace.meta), most = whole[1] - whole[0];
  const width = Math.min(Math.max(to - from, LEAST_NS), most);
  const centre = Math.min(Math.max((from + to) / 2, whole[0] + width / 2), whole[1] - width / 2);
  return [centre - width / 2, centre + width / 2];
}

/** Zoom by a factor, so that `time` stays where it is. */
export function zoom(factor, time) {
  stopGlide();
  setView(time - (time - state.from) * factor, time + (state.to - time) * factor);
}

export function pan(by) {
  stopGlide();
  setView(state.from + by, state.to + by);
}

/** Move the view to around `time`. */
export function centre(time) {
  const half = (state.to - state.from) / 2;
  stopGlide();
  setView(time - half, time + half);
}

const stopGlide = () => (gliding += 1);

/** As `zoom`, smoothly. */
export const glideAround = (time, factor) => glide(time - (time - state.from) * factor, time + (state.to - time) * factor);

/** Move smoothly: the width changes by the same factor in each moment. */
export function glide(from, to) {
  const mine = ++gliding, begin = performance.now();
  const before = [state.from, state.to], ratio = (to - from) / (before[1] - before[0]);
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) {
    setView(from, to, true);
    return;
  }
  const step = (now) => {
    if (mine !== gliding) return;
    const share = Math.min(1, Math.max(0, (now - begin) / GLIDE_MS)), eased = 1 - Math.pow(1 - share, 3);
    if (share === 1) {
      setView(from, to, true);
      return;
    }
    const grown = Math.abs(ratio - 1) < 1e-6 ? eased : (Math.pow(ratio, eased) - 1) / (ratio - 1);
    setView(before[0] + (from - before[0]) * grown, before[1] + (to - before[1]) * grown);
    requestAnimationFrame(step);
  };
  requestAnimationFrame(step);
}

/** The view rests: what it lacks is loaded, then the picture is finished. */
export function settle() {
  settleTimer = 0;
  if (!isLoading() && !load()) finish();
}

// The picture is whole: painted in the next frame.
function finish() {
  const mine = ++finishing;
  state.moving = false;
  redraw();
  requestAnimationFrame(() => requestAnimationFrame(() => {
    if (state.moving || mine !== finishing) return;
    state.settledCount += 1;
    state.settledAt = performance.now();
    writeAddress(state);
    state.still = null;
    notify("settled");
    requestIdleCallback(() => state.moving || prepareStill(state.view, state));
  }));
}

/** Go on when an answer has come: a gesture may still be going on. */
export function startMovement() {
  listen("loaded", () => (settleTimer ? load() : settle()));
}
