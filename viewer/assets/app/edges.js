// At the edges of a period's timeline: the way on to the period before and to that after.

import { listen } from "../data/events.js";
import { state, trace } from "../data/trace.js";
import { wholeView } from "../data/view.js";
import { byId } from "../page/elements.js";

function showEdges() {
  const [first, last] = wholeView(trace.meta), width = state.to - state.from;
  const next = byId("next-period"), isWhole = width >= last - first;
  byId("previous-period").classList.toggle("shown", state.from <= 0);
  next.classList.toggle("shown", state.to >= trace.meta.duration);
  next.hash = isWhole ? "" : `from=0&to=${Math.round(width)}`; // as wide a view of it, from its beginning
}

/** Show them whenever the view has come to an edge; where the trace is no period, there are none. */
export function startEdges() {
  if (!byId("next-period")) return;
  listen("moved", showEdges);
  listen("settled", showEdges);
}
