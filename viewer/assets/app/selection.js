// The selected request and packet: what stands beside the timeline about them, and what is zoomed to.

import { keepAddress, writeAddress } from "../data/address.js";
import { notify } from "../data/events.js";
import { withEnds } from "../data/message.js";
import { fetchJson, fetchMessage } from "../data/server.js";
import { state, trace } from "../data/trace.js";
import { byId, fillParts } from "../page/elements.js";
import { markRequest } from "../page/notices.js";
import { loadPlotly } from "../page/plotly.js";
import { showPacket } from "../page/tip.js";
import { paint, redraw } from "./drawing.js";
import { reportNoAnswer } from "./loading.js";
import { glide } from "./movement.js";

const ROOM_SHARE = 0.06, LEAST_ROOM_NS = 10; // around a request that is zoomed to
const EVIDENCE_ROOM = 0.5, LEAST_EVIDENCE_NS = 100_000; // around a cause
let requestTimes = new Map();
let awaited = null; // where to go once the times of a selected request are known: { request, go }

/** The times of the listed requests, of a revision of the trace. */
export function setRequestTimes(meta) {
  requestTimes = new Map(meta.requestTimes.map(([number, from, to]) => [number, [from, to]]));
}

/** Select a request and a hop, or neither. `anew`: their texts are written again.
 *  @param {number | null} request @param {number | null} hop @param {boolean} [anew] */
export function select(request, hop, anew = false) {
  const before = state.selection;
  state.selection = { request, hop };
  state.annotation = -1;
  showPacket(byId("packet-details"), hop);
  markRequest(request);
  if (request !== before.request) {
    state.selected = awaited = null;
    if (request !== null) loadRequest(request);
  }
  if (request !== before.request || anew) loadDetails(request);
  writeAddress(state);
  notify("selected");
  redraw();
}

/** Load the arrows of a request. */
export function loadRequest(number) {
  fetchMessage(`api/requests/${number}/arrows${state.raw ? "?clocks=raw" : ""}`)
    .then((message) => {
      if (state.selection.request !== number) return;
      requestTimes.set(number, requestTimes.get(number) || [message.from, message.to]);
      state.selected = message.number ? withEnds(message, trace.meta) : message;
      state.selected.picture = paint(state.selected);
      redraw();
      if (awaited && awaited.request === number) withTimes(awaited.go);
    })
    .catch(reportNoAnswer);
}

// The ledger first; when it is seen the waterfall, which takes longer to draw.
async function loadDetails(number) {
  const trees = number === null ? [] : await fetchJson(`api/requests/${number}/details`).catch(reportNoAnswer);
  if (!trees || state.selection.request !== number) return;
  fillParts({ "request-details": trees });
  if (number !== null) await new Promise((painted) => requestAnimationFrame(() => requestAnimationFrame(painted)));
  if (state.selection.request === number) askForWaterfall(number);
}

/** Compare the selected request with others of its class, beside its ledger. */
export async function explainRequest() {
  const number = state.selection.request;
  if (number === null) return;
  const why = await fetchJson(`api/requests/${number}/why`).catch(reportNoAnswer);
  if (!why || state.selection.request !== number || !byId("request-why")) return;
  fillParts({ "request-why": why.parts });
  if (why.beside !== null) askForWaterfall(number, why.beside);
}

/** Select another request, from its beginning, on the scale on which the timeline is; *back* returns. @param {number} request */
export function showBeside(request) {
  const before = requestTimes.get(state.selection.request), width = state.to - state.from;
  const offset = before ? state.from - before[0] : -ROOM_SHARE * width;
  keepAddress(state);
  select(request, null);
  withTimes((from) => glide(from + offset, from + offset + width));
}

async function askForWaterfall(request, beside = null) {
  if (request !== null && !(await loadPlotly().then(() => true, reportNoAnswer))) return;
  if (state.selection.request === request) window.dash_clientside.set_props("selection", { data: { request, beside } });
}

/** Zoom to a time within the selected request, and select a packet there.
 *  @param {number} from @param {number} to @param {number | null} hop */
export function goToEvidence(from, to, hop) {
  if (hop !== null) select(state.selection.request, hop);
  const room = Math.max(EVIDENCE_ROOM * (to - from), LEAST_EVIDENCE_NS);
  glide(from - room, to + room);
}

/** Zoom to the selected request. */
export function fitRequest() {
  withTimes((from, to) => {
    const room = Math.max(ROOM_SHARE * (to - from), LEAST_ROOM_NS);
    glide(from - room, to + room);
  });
}

// Go somewhere by the times of the selected request; they come with its arrows, so that may be a moment later.
function withTimes(go) {
  const { request } = state.selection, times = requestTimes.get(request);
  awaited = times || request === null ? null : { request, go };
  if (times) go(...times);
}

/** Dash calls this when a bar of the waterfall is clicked. */
export function zoomToBar(clicked) {
  const span = clicked && clicked.points && clicked.points[0].customdata;
  if (span) glide(span[0] - ROOM_SHARE * (span[1] - span[0]), span[1] + ROOM_SHARE * (span[1] - span[0]));
  return null;
}
