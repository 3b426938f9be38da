// A drawing context that writes SVG: what the canvas shows, as lines and texts. It knows the part of the canvas's
// interface that our drawing uses; pictures (counts) are kept as pictures.

import { palette } from "./palette.js";

/** @param {string} text */
const escape = (text) => String(text).replace(/[&<>"']/g, (sign) => `&#${sign.charCodeAt(0)};`);
/** What XML 1.0 cannot hold, and what would turn the order of letters around. @param {string} text */
const withoutControls = (text) => String(text).replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\u202a-\u202e\u2066-\u2069\ufffe\uffff]/g, "\ufffd");
/** @param {string} text */
export const escapeMarkup = (text) => escape(withoutControls(text));

const KEPT = [
  "globalAlpha", "strokeStyle", "fillStyle", "lineWidth", "lineJoin", "font", "textAlign", "textBaseline", "dash", "clipping",
];
const at = (value) => String(Math.round(value * 100) / 100);

/** As much of CanvasRenderingContext2D as our drawing uses. */
export class SvgContext {
  parts = /** @type {string[]} */ ([]);
  stack = /** @type {object[]} */ ([]);
  path = /** @type {string[]} */ ([]);
  clips = 0;
  globalAlpha = 1;
  strokeStyle = "#000";
  fillStyle = "#000";
  lineWidth = 1;
  lineJoin = "miter";
  font = "10px sans-serif";
  textAlign = "start";
  textBaseline = "alphabetic";
  imageSmoothingEnabled = true;
  dash = /** @type {number[]} */ ([]);
  clipping = "";

  /** @param {number} width @param {number} height */
  constructor(width, height) {
    this.width = width;
    this.height = height;
    this.ruler = document.createElement("canvas").getContext("2d");
  }

  save() {
    this.stack.push(Object.fromEntries(KEPT.map((name) => [name, this[name]])));
  }

  restore() {
    Object.assign(this, this.stack.pop());
  }

  beginPath() { this.path = []; }
  closePath() { this.path.push("Z"); }
  moveTo(x, y) { this.path.push(`M${at(x)} ${at(y)}`); }
  lineTo(x, y) { this.path.push(`L${at(x)} ${at(y)}`); }
  bezierCurveTo(a, b, c, d, x, y) { this.path.push(`C${[a, b, c, d, x, y].map(at).join(" ")}`); }
  rect(x, y, width, height) { this.path.push(`M${at(x)} ${at(y)}h${at(width)}v${at(height)}h${at(-width)}Z`); }

  // Whole circles only.
  arc(x, y, radius) {
    const r = at(radius);
    this.path.push(`M${at(x - radius)} ${at(y)}a${r} ${r} 0 1 0 ${at(2 * radius)} 0a${r} ${r} 0 1 0 ${at(-2 * radius)} 0`);
  }

  clip() {
    this.clips += 1;
    this.parts.push(`<clipPath id="clip${this.clips}"><path d="${this.path.join("")}"/></clipPath>`);
    this.clipping = ` clip-path="url(#clip${this.clips})"`;
  }

  stroke() {
    if (!this.path.length) return;
    const dash = this.dash.length ? ` stroke-dasharray="${this.dash.join(" ")}"` : "";
    const line = `stroke="${escape(this.strokeStyle)}" stroke-width="${at(this.lineWidth)}"${dash}${this.faint()}`;
    this.parts.push(`<path fill="none" ${line}${this.clipping} d="${this.path.join("")}"/>`);
  }

  fill() {
    if (!this.path.length) return;
    this.parts.push(`<path fill="${escape(this.fillStyle)}"${this.faint()}${this.clipping} d="${this.path.join("")}"/>`);
  }

  fillRect(x, y, width, height) {
    const box = `x="${at(x)}" y="${at(y)}" width="${at(width)}" height="${at(height)}"`;
    this.parts.push(`<rect ${box} fill="${escape(this.fillStyle)}"${this.faint()}${this.clipping}/>`);
  }

  strokeRect(x, y, width, height) {
    const before = this.path;
    this.path = [];
    this.rect(x, y, width, height);
    this.stroke();
    this.path = before;
  }

  clearRect(x, y, width, height) {
    const before = this.fillStyle;
    this.fillStyle = palette.paper;
    this.fillRect(x, y, width, height);
    this.fillStyle = before;
  }

  fillText(text, x, y) { this.text(text, x, y, `fill="${escape(this.fillStyle)}"`); }

  strokeText(text, x, y) {
    this.text(text, x, y, `fill="none" stroke="${escape(this.strokeStyle)}" stroke-width="${at(this.lineWidth)}" stroke-linejoin="round"`);
  }

  text(text, x, y, paint) {
    const anchor = { center: "middle", right: "end", end: "end" }[this.textAlign] || "start";
    const base = this.textBaseline === "middle" ? ' dominant-baseline="central"' : "";
    const place = `x="${at(x)}" y="${at(y)}" text-anchor="${anchor}"${base}`;
    this.parts.push(`<text ${place} style="font:${escape(this.font)}" ${paint}${this.faint()}${this.clipping}>${escapeMarkup(text)}</text>`);
  }

  // A part of a picture, stretched to its place.
  drawImage(picture, sx, sy, sw, sh, x, y, width, height) {
    const piece = document.createElement("canvas");
    [piece.width, piece.height] = [Math.max(1, Math.round(width)), Math.max(1, Math.round(height))];
    const context = piece.getContext("2d");
    context.imageSmoothingEnabled = this.imageSmoothingEnabled !== false;
    context.drawImage(picture, sx, sy, sw, sh, 0, 0, piece.width, piece.height);
    const box = `x="${at(x)}" y="${at(y)}" width="${at(width)}" height="${at(height)}" preserveAspectRatio="none"`;
    this.parts.push(`<image ${box}${this.faint()}${this.clipping} href="${piece.toDataURL("image/png")}"/>`);
  }

  setLineDash(dash) { this.dash = dash; }

  measureText(text) {
    this.ruler.font = this.font;
    return this.ruler.measureText(text);
  }

  faint() { return this.globalAlpha < 1 ? ` opacity="${at(this.globalAlpha)}"` : ""; }

  markup() {
    const size = `width="${this.width}" height="${this.height}" viewBox="0 0 ${this.width} ${this.height}"`;
    return `<svg xmlns="http://www.w3.org/2000/svg" ${size}>${this.parts.join("\n")}</svg>`;
  }
}
