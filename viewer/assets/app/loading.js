// What is loaded for the view: its packets or their counts, and the overview of the whole trace.

import { notify } from "../data/events.js";
import { withEnds } from "../data/message.js";
import { rowsCovered, rowTable, wantedRows } from "../data/rows.js";
import { fetchJson, fetchMessage, onlyPart } from "../data/server.js";
import { state, trace } from "../data/trace.js";
import { countsAlpha } from "../draw/bands.js";
import { Minimap } from "../page/minimap.js";
import { showBanner } from "../page/notices.js";
import { paint, redraw } from "./drawing.js";

const FINER = 0.7, COARSER = 1.5; // counts are loaded again for a view so much narrower or wider than theirs
const OUTDATED = "A newer revision has replaced this trace; press “follow” (Space) to see it.";
const UNREACHABLE =
  "The viewer's server does not answer. Start it again with `tracer view`, then reload; what you see is the last it sent.";
let fetching = null;

/** Whether an answer is awaited. */
export const isLoading = () => fetching !== null;

/** Ask for the window if what is loaded does not cover it, or is too coarse; "loaded" is announced once it is there.
 *  False if there is nothing to ask for. */
export function load() {
  if (!isNeeded()) return false;
  if (fetching) fetching.abort();
  const mine = (fetching = new AbortController());
  const from = Math.floor(state.from), to = Math.ceil(state.to), rows = wantedRows(state.view);
  fetchMessage(windowPath(from, to) + rows.query, mine.signal)
    .then((message) => {
      if (mine !== fetching) return;
      fetching = null;
      showBanner("");
      accept(message, to - from, rows);
      notify("loaded");
    })
    .catch((error) => error.name === "AbortError" || onFailure(mine, error));
  return true;
}

const windowPath = (from, to) => `api/window?from=${from}&to=${to}${state.raw ? "&clocks=raw" : ""}${onlyPart()}`;

// Let a message replace what was loaded before it.
function accept(message, requestedWidth, rows) {
  Object.assign(message, { requestedWidth, raw: state.raw, only: state.only, rows: rows.numbers, arranged: rowTable.version });
  if (message.number) withEnds(message, trace.meta);
  state.still = null;
  state.data = message;
  state.picture = paint(message, countsAlpha(state));
  redraw();
}

function isNeeded() {
  const data = state.data, width = state.to - state.from;
  if (!data) return true;
  const from = Math.max(state.from, 0), to = Math.min(state.to, trace.meta.duration);
  if (data.raw !== state.raw || data.only !== state.only || !rowsCovered(data, state.view)) return true;
  if (to <= from) return false;
  if (data.from > from || data.to < to) return true;
  return data.mode !== "arrows" && (width < FINER * data.requestedWidth || width > COARSER * data.requestedWidth);
}

function onFailure(mine, error) {
  if (mine === fetching) fetching = null;
  showBanner(error && error.outdated ? OUTDATED : UNREACHABLE);
}

/** Show that the server does not answer. */
export const reportNoAnswer = () => showBanner(UNREACHABLE);

/** Load the counts of the whole trace. @param {Minimap} minimap */
export function loadOverview(minimap) {
  fetchMessage("api/overview")
    .then((density) => {
      state.overview = density;
      state.overviewPicture = paint(density, countsAlpha(state));
      minimap.setOverview(density);
      redraw();
    })
    .catch(reportNoAnswer);
}

/** Load when requests were slow, once all else is there. @param {Minimap} minimap */
export function loadSlowness(minimap) {
  requestIdleCallback(() =>
    fetchJson("api/slowness")
      .then((slowness) => {
        minimap.setSlowness(slowness);
        redraw();
      })
      .catch(() => {}), // the strip is as good without
  );
}

/** What another revision of the trace shows from `from` to `to`, without showing it yet. */
export async function fetchRevision(revision, from, to) {
  const paths = [windowPath(Math.floor(from), Math.ceil(to)), "api/overview"];
  const [data, overview] = await Promise.all(paths.map((path) => fetchMessage(path, undefined, revision)));
  return { data, overview };
}

/** Show what `fetchRevision` has fetched. */
export function acceptRevision({ data, overview }, width) {
  state.overview = overview;
  accept(data, width, { numbers: [] });
}

/** No longer wait for an answer. */
export function stopLoading() {
  if (fetching) fetching.abort();
  fetching = null;
}
