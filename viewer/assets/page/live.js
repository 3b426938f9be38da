// Follows a live trace: asks for its state, switches to the newest revision, and pauses when the user moves the view.

import { fetchJson } from "../data/server.js";
import { state, trace } from "../data/trace.js";
import { wholeView } from "../data/view.js";
import { addAction } from "./actions.js";
import { byId, queryAll } from "./elements.js";
import { showBanner } from "./notices.js";

const LIVE_MS = 1000, OTHERWISE_MS = 10000;
const NEWEST = ""; // no revision is named: the newest answers
let following = true, live = null, busy = false, begun = false;
/** @type {Timeline} */
let timeline;

async function ask() {
  const answer = await fetchJson("api/live", undefined, NEWEST).catch(() => null);
  if (answer) {
    live = answer;
    if (live.live && following && live.made !== trace.meta.made) await goOn();
  }
  showState(answer !== null);
  setTimeout(ask, live && live.live ? LIVE_MS : OTHERWISE_MS);
}

// To the newest revision; the view keeps its width and its distance from the end, and the whole stays the whole.
async function goOn() {
  if (busy) return;
  busy = true;
  try {
    const meta = await fetchJson("api/meta", undefined, NEWEST);
    if (!following) return; // the user has touched the page in the meantime
    if (meta.lanes.join("\n") !== trace.meta.lanes.join("\n")) return location.reload(); // hosts came or went
    if (!(await timeline.renew(meta, ...nextView(meta), () => following))) return;
    window.dash_clientside.set_props("renewed", { data: meta.made });
    queryAll("#legend [data-class]").forEach((button) => {
      button.querySelector("small").textContent = meta.classCounts[button.dataset.class];
    });
  } catch (error) {
    if (!error.outdated && error.name !== "AbortError") live = { ...live, trouble: "the viewer's server does not answer" };
  } finally {
    busy = false;
  }
}

/** @returns {[Ns, Ns]} */
function nextView(meta) {
  const { from, to } = state, whole = wholeView(trace.meta);
  if (to - from >= 0.98 * (whole[1] - whole[0])) return wholeView(meta);
  const newest = wholeView(meta)[1];
  return [newest - (to - from), newest];
}

function showState(answered) {
  const shown = Boolean(live && live.live), box = byId("live-state");
  box.hidden = byId("live-button").hidden = !shown;
  if (!shown) return;
  byId("live-button").textContent = following ? "pause" : "follow";
  box.className = following && answered ? "following" : "";
  box.textContent = [following ? "live" : "paused", ...facts(answered)].join(", ");
}

function facts(answered) {
  const behind = live.behind_seconds, count = (number) => number.toLocaleString("en");
  if (!answered) return ["no answer from the server"];
  return [
    ...(behind === null ? [] : [`${behind < 10 ? behind.toFixed(1) : Math.round(behind)} s behind`]),
    ...(live.dropped_count ? [`${count(live.dropped_count)} dropped`] : []),
    ...(live.cut_count ? [`${count(live.cut_count)} segments left out`] : []),
    ...(live.trouble ? [live.trouble] : []),
  ];
}

async function toggle() {
  following = !following;
  if (following) showBanner("");
  if (following && live && live.made !== trace.meta.made) await goOn();
  showState(true);
}

function stopFollowing() {
  if (!following || !live || !live.live) return;
  following = false;
  showState(true);
}

/** Ask for the live of the trace from now on, if it can be replaced. @param {Timeline} of */
export function startLive(of) {
  timeline = of;
  if (begun || !byId("live-state")) return;
  begun = true;
  addAction("follow", toggle, " ");
  for (const place of ["timeline", "minimap-box", "panel", "packets"]) {
    byId(place).addEventListener("pointerdown", stopFollowing);
    byId(place).addEventListener("wheel", stopFollowing, { passive: true });
  }
  document.addEventListener("keydown", (event) => {
    const quiet = [" ", "t", "?", "Escape", "Tab", "Shift", "Control", "Alt", "Meta"];
    if (!quiet.includes(event.key)) stopFollowing();
  });
  if (trace.meta.followed) ask();
}
