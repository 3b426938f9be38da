// Captures dropped on the page: sent in pieces, their hosts shown to be confirmed or renamed, then a trace is made of them
// and shown. The reason why a file is refused stands beside it.

import { addAction } from "./actions.js";
import { byId, element } from "./elements.js";

const PIECE = 4 * 1024 * 1024, ASK_MS = 500;
const files = new Map(); // number → {name, host: input, line}
let sending = 0;

const say = (text) => (byId("upload-state").textContent = text);

async function ask(method, path, body) {
  const headers = { "X-Twintap-Upload": "1" };
  if (body && !(body instanceof Blob)) headers["Content-Type"] = "application/json";
  const sent = body && !(body instanceof Blob) ? JSON.stringify(body) : body;
  const response = await fetch(path, { method, headers, body: sent }).catch(() => null);
  if (!response) return { error: "the viewer's server does not answer; is `tracer view` still running?" };
  if (!response.ok) return { error: `the server refused it (${response.status})` };
  return response.json();
}

async function add(file) {
  const line = newLine(file);
  const begun = await ask("POST", `uploads?name=${encodeURIComponent(file.name)}`);
  if (begun.error) return showFailure(line, begun);
  sending += 1;
  ready();
  const reply = await send(begun.number, file, line);
  sending -= 1;
  if (reply.error) showFailure(line, reply);
  else confirm(reply, line);
  ready();
}

// Piece by piece: the server never holds more than one of them in memory, and refuses at once what exceeds its limits.
async function send(number, file, line) {
  for (let offset = 0; offset < file.size; offset += PIECE) {
    const reply = await ask("PUT", `uploads/${number}?offset=${offset}`, file.slice(offset, offset + PIECE));
    if (reply.error) {
      ask("DELETE", `uploads/${number}`);
      return reply;
    }
    line.bar.value = Math.min(1, (offset + PIECE) / file.size);
  }
  return ask("POST", `uploads/${number}/end`);
}

function newLine(file) {
  const box = element("div", undefined, "upload-file");
  const bar = element("progress");
  bar.max = 1;
  bar.value = 0;
  bar.setAttribute("aria-label", `Sent of ${file.name}`);
  box.append(element("b", file.name), bar);
  byId("upload-files").append(box);
  return { box, bar };
}

function showFailure(line, { error }) {
  line.bar.remove();
  line.box.append(element("span", error, "warning"), remover(line, null));
}

function confirm(reply, line) {
  const host = element("input");
  host.value = reply.host;
  host.maxLength = 64;
  host.setAttribute("aria-label", `Host that ${reply.name} was captured on`);
  const label = element("label", "captured on ");
  label.append(host);
  line.bar.remove();
  line.box.append(label, element("span", `${reply.packets_count.toLocaleString("en")} packets`, "hint"), remover(line, reply.number));
  files.set(reply.number, host);
}

function remover(line, number) {
  const button = element("button", "remove", "small");
  button.addEventListener("click", () => {
    line.box.remove();
    if (number === null) return;
    files.delete(number);
    ask("DELETE", `uploads/${number}`);
    ready();
  });
  return button;
}

function ready() {
  byId("upload-make").disabled = sending > 0 || !files.size;
  if (sending) return say("sending…");
  say(files.size > 1 ? "Are these the hosts? Then make the trace." : files.size ? "One host; arrows need the captures of at least two." : "");
}

async function make() {
  const hosts = Object.fromEntries([...files].map(([number, host]) => [number, host.value.trim()]));
  byId("upload-make").disabled = true;
  wait(await ask("POST", "uploads/trace", hosts), performance.now());
}

async function wait(reply, since) {
  if (reply.error || reply.state === "failed") {
    byId("upload-make").disabled = false;
    return say(reply.error || reply.text);
  }
  if (reply.state === "done") return location.assign(location.pathname);
  say(`${reply.text} ${Math.round((performance.now() - since) / 1000)} s`);
  setTimeout(async () => wait(await ask("GET", "uploads/trace"), since), ASK_MS);
}

const addAll = (list) => [...list].forEach(add);

function choose() {
  const input = element("input");
  input.type = "file";
  input.multiple = true;
  input.addEventListener("change", () => addAll(input.files));
  input.click();
}

function attachDrop(opened) {
  document.addEventListener("dragover", (event) => {
    if (![...event.dataTransfer.types].includes("Files")) return;
    event.preventDefault();
    opened();
    byId("upload-drop").classList.add("over");
  });
  for (const end of ["dragleave", "drop"]) {
    document.addEventListener(end, () => byId("upload-drop").classList.remove("over"));
  }
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    addAll(event.dataTransfer.files);
  });
}

// Called by Dash on the page without a trace, and as a part of the one with a trace.
export function startUploads() {
  const dialog = byId("upload");
  byId("upload-choose").addEventListener("click", choose);
  byId("upload-make").addEventListener("click", make);
  attachDrop(() => dialog && !dialog.open && !document.querySelector("dialog[open]") && dialog.showModal());
  byId("upload-choose").disabled = false;
  return true;
}

/** On the page with a trace: the form is a dialog. */
export function startUploadDialog() {
  if (!byId("upload")) return;
  startUploads();
  addAction("open-captures", () => document.querySelector("dialog[open]") || byId("upload").showModal(), "o");
}
