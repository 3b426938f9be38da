// `window.twintap`: what tests and benchmarks read of the page. Nothing of the page itself uses it.

import { fetchHop } from "../data/hops.js";
import { groupLanes, rowName, rowsCovered, rowsOfPair, rowTable } from "../data/rows.js";
import { state, trace } from "../data/trace.js";
import { makeView, rowsInSight } from "../data/view.js";
import { arrowEnds } from "../draw/arrows.js";
import { stripsRoom } from "../draw/footer.js";
import { palette } from "../draw/palette.js";
import { badge } from "../page/notices.js";
import { svgPicture } from "../page/save.js";

export const surface = Object.freeze({
  state, palette,
  get meta() { return trace.meta; },
  get rows() { return rowTable.rows; },
  get settledCount() { return state.settledCount; },
  get settledAt() { return state.settledAt; },
  get badgeText() { return badge.text; },
  currentView: () => state.view,
  makeView, arrowEnds, rowsInSight, rowsOfPair, rowsCovered, rowName, groupLanes, stripsRoom, svgPicture, fetchHop,
});
