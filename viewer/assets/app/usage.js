// Loads what the hosts used, for the strips under the rows.

import { listen } from "../data/events.js";
import { fetchMessage } from "../data/server.js";
import { state, trace } from "../data/trace.js";
import { redraw } from "./drawing.js";

const FINER = 4; // measurements are loaded again once the view is so many times narrower than what they were loaded for
let asking = null;

/** Load the measurements of the view, if those that are there do not cover it or are too coarse. */
function load() {
  const { from, to, usage } = state, width = to - from;
  if (usage && usage.made === trace.meta.made && usage.from <= from && usage.to >= to && width > usage.width / FINER) return;
  if (asking) asking.abort();
  asking = new AbortController();
  fetchMessage(`api/usage?from=${Math.floor(from)}&to=${Math.ceil(to)}`, asking.signal)
    .then((message) => {
      state.usage = Object.assign(message, { width, made: trace.meta.made });
      redraw();
    })
    .catch((error) => {
      if (error.name !== "AbortError") state.usage = null;
    });
}

/** Follow the view, where the trace holds measurements. */
export function startUsage() {
  if (!trace.meta.strips.length) return;
  listen("settled", load);
  load();
}
