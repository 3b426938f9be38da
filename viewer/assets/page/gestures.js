// Wheel, drag and pinch become changes of the view. Nothing here draws.

const WHEEL_ZOOM = 0.0022; // per px of wheel travel: zoom is proportional to it, for trackpads
const CLICK_PX = 4; // less movement than this is a click

// Attach to the canvas. `actor`: {zoom(factor, x), pan(px), click(x, y), point(x, y), leave(), zoomIn(x)}.
export function attachPointer(canvas, actor) {
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
}
