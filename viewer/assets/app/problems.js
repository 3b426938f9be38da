// From problem to problem: lost and repeated packets, and the findings of the report.

import { fetchHop } from "../data/hops.js";
import { fetchJson } from "../data/server.js";
import { state } from "../data/trace.js";
import { closeDialog } from "../page/dialogs.js";
import { showNote } from "../page/notices.js";
import { reportNoAnswer } from "./loading.js";
import { glide, middle } from "./movement.js";
import { select } from "./selection.js";

const LEAST_WIDTH_NS = 1e6;
let current = null; // the time of the problem that was gone to last

/** Go to the problem after the last one, or the one before it. @param {"next" | "previous"} which */
export async function goToProblem(which) {
  const at = Math.round(current === null || current < state.from || current > state.to ? middle() : current);
  const problem = await fetchJson(`api/problems/${which}?at=${at}`).catch(reportNoAnswer);
  if (problem === undefined) return;
  if (problem === null) showNote(which === "next" ? "No problem after this" : "No problem before this");
  else await showProblem(problem);
}

/** Go to the first packet of a connection that was lost, sent again or not paired. */
export async function goToConnection(id) {
  const problem = await fetchJson(`api/connections/${id}/trouble`).catch(reportNoAnswer);
  if (problem === undefined) return;
  closeDialog();
  if (problem === null) showNote("No packet of this connection is in trouble");
  else await showProblem(problem);
}

async function showProblem(problem) {
  current = problem.from_ns;
  const place = problem.rank ? ` (${problem.rank.toLocaleString("en")} of ${problem.count.toLocaleString("en")})` : "";
  showNote(problem.text + place);
  const half = Math.min(state.to - state.from, Math.max(LEAST_WIDTH_NS, 4 * (problem.to_ns - problem.from_ns))) / 2;
  glide(problem.from_ns - half, problem.from_ns + half);
  if (problem.hop !== null) {
    const hop = await fetchHop(problem.hop);
    select(hop && hop.request !== undefined ? hop.request : null, problem.hop);
  }
}
