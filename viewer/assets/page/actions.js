// What buttons (`data-action`) and keys do. Each part of the page adds its own actions.

const actions = new Map(), actionOfKey = new Map();

/** @param {string} name @param {() => unknown} act @param {string[]} keys  those that do the same */
export function addAction(name, act, ...keys) {
  actions.set(name, act);
  for (const key of keys) actionOfKey.set(key, name);
}

/** @param {string} name */
export const runAction = (name) => actions.get(name)();

/** Keys of the whole page: off while typing, and inside what moves by arrows itself. */
export function attachKeys() {
  document.addEventListener("keydown", (event) => {
    const target = event.target, within = (selector) => target instanceof Element && target.closest(selector);
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (within("input, textarea, select, [contenteditable]")) return;
    if (event.key === " " && within("button, a, summary, [role=button]")) return; // presses it
    if (event.key.startsWith("Arrow") && within("#panel, [role=grid], [role=menu]")) return; // scrolls the panel
    const name = actionOfKey.get(event.key);
    if (name === undefined) return;
    event.preventDefault();
    runAction(name);
  });
}
