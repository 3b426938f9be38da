// The page's address holds the view, the selection and what is hidden, so that it can be reloaded and passed on.

/** @type {Map<string, AddressPart>} */
const parts = new Map();

/** A further part of the address, kept by another module. @param {string} name @param {AddressPart} part */
export function addAddressPart(name, part) {
  parts.set(name, part);
}

/** Parse an address (`#from=…&to=…`), the further parts included. @param {string} hash @param {Meta} meta */
export function parseAddress(hash, meta) {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  /** @param {string} name */
  const whole = (name) => (/^-?\d{1,16}$/.test(given.get(name) || "") ? Number(given.get(name)) : null);
  const from = whole("from"), to = whole("to"), request = whole("request"), hop = whole("hop");
  for (const [name, part] of parts) part.read(given.get(name));
  const hidden = (given.get("hide") || "").split(",").filter((each) => /^[0-6]$/.test(each)).map(Number);
  return {
    view: /** @type {[number, number] | null} */ (from !== null && to !== null && to > from ? [from, to] : null),
    request: request !== null && request > 0 && request <= meta.roots ? request - 1 : null,
    hop: hop !== null && hop >= 0 && hop < meta.hops ? hop : null,
    hidden: new Set(hidden),
  };
}

/** The address of a state of the page. Requests are numbered from 1 where people see them. @param {AddressState} state */
export function formatAddress({ from, to, selection, hidden }) {
  const texts = [`from=${Math.round(from)}`, `to=${Math.round(to)}`];
  if (selection.request !== null) texts.push(`request=${selection.request + 1}`);
  if (selection.hop !== null) texts.push(`hop=${selection.hop}`);
  if (hidden.size) texts.push(`hide=${[...hidden].sort().join(",")}`);
  for (const [name, part] of parts) {
    const text = part.write();
    if (text) texts.push(`${name}=${encodeURIComponent(text)}`);
  }
  return "#" + texts.join("&");
}

/** Put the state of the page into its address. @param {AddressState} state */
export function writeAddress(state) {
  history.replaceState(null, "", formatAddress(state));
}

/** Leave an entry in the browser's history, so that *back* returns to this state. @param {AddressState} state */
export function keepAddress(state) {
  history.pushState(null, "", formatAddress(state));
}

/** The further parts as one text, which differs when one of them does. */
export const furtherParts = () => [...parts.values()].map((part) => part.write()).join("&");
