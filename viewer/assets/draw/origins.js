// The colours of arrows by whose request they are of (collector/queries/origins.py).

import { CLASS } from "../data/constants.js";
import { palette } from "./palette.js";

const CLIENT = 0, BACKGROUND = 1;
const WIDE = 1.8; // times: background differs in more than its colour

/** @typedef {{ list: number[], colour: string, grow: number }} Drawn */

/**
 * The arrows of a class by how they are drawn, the clients' last.
 * @param {any} arrows @param {number[]} list @param {Uint8Array} origins @returns {Drawn[]}
 */
export function byOrigin(arrows, list, origins) {
  const of = (at) => (arrows.request[at] < 0 ? -1 : origins[arrows.request[at]]);
  return [
    { list: list.filter((at) => of(at) !== CLIENT && of(at) !== BACKGROUND), colour: palette.faint, grow: 1 },
    { list: list.filter((at) => of(at) === BACKGROUND), colour: palette.background, grow: WIDE },
    { list: list.filter((at) => of(at) === CLIENT), colour: palette.classes[CLASS.DATA], grow: 1 },
  ].filter((each) => each.list.length);
}

/** The legend's sign: a thick line in the colour of background. @param {HTMLCanvasElement} chip */
export function drawOriginChip(chip) {
  const context = chip.getContext("2d");
  context.setTransform(2, 0, 0, 2, 0, 0);
  context.clearRect(0, 0, 22, 12);
  context.strokeStyle = palette.background;
  context.lineWidth = WIDE * 1.4;
  context.beginPath();
  context.moveTo(2, 2);
  context.lineTo(20, 10);
  context.stroke();
}
