// Loads how slow requests were and how many at once, host by host, once the view has settled; and shows it or not.

import { addAddressPart, writeAddress } from "../data/address.js";
import { listen } from "../data/events.js";
import { hostRowsAround, lanesQuery, rowTable } from "../data/rows.js";
import { fetchMessage } from "../data/server.js";
import { state, trace } from "../data/trace.js";
import { rowsInSight } from "../data/view.js";
import { drawBandsChip, showsBands } from "../draw/bands.js";
import { addAction } from "../page/actions.js";
import { byId } from "../page/elements.js";
import { redraw, repaint } from "./drawing.js";

const FINER = 0.7, COARSER = 1.5; // as for counts
let isAsking = false, isWaiting = false;

function isNeeded() {
  const { bands, view, data } = state, width = state.to - state.from;
  if (!state.withBands || state.raw || state.only || !data || data.mode === "arrows") return false;
  if (!bands || bands.made !== trace.meta.made || bands.arranged !== rowTable.version) return true;
  const [first, last] = rowsInSight(view), known = new Set(bands.rows);
  if (hostRowsAround(view).some((row) => row >= first && row <= last && !known.has(row))) return true;
  if (bands.from > Math.max(state.from, 0) || bands.to < Math.min(state.to, trace.meta.duration)) return true;
  return width < FINER * bands.requestedWidth || width > COARSER * bands.requestedWidth;
}

/** @param {string} made @param {Ns} from @param {Ns} to @returns {Promise<Bands>} */
async function fetchBands(made, from, to) {
  const rows = hostRowsAround(state.view), kept = { rows, requestedWidth: to - from, arranged: rowTable.version, made };
  const path = `api/bands?from=${Math.floor(from)}&to=${Math.ceil(to)}&lanes=${lanesQuery(rows)}`;
  return Object.assign(/** @type {any} */ (await fetchMessage(path, undefined, made)), kept);
}

/** The bands of another revision, if any are shown, so that nothing blinks. */
export const fetchNextBands = (made, from, to) => (showsBands(state) ? fetchBands(made, from, to).catch(() => null) : null);

/** Show what `fetchNextBands` has fetched. @param {Bands | null} bands */
export function acceptBands(bands) {
  state.bands = bands && Object.assign(bands, { arranged: rowTable.version });
}

// One question at a time: of a large trace the first one takes seconds, and a server has few threads. Views that are
// looked at meanwhile are asked for once, after it.
function load() {
  if (isAsking) isWaiting = true;
  if (isAsking || !isNeeded()) return;
  isAsking = true;
  fetchBands(trace.meta.made, state.from, state.to)
    .then((bands) => {
      const before = showsBands(state);
      state.bands = bands;
      (before === showsBands(state) ? redraw : repaint)(); // the counts behind become faint
    })
    .catch(() => {}) // the counts are as good without
    .then(() => {
      const again = isWaiting;
      isAsking = isWaiting = false;
      if (again) load();
    });
}

function show(withBands) {
  state.withBands = withBands;
  mark();
  writeAddress(state);
  load();
  repaint();
}

function mark() {
  byId("bands").setAttribute("aria-pressed", `${state.withBands}`);
}

addAddressPart("bands", {
  read: (text) => (state.withBands = text !== "off"),
  write: () => (state.withBands ? "" : "off"),
});

/** Follow the view, where the trace has requests and is near. */
export function startBands() {
  if (!byId("bands")) return;
  const draw = () => drawBandsChip(byId("bands").querySelector("canvas"));
  addAction("bands", () => show(!state.withBands), "b");
  listen("settled", load);
  listen("theme", draw);
  listen("moved", mark);
  draw();
  mark();
}
