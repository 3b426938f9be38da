// Events between parts of the page that do not know each other: one announces, any number listen.

const events = new EventTarget();

/** @typedef {"settled" | "selected" | "arranged" | "loaded" | "moved" | "theme"} EventName */

/** Call all that listen, before this returns. @param {EventName} name */
export function notify(name) {
  events.dispatchEvent(new Event(name));
}

/** @param {EventName} name @param {() => void} act */
export function listen(name, act) {
  events.addEventListener(name, () => act());
}
