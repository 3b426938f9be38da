// Where a view has no packet: how far away the next ones are, and the way there.

import { listen } from "../data/events.js";
import { fetchJson, onlyPart } from "../data/server.js";
import { duration } from "../data/time.js";
import { state, trace } from "../data/trace.js";
import { byId, element } from "./elements.js";

/** @type {Timeline} */
let timeline;

const box = () => byId("nowhere");

// Counts are only sent for many packets, so a view that may be empty has them one by one.
function isEmpty() {
  const { data, from, to } = state;
  if (!data || data.mode !== "arrows" || !data.begin || !trace.meta.hops) return false;
  return !data.begin.some((begin, at) => begin <= to && data.end[at] >= from);
}

async function show() {
  const { from, to } = state;
  if (!isEmpty()) return hide();
  const path = `api/around?from=${Math.floor(from)}&to=${Math.ceil(to)}${onlyPart()}`;
  const { before, after } = await fetchJson(path).catch(() => ({}));
  if (state.moving || state.from !== from || state.to !== to || !isEmpty()) return;
  const ways = [];
  if (typeof before === "number") ways.push(way(`‹ the last, ${duration(from - before)} before`, before));
  if (typeof after === "number") ways.push(way(`the next, ${duration(after - to)} later ›`, after));
  box().replaceChildren(element("span", ways.length ? "No packet here." : "No packet at all."), ...ways);
  box().classList.add("shown");
}

function way(text, at) {
  const button = element("button", text);
  button.addEventListener("click", () => {
    const half = (state.to - state.from) / 2;
    timeline.glide(at - half, at + half);
    byId("arrows").focus();
  });
  return button;
}

const hide = () => box().classList.remove("shown");

/** Look whenever the view has come to rest. @param {Timeline} of */
export function startNowhere(of) {
  timeline = of;
  listen("moved", hide);
  listen("settled", show);
}
