// Saving what is seen: the timeline with its lanes' names as PNG or SVG, or as a page of one file with the story and the
// selected request; and where to fetch the selection's packets from.

import { rowName, rowTable } from "../data/rows.js";
import { exactTime, ticks } from "../data/time.js";
import { onlyPart } from "../data/server.js";
import { state } from "../data/trace.js";
import { currentTheme, font, palette } from "../draw/palette.js";
import { drawScene } from "../draw/scene.js";
import { escapeMarkup, SvgContext } from "../draw/svg.js";
import { addAction } from "./actions.js";
import { byId, queryAll } from "./elements.js";
import { badge, showBanner, showNote } from "./notices.js";
import { packetTexts } from "./packets.js";

const LABELS_PX = 150, HEAD_PX = 52;

// Draw title, lanes' names and the timeline on any context, as large as on the page.
function drawPicture(context, view) {
  const width = view.width + LABELS_PX, height = view.height + HEAD_PX;
  context.fillStyle = palette.paper;
  context.fillRect(0, 0, width, height);
  heading(context);
  rowTable.rows.forEach((row, at) => {
    if (view.shows(at)) label(context, rowName(row), HEAD_PX + view.y(at));
  });
  return [width, height];
}

function heading(context) {
  const { from, to } = state;
  context.fillStyle = palette.ink;
  context.textAlign = "left";
  context.textBaseline = "alphabetic";
  context.font = font(15, "600");
  context.fillText(document.title.split(" · ")[0], 12, 22);
  context.font = font(12);
  context.fillStyle = palette.faint;
  context.fillText(`${exactTime(from)} to ${exactTime(to)}: ${badge.text}`, 12, 40);
}

function label(context, text, y) {
  context.font = font(13, "600");
  context.fillStyle = palette.ink;
  context.textAlign = "right";
  const shown = text.length > 18 ? text.slice(0, 17) + "…" : text;
  context.fillText(shown, LABELS_PX - 10, y + 4);
}

const stillScene = () => ({ ...state, moving: false, hover: null });

export function svgPicture() {
  const view = state.view, whole = new SvgContext(view.width + LABELS_PX, view.height + HEAD_PX);
  drawPicture(whole, view);
  const inner = new SvgContext(view.width, view.height);
  drawScene(inner, view, stillScene(), ticks(view.from, view.to, view.width));
  whole.parts.push(`<g transform="translate(${LABELS_PX} ${HEAD_PX})">${inner.parts.join("\n")}</g>`);
  return whole.markup();
}

function setSize(canvas, width, height, scale) {
  [canvas.width, canvas.height] = [Math.ceil(width * scale), Math.ceil(height * scale)];
  canvas.getContext("2d").setTransform(scale, 0, 0, scale, 0, 0);
}

function pngPicture() {
  const view = state.view, scale = Math.max(2, devicePixelRatio || 1);
  const whole = document.createElement("canvas"), inner = document.createElement("canvas");
  setSize(whole, view.width + LABELS_PX, view.height + HEAD_PX, scale);
  setSize(inner, view.width, view.height, scale);
  const context = whole.getContext("2d");
  drawPicture(context, view);
  drawScene(inner.getContext("2d"), view, stillScene(), ticks(view.from, view.to, view.width));
  context.drawImage(inner, LABELS_PX, HEAD_PX, view.width, view.height);
  return new Promise((done) => whole.toBlob(done, "image/png"));
}

// Texts of the page, cloned without what only works here.
function cleanCopy(selector) {
  const found = document.querySelector(selector);
  if (!found || !found.textContent.trim()) return "";
  const copy = found.cloneNode(true);
  copy.querySelectorAll("button, canvas, script, .js-plotly-plot, .dash-graph, .phases").forEach((each) => each.remove());
  copy.querySelectorAll("details").forEach((each) => each.setAttribute("open", ""));
  return copy.outerHTML;
}

function packetTable() {
  const arrows = [state.selected, state.data].find((each) => each && each.mode === "arrows");
  if (!arrows) return "<p>More packets than fit in a table: see the picture.</p>";
  const inView = [];
  for (let at = 0; at < arrows.number.length && inView.length < 1000; at++) {
    if (arrows.begin[at] <= state.to && arrows.end[at] >= state.from) inView.push(at);
  }
  const head = ["#", "sent", "received", "from → to", "what", "bytes", "state", "request"];
  const cells = (texts, tag) => texts.map((text) => `<${tag}>${escapeMarkup(text)}</${tag}>`).join("");
  const rows = inView.map((at) => `<tr>${cells(packetTexts(arrows, at), "td")}</tr>`);
  return `<table class="packets"><thead><tr>${cells(head, "th")}</tr></thead><tbody>${rows.join("")}</tbody></table>`;
}

export function pageOfView() {
  const rules = [...document.styleSheets].filter((sheet) => sheet.href && sheet.href.includes("/assets/"));
  const style = rules.flatMap((sheet) => [...sheet.cssRules].map((rule) => rule.cssText)).join("\n");
  const own = "html, body { height: auto !important; overflow: auto !important; } body { padding: 16px; } svg { max-width: 100%; height: auto; } details.menu > div { position: static; box-shadow: none; } .packets td, .packets th { padding: 1px 10px; text-align: left; font-size: 12px; }";
  const title = escapeMarkup(document.title);
  return [
    `<!doctype html><html lang="en" data-theme="${currentTheme()}"><head><meta charset="utf-8"><title>${title}</title>`,
    `<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">`,
    `<style>${style}\n${own}</style></head><body>`,
    cleanCopy("#head"), svgPicture(), cleanCopy("#request-details"), cleanCopy("#request-waterfall"), cleanCopy("#packet-details"),
    `<h2>Packets</h2>${packetTable()}</body></html>`,
  ].join("\n");
}

function offer(blob, ending) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = `${fileName()}.${ending}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  showNote(`saved as ${link.download}`);
  byId("save").open = false;
}

function fileName() {
  const { request } = state.selection, name = document.title.split(" · ")[0].replace(/[^\w.-]+/g, "_");
  return request === null ? name : `${name}-request-${request + 1}`;
}

// Set where the packets of the selection are fetched from, each time the menu opens.
function pointLinks() {
  const { from, to, selection } = state, { request } = selection;
  const what = request === null ? `from=${Math.floor(from)}&to=${Math.ceil(to)}${onlyPart()}` : `request=${request + 1}`;
  byId("save-what").textContent =
    request === null ? "The packets in view" : `The packets of request #${request + 1}`;
  byId("save-requests").textContent = request === null ? "The requests in view" : `Request #${request + 1} and its calls`;
  queryAll("[data-save]").forEach((/** @type {any} */ link) => {
    link.href = `save/${link.dataset.save}?${what}`;
    link.download = `${fileName()}.${link.dataset.ending}`;
  });
}

/** Add the menu and its actions. */
export function startSaving() {
  const menu = byId("save");
  const text = (markup, type) => new Blob([markup], { type });
  addAction("picture-svg", () => offer(text(svgPicture(), "image/svg+xml"), "svg"));
  addAction("picture-html", () => offer(text(pageOfView(), "text/html"), "html"));
  addAction("picture-png", () => pngPicture().then((blob) => offer(blob, "png")));
  addAction("save", () => {
    menu.open = !menu.open;
    if (menu.open) menu.querySelector("summary").focus();
  }, "e");
  menu.addEventListener("toggle", () => menu.open && pointLinks());
  menu.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !menu.open) return;
    menu.open = false;
    menu.querySelector("summary").focus();
    event.stopPropagation();
  });
  document.addEventListener("pointerdown", (event) => menu.contains(event.target) || (menu.open = false));
  menu.addEventListener("click", (event) => saveTable(event, event.target.closest("[data-save]")));
}

// Fetch the file first: an error, such as captures that are gone, is then shown instead of saved.
async function saveTable(event, link) {
  if (!link) return;
  event.preventDefault();
  showNote("gathering it…");
  const response = await fetch(link.href).catch(() => null);
  if (!response) return showBanner("The viewer's server does not answer. Start it again with `tracer view`, then reload.");
  if (!response.ok) return showNote(await response.text());
  offer(await response.blob(), link.dataset.ending);
}
