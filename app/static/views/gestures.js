// Wheel, pinch and drag as zooming and moving, wherever something can be moved about.

const WHEEL = 100; // most that one turn counts
const TREMBLE = 3; // pixels that a click may move

/** A view nearer by a factor, from `least` to `most`; what lies at a place stays there.
 * @param {View} view @param {number} factor @param {Point} place @param {number} least @param {number} most @returns {View}
 */
export function zoomed({ scale, left, top }, factor, { x, y }, least, most) {
  const by = Math.min(most, Math.max(least, scale * factor)) / scale;
  return { scale: scale * by, left: x + (left - x) * by, top: y + (top - y) * by };
}

export class Gestures {
  moved = false; // the last press was a drag or a pinch: its click counts for nothing
  /** @type {Map<number, Point>} */
  touches = new Map();

  /**
   * @param {HTMLElement} element
   * @param {object} on
   * @param {(factor: number, at: Point) => void} on.zoom
   * @param {(right: number, down: number) => void} on.pan
   * @param {(event: WheelEvent) => boolean} [on.wheels]  whether a turn of the wheel zooms, or scrolls the page
   * @param {() => boolean} [on.drags]  whether a drag moves
   */
  constructor(element, { zoom, pan, wheels = () => true, drags = () => true }) {
    this.element = element;
    this.zoom = zoom;
    this.pan = pan;
    this.drags = drags;
    element.addEventListener("wheel", (event) => {
      if (!wheels(event)) return;
      event.preventDefault();
      const turn = Math.max(-WHEEL, Math.min(WHEEL, event.deltaY)); // pinches on a touchpad come in small steps
      zoom(Math.exp(-turn * (event.ctrlKey ? 0.01 : 0.0015)), this.at(event));
    });
    element.addEventListener("pointerdown", (event) => {
      this.touches.set(event.pointerId, this.at(event));
      if (this.touches.size === 1) this.moved = false;
      if (drags()) element.setPointerCapture(event.pointerId);
    });
    for (const end of /** @type {const} */ (["pointerup", "pointercancel", "pointerleave"])) {
      element.addEventListener(end, (event) => this.touches.delete(event.pointerId));
    }
  }

  /** @param {MouseEvent} event @returns {Point} */
  at({ clientX, clientY }) {
    const { left, top } = this.element.getBoundingClientRect();
    return { x: clientX - left, y: clientY - top };
  }

  /** Whether the move of a pointer was one of these: it was pressed. @param {PointerEvent} event */
  take(event) {
    const before = this.touches.get(event.pointerId);
    const other = [...this.touches].find(([id]) => id !== event.pointerId)?.[1];
    if (!before || !(other || this.drags())) return false;
    const now = this.at(event);
    if (other) this.zoom(gap(now, other) / gap(before, other), other);
    else if (this.moved || gap(now, before) >= TREMBLE) this.pan(now.x - before.x, now.y - before.y);
    else return true;
    this.moved = true;
    this.touches.set(event.pointerId, now);
    return true;
  }
}

/** @param {Point} one @param {Point} other */
function gap(one, other) {
  return Math.hypot(one.x - other.x, one.y - other.y) || 1;
}
