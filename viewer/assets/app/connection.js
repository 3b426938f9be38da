// From packet to packet of the selected packet's connection.

import { fetchJson } from "../data/server.js";
import { state } from "../data/trace.js";
import { showNote } from "../page/notices.js";
import { reportNoAnswer } from "./loading.js";
import { glide } from "./movement.js";
import { select } from "./selection.js";

/** Select the packet after or before the selected one, and bring it into view. @param {"next" | "previous"} which */
export async function goToPacket(which) {
  const { hop } = state.selection;
  if (hop === null) return showNote("Select a packet first: click an arrow");
  const found = await fetchJson(`api/hops/${hop}/${which}`).catch(reportNoAnswer);
  if (found === undefined || state.selection.hop !== hop) return;
  if (found === null) return showNote(which === "next" ? "The connection's last packet" : "The connection's first packet");
  select(found.request, found.hop);
  const { from, to } = state, half = (to - from) / 2;
  if (found.at_ns < from || found.at_ns > to) glide(found.at_ns - half, found.at_ns + half);
}
