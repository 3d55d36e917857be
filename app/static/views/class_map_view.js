// A scatter plot of classes with neighbors, groups, and the position of the current image: `app.views.view`.
//
// Props: `map` is the name of the first map; `openMap` shows another. `data` is its content, by default fetched. `value` is
// that of an attention view, of which only `source` is used; `placed` is { map, source, name, x, y, neighbors, highlight }.
// Emits "shown" when another image or map needs a position.

import { button, el, svg } from "./dom.js";
import { fetchBytes } from "./encoding.js";
import { shownSection } from "./export.js";
import { ARROWS, followPointers } from "./gestures.js";
import { View } from "./view.js";

/** @typedef {Point & { name: string, source: string, picture: string, neighbors: [number, number][], highlight: boolean }} Placed */

const ZOOM = 1.5; // of a key or button
const MAX_ZOOM = 40; // relative to the scale that shows all points
const HIT_RADIUS = 16; // pixels, as all that follow
const LINE_HEIGHT = 15;
const LETTER = 7.5; // width of most
const MARGIN = 48;
const PICTURE = 46; // largest side of a thumbnail
const OVERLAP = 0.62; // smallest distance of two thumbnails, relative to their side
const LINE = { fill: "none", stroke: "var(--accent)", "stroke-width": 2 };
const REST = "Close together: similar features";
const KEYS =
  "Arrow keys move between classes, Enter lists the neighbors of a class. Plus and minus zoom, zero shows all, Escape clears the selection.";

/** SVG paths around the origin, one per group: groups differ in shape as well as in color. */
const SHAPES = [
  "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0z",
  "M-4.2-4.2H4.2V4.2H-4.2z",
  "M0-6.5L5.6 3.3H-5.6z",
  "M0-6.5L6.5 0L0 6.5L-6.5 0z",
  "M0 6.5L5.6-3.3H-5.6z",
  "M-2-6H2V-2H6V2H2V6H-2V2H-6V-2H-2z",
  "M-6-3.5L-3.5-6L0-2.5L3.5-6L6-3.5L2.5 0L6 3.5L3.5 6L0 2.5L-3.5 6L-6 3.5L-2.5 0z",
  "M0-6.3L6-1.9L3.7 5.1H-3.7L-6-1.9z",
  "M-6.5 0L3.3-5.6V5.6z",
  "M6.5 0L-3.3-5.6V5.6z",
  "M0-6L5.2-3V3L0 6L-5.2 3V-3z",
  "M0-7.5L4 0L0 7.5L-4 0z",
  "M0-7L1.8-2.4L6.7-2.2L2.8.9L4.1 5.7L0 2.9L-4.1 5.7L-2.8.9L-6.7-2.2L-1.8-2.4z",
];

export class ClassMapView extends View {
  frame = { scale: 1, left: 0, top: 0 };
  fitScale = 1; // scale that shows all points
  fitted = true; // the user has not zoomed or panned
  points = [];
  groups = []; // { name, color }
  numbers = []; // of the groups of all points
  hovered = null; // index of a point, as `chosen`
  chosen = null;
  neighbors = [];
  placed = null;
  /** @type {Map<string, Placed>} */
  visited = new Map(); // every image that was placed on this map, by its source
  /** @type {{ address: string, side: number, columns: number }} */
  pictures = null; // an image of every class, in one; null: symbols only
  map = ""; // the last chosen
  opened = ""; // the map on the screen
  answered = null; // the last `placed`
  animation = 0;
  plot = svg("svg", { class: "map-plot", tabindex: 0, role: "application", "aria-label": "Class map", "aria-description": KEYS }); // prettier-ignore
  readout = el("p", { class: "lab-chip map-readout" }, REST);
  title = el("h3", { tabindex: -1 });
  text = el("p", { class: "lab-soft" });
  list = el("ol");
  close = button("Close", () => (this.choose(null), this.plot.focus()));
  selection = el("section", { class: "map-chosen", hidden: true }, this.title, this.close, this.text, this.list);
  legend = el("ul", { class: "map-legend" });

  constructor(mounted) {
    super(mounted);
    this.element.classList.add("class-map");
    followPointers(this.plot, {
      point: (event) => this.hover(event && this.nearest(this.placeAt(event))),
      press: (event) => this.press(this.placeAt(event)),
      pan: (right, down) => this.pan(right, down),
      zoom: (factor, at) => this.zoom(factor, this.placeAt(at)),
      pans: () => true,
    });
    this.plot.addEventListener("keydown", (event) => this.key(event) && event.preventDefault());
    const tools = [
      button("+", () => this.zoom(ZOOM), { "aria-label": "Zoom in" }),
      button("−", () => this.zoom(1 / ZOOM), { "aria-label": "Zoom out" }),
      button("⤢", () => this.fit(), { "aria-label": "Show all" }),
    ];
    const top = el("div", { class: "lab-tools", role: "group", "aria-label": "Zoom" }, ...tools);
    const cell = el("div", { class: "lab-cell" }, this.plot, el("div", { class: "lab-top" }, top));
    cell.append(el("div", { class: "lab-bottom" }, this.readout));
    const groups = el("section", { "aria-label": "Groups" }, el("h3", {}, "Groups"), this.legend);
    this.mount(["value", "placed", "map"], cell, this.asideOf(this.selection, groups));
  }

  async load() {
    const map = (this.map ||= this.props.map); // Gradio sets props after the first call, and drops them later
    if (!map) return;
    if (this.opened === map) return {};
    if (this.props.data) return { map, data: this.props.data };
    const bytes = await fetchBytes(`lab/maps/${map}/map.json`);
    return { map, data: JSON.parse(new TextDecoder().decode(bytes)) };
  }

  open(name, { classes, groups, pictures = null }) {
    Object.assign(this, { opened: name, points: classes, groups, pictures, hovered: null, visited: new Map() });
    const numbers = new Map(groups.map((group, number) => [group.name, number]));
    this.numbers = classes.map(({ group }) => numbers.get(group) ?? groups.length - 1);
    this.choose(null);
    this.fit();
    const items = groups.map((group, number) => {
      const count = this.numbers.filter((other) => other === number).length;
      return count ? [el("li", {}, ...this.item(group.name, number, String(count)))] : [];
    });
    this.legend.replaceChildren(...items.flat());
    this.element.dataset.map = name; // tests wait for it
  }

  get fileName() {
    return this.opened;
  }

  sections() {
    return [shownSection(this.plot)];
  }

  get size() {
    return { width: this.plot.clientWidth, height: this.plot.clientHeight };
  }

  /** Side of a thumbnail. */
  get side() {
    return Math.min(PICTURE, this.size.width / 13);
  }

  /** Return the position of a map point on the plot, in pixels. @param {Point} point */
  at({ x, y }) {
    const { scale, left, top } = this.frame;
    return { x: left + x * scale, y: top - y * scale };
  }

  /** Find the point with the smallest cost; null if all are infinite. @param {(at: Point, index: number) => number} cost */
  cheapest(cost) {
    const costs = this.points.map((point, index) => cost(this.at(point), index));
    const least = Math.min(...costs);
    return least < Infinity ? costs.indexOf(least) : null;
  }

  /** @param {Point} place @returns {number} */
  nearest(place, radius = HIT_RADIUS) {
    return this.cheapest((at) => (distance(at, place) < radius ? distance(at, place) : Infinity));
  }

  placeAt({ clientX, clientY }) {
    const { left, top } = this.plot.getBoundingClientRect();
    return { x: clientX - left, y: clientY - top };
  }

  weight(index) {
    if (index === this.hovered) return 3;
    if (index === this.chosen) return 2;
    return this.neighbors.includes(index) ? 1 : 0;
  }

  faint(index) {
    return (this.chosen !== null || this.neighbors.length > 0) && this.weight(index) === 0;
  }

  show({ map, data }) {
    const { value, placed } = this.props;
    if (map) this.open(map, data);
    const { source } = value;
    const key = `${this.opened} ${source}`;
    if (source && this.shownName !== key) this.place(null);
    if (source) this.emitShown(key);
    if (!placed || placed.source !== source || placed.map !== this.opened) return;
    const answer = JSON.stringify(placed);
    if (answer === this.answered && this.element.dataset.token === source) return;
    this.answered = answer;
    this.place(placed);
    this.element.dataset.token = source; // tests wait for it
  }

  item(name, group, number) {
    const mark = svg("path", { d: SHAPES[group], fill: this.groups[group].color });
    const shape = svg("svg", { viewBox: "-8 -8 16 16", "aria-hidden": "true" }, mark);
    return [shape, el("span", {}, name), el("span", { class: "lab-soft" }, number)];
  }

  fit() {
    const { width, height } = this.size;
    if (!width || !this.points.length) return;
    const [x, y] = ["x", "y"].map((axis) => this.points.map((point) => point[axis]));
    const [left, right, low, high] = [x, y].flatMap((values) => [Math.min(...values), Math.max(...values)]);
    const scale = Math.min((width - 2 * MARGIN) / (right - left || 1), (height - 2 * MARGIN) / (high - low || 1));
    const middle = { left: width / 2 - ((left + right) / 2) * scale, top: height / 2 + ((low + high) / 2) * scale };
    Object.assign(this, { fitScale: scale, fitted: true, frame: { scale, ...middle } });
    this.draw();
  }

  draw() {
    cancelAnimationFrame(this.animation);
    this.animation = requestAnimationFrame(() => this.paint());
  }

  /** Draw lines to the neighbors, the marks with important ones on top, and names. */
  paint() {
    const { points, placed, neighbors, chosen, hovered } = this;
    if (!this.size.width) return;
    const places = points.map((point) => this.at(point));
    const center = places[chosen] ?? (placed && this.at(placed));
    const order = points.map((_, index) => index).sort((one, other) => this.weight(one) - this.weight(other));
    const withPicture = this.pictured(order, places);
    const marks = order.map((index) => {
      const { x, y } = places[index];
      if (withPicture.has(index)) return this.picture(index, places[index]);
      const transform = `translate(${x} ${y}) scale(${this.weight(index) ? 1.4 : 1})`;
      const { color: fill } = this.groups[this.numbers[index]];
      return svg("path", { d: SHAPES[this.numbers[index]], transform, fill, opacity: this.faint(index) ? 0.22 : 1 });
    });
    const ringed = [...new Set([chosen, hovered])].filter((index) => places[index]);
    const rings = ringed.map((index) => svg("circle", { cx: places[index].x, cy: places[index].y, r: 12, ...LINE }));
    const others = [...this.visited.values()].filter(({ source }) => source !== placed?.source);
    const own = others.map((other) => photo(other.picture, this.at(other), 0.7 * this.side, { opacity: 0.8 }));
    const joined = center ? neighbors : [];
    const d = joined.map((index) => `M${center.x} ${center.y}L${places[index].x} ${places[index].y}`).join("");
    this.plot.replaceChildren(
      svg("path", { d, opacity: 0.55, ...LINE }),
      ...[...marks, ...own, ...rings, ...(placed ? framed(placed.picture, center, 1.6 * this.side) : [])],
      ...this.labels(order.reverse(), places),
    );
  }

  /** Return the classes whose pictures fit, important ones first. @param {number[]} order  the important ones last */
  pictured(order, places) {
    /** @type {Set<number>} */
    const chosen = new Set();
    for (const index of this.pictures ? [...order].reverse() : []) {
      const free = (other) => distance(places[other], places[index]) >= OVERLAP * this.side;
      if (this.weight(index) || [...chosen].every(free)) chosen.add(index);
    }
    return chosen;
  }

  picture(index, { x, y }) {
    const { address, side, columns } = this.pictures;
    const size = this.side * (this.weight(index) ? 1.25 : 1);
    const box = { x: x - size / 2, y: y - size / 2, width: size, height: size };
    const href = new URL(address, document.baseURI).href;
    const width = Math.min(columns, this.points.length) * side;
    const sheet = svg("image", { href, width, height: Math.ceil(this.points.length / columns) * side });
    const viewBox = `${(index % columns) * side} ${Math.floor(index / columns) * side} ${side} ${side}`;
    return svg("svg", { ...box, viewBox, opacity: this.faint(index) ? 0.35 : 1 }, sheet);
  }

  /** Write names beside their marks, important ones first, without covering other names or marks. */
  labels(order, places) {
    const { placed, side } = this;
    const { width, height } = this.size;
    const shown = order.filter((index) => !this.faint(index));
    const half = (index) => (this.pictures ? (side / 2) * (this.weight(index) ? 1.25 : 1) : 5);
    const box = ({ x, y }, reach) => [x - reach, y - reach, x + reach, y + reach];
    const taken = shown.map((index) => box(places[index], half(index)));
    const label = (text, { x, y }, reach, required, style) => {
      if (x < 0 || y < 0 || x > width || y > height) return [];
      const length = LETTER * text.length;
      const corners = [
        [x + reach + 5, y - LINE_HEIGHT / 2],
        [x - reach - 5 - length, y - LINE_HEIGHT / 2],
        [x - length / 2, y - reach - LINE_HEIGHT - 2],
        [x - length / 2, y + reach + 2],
      ];
      const sides = corners.map(([left, top]) => [left, top, left + length, top + LINE_HEIGHT]);
      const inside = sides.filter(
        ([left, top, right, low]) => left >= 4 && top >= 4 && right <= width - 4 && low <= height - 4,
      );
      const free = inside.find((one) => !taken.some((other) => overlap(one, other))) ?? (required && (inside[0] ?? sides[0])); // prettier-ignore
      if (!free) return [];
      taken.push(free);
      return [svg("text", { x: free[0], y: free[3] - 3, "aria-hidden": "true", style }, document.createTextNode(text))];
    };
    if (placed) taken.push(box(this.at(placed), side));
    const image = placed ? label(`image: ${placed.name.slice(0, 26)}`, this.at(placed), side, true, "fill: var(--accent-ink)") : []; // prettier-ignore
    return [...image, ...shown.flatMap((index) => label(this.points[index].name, places[index], half(index), this.weight(index) > 1))]; // prettier-ignore
  }

  /** Show the current image at its position and list its neighbors; null removes it. @param {Placed} placed */
  place(placed) {
    const neighbors = placed?.neighbors ?? [];
    if (placed) this.visited.set(placed.source, placed);
    const text = `At the mean position of its ${neighbors.length} nearest classes, the nearer the heavier: t-SNE cannot project new images. Cosine distance to each class mean:`;
    this.select({ placed }, placed?.highlight ? placed.name : "", text, neighbors);
    if (placed) this.reach(placed);
  }

  /** Select a class and list its neighbors; null clears the selection and the placed image. @param {number} index */
  choose(index) {
    const point = this.points[index];
    const text = point ? `${summary(point)}. Nearest classes by feature, with cosine distance:` : "";
    this.select({ chosen: index }, point?.name ?? "", text, point?.neighbors ?? []);
  }

  openMap(map) {
    this.map = map;
    this.reload();
  }

  /** Select a class and focus its name. Null, which a search field sends when it is left, clears a class. */
  goTo(index) {
    if (index === null && this.chosen === null) return;
    this.choose(index);
    if (index === null) return;
    this.reach(this.points[index]);
    this.title.focus({ preventScroll: true });
  }

  /** @param {{ chosen?: number, placed?: Placed }} selection @param {string} title  "": nothing is described */
  select({ chosen = null, placed = null }, title, text, neighbors) {
    Object.assign(this, { chosen, placed, neighbors: title ? neighbors.map(([index]) => index) : [] });
    this.selection.hidden = !title;
    this.title.textContent = title;
    this.text.textContent = text;
    const items = neighbors.map(([index, distance]) => {
      const parts = this.item(this.points[index].name, this.numbers[index], distance.toFixed(3));
      return el("li", {}, el("button", { type: "button", onclick: () => this.goTo(index) }, ...parts));
    });
    this.list.replaceChildren(...items);
    if (title) this.spoken.textContent = `${title}. ${text}`;
    this.draw();
  }

  /** Zoom by a factor around a point of the plot. @param {number} factor @param {Point} place */
  zoom(factor, { x, y } = { x: this.size.width / 2, y: this.size.height / 2 }) {
    const { scale, left, top } = this.frame;
    const by = Math.min(MAX_ZOOM * this.fitScale, Math.max(this.fitScale / 2, scale * factor)) / scale;
    this.fitted = false;
    this.frame = { scale: scale * by, left: x + (left - x) * by, top: y + (top - y) * by };
    this.draw();
    return true;
  }

  pan(right, down) {
    if (right || down) this.fitted = false;
    this.frame = { ...this.frame, left: this.frame.left + right, top: this.frame.top + down };
    this.draw();
  }

  /** Pan as little as needed to bring a point inside the margin. @param {Point} point */
  reach(point) {
    const { width, height } = this.size;
    const { x, y } = this.at(point);
    const inside = (value, length) => Math.min(length - MARGIN, Math.max(MARGIN, value));
    if (width) this.pan(inside(x, width) - x, inside(y, height) - y);
  }

  resized() {
    if (this.fitted) this.fit();
    this.draw();
  }

  press(place) {
    const onImage = this.placed && distance(this.at(this.placed), place) < 0.8 * this.side;
    if (onImage) this.place({ ...this.placed, highlight: true });
    else this.choose(this.nearest(place));
  }

  /** Highlight and describe a class; null: none. @param {number} index */
  hover(index) {
    if (index === this.hovered) return;
    this.hovered = index;
    const point = this.points[index];
    this.readout.textContent = point ? `${point.name}: ${summary(point)}` : REST;
    if (point) this.spoken.textContent = this.readout.textContent;
    this.draw();
  }

  key({ key, ctrlKey, metaKey, altKey }) {
    if (ctrlKey || metaKey || altKey) return false;
    if (ARROWS[key]) this.step(ARROWS[key]);
    else if (key === "Enter" || key === " ") this.choose(this.hovered);
    else if (key === "+" || key === "=") this.zoom(ZOOM);
    else if (key === "-") this.zoom(1 / ZOOM);
    else if (key === "0") this.fit();
    else if (key === "Escape") this.choose(null);
    else return false;
    return true;
  }

  /** Move to the nearest class in a direction; sideways distance counts twice. */
  step([right, down]) {
    const { width, height } = this.size;
    const start = this.hovered ?? this.chosen;
    const from = start === null ? { x: width / 2, y: height / 2 } : this.at(this.points[start]);
    const cost = ({ x, y }, index) => {
      const along = (x - from.x) * right + (y - from.y) * down;
      const aside = Math.abs((x - from.x) * down) + Math.abs((y - from.y) * right);
      return along > 0 && index !== start ? along + 2 * aside : Infinity;
    };
    const next = start === null ? this.nearest(from, Infinity) : this.cheapest(cost);
    if (next === null) return;
    this.reach(this.points[next]);
    this.hover(next);
  }
}

function photo(address, { x, y }, size, attributes = {}) {
  const href = new URL(address, document.baseURI).href;
  return svg("image", { href, x: x - size / 2, y: y - size / 2, width: size, height: size, ...attributes });
}

function framed(address, at, size) {
  const frame = { x: at.x - size / 2 - 3, y: at.y - size / 2 - 3, width: size + 6, height: size + 6, rx: 8 };
  return [svg("rect", { ...frame, ...LINE, "stroke-width": 3 }), photo(address, at, size)];
}

function summary({ group, num_images: count }) {
  return `${group}, ${count === 1 ? "1 image" : `${count} images`}`;
}

function overlap(one, other) {
  return one[2] >= other[0] && other[2] >= one[0] && one[3] >= other[1] && other[3] >= one[1];
}

/** @param {Point} one @param {Point} other */
function distance(one, other) {
  return Math.hypot(one.x - other.x, one.y - other.y);
}
