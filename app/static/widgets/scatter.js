// Points in the plane on a canvas: drawing, moving, zooming, and the ways to point at one of them.

import { Gestures, zoomed } from "./gestures.js";
import { STEPS } from "./stage.js";
import { onScheme } from "./theme.js";

const FARTHEST = 40; // how many times nearer than "all" the map comes
const REACH = 16; // pixels around a mark that belong to it
const MARK = 5; // its radius
const PICTURES = [14, 72]; // least and greatest side of a thumbnail that stands for a mark
const LINE = 15; // height of a name
const MARGIN = 48;
const LONGEST_NAME = 26; // letters; names of visitors' files can be long

/**
 * @typedef {Point & { name: string, key: string, group: number, groupName: string, color: string, pictures: number, neighbours: [number, number][] }} Entry
 * @typedef {{ image: HTMLImageElement, side: number, columns: number }} Sprite
 * @typedef {object} Shown
 * @property {Set<number>} hidden  groups
 * @property {Set<number> | null} found  indices
 * @property {number | null} chosen
 * @property {number[]} neighbours
 * @property {(Point & { label: string }) | null} placed
 * @property {boolean} pictures
 * @typedef {[number, number, number, number]} Box  left, top, right, bottom
 * @typedef {{ text: string, at: Point, half: number, color: string, always: boolean }} Name
 */

const KEY_ZOOM = 1.4;
const PAN = 60; // pixels per key

/** One shape per group as an SVG path around the origin, so that colour never stands alone. */
export const SHAPES = [
  "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0z",
  polygon(4, 45, 6),
  polygon(3, 0, 6.5),
  polygon(4, 0, 6.5),
  polygon(3, 180, 6.5),
  "M-2-6H2V-2H6V2H2V6H-2V2H-6V-2H-2z",
  "M-6-3.5L-3.5-6L0-2.5L3.5-6L6-3.5L2.5 0L6 3.5L3.5 6L0 2.5L-3.5 6L-6 3.5L-2.5 0z",
  polygon(5, 0, 6.3),
  polygon(3, 270, 6.5),
  polygon(3, 90, 6.5),
  polygon(6, 0, 6),
  "M0-7.5L4 0L0 7.5L-4 0z",
  polygon(10, 0, 7, 3),
];

export class Scatter {
  /**
   * @param {HTMLCanvasElement} canvas
   * @param {{ hover: (index: number | null, where: Point | null) => void, pick: (index: number | null) => void }} on
   */
  constructor(canvas, on) {
    this.canvas = canvas;
    this.context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    this.on = on;
    /** @type {Entry[]} */
    this.points = [];
    this.view = { scale: 1, left: 0, top: 0 };
    /** @type {Shown} */
    this.shown = { hidden: new Set(), found: null, chosen: null, neighbours: [], placed: null, pictures: false };
    /** @type {Sprite | null} */
    this.sprite = null;
    /** @type {number | null} */
    this.hovered = null;
    this.whole = true;
    this.least = 1; // scale at which all points are seen
    this.frame = 0;
    /** @type {Map<string, number>} */
    this.widths = new Map();
    this.ink = this.ground = this.accent = "";
    this.paths = SHAPES.map((path) => new Path2D(path));
    this.listen();
    new ResizeObserver(() => this.resize()).observe(canvas);
    onScheme(() => this.draw());
  }

  /** @param {Entry[]} points @param {Sprite | null} sprite */
  open(points, sprite) {
    Object.assign(this, { points, sprite, hovered: null });
    this.widths.clear();
    this.fit();
  }

  /** @param {Partial<Shown>} change */
  show(change) {
    Object.assign(this.shown, change);
    this.draw();
  }

  // ---- where things are

  get size() {
    return { width: this.canvas.clientWidth, height: this.canvas.clientHeight };
  }

  /** Pixels of a point of the map. @param {Point} point */
  at({ x, y }) {
    const { scale, left, top } = this.view;
    return { x: left + x * scale, y: top - y * scale };
  }

  /** @param {number} index */
  visible(index) {
    return !this.shown.hidden.has(this.points[index].group);
  }

  /** @param {Point} place */
  nearest(place, reach = REACH) {
    let best = null;
    let least = reach ** 2;
    for (let index = 0; index < this.points.length; index++) {
      if (!this.visible(index)) continue;
      const { x, y } = this.at(this.points[index]);
      const gap = (x - place.x) ** 2 + (y - place.y) ** 2;
      if (gap < least) [best, least] = [index, gap];
    }
    return best;
  }

  /** Show all points. */
  fit() {
    const { width, height } = this.size;
    if (!width || !this.points.length) return;
    const [low, high] = [Math.min, Math.max].map((/** @type {(...values: number[]) => number} */ most) => ({
      x: most(...this.points.map(({ x }) => x)),
      y: most(...this.points.map(({ y }) => y)),
    }));
    const room = { x: width - 2 * MARGIN, y: height - 2 * MARGIN };
    const scale = Math.min(room.x / (high.x - low.x || 1), room.y / (high.y - low.y || 1));
    this.least = scale;
    this.whole = true; // nobody has moved it
    this.view = {
      scale,
      left: width / 2 - ((low.x + high.x) / 2) * scale,
      top: height / 2 + ((low.y + high.y) / 2) * scale,
    };
    this.draw();
  }

  /** Zoom by a factor; what lies at `place` stays there. @param {number} factor @param {Point} place */
  zoom(factor, place = { x: this.size.width / 2, y: this.size.height / 2 }) {
    this.whole = false;
    this.view = zoomed(this.view, factor, place, this.least / 2, FARTHEST * this.least);
    this.draw();
  }

  /** @param {number} right @param {number} down */
  pan(right, down) {
    this.view.left += right;
    this.view.top += down;
    this.whole = false;
    this.draw();
  }

  /** Bring a point into view, nearer if all were seen so far. @param {Point} point */
  reveal(point) {
    const { width, height } = this.size;
    if (this.view.scale < 2 * this.least) this.zoom(2.5 * (this.least / this.view.scale));
    const { x, y } = this.at(point);
    this.pan(width / 2 - x, height / 2 - y);
  }

  resize() {
    const { width, height } = this.size;
    if (!width) return; // another tab is shown
    const ratio = devicePixelRatio || 1;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    if (this.whole) this.fit();
    this.paint(); // at once: a resized canvas is empty
  }

  // ---- pointing

  listen() {
    const { canvas } = this;
    const gestures = new Gestures(canvas, {
      zoom: (factor, at) => this.zoom(factor, at),
      pan: (right, down) => this.pan(right, down),
    });
    canvas.addEventListener("dblclick", (event) => this.zoom(2, place(event)));
    canvas.addEventListener("pointermove", (event) => {
      if (gestures.take(event)) this.hover(null);
      else this.hover(this.nearest(place(event)), place(event));
    });
    canvas.addEventListener("pointerleave", () => this.hover(null));
    canvas.addEventListener("blur", () => this.hover(null));
    canvas.addEventListener("click", (event) => {
      if (!gestures.moved) this.on.pick(this.nearest(place(event)));
    });
    canvas.addEventListener("keydown", (event) => {
      if (this.key(event)) event.preventDefault();
    });
  }

  /** @param {number | null} index @param {Point | null} where */
  hover(index, where = index === null ? null : this.at(this.points[index])) {
    if (index === null && this.hovered === null) return;
    const news = index !== this.hovered;
    this.hovered = index;
    this.on.hover(index, where);
    if (news) this.draw();
  }

  /** Whether the key meant something here. @param {KeyboardEvent} event */
  key({ key, shiftKey, ctrlKey, metaKey, altKey }) {
    if (ctrlKey || metaKey || altKey) return false;
    if (STEPS[key] && shiftKey) this.pan(-PAN * STEPS[key][0], -PAN * STEPS[key][1]);
    else if (STEPS[key]) this.step(...STEPS[key]);
    else if (key === "Enter" || key === " ") this.on.pick(this.hovered);
    else if (key === "+" || key === "=") this.zoom(KEY_ZOOM);
    else if (key === "-") this.zoom(1 / KEY_ZOOM);
    else if (key === "0") this.fit();
    else if (key === "Escape") this.on.pick(null);
    else return false;
    return true;
  }

  /** Go to the nearest point in a direction; what lies aside counts twice as far. @param {number} right @param {number} down */
  step(right, down) {
    const { width, height } = this.size;
    const start = this.hovered ?? this.shown.chosen;
    const from = start === null ? { x: width / 2, y: height / 2 } : this.at(this.points[start]);
    let best = start === null ? this.nearest(from, Infinity) : null;
    let least = Infinity;
    for (let index = 0; start !== null && index < this.points.length; index++) {
      if (index === start || !this.visible(index)) continue;
      const { x, y } = this.at(this.points[index]);
      const along = (x - from.x) * right + (y - from.y) * down;
      const aside = Math.abs((x - from.x) * down) + Math.abs((y - from.y) * right);
      if (along > 0 && along + 2 * aside < least) [best, least] = [index, along + 2 * aside];
    }
    if (best === null) return;
    this.follow(this.points[best]);
    this.hover(best);
  }

  /** Move the map so far that a point lies inside of it. @param {Point} point */
  follow(point) {
    const { width, height } = this.size;
    const { x, y } = this.at(point);
    const inside = (/** @type {number} */ value, /** @type {number} */ length) =>
      Math.min(length - MARGIN, Math.max(MARGIN, value));
    this.pan(inside(x, width) - x, inside(y, height) - y);
  }

  // ---- drawing

  /** Draw at the next frame, once. */
  draw() {
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => this.paint());
  }

  paint() {
    const { context, canvas, shown } = this;
    const { width, height } = this.size;
    if (!width) return;
    const ratio = canvas.width / width;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    const style = getComputedStyle(canvas);
    this.ink = style.color;
    this.ground = style.backgroundColor;
    this.accent = style.caretColor; // a variable would not say which of its two colours counts
    context.font = `12px ${style.fontFamily}`;
    this.threads();
    const order = this.points.map((_, index) => index).filter((index) => this.visible(index));
    order.sort((one, other) => this.weight(one) - this.weight(other)); // what matters lies on top
    const { half } = this;
    for (const index of order) this.mark(index, half);
    if (shown.placed) this.star(shown.placed);
    this.names(order.reverse());
  }

  /** Half the side of a mark: a thumbnail takes the room that points have on average. */
  get half() {
    if (!this.shown.pictures || !this.sprite) return MARK;
    const { width, height } = this.size;
    const room = Math.sqrt((width * height) / this.points.length) * (this.view.scale / this.least);
    return Math.min(PICTURES[1], Math.max(PICTURES[0], room)) / 2;
  }

  /** How much a point matters now. @param {number} index */
  weight(index) {
    const { chosen, neighbours, found } = this.shown;
    if (index === this.hovered) return 4;
    if (index === chosen) return 3;
    if (neighbours.includes(index)) return 2;
    return found?.has(index) ? 1 : 0;
  }

  /** Whether a point stands back behind others. @param {number} index */
  faint(index) {
    const { found, chosen, neighbours } = this.shown;
    return (found !== null || chosen !== null || neighbours.length > 0) && this.weight(index) === 0;
  }

  /** Lines to the neighbours. */
  threads() {
    const { chosen, placed, neighbours } = this.shown;
    const centre = chosen !== null ? this.points[chosen] : placed;
    if (!centre) return;
    const from = this.at(centre);
    this.context.strokeStyle = this.accent;
    this.context.globalAlpha = 0.55;
    this.context.lineWidth = 1.25;
    this.context.beginPath();
    for (const index of neighbours) {
      const to = this.at(this.points[index]);
      this.context.moveTo(from.x, from.y);
      this.context.lineTo(to.x, to.y);
    }
    this.context.stroke();
    this.context.globalAlpha = 1;
  }

  /** @param {number} index @param {number} half */
  mark(index, half) {
    const { context, points } = this;
    const sprite = this.shown.pictures ? this.sprite : null;
    const point = points[index];
    const { x, y } = this.at(point);
    context.globalAlpha = this.faint(index) ? 0.22 : 1;
    if (sprite) {
      const from = /** @type {[number, number]} */ ([
        (index % sprite.columns) * sprite.side,
        Math.floor(index / sprite.columns) * sprite.side,
      ]);
      const to = /** @type {Box} */ ([x - half, y - half, 2 * half, 2 * half]);
      context.drawImage(sprite.image, ...from, sprite.side, sprite.side, ...to);
      context.strokeStyle = point.color;
      context.lineWidth = 2;
      context.strokeRect(...to);
    } else {
      context.save();
      context.translate(x, y);
      if (this.weight(index) > 1) context.scale(1.4, 1.4);
      context.fillStyle = point.color;
      context.fill(this.paths[point.group]);
      context.restore();
    }
    if (index === this.shown.chosen || index === this.hovered) this.ring(x, y, half * 1.5 + 4);
    context.globalAlpha = 1;
  }

  /** @param {number} x @param {number} y @param {number} radius */
  ring(x, y, radius) {
    this.context.strokeStyle = this.accent;
    this.context.lineWidth = 2;
    this.context.beginPath();
    this.context.arc(x, y, radius, 0, 2 * Math.PI);
    this.context.stroke();
  }

  /** The visitor's own picture. @param {Point} placed */
  star(placed) {
    const { context } = this;
    const { x, y } = this.at(placed);
    context.save();
    context.translate(x, y);
    context.scale(1.9, 1.9);
    context.fillStyle = this.accent;
    context.strokeStyle = this.ground;
    context.lineWidth = 0.8;
    context.fill(this.paths[SHAPES.length - 1]);
    context.stroke(this.paths[SHAPES.length - 1]);
    context.restore();
    this.ring(x, y, 17);
  }

  /** Names beside their points, the weightiest first, over no other name and no mark that stands out. @param {number[]} order */
  names(order) {
    const { context, shown } = this;
    const { half } = this;
    Object.assign(context, { textBaseline: "middle", lineJoin: "round", lineWidth: 3, strokeStyle: this.ground });
    /** @type {Box[]} */
    const taken = [];
    /** @type {Name[]} */
    const entries = order
      .filter((index) => !this.faint(index))
      .map((index) => {
        const at = this.at(this.points[index]);
        taken.push([at.x - half, at.y - half, at.x + half, at.y + half]);
        return { text: this.points[index].name, at, half, color: this.ink, always: this.weight(index) > 1 };
      });
    if (shown.placed) {
      const own = {
        text: short(shown.placed.label),
        at: this.at(shown.placed),
        half: 17,
        color: this.accent,
        always: true,
      };
      entries.unshift(own);
    }
    for (const entry of entries) {
      const box = this.roomFor(entry, taken);
      if (!box) continue;
      taken.push(box);
      context.strokeText(entry.text, box[0], (box[1] + box[3]) / 2);
      context.fillStyle = entry.color;
      context.fillText(entry.text, box[0], (box[1] + box[3]) / 2);
    }
  }

  /** The box that runs over the fewest others. @param {Box[]} boxes @param {Box[]} taken */
  leastCovered(boxes, taken) {
    const covered = (/** @type {Box} */ box) => taken.filter((other) => !apart(box, other)).length;
    return boxes.reduce((least, box) => (covered(box) < covered(least) ? box : least));
  }

  /** Where a name fits beside its mark, if anywhere. @param {Name} name @param {Box[]} taken @returns {Box | undefined} */
  roomFor({ text, at, half, always }, taken) {
    const { width, height } = this.size;
    if (at.x < 0 || at.y < 0 || at.x > width || at.y > height) return undefined;
    if (!this.widths.has(text)) this.widths.set(text, this.context.measureText(text).width);
    const wide = this.widths.get(text) ?? 0;
    const corners = [
      [at.x + half + 5, at.y - LINE / 2],
      [at.x - half - 5 - wide, at.y - LINE / 2],
      [at.x - wide / 2, at.y - half - LINE - 2],
      [at.x - wide / 2, at.y + half + 2],
    ];
    const boxes = corners.map(([left, top]) => /** @type {Box} */ ([left, top, left + wide, top + LINE]));
    const inside = boxes.filter(([left, , right]) => left >= 4 && right <= width - 4);
    const free = inside.find((box) => taken.every((other) => apart(box, other)));
    return free ?? (always ? this.leastCovered(inside.length ? inside : boxes, taken) : undefined);
  }
}

/** A long name's beginning and end. @param {string} name */
function short(name) {
  return name.length > LONGEST_NAME ? `${name.slice(0, LONGEST_NAME - 9)}…${name.slice(-8)}` : name;
}

/** @param {Box} one @param {Box} other */
function apart(one, other) {
  return one[2] < other[0] || other[2] < one[0] || one[3] < other[1] || other[3] < one[1];
}

/**
 * A regular polygon, one corner up before it is turned by `turn` degrees; every second corner at `inner`.
 * @param {number} corners @param {number} turn @param {number} radius
 */
function polygon(corners, turn, radius, inner = radius) {
  const places = Array.from({ length: corners }, (_, corner) => {
    const angle = ((turn + (360 * corner) / corners) * Math.PI) / 180;
    const far = corner % 2 ? inner : radius;
    return `${(far * Math.sin(angle)).toFixed(2)} ${(-far * Math.cos(angle)).toFixed(2)}`;
  });
  return `M${places.join("L")}z`;
}

/** @param {MouseEvent} event @returns {Point} */
function place(event) {
  return { x: event.offsetX, y: event.offsetY };
}
