// Pointer, touch and wheel on an element: pointing, clicks, panning, and zoom by wheel and by two fingers.

const WHEEL = 100; // largest turn of the wheel that counts
const TREMBLE = 4; // pixels that a click may move
export const ARROWS = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] };

/** Follow pointers on an element. @param {Element} element @param {Gestures} on */
export function followPointers(element, on) {
  /** @type {Map<number, PointerEvent>} */
  const pressed = new Map();
  let dragged = false; // the last press was a drag or a pinch, not a click
  /** @param {PointerEvent} event */
  const drag = (event) => {
    const before = pressed.get(event.pointerId);
    const other = [...pressed.values()].find(({ pointerId }) => pointerId !== event.pointerId);
    if (!before || !on.pans(Boolean(other))) return false;
    if (!dragged && distance(event, before) < TREMBLE) return false;
    if (other) on.zoom(distance(event, other) / (distance(before, other) || 1), other);
    else on.pan(event.clientX - before.clientX, event.clientY - before.clientY);
    pressed.set(event.pointerId, event);
    return (dragged = true);
  };
  const listen = (names, react) => names.split(" ").forEach((name) => element.addEventListener(name, react));
  listen("pointerdown", (event) => {
    if (event.target.closest("button")) return;
    if (!pressed.size) dragged = false;
    element.setPointerCapture(event.pointerId);
    pressed.set(event.pointerId, event);
    on.point(event); // a tap has no move
  });
  listen("pointermove", (event) => drag(event) || on.point(event));
  listen("pointerup pointercancel", ({ pointerId }) => pressed.delete(pointerId));
  listen("pointerleave blur", () => on.point(null));
  listen("touchmove", (event) => event.touches.length > 1 && event.preventDefault());
  listen("wheel", (event) => {
    const turn = Math.max(-WHEEL, Math.min(WHEEL, event.deltaY)); // touchpads send small steps
    if (on.zoom(Math.exp(-turn * (event.ctrlKey ? 0.01 : 0.0015)), event)) event.preventDefault(); // else the page scrolls
  });
  listen("click", (event) => dragged || event.target.closest("button") || on.press(event));
}

/** @param {{ clientX: number, clientY: number }} one @param {{ clientX: number, clientY: number }} other */
function distance(one, other) {
  return Math.hypot(one.clientX - other.clientX, one.clientY - other.clientY);
}
