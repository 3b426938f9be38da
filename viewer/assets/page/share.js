// A link to what is seen, with a note for whoever opens it. It names the trace, since another one may be served then.

import { addAddressPart, formatAddress, writeAddress } from "../data/address.js";
import { state } from "../data/trace.js";
import { addAction } from "./actions.js";
import { byId, element } from "./elements.js";
import { showNote } from "./notices.js";

const LONGEST_NOTE = 300;
let note = "", linkedTrace = "";

const traceName = () => document.title.split(" · ")[0];

async function share() {
  const text = prompt("A note for whoever opens the link (or none):", note);
  if (text === null) return;
  note = text.trim().slice(0, LONGEST_NOTE);
  writeAddress(state);
  showText();
  const address = `${formatAddress(state)}&trace=${encodeURIComponent(traceName())}`;
  const link = location.origin + location.pathname + address;
  const isCopied = await (navigator.clipboard ? navigator.clipboard.writeText(link).then(() => true, () => false) : false);
  if (isCopied) showNote("The link is copied");
  else prompt("Copy this link:", link); // where the browser does not let the page copy
}

function showText() {
  const close = element("button", "×");
  close.title = "Take the note away";
  close.addEventListener("click", () => {
    note = linkedTrace = "";
    writeAddress(state);
    showText();
  });
  const isOther = linkedTrace && linkedTrace !== traceName();
  const texts = [isOther ? `This link was made for the trace ${linkedTrace}; here is ${traceName()}.` : "", note].filter(Boolean);
  byId("note").replaceChildren(...texts.map((text) => element("span", text)), close);
  byId("note").classList.toggle("shown", texts.length > 0);
}

addAddressPart("note", {
  read: (text) => (note = (text || "").slice(0, LONGEST_NOTE)),
  write: () => note,
});
addAddressPart("trace", {
  read: (text) => (linkedTrace = text || ""),
  write: () => "",
});

/** Add the action; show the note of the address, and whether it was made for another trace. */
export function startSharing() {
  addAction("share", share, "k");
  showText();
}
