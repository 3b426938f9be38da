// The timeline's page: begins all its parts, follows its buttons and its address, and goes on to newer revisions.

import { addAddressPart, furtherParts, parseAddress, writeAddress } from "../data/address.js";
import { listen } from "../data/events.js";
import { forgetHops } from "../data/hops.js";
import { labels } from "../data/names.js";
import { arrange, rowsCovered } from "../data/rows.js";
import { state, trace } from "../data/trace.js";
import { wholeView } from "../data/view.js";
import { readPalette } from "../draw/palette.js";
import { addAction, attachKeys, runAction } from "../page/actions.js";
import { closeDialog, isDialogOpen, openDialog } from "../page/dialogs.js";
import { byId, fillParts } from "../page/elements.js";
import { startExplanation } from "../page/explain.js";
import { startLaneLabels } from "../page/lane_labels.js";
import { startLive } from "../page/live.js";
import { Minimap } from "../page/minimap.js";
import { markClasses, markClocks } from "../page/notices.js";
import { startNowhere } from "../page/nowhere.js";
import { startPackets } from "../page/packets.js";
import { startSaving } from "../page/save.js";
import { startSharing } from "../page/share.js";
import { startSearch } from "../page/search.js";
import { switchTheme } from "../page/theme.js";
import { startUploadDialog } from "../page/uploads.js";
import {
  draw, drawChips, redrawRows, redrawTheme, fitCanvas, repaint, scrollRows, startDrawing,
} from "./drawing.js";
import { startAnnotations } from "./annotations.js";
import { acceptBands, fetchNextBands, startBands } from "./bands.js";
import { acceptRevision, fetchRevision, isLoading, load, loadOverview, loadSlowness, stopLoading } from "./loading.js";
import { centre, glide, glideAround, middle, settle, setView, shift, startMovement } from "./movement.js";
import { startPointing } from "./pointing.js";
import { goToConnection, goToProblem } from "./problems.js";
import { goToPacket } from "./connection.js";
import { startEdges } from "./edges.js";
import { explainRequest, fitRequest, goToEvidence, loadRequest, select, setRequestTimes, showBeside } from "./selection.js";
import { startOrigins } from "./origins.js";
import { startUsage } from "./usage.js";

const KEY_SHARE = 0.2; // of the view, that a key moves it by
const KEY_ZOOM = 0.6;
let minimap, namesBefore = "";
const shownNames = () => JSON.stringify([[...labels.names], labels.merged]);

/** For the parts of the page beside the timeline. @type {Timeline} */
const timeline = { select, glide, renew, scrollLanes, scrollToRow, showOnly };

/** Dash calls this with what viewer/layout.py put into the page. @param {Meta} meta */
export function start(meta) {
  trace.meta = meta;
  setRequestTimes(meta);
  const canvas = /** @type {HTMLCanvasElement} */ (byId("arrows"));
  minimap = new Minimap(byId("minimap"), centre);
  startDrawing(canvas, minimap);
  readPalette();
  const given = parseAddress(location.hash, meta);
  namesBefore = shownNames();
  fillParts(meta.parts); // their texts show the names of the address
  [state.from, state.to] = given.view || wholeView(meta);
  state.hidden = given.hidden;
  markClasses(state.hidden);
  markClocks(state.raw);
  arrange();
  attach(canvas);
  onResize();
  drawChips();
  loadOverview(minimap);
  loadSlowness(minimap);
  if (given.request !== null || given.hop !== null) select(given.request, given.hop);
  if (given.request !== null && !given.view) fitRequest();
  startParts();
  return true;
}

function attach(canvas) {
  listen("arranged", onArranged);
  listen("theme", redrawTheme);
  startMovement();
  startPointing(canvas);
  addActions();
  attachKeys();
  document.addEventListener("click", onButton);
  window.addEventListener("hashchange", onAddress);
  new ResizeObserver(onResize).observe(byId("plot"));
}

function startParts() {
  startBands();
  startAnnotations();
  startEdges();
  startExplanation();
  startLaneLabels(timeline);
  startLive(timeline);
  startNowhere(timeline);
  startOrigins();
  startPackets(timeline);
  startSaving();
  startSearch(timeline);
  startSharing();
  startUsage();
  startUploadDialog();
}

function addActions() {
  addAction("left", () => glide(...shift(-KEY_SHARE)), "ArrowLeft", "a");
  addAction("right", () => glide(...shift(KEY_SHARE)), "ArrowRight", "d");
  addAction("in", () => glideAround(middle(), KEY_ZOOM), "ArrowUp", "w", "+", "=");
  addAction("out", () => glideAround(middle(), 1 / KEY_ZOOM), "ArrowDown", "s", "-");
  addAction("fit", () => glide(...wholeView(trace.meta)), "0");
  addAction("fit-request", fitRequest, "f");
  addAction("why", explainRequest, "y");
  addAction("next-problem", () => goToProblem("next"), "n");
  addAction("previous-problem", () => goToProblem("previous"), "N");
  addAction("next-packet", () => goToPacket("next"), ".");
  addAction("previous-packet", () => goToPacket("previous"), ",");
  addAction("theme", switchTheme, "t");
  addAction("help", () => openDialog("help"), "?");
  addAction("pairing", () => openDialog("pairing"), "p");
  addAction("clocks", () => trace.meta.clocksApart && setClocks(!state.raw), "c");
  addAction("close", closeDialog); // Escape may have been faster than an answer
  addAction("deselect", () => (isDialogOpen() ? closeDialog() : select(null, null)), "Escape");
}

function onButton(event) {
  const button = event.target instanceof Element && event.target.closest("button");
  if (!button) return;
  const { action, beside, class: cls, connection, request, from, to, hop } = button.dataset;
  if (action) runAction(action);
  if (cls) toggleClass(Number(cls));
  if (beside) showBeside(Number(beside));
  if (connection) goToConnection(connection);
  if (from) goToEvidence(Number(from), Number(to), hop === undefined ? null : Number(hop));
  if (request) {
    select(Number(request), null);
    fitRequest();
    if (event.detail) byId("arrows").focus(); // by a pointer: the next key is for the timeline
  }
}

function onResize() {
  if (!byId("plot")) return; // the page is going away
  fitCanvas();
  setView(state.from, state.to, true);
}

function onArranged() {
  const shown = shownNames();
  if (shown !== namesBefore) {
    namesBefore = shown;
    fillParts({ requests: trace.meta.parts.requests });
    select(state.selection.request, state.selection.hop, true);
  }
  redrawRows();
  setView(state.from, state.to, true);
}

function scrollLanes(px) {
  scrollRows(px);
  if (!isLoading() && !rowsCovered(state.data, state.view)) load();
}

function scrollToRow(row) {
  const { view } = state;
  if (view.shows(row) && view.y(row) <= view.height - 20 && view.y(row) >= view.ruler + 20) return;
  scrollLanes(view.scroll + view.y(row) - (view.height + view.ruler) / 2);
}

// Go on with a newer revision, if that is still `wanted` when it is here; whether it was. What it shows is fetched first,
// so that nothing blinks.
async function renew(meta, from, to, wanted) {
  const [revision, bands] = await Promise.all([fetchRevision(meta.made, from, to), fetchNextBands(meta.made, from, to)]);
  if (!wanted()) return false;
  stopLoading();
  select(null, null);
  trace.meta = meta;
  fillParts(meta.parts);
  setRequestTimes(meta);
  arrange();
  Object.assign(state, { from, to, hover: null, still: null });
  acceptBands(bands);
  acceptRevision(revision, to - from);
  minimap.setOverview(revision.overview);
  minimap.setSlowness(null); // of the revision before
  forgetHops();
  draw();
  repaint();
  settle();
  return true;
}

// The hosts' own clocks, or the trace's one timescale.
function setClocks(raw) {
  state.raw = raw;
  markClocks(raw);
  if (state.selection.request !== null) loadRequest(state.selection.request);
  setView(state.from, state.to, true);
}

// Of all packets only those of the requests that a search finds, or all again.
function showOnly(query) {
  state.only = query;
  writeAddress(state);
  setView(state.from, state.to, true);
}

addAddressPart("only", {
  read: (text) => (state.only = text || ""),
  write: () => state.only,
});

addAddressPart("clocks", {
  read: (text) => (state.raw = text === "raw" && trace.meta.clocksApart > 0),
  write: () => (state.raw ? "raw" : ""),
});

function toggleClass(cls) {
  if (!state.hidden.delete(cls)) state.hidden.add(cls);
  markClasses(state.hidden);
  writeAddress(state);
  repaint();
}

// What the picture depends on beside the view and the selection, as the address states it.
const shape = () => [...state.hidden, furtherParts()].join("&");

function onAddress() {
  const before = shape(), given = parseAddress(location.hash, trace.meta);
  state.hidden = given.hidden;
  markClasses(state.hidden);
  if (given.request !== state.selection.request || given.hop !== state.selection.hop) select(given.request, given.hop);
  if (before !== shape()) {
    arrange();
    onArranged();
  }
  if (!given.view && given.request !== null) fitRequest();
  else setView(...(given.view || [state.from, state.to]), true);
}
