// A scatter plot of classes with neighbors, groups, and the position of the current image: `app.views.class_map_view`.
//
// Props: `map`, the first map, is { name, address, sprite } or { name, data, sprite }; `openMap` shows another. `value` is
// that of an attention view, of which only `photo` is used; `placed` is { map, photo, name, x, y, neighbours, highlight }.
// Emits "shown" when another image or map needs a position.

import { button, el, svg } from "./dom.js";
import { fetchBytes } from "./encoding.js";
import { Gestures, zoomed } from "./gestures.js";
import { ARROWS, zoomButtons } from "./stage.js";
import { View } from "./view.js";

/**
 * @typedef {Point & { name: string, key: string, group: string, pictures: number, neighbours: [number, number][] }} ClassPoint
 * @typedef {Point & { name: string, neighbours: [number, number][], highlight: boolean }} Placed
 * @typedef {{ text: string, at: Point, half: number, color: string, required: boolean }} Label
 */

const MAX_ZOOM = 40; // relative to the scale that shows all points
const HIT_RADIUS = 16; // pixels, as all that follow
const MARK_RADIUS = 5;
const STAR_RADIUS = 17;
const THUMBNAIL_SIDE = [14, 72]; // smallest and largest
const LINE_HEIGHT = 15;
const MARGIN = 48;
const KEY_PAN = 60;
const MAX_LABEL = 26; // letters
const FAINT = 0.22; // opacity of points that are not highlighted
const KEYS =
  "Arrow keys move between classes, Enter lists the neighbors of a class. Plus and minus zoom, zero shows all, Shift with an arrow key moves the map, Escape clears the selection.";

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
  "M0-7L1.8-2.4L6.7-2.2L2.9 .9L4.1 5.7L0 3L-4.1 5.7L-2.9 .9L-6.7-2.2L-1.8-2.4z", // a star: the current image
];
const PATHS = SHAPES.map((shape) => new Path2D(shape));

export class ClassMapView extends View {
  view = { scale: 1, left: 0, top: 0 };
  fitScale = 1; // scale that shows all points
  fitted = true; // the user has not zoomed or panned
  points = [];
  groups = []; // { name, color }
  hidden = new Set(); // names of groups
  hovered = null; // index of a point, as `chosen`
  chosen = null;
  neighbors = [];
  placed = null;
  sprite = null; // thumbnails of all classes
  sheet = null; // { side, columns } of the sprite
  thumbnails = false; // instead of marks
  opened = ""; // the map on the screen
  answered = null; // the last `placed`
  animation = 0;
  style = { ink: "", paper: "", accent: "" };
  canvas = el("canvas", { tabindex: 0, role: "application", "aria-label": "Class map", "aria-description": KEYS });
  context = this.canvas.getContext("2d");
  thumbnail = el("span", { class: "map-thumbnail" });
  readout = el("span");
  title = el("h3", { tabindex: -1 });
  text = el("p", { class: "lab-soft" });
  list = el("ol");
  close = button("Close", () => (this.choose(null), this.canvas.focus()));
  selection = el("section", { class: "map-chosen", hidden: true }, this.title, this.close, this.text, this.list);
  legend = el("ul", { class: "map-legend" });
  all = button("Show all groups", () => this.toggle());

  /** @param {Mounted} mounted */
  constructor(mounted) {
    super(mounted);
    this.map = this.props.map; // Gradio drops a prop when Python updates another
    this.element.classList.add("class-map");
    this.listen();
    const zoom = zoomButtons((factor) => (factor ? this.zoom(factor) : this.fit()));
    const frame = el("div", { class: "map-frame" }, this.canvas, zoom);
    const below = el("p", { class: "map-readout" }, this.thumbnail, this.readout);
    const groups = el("section", { "aria-label": "Groups" }, el("h3", {}, "Groups"), this.all, this.legend);
    const side = el("div", { class: "map-side" }, this.selection, groups);
    this.mount(["value", "placed"], el("div", {}, frame, below), side);
  }

  // ---- props

  async load() {
    const { map } = this;
    if (this.opened !== map.name) {
      const [data, sprite] = await Promise.all([map.data ?? fetchJson(map.address), loadImage(map.sprite)]);
      return { map, data, sprite };
    }
    return {};
  }

  show({ map, data, sprite }) {
    const { value, placed } = this.props;
    if (map) this.open(map, data, sprite);
    const { photo } = value;
    const key = `${this.opened} ${photo}`;
    if (photo && this.announced !== key) this.place(null);
    if (photo) this.announce(key, { photo });
    if (!placed || placed.photo !== photo || placed.map !== this.opened) return;
    const answer = JSON.stringify(placed);
    if (answer === this.answered && this.element.dataset.token === photo) return;
    this.answered = answer;
    this.place(placed);
    this.element.dataset.token = photo; // tests wait for it
  }

  /** Show another map. @param {any} map  as the prop */
  openMap(map) {
    this.map = map;
    this.look();
  }

  open({ name }, { classes, groups, thumbnails }, sprite) {
    Object.assign(this, { opened: name, points: classes, groups, sheet: thumbnails, sprite, hovered: null });
    this.numbers = new Map(groups.map((group, number) => [group.name, number]));
    this.hidden.clear();
    this.choose(null);
    this.resize();
    this.fit();
    this.element.dataset.map = name; // tests wait for it
  }

  numbers = new Map(); // of the groups, by name

  /** Show the current image at its position and list its neighbors; null removes it. @param {Placed} placed */
  place(placed) {
    const neighbors = placed?.neighbours ?? [];
    Object.assign(this, {
      placed,
      chosen: null,
      neighbors: placed?.highlight ? neighbors.map(([index]) => index) : [],
    });
    const words = `At the mean position of its ${neighbors.length} nearest classes: t-SNE cannot project new images. Cosine distance to each class mean:`;
    this.describe(placed?.highlight ? placed.name : "", words, neighbors);
    if (placed) this.reach(placed);
    this.draw();
  }

  // ---- selection

  /** Select a class and list its neighbors; null clears the selection and the placed image. @param {number} index */
  choose(index) {
    const point = this.points[index];
    const neighbors = point?.neighbours ?? [];
    Object.assign(this, { chosen: index, placed: null, neighbors: neighbors.map(([other]) => other) });
    const words = point ? `${summary(point)}. Nearest classes by feature, with cosine distance:` : "";
    this.describe(point?.name ?? "", words, neighbors);
    this.draw();
    this.emit("select", { index, key: point?.key ?? null });
  }

  /** Select a class, center it and focus its name. Null, which a search field sends when it is left, clears a class. */
  goTo(index) {
    if (index === null && this.chosen === null) return;
    this.choose(index);
    if (index === null) return;
    this.reveal(this.points[index]);
    this.title.focus({ preventScroll: true });
  }

  showPictures(on) {
    this.thumbnails = on;
    this.draw();
  }

  describe(title, words, neighbors) {
    this.selection.hidden = !title;
    this.title.textContent = title;
    this.text.textContent = words;
    this.list.replaceChildren(...neighbors.map(([index, distance]) => this.classItem(index, distance)));
    this.listGroups();
    if (title) this.spoken.textContent = `${title}. ${words}`;
  }

  classItem(index, distance) {
    const choose = () => this.goTo(index);
    const item = this.item(this.points[index].name, this.group(index), distance.toFixed(3), choose);
    item.classList.add("map-class");
    if (this.sprite) item.prepend(el("span", { class: "map-thumbnail", style: this.background(index) }));
    return el("li", {}, item);
  }

  listGroups() {
    const items = this.groups.map(({ name }, group) => {
      const members = this.points.filter((point) => point.group === name).length;
      const item = this.item(name, group, String(members), () => this.toggle(name));
      item.setAttribute("aria-pressed", String(!this.hidden.has(name)));
      return members ? [el("li", {}, item)] : [];
    });
    this.legend.replaceChildren(...items.flat());
    this.all.disabled = !this.hidden.size;
  }

  /** Create a button with the mark of a group, a name and a number. */
  item(name, group, number, onclick) {
    const mark = svg("path", { d: SHAPES[group], fill: this.groups[group].color });
    const words = [el("span", {}, name), el("span", { class: "lab-soft" }, number)];
    const shape = svg("svg", { viewBox: "-8 -8 16 16", "aria-hidden": "true" }, mark);
    return el("button", { type: "button", onclick }, shape, ...words);
  }

  /** Hide or show a group; without a name, show all. @param {string} [name] */
  toggle(name) {
    const at = [...this.legend.querySelectorAll("button")].findIndex((item) => item === document.activeElement);
    if (!name) this.hidden.clear();
    else if (!this.hidden.delete(name)) this.hidden.add(name);
    this.listGroups();
    this.legend.querySelectorAll("button")[at]?.focus();
    this.draw();
  }

  /** Return a background that shows one thumbnail of the sprite at any size. @param {number} index */
  background(index) {
    const { sprite, sheet } = this;
    if (!sprite) return "";
    const rows = sprite.naturalHeight / sheet.side;
    const share = (position, count) => (count > 1 ? (100 * position) / (count - 1) : 0);
    const position = `${share(index % sheet.columns, sheet.columns)}% ${share(Math.floor(index / sheet.columns), rows)}%`;
    return `background: url("${sprite.src}") ${position} / ${100 * sheet.columns}% ${100 * rows}%`;
  }

  // ---- geometry

  get size() {
    return { width: this.canvas.clientWidth, height: this.canvas.clientHeight };
  }

  group(index) {
    return this.numbers.get(this.points[index].group) ?? this.groups.length - 1;
  }

  visible(index) {
    return !this.hidden.has(this.points[index].group);
  }

  /** Return the position of a map point on the canvas, in CSS pixels. @param {Point} point */
  at({ x, y }) {
    const { scale, left, top } = this.view;
    return { x: left + x * scale, y: top - y * scale };
  }

  /** Find the visible point with the smallest cost; null if all are infinite. @param {(index: number) => number} cost */
  cheapest(cost) {
    const costs = this.points.map((_, index) => (this.visible(index) ? cost(index) : Infinity));
    const least = Math.min(...costs);
    return least < Infinity ? costs.indexOf(least) : null;
  }

  /** @param {Point} place @returns {number} */
  nearest(place, radius = HIT_RADIUS) {
    return this.cheapest((index) => {
      const { x, y } = this.at(this.points[index]);
      const distance = Math.hypot(x - place.x, y - place.y);
      return distance < radius ? distance : Infinity;
    });
  }

  /** Show all points. */
  fit() {
    const { width, height } = this.size;
    if (!width || !this.points.length) return;
    const [xs, ys] = [this.points.map(({ x }) => x), this.points.map(({ y }) => y)];
    const [left, right] = [Math.min(...xs), Math.max(...xs)];
    const [low, high] = [Math.min(...ys), Math.max(...ys)];
    const scale = Math.min((width - 2 * MARGIN) / (right - left || 1), (height - 2 * MARGIN) / (high - low || 1));
    Object.assign(this, { fitScale: scale, fitted: true });
    this.view = { scale, left: width / 2 - ((left + right) / 2) * scale, top: height / 2 + ((low + high) / 2) * scale };
    this.draw();
  }

  /** Zoom by a factor around a point of the canvas. @param {number} factor @param {Point} place */
  zoom(factor, place = { x: this.size.width / 2, y: this.size.height / 2 }) {
    this.fitted = false;
    this.view = zoomed(this.view, factor, place, this.fitScale / 2, MAX_ZOOM * this.fitScale);
    this.draw();
  }

  pan(right, down) {
    if (right || down) this.fitted = false;
    this.view = { ...this.view, left: this.view.left + right, top: this.view.top + down };
    this.draw();
  }

  /** Center a point, and zoom in if all points are shown. @param {Point} point */
  reveal(point) {
    const { width, height } = this.size;
    if (this.view.scale < 2 * this.fitScale) this.zoom(2.5 * (this.fitScale / this.view.scale));
    const { x, y } = this.at(point);
    this.pan(width / 2 - x, height / 2 - y);
  }

  /** Pan as little as needed to bring a point inside the margin. @param {Point} point */
  reach(point) {
    const { width, height } = this.size;
    const { x, y } = this.at(point);
    const inside = (value, length) => Math.min(length - MARGIN, Math.max(MARGIN, value));
    if (width) this.pan(inside(x, width) - x, inside(y, height) - y);
  }

  resized() {
    this.resize();
    if (this.fitted) this.fit();
    this.paint(); // a resized canvas is blank until the next frame
  }

  resize() {
    const { width, height } = this.size;
    const ratio = devicePixelRatio || 1;
    Object.assign(this.canvas, { width: Math.round(width * ratio), height: Math.round(height * ratio) });
  }

  // ---- pointer and keys

  listen() {
    const { canvas } = this;
    const at = ({ offsetX, offsetY }) => ({ x: offsetX, y: offsetY });
    const gestures = new Gestures(canvas, {
      zoom: (factor, place) => this.zoom(factor, place),
      pan: (right, down) => this.pan(right, down),
    });
    canvas.addEventListener("pointermove", (event) =>
      this.hover(gestures.take(event) ? null : this.nearest(at(event))),
    );
    for (const name of ["pointerleave", "blur"]) canvas.addEventListener(name, () => this.hover(null));
    canvas.addEventListener("dblclick", (event) => this.zoom(2, at(event)));
    canvas.addEventListener("click", (event) => {
      if (!gestures.moved) this.press(at(event));
    });
    canvas.addEventListener("keydown", (event) => {
      if (this.key(event)) event.preventDefault();
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  /** Select the current image or the nearest class. @param {Point} place */
  press(place) {
    const star = this.placed && this.at(this.placed);
    const onStar = star && Math.hypot(star.x - place.x, star.y - place.y) < STAR_RADIUS;
    if (onStar) this.place({ ...this.placed, highlight: true });
    else this.choose(this.nearest(place));
  }

  /** Highlight and describe a class; null: none. @param {number} index */
  hover(index) {
    if (index === this.hovered) return;
    this.hovered = index;
    const point = this.points[index];
    this.readout.textContent = point ? `${point.name}: ${summary(point)}` : "";
    this.thumbnail.style.cssText = point ? this.background(index) : "";
    if (point) this.spoken.textContent = this.readout.textContent;
    this.draw();
  }

  /** Handle a key; returns whether it has a meaning. @param {KeyboardEvent} event */
  key({ key, shiftKey, ctrlKey, metaKey, altKey }) {
    if (ctrlKey || metaKey || altKey) return false;
    const arrow = ARROWS[key];
    if (arrow && shiftKey) this.pan(-KEY_PAN * arrow[0], -KEY_PAN * arrow[1]);
    else if (arrow) this.step(arrow);
    else if (key === "Enter" || key === " ") this.choose(this.hovered);
    else if (key === "+" || key === "=") this.zoom(1.4);
    else if (key === "-") this.zoom(1 / 1.4);
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
    const cost = (index) => {
      const { x, y } = this.at(this.points[index]);
      const along = (x - from.x) * right + (y - from.y) * down;
      const aside = Math.abs((x - from.x) * down) + Math.abs((y - from.y) * right);
      return along > 0 && index !== start ? along + 2 * aside : Infinity;
    };
    const next = start === null ? this.nearest(from, Infinity) : this.cheapest(cost);
    if (next === null) return;
    this.reach(this.points[next]);
    this.hover(next);
  }

  // ---- drawing

  /** Draw once, in the next frame. */
  draw() {
    cancelAnimationFrame(this.animation);
    this.animation = requestAnimationFrame(() => this.paint());
  }

  paint() {
    const { context, canvas } = this;
    const { width, height } = this.size;
    if (!width) return;
    const ratio = canvas.width / width;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    const { color, backgroundColor, caretColor, fontFamily } = getComputedStyle(canvas);
    this.style = { ink: color, paper: backgroundColor, accent: caretColor };
    context.font = `12px ${fontFamily}`;
    this.drawLines();
    const order = this.points.map((_, index) => index).filter((index) => this.visible(index));
    order.sort((one, other) => this.weight(one) - this.weight(other)); // important points on top
    for (const index of order) this.drawMark(index);
    if (this.placed) this.drawStar(this.at(this.placed));
    this.drawLabels(order.reverse());
  }

  /** Half the side of a mark; thumbnails fill the space that points have on average. */
  get half() {
    if (!this.thumbnails || !this.sprite) return MARK_RADIUS;
    const { width, height } = this.size;
    const space = Math.sqrt((width * height) / this.points.length) * (this.view.scale / this.fitScale);
    return Math.min(THUMBNAIL_SIDE[1], Math.max(THUMBNAIL_SIDE[0], space)) / 2;
  }

  /** Importance of a point. @param {number} index */
  weight(index) {
    if (index === this.hovered) return 3;
    if (index === this.chosen) return 2;
    return this.neighbors.includes(index) ? 1 : 0;
  }

  faint(index) {
    return (this.chosen !== null || this.neighbors.length > 0) && this.weight(index) === 0;
  }

  /** Draw lines from the chosen class, or the placed image, to its neighbors. */
  drawLines() {
    const center = this.points[this.chosen] ?? this.placed;
    if (!center) return;
    const from = this.at(center);
    Object.assign(this.context, { strokeStyle: this.style.accent, globalAlpha: 0.55, lineWidth: 1.25 });
    this.context.beginPath();
    for (const { x, y } of this.neighbors.map((index) => this.at(this.points[index]))) {
      this.context.moveTo(from.x, from.y);
      this.context.lineTo(x, y);
    }
    this.context.stroke();
    this.context.globalAlpha = 1;
  }

  drawMark(index) {
    const { context, half, sprite, sheet } = this;
    const { x, y } = this.at(this.points[index]);
    const { color } = this.groups[this.group(index)];
    context.globalAlpha = this.faint(index) ? FAINT : 1;
    if (this.thumbnails && sprite) {
      const { side, columns } = sheet;
      const [left, top] = [(index % columns) * side, Math.floor(index / columns) * side];
      context.drawImage(sprite, left, top, side, side, x - half, y - half, 2 * half, 2 * half);
      Object.assign(context, { strokeStyle: color, lineWidth: 2 });
      context.strokeRect(x - half, y - half, 2 * half, 2 * half);
    } else this.fill(PATHS[this.group(index)], { x, y }, this.weight(index) ? 1.4 : 1, color);
    if (index === this.chosen || index === this.hovered) this.drawRing({ x, y }, half * 1.5 + 4);
    context.globalAlpha = 1;
  }

  fill(path, { x, y }, scale, color) {
    const { context } = this;
    context.save();
    context.translate(x, y);
    context.scale(scale, scale);
    context.fillStyle = color;
    context.fill(path);
    context.restore();
  }

  drawRing({ x, y }, radius) {
    Object.assign(this.context, { strokeStyle: this.style.accent, lineWidth: 2 });
    this.context.beginPath();
    this.context.arc(x, y, radius, 0, 2 * Math.PI);
    this.context.stroke();
  }

  /** Draw the current image. @param {Point} place */
  drawStar(place) {
    const star = PATHS[PATHS.length - 1];
    this.fill(star, place, 2.2, this.style.paper);
    this.fill(star, place, 1.9, this.style.accent);
    this.drawRing(place, STAR_RADIUS);
  }

  /** Write names next to their marks, important ones first, without covering other names or marks. */
  drawLabels(order) {
    const { context, half, style } = this;
    Object.assign(context, { textBaseline: "middle", lineJoin: "round", lineWidth: 3, strokeStyle: style.paper });
    const shown = order.filter((index) => !this.faint(index));
    /** @type {Label[]} */
    const labels = shown.map((index) => {
      const at = this.at(this.points[index]);
      return { text: this.points[index].name, at, half, color: style.ink, required: this.weight(index) > 0 };
    });
    const taken = labels.map(({ at }) => [at.x - half, at.y - half, at.x + half, at.y + half]);
    if (this.placed) {
      const text = `image: ${shortened(this.placed.name)}`;
      labels.unshift({ text, at: this.at(this.placed), half: STAR_RADIUS, color: style.accent, required: true });
    }
    for (const label of labels) {
      const box = this.boxFor(label, taken);
      if (!box) continue;
      taken.push(box);
      context.strokeText(label.text, box[0], (box[1] + box[3]) / 2);
      context.fillStyle = label.color;
      context.fillText(label.text, box[0], (box[1] + box[3]) / 2);
    }
  }

  /** Find the first free side for a label; a required one takes the least covered side. @param {Label} label */
  boxFor({ text, at, half, required }, taken) {
    const { width, height } = this.size;
    if (at.x < 0 || at.y < 0 || at.x > width || at.y > height) return undefined;
    const length = this.context.measureText(text).width;
    const sides = [
      [at.x + half + 5, at.y - LINE_HEIGHT / 2],
      [at.x - half - 5 - length, at.y - LINE_HEIGHT / 2],
      [at.x - length / 2, at.y - half - LINE_HEIGHT - 2],
      [at.x - length / 2, at.y + half + 2],
    ];
    const boxes = sides.map(([left, top]) => [left, top, left + length, top + LINE_HEIGHT]);
    const inside = boxes.filter(([left, , right]) => left >= 4 && right <= width - 4);
    const candidates = required && !inside.length ? boxes : inside;
    const covered = candidates.map((box) => taken.filter((other) => overlap(box, other)).length);
    const least = Math.min(...covered);
    return required || least === 0 ? candidates[covered.indexOf(least)] : undefined;
  }
}

/** @param {ClassPoint} point */
function summary({ group, pictures }) {
  return `${group}, ${pictures === 1 ? "1 image" : `${pictures} images`}`;
}

/** Shorten a long name in its middle. @param {string} name */
function shortened(name) {
  return name.length > MAX_LABEL ? `${name.slice(0, MAX_LABEL - 9)}…${name.slice(-8)}` : name;
}

function overlap(one, other) {
  return one[2] >= other[0] && other[2] >= one[0] && one[3] >= other[1] && other[3] >= one[1];
}

async function fetchJson(address) {
  return JSON.parse(new TextDecoder().decode(await fetchBytes(address)));
}

async function loadImage(address) {
  if (!address) return null;
  const image = new Image();
  image.src = new URL(address, document.baseURI).href;
  await image.decode();
  return image;
}
