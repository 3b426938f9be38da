// Elements of the page. Texts become text nodes, never HTML: texts of captures stand among them.

import { withShownNames } from "../data/names.js";

/** The element of an id; its kind is known to whoever asks. @param {string} id @returns {any} */
export const byId = (id) => document.getElementById(id);

/** All elements that a selector finds. @param {string} selector @param {ParentNode} [within] */
export function queryAll(selector, within = document) {
  return /** @type {HTMLElement[]} */ ([...within.querySelectorAll(selector)]);
}

/** What an event happened on. @param {Event} event */
export const targetOf = (event) => /** @type {HTMLElement} */ (event.target);

/**
 * A new element.
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} name @param {string} [text] @param {string} [className]
 */
export function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

/** Fill the elements with these ids, from the trees of viewer/serialise.py. @param {Record<string, Tree[]>} parts */
export function fillParts(parts) {
  for (const [id, trees] of Object.entries(parts)) byId(id).replaceChildren(...trees.map(nodeOf));
}

const nodeOf = (tree) => (typeof tree === "string" ? withShownNames(tree) : elementOf(tree));

function elementOf([tag, attributes, children]) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "style") Object.assign(made.style, value);
    else made.setAttribute(name, value);
  }
  made.append(...children.map(nodeOf));
  return made;
}
