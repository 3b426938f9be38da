// Loads the lines of logs and spans of other tracers that a settled view shows; shows them or not; selects one.

import { addAddressPart, writeAddress } from "../data/address.js";
import { listen } from "../data/events.js";
import { fetchJson } from "../data/server.js";
import { state, trace } from "../data/trace.js";
import { drawAnnotationsChip, placeOnLines } from "../draw/annotations.js";
import { addAction } from "../page/actions.js";
import { byId, fillParts } from "../page/elements.js";
import { redraw } from "./drawing.js";
import { glide } from "./movement.js";
import { select } from "./selection.js";

const APART_SHARE = 300; // of the window
let asked = "";

const eachOf = ([number, kind, lane, from, took, error, name, severity, request, format, joinedBy]) =>
  ({ number, kind, lane, from, to: from + took, error, name, isError: severity === "error", request, format, joinedBy, line: 0 });

async function load() {
  const path = `api/annotations?from=${Math.floor(state.from)}&to=${Math.ceil(state.to)}`, key = `${path} ${trace.meta.made}`;
  if (!state.withAnnotations || asked === key) return;
  asked = key;
  const found = await fetchJson(path).catch(() => null); // the packets are as good without
  if (!found || asked !== key) return;
  const apart = (found.to - found.from) / APART_SHARE;
  state.annotations = { ...found, each: found.each && placeOnLines(found.each.map(eachOf), apart) };
  redraw();
}

function show(withAnnotations) {
  state.withAnnotations = withAnnotations;
  mark();
  writeAddress(state);
  load();
  redraw();
}

function mark() {
  byId("annotations").setAttribute("aria-pressed", `${state.withAnnotations}`);
}

/** Select an annotation, and its request if it has one. @param {number} number */
export async function selectAnnotation(number) {
  const found = await fetchJson(`api/annotations/${number}`).catch(() => null);
  if (!found) return null;
  select(found.request, null);
  state.annotation = number;
  fillParts({ "packet-details": found.parts });
  redraw();
  return found;
}

async function step(which) {
  const path = `api/annotations/beside?number=${state.annotation}&at=${Math.floor((state.from + state.to) / 2)}&which=${which}`;
  const number = await fetchJson(path).catch(() => null);
  const found = number === null ? null : await selectAnnotation(number);
  if (!found || (found.from >= state.from && found.to <= state.to)) return;
  const half = (state.to - state.from) / 2;
  glide(found.from - half, found.from + half);
}

addAddressPart("logs", {
  read: (text) => (state.withAnnotations = text !== "off"),
  write: () => (state.withAnnotations ? "" : "off"),
});

/** Follow the view, where the trace has annotations. */
export function startAnnotations() {
  if (!byId("annotations")) return;
  const draw = () => drawAnnotationsChip(byId("annotations").querySelector("canvas"));
  addAction("annotations", () => show(!state.withAnnotations), "j");
  addAction("next-annotation", () => step("next"), "]");
  addAction("previous-annotation", () => step("previous"), "[");
  listen("settled", load);
  listen("theme", draw);
  listen("moved", mark);
  draw();
  mark();
}
