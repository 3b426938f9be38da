// Which actions reach Dash's store.

import assert from "node:assert/strict";
import test from "node:test";
import { leaveOutEmptyActions } from "../../../viewer/assets/app/store.js";

globalThis.window = {};
leaveOutEmptyActions();

function reached(layoutHashes, action) {
  const actions = [], store = { getState: () => ({ layoutHashes }), dispatch: (each) => actions.push(each) };
  window.dash_stores.push(store);
  store.dispatch(action);
  return actions.length;
}

const reset = (...itempath) => ({ type: "RESET_COMPONENT_STATE", payload: { itempath } });

for (const [changed, action, count] of [
  [[], reset("props", "children"), 0], [["props,children,7"], reset("props", "children"), 1],
  [["props,children"], reset("props", "children"), 1], [["props,top"], reset("props", "children"), 0],
  [[], { type: "SET_LAYOUT" }, 1], [[], () => null, 1], [[], undefined, 1],
]) {
  test(`with changes at ${changed}, ${JSON.stringify(action)} reaches the store ${count} times`, () => {
    assert.equal(reached(Object.fromEntries(changed.map((path) => [path, { hash: 1 }])), action), count);
  });
}

test("stores are noted as before", () => {
  const store = { getState: () => ({}), dispatch: () => null };
  assert.equal(window.dash_stores.push(store), window.dash_stores.length);
  assert.ok(window.dash_stores.includes(store));
});
