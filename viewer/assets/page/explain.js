// The selected packet field by field: loaded on demand, with its bytes; the field under the pointer marks its bytes.

import { listen } from "../data/events.js";
import { fetchJson } from "../data/server.js";
import { state } from "../data/trace.js";
import { addAction } from "./actions.js";
import { byId, element } from "./elements.js";
import { showNote } from "./notices.js";

let shownFor = null;

async function explain(end) {
  const hop = state.selection.hop, box = byId("packet-fields");
  if (hop === null) return showNote("Select a packet first: click an arrow, or Enter in the list (l)");
  shownFor = `${hop} ${end}`;
  box.replaceChildren(element("p", "reading the packet…", "hint"));
  const mine = shownFor;
  const reply = await fetchJson(`api/hops/${hop}/fields?end=${end}`).catch(() => null);
  if (mine !== shownFor) return;
  if (!reply && end === "sent") return explain("received");
  if (!reply) return box.replaceChildren(element("p", "That packet was not seen there.", "hint"));
  const head = element("p", `As ${end}, by ${reply.by}${reply.note ? `: ${reply.note}` : ""}`, "hint");
  box.replaceChildren(head, ...reply.layers.map((each, at) => layer(each, at, reply.layers.length)), bytes(reply.bytes));
  box.querySelector("summary").focus();
  box.scrollIntoView({ block: "start" });
}

// The innermost layer is open: what the packet was sent for.
function layer({ name, fields }, at, count) {
  const box = element("details");
  box.open = at === count - 1;
  box.append(element("summary", name));
  for (const field of fields) {
    const line = element("div", field.text, "field");
    line.tabIndex = field.size > 0 && field.at >= 0 ? 0 : -1;
    line.dataset.at = field.at;
    line.dataset.size = field.size;
    box.append(line);
  }
  return box;
}

function bytes(text) {
  const box = element("div", undefined, "bytes");
  for (let at = 0; at < text.length; at += 2) box.append(element("span", text.slice(at, at + 2)));
  return box;
}

function markBytes(line) {
  const spans = document.querySelectorAll("#packet-fields .bytes span");
  const at = line ? Number(line.dataset.at) : -1, size = line ? Number(line.dataset.size) : 0;
  spans.forEach((span, place) => span.classList.toggle("marked", at >= 0 && place >= at && place < at + size));
}

/** Add the actions, and forget the fields when another packet is selected. */
export function startExplanation() {
  const box = byId("packet-fields");
  addAction("explain", () => explain("sent"), "x");
  addAction("explain-received", () => explain("received"));
  for (const event of ["pointerover", "focusin"]) {
    box.addEventListener(event, (about) => markBytes(about.target.closest(".field")));
  }
  listen("selected", () => {
    byId("explain-buttons").hidden = state.selection.hop === null;
    if (shownFor && shownFor.split(" ")[0] === String(state.selection.hop)) return;
    shownFor = null;
    box.replaceChildren();
  });
}
