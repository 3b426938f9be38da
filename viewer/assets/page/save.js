// Saving what is seen: the timeline with its lanes' names as PNG or SVG, or as a page of one file with the story and the
// selected request; and where to fetch the selection's packets from.
"use strict";
window.twintap = window.twintap || {};

(function (T) {
  const LABELS_PX = 150, HEAD_PX = 52;

  // Draw title, lanes' names and the timeline on any context, as large as on the page.
  function drawPicture(context, view) {
    const width = view.width + LABELS_PX, height = view.height + HEAD_PX;
    context.fillStyle = T.palette.paper;
    context.fillRect(0, 0, width, height);
    heading(context);
    T.rows.forEach((row, at) => {
      if (view.shows(at)) label(context, T.rowName(row), HEAD_PX + view.y(at));
    });
    return [width, height];
  }

  function heading(context) {
    const { from, to } = T.state;
    context.fillStyle = T.palette.ink;
    context.textAlign = "left";
    context.textBaseline = "alphabetic";
    context.font = T.font(15, "600");
    context.fillText(document.title.split(" · ")[0], 12, 22);
    context.font = T.font(12);
    context.fillStyle = T.palette.faint;
    context.fillText(`${T.exactTime(from)} to ${T.exactTime(to)}: ${T.badgeText}`, 12, 40);
  }

  function label(context, text, y) {
    context.font = T.font(13, "600");
    context.fillStyle = T.palette.ink;
    context.textAlign = "right";
    const shown = text.length > 18 ? text.slice(0, 17) + "…" : text;
    context.fillText(shown, LABELS_PX - 10, y + 4);
  }

  const scene = () => ({ ...T.state, withTicks: true, moving: false, hover: null });

  T.svgPicture = function () {
    const view = T.currentView(), whole = new T.SvgContext(view.width + LABELS_PX, view.height + HEAD_PX);
    drawPicture(whole, view);
    const inner = new T.SvgContext(view.width, view.height);
    T.drawScene(inner, view, scene());
    whole.parts.push(`<g transform="translate(${LABELS_PX} ${HEAD_PX})">${inner.parts.join("\n")}</g>`);
    return whole.markup();
  };

  function pngPicture() {
    const view = T.currentView(), scale = Math.max(2, devicePixelRatio || 1);
    const whole = document.createElement("canvas"), inner = document.createElement("canvas");
    for (const [canvas, width, height] of [[whole, view.width + LABELS_PX, view.height + HEAD_PX], [inner, view.width, view.height]]) {
      [canvas.width, canvas.height] = [Math.ceil(width * scale), Math.ceil(height * scale)];
      canvas.getContext("2d").setTransform(scale, 0, 0, scale, 0, 0);
    }
    const context = whole.getContext("2d");
    drawPicture(context, view);
    T.drawScene(inner.getContext("2d"), view, scene());
    context.drawImage(inner, LABELS_PX, HEAD_PX, view.width, view.height);
    return new Promise((done) => whole.toBlob(done, "image/png"));
  }

  // Texts of the page, cloned without what only works here.
  function cleaned(selector) {
    const found = document.querySelector(selector);
    if (!found || !found.textContent.trim()) return "";
    const copy = found.cloneNode(true);
    copy.querySelectorAll("button, canvas, script, .js-plotly-plot, .dash-graph, .phases").forEach((each) => each.remove());
    copy.querySelectorAll("details").forEach((each) => each.setAttribute("open", ""));
    return copy.outerHTML;
  }

  function packetTable() {
    const arrows = [T.state.selected, T.state.data].find((each) => each && each.mode === "arrows");
    if (!arrows) return "<p>More packets than fit in a table: see the picture.</p>";
    const inView = [];
    for (let at = 0; at < arrows.number.length && inView.length < 1000; at++) {
      if (arrows.begin[at] <= T.state.to && arrows.end[at] >= T.state.from) inView.push(at);
    }
    const head = ["#", "sent", "received", "from → to", "what", "bytes", "state", "request"];
    const cells = (texts, tag) => texts.map((text) => `<${tag}>${T.escapeMarkup(text)}</${tag}>`).join("");
    const rows = inView.map((at) => `<tr>${cells(T.packetTexts(arrows, at), "td")}</tr>`);
    return `<table class="packets"><thead><tr>${cells(head, "th")}</tr></thead><tbody>${rows.join("")}</tbody></table>`;
  }

  T.pageOfView = function () {
    const rules = [...document.styleSheets].filter((sheet) => sheet.href && sheet.href.includes("/assets/"));
    const style = rules.flatMap((sheet) => [...sheet.cssRules].map((rule) => rule.cssText)).join("\n");
    const own = "html, body { height: auto !important; overflow: auto !important; } body { padding: 16px; } svg { max-width: 100%; height: auto; } details.menu > div { position: static; box-shadow: none; } .packets td, .packets th { padding: 1px 10px; text-align: left; font-size: 12px; }";
    const title = T.escapeMarkup(document.title);
    return [
      `<!doctype html><html lang="en" data-theme="${T.theme()}"><head><meta charset="utf-8"><title>${title}</title>`,
      `<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">`,
      `<style>${style}\n${own}</style></head><body>`,
      cleaned("#head"), T.svgPicture(), cleaned("#request-details"), cleaned("#request-waterfall"), cleaned("#packet-details"),
      `<h2>Packets</h2>${packetTable()}</body></html>`,
    ].join("\n");
  };

  function offer(blob, ending) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = `${fileName()}.${ending}`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    T.note(`saved as ${link.download}`);
    document.getElementById("save").open = false;
  }

  function fileName() {
    const { request } = T.state.selection, name = document.title.split(" · ")[0].replace(/[^\w.-]+/g, "_");
    return request === null ? name : `${name}-request-${request + 1}`;
  }

  // Where the packets of the selection are fetched from; asked anew each time the menu opens.
  function pointLinks() {
    const { from, to, selection } = T.state, { request } = selection;
    const what = request === null ? `from=${Math.floor(from)}&to=${Math.ceil(to)}` : `request=${request + 1}`;
    document.getElementById("save-what").textContent =
      request === null ? "The packets in view" : `The packets of request #${request + 1}`;
    document.querySelectorAll("[data-save]").forEach((link) => {
      link.href = `save/${link.dataset.save}?${what}`;
      link.download = `${fileName()}.${link.dataset.save}`;
    });
  }

  (T.parts = T.parts || []).push(() => {
    const menu = document.getElementById("save");
    const text = (markup, type) => new Blob([markup], { type });
    T.actions["picture-svg"] = () => offer(text(T.svgPicture(), "image/svg+xml"), "svg");
    T.actions["picture-html"] = () => offer(text(T.pageOfView(), "text/html"), "html");
    T.actions["picture-png"] = () => pngPicture().then((blob) => offer(blob, "png"));
    T.actions.save = () => {
      menu.open = !menu.open;
      if (menu.open) menu.querySelector("summary").focus();
    };
    T.keys.e = "save";
    menu.addEventListener("toggle", () => menu.open && pointLinks());
    menu.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || !menu.open) return;
      menu.open = false;
      menu.querySelector("summary").focus();
      event.stopPropagation();
    });
    document.addEventListener("pointerdown", (event) => menu.contains(event.target) || (menu.open = false));
    menu.addEventListener("click", (event) => saveTable(event, event.target.closest("[data-save]")));
  });

  // Fetched first, so that what cannot be had (captures that are gone) is said here instead of saved as a file.
  async function saveTable(event, link) {
    if (!link) return;
    event.preventDefault();
    T.note("gathering the packets…");
    const response = await fetch(link.href).catch(() => null);
    if (!response) return T.banner("The viewer's server does not answer. Start it again with `tracer view`, then reload.");
    if (!response.ok) return T.note(await response.text());
    offer(await response.blob(), link.dataset.save);
  }
})(window.twintap);
