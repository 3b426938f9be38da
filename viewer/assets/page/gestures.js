// Wheel, drag, pinch and keys become changes of the view. Nothing here draws.
"use strict";
window.twintap = window.twintap || {};

(function (T) {
  const WHEEL_ZOOM = 0.0022; // per px of wheel travel: zoom is proportional to it, for trackpads
  const CLICK_PX = 4; // less movement than this is a click
  const STEP = 0.2; // of the view, for a key

  // Attach to the canvas. `actor`: {zoom(factor, x), pan(px), click(x, y), point(x, y), leave(), zoomIn(x)}.
  T.attachPointer = function (canvas, actor) {
    let held = null;
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      const travel = event.deltaY * (event.deltaMode === 1 ? 16 : 1);
      if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        actor.pan(event.deltaX || travel);
      } else {
        actor.zoom(Math.exp(travel * WHEEL_ZOOM * (event.ctrlKey ? 4 : 1)), event.offsetX);
      }
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      held = { x: event.offsetX, startX: event.offsetX, startY: event.offsetY, moved: false };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!held) return actor.point(event.offsetX, event.offsetY);
      if (Math.hypot(event.offsetX - held.startX, event.offsetY - held.startY) > CLICK_PX) held.moved = true;
      if (!held.moved) return;
      canvas.classList.add("dragging");
      actor.pan(held.x - event.offsetX);
      held.x = event.offsetX;
    });
    canvas.addEventListener("pointerup", (event) => {
      canvas.classList.remove("dragging");
      if (held && !held.moved) actor.click(event.offsetX, event.offsetY);
      held = null;
    });
    canvas.addEventListener("pointercancel", () => (held = null));
    canvas.addEventListener("pointerleave", () => actor.leave());
    canvas.addEventListener("dblclick", (event) => actor.zoomIn(event.offsetX));
  };

  // Key to action; other files add theirs.
  T.keys = {
    ArrowLeft: "left", a: "left", ArrowRight: "right", d: "right", ArrowUp: "in", w: "in", "+": "in", "=": "in",
    ArrowDown: "out", s: "out", "-": "out", 0: "fit", n: "next-problem", N: "previous-problem", f: "fit-request",
    p: "pairing", c: "clocks", t: "theme", "?": "help", Escape: "deselect",
  };

  // Keys of the whole page, off while typing and inside what moves by arrows itself. `actions`: name → function.
  T.attachKeys = function (actions) {
    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.target.closest && event.target.closest("input, textarea, select, [contenteditable]")) return;
      const pressed = event.target.closest && event.target.closest("button, a, summary, [role=button]");
      if (pressed && event.key === " ") return; // presses it
      const inList = event.target.closest && event.target.closest("#panel, [role=grid], [role=menu]");
      if (inList && event.key.startsWith("Arrow")) return; // scrolls the panel
      const action = actions[T.keys[event.key]];
      if (!action) return;
      event.preventDefault();
      action();
    });
  };
  T.KEY_STEP = STEP;
})(window.twintap);
