// Colours arrows by whose request they are of; which that is, is loaded when it is first asked for.

import { addAddressPart, writeAddress } from "../data/address.js";
import { listen } from "../data/events.js";
import { fetchMessage } from "../data/server.js";
import { state, trace } from "../data/trace.js";
import { drawOriginChip } from "../draw/origins.js";
import { addAction } from "../page/actions.js";
import { byId } from "../page/elements.js";
import { repaint } from "./drawing.js";

let isWanted = false, asked = "", loaded = null;

function show() {
  byId("background").setAttribute("aria-pressed", `${isWanted}`);
  state.origins = isWanted && loaded && loaded.made === trace.meta.made ? loaded.origin : null;
  repaint();
  if (!isWanted || state.origins || asked === trace.meta.made) return;
  const made = (asked = trace.meta.made);
  fetchMessage("api/origins")
    .then((message) => {
      loaded = { made, origin: /** @type {any} */ (message).origin };
      show();
    })
    .catch(() => (asked = ""));
}

addAddressPart("colour", {
  read: (text) => (isWanted = text === "origin"),
  write: () => (isWanted ? "origin" : ""),
});

/** Add the action, where not all requests are clients'. */
export function startOrigins() {
  if (!byId("background")) return;
  const draw = () => drawOriginChip(byId("background").querySelector("canvas"));
  addAction("background", () => {
    isWanted = !isWanted;
    writeAddress(state);
    show();
  }, "g");
  listen("theme", draw);
  listen("arranged", show);
  draw();
  show();
}
