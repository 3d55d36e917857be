// Wheel, pinch and drag as zooming and panning.

const WHEEL = 100; // largest turn of the wheel that counts
const TREMBLE = 3; // pixels that a click may move

/** Zoom a view by a factor around a place, to a scale from `least` to `most`. @param {View} view @returns {View} */
export function zoomed({ scale, left, top }, factor, { x, y }, least, most) {
  const by = Math.min(most, Math.max(least, scale * factor)) / scale;
  return { scale: scale * by, left: x + (left - x) * by, top: y + (top - y) * by };
}

export class Gestures {
  moved = false; // the last press was a drag or a pinch, not a click
  touches = new Map();

  /**
   * @param {HTMLElement} element
   * @param {{ zoom: (factor: number, at: Point) => void, pan: (right: number, down: number) => void }} on
   */
  constructor(element, { zoom, pan }) {
    Object.assign(this, { element, zoom, pan });
    element.addEventListener("wheel", (event) => {
      event.preventDefault();
      const turn = Math.max(-WHEEL, Math.min(WHEEL, event.deltaY)); // touchpads send small steps
      zoom(Math.exp(-turn * (event.ctrlKey ? 0.01 : 0.0015)), this.at(event));
    });
    element.addEventListener("pointerdown", (event) => {
      this.touches.set(event.pointerId, this.at(event));
      if (this.touches.size === 1) this.moved = false;
      element.setPointerCapture(event.pointerId);
    });
    for (const end of ["pointerup", "pointercancel", "pointerleave"])
      element.addEventListener(end, (event) => this.touches.delete(event["pointerId"]));
  }

  element;
  zoom;
  pan;

  /** @param {MouseEvent} event @returns {Point} */
  at({ clientX, clientY }) {
    const { left, top } = this.element.getBoundingClientRect();
    return { x: clientX - left, y: clientY - top };
  }

  /** Handle the move of a pressed pointer; false if it only points. @param {PointerEvent} event */
  take(event) {
    const before = this.touches.get(event.pointerId);
    const other = [...this.touches].find(([id]) => id !== event.pointerId)?.[1];
    if (!before) return false;
    const now = this.at(event);
    if (other) this.zoom(gap(now, other) / gap(before, other), other);
    else if (this.moved || gap(now, before) >= TREMBLE) this.pan(now.x - before.x, now.y - before.y);
    else return true;
    this.moved = true;
    this.touches.set(event.pointerId, now);
    return true;
  }
}

function gap(one, other) {
  return Math.hypot(one.x - other.x, one.y - other.y) || 1;
}
