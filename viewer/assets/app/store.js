// What Dash's store hears of new components.
//
// Dash sends its store an action for each new component, and after every action each component asks the store whether
// it has changed: of 1,200 components, 1.4 million questions, which take seconds. The action forgets how often the
// components at and below a path have changed. Where none has, it changes nothing, and is left out.

/** @param {{ getState: () => any }} store @param {any} action */
function changesNothing(store, action) {
  if (!action || action.type !== "RESET_COMPONENT_STATE") return false;
  const path = action.payload.itempath.join(","); // as Dash's reducer writes it
  return !Object.keys(store.getState().layoutHashes).some((changed) => changed.startsWith(path));
}

class Stores extends Array {
  /** @param {any[]} stores */
  push(...stores) {
    for (const store of stores) {
      const { dispatch } = store;
      store.dispatch = (/** @type {any} */ action) => (changesNothing(store, action) ? action : dispatch(action));
    }
    return super.push(...stores);
  }
}

/** To be called before Dash begins: this is where it notes its store. */
export function leaveOutEmptyActions() {
  window.dash_stores = new Stores();
}
