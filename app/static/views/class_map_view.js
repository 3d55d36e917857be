// Class map: a scatter plot of classes with neighbors, groups, and the position of the current image.
//
// Props: `map`, the first map, is { name, address, sprite } or { name, data, sprite }; `openMap` shows another. `value` is
// that of an attention view, of which only `photo` is used; `placed` is { map, photo, name, x, y, neighbours, highlight }
// or null. Emits "shown" when another image or map is visible and needs a position.

import { style } from "./dom.js";
import { Gestures, zoomed } from "./gestures.js";

/**
 * @typedef {Point & { name: string, key: string, group: string, pictures: number, neighbours: [number, number][] }} ClassPoint
 * @typedef {{ name: string, color: string }} Group
 * @typedef {{ classes: ClassPoint[], groups: Group[], thumbnails: { side: number, columns: number } | null }} ClassMap
 * @typedef {Point & { name: string, neighbours: [number, number][], highlight: boolean }} Placed
 * @typedef {[number, number, number, number]} Box  left, top, right, bottom
 * @typedef {{ text: string, at: Point, half: number, color: string, required: boolean }} Label
 */

const MAX_ZOOM = 40; // relative to the scale that shows all points
const HIT_RADIUS = 16; // pixels
const MARK_RADIUS = 5;
const THUMBNAIL_SIDE = [14, 72]; // smallest and largest, when drawn instead of marks
const LINE_HEIGHT = 15;
const MARGIN = 48;
const MAX_LABEL = 26; // letters
const KEY_ZOOM = 1.4;
const KEY_PAN = 60; // pixels
const FAINT = 0.22; // opacity of points that are not highlighted
const BUTTON_ZOOM = /** @type {Record<string, number>} */ ({ in: 1.6, out: 1 / 1.6, all: 0 });
const ARROWS = /** @type {Record<string, [number, number]>} */ ({
  ArrowUp: [0, -1],
  ArrowDown: [0, 1],
  ArrowLeft: [-1, 0],
  ArrowRight: [1, 0],
});

/** SVG paths around the origin, one per group: groups differ in shape as well as in color. */
const SHAPES = [
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

let nextId = 0;
const MARKUP = `
  <div class="map-frame">
    <canvas tabindex="0" role="application" aria-label="Class map"></canvas>
    <div class="lab-zoom" role="group" aria-label="Zoom">
      <button type="button" data-zoom="in" aria-label="Zoom in">+</button>
      <button type="button" data-zoom="out" aria-label="Zoom out">−</button>
      <button type="button" data-zoom="all" aria-label="Show all">⤢</button>
    </div>
    <div class="map-tip" aria-hidden="true" hidden><span class="map-thumbnail"></span><strong></strong><span class="map-soft"></span></div>
  </div>
  <div class="map-side">
    <section class="map-chosen" hidden>
      <header><h3 tabindex="-1"></h3><button type="button" class="map-close">Close</button></header>
      <p class="map-soft"></p>
      <ol></ol>
    </section>
    <section aria-label="Groups">
      <header><h3>Groups</h3><button type="button" class="map-all">Show all</button></header>
      <ul class="map-legend"></ul>
    </section>
  </div>
  <p class="lab-spoken map-keys">Arrow keys move between classes, Enter lists the neighbors of a class. Plus and minus zoom, zero shows all, Shift with an arrow key moves the map, Escape clears the selection.</p>
  <p class="lab-spoken map-spoken" aria-live="polite"></p>`;

export class ClassMapView {
  /** @param {any} context */
  constructor({ element, props, watch, emit }) {
    this.root = /** @type {HTMLElement} */ (element);
    this.root.classList.add("class-map");
    this.root.innerHTML = MARKUP;
    for (const sheet of ["views.css", "class_map.css"]) style(element, new URL(sheet, import.meta.url).href);
    this.props = props;
    this.map = props.map; // Gradio drops a prop when Python updates another
    this.emit = emit;
    this.canvas = /** @type {HTMLCanvasElement} */ (this.find("canvas"));
    this.context = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d"));
    this.paths = SHAPES.map((path) => new Path2D(path));
    this.view = { scale: 1, left: 0, top: 0 };
    this.fitScale = 1; // scale that shows all points
    this.fitted = true; // the user has not zoomed or panned
    /** @type {ClassPoint[]} */
    this.points = [];
    /** @type {Group[]} */
    this.groups = [];
    /** @type {Set<number>} */
    this.hidden = new Set(); // groups
    /** @type {number | null} */
    this.hovered = null;
    /** @type {number | null} */
    this.chosen = null;
    /** @type {number[]} */
    this.neighbours = [];
    /** @type {Placed | null} */
    this.placed = null;
    /** @type {HTMLImageElement | null} */
    this.sprite = null;
    this.pictures = false; // thumbnails instead of marks
    /** @type {ClassMap["thumbnails"]} */
    this.sheet = null;
    this.opened = ""; // the map on the screen
    this.asked = ""; // map and image of the last "load"
    this.answered = ""; // the last `placed`
    this.requested = 0;
    this.frame = 0;
    /** @type {Map<string, number>} */
    this.widths = new Map();
    this.listen();
    watch(["value", "placed"], () => this.update());
    this.update();
  }

  /** @param {string} selector @returns {HTMLElement} */
  find(selector) {
    return /** @type {HTMLElement} */ (this.root.querySelector(selector));
  }

  // ---- props

  /** Show the map and the position of the image; answers that arrive late are dropped. A hidden view does nothing. */
  async update() {
    const { map } = this;
    const { value, placed } = this.props;
    if (!map || !this.size.width) return;
    const request = ++this.requested;
    const key = map.address ?? map.name;
    if (this.opened !== key) {
      const loaded = await Promise.all([map.data ?? fetchJson(map.address), map.sprite && loadImage(map.sprite)]);
      if (request !== this.requested) return;
      this.open(loaded[0], loaded[1] ?? null);
      this.opened = key;
    }
    const photo = value?.photo;
    const asked = `${key} ${photo}`;
    if (photo && asked !== this.asked) {
      this.asked = asked;
      this.place(null);
      this.emit("shown", { photo });
    }
    const answer = JSON.stringify(placed ?? null);
    if (answer === this.answered || !placed || placed.photo !== photo || placed.map !== map.name) return;
    this.answered = answer;
    this.place(placed);
    this.root.dataset.token = photo; // tests wait for it
  }

  /** Show another map. @param {any} map  as the prop */
  openMap(map) {
    this.map = map;
    this.update();
  }

  /** @param {ClassMap} map @param {HTMLImageElement | null} sprite */
  open({ classes, groups, thumbnails }, sprite) {
    Object.assign(this, { points: classes, groups, sheet: thumbnails, sprite, hovered: null });
    this.hidden = new Set();
    this.widths.clear();
    this.groupOf = new Map(groups.map(({ name }, number) => [name, number]));
    this.choose(null);
    this.fit();
    this.root.dataset.map = this.map.name; // tests wait for it
  }

  /** Show the current image at its position and list its neighbors; null removes it. @param {Placed | null} placed */
  place(placed) {
    this.placed = placed;
    this.chosen = null;
    this.neighbours = placed?.highlight ? placed.neighbours.map(([index]) => index) : [];
    const count = placed?.neighbours.length;
    this.describe(
      placed?.name ?? "",
      `At the mean position of its ${count} nearest classes: t-SNE cannot project new images. Cosine distance to each class mean:`,
      placed?.neighbours ?? [],
    );
    if (placed) this.reach(placed);
    this.draw();
  }

  // ---- selection

  /** Select a class and list its neighbors; null clears the selection and the placed image. @param {number | null} index */
  choose(index) {
    const point = index === null ? null : this.points[index];
    const neighbours = point?.neighbours ?? [];
    Object.assign(this, { chosen: index, placed: null, neighbours: neighbours.map(([other]) => other) });
    this.describe(
      point?.name ?? "",
      point ? `${summary(point)}. Nearest classes by feature, with cosine distance:` : "",
      neighbours,
    );
    this.draw();
    this.emit("select", { index, key: point?.key ?? null });
  }

  /**
   * Select a class, center it and move the focus to its name; null clears a selected class, not the placed image:
   * the search field also sends null when the Tab key passes it.
   * @param {number | null} index
   */
  goTo(index) {
    if (index === null && this.chosen === null) return;
    this.choose(index);
    if (index === null) return;
    this.reveal(this.points[index]);
    this.find(".map-chosen h3").focus({ preventScroll: true });
  }

  /** @param {boolean} pictures */
  showPictures(pictures) {
    this.pictures = pictures;
    this.draw();
  }

  /** @param {string} title @param {string} words @param {[number, number][]} neighbours */
  describe(title, words, neighbours) {
    this.find(".map-chosen").hidden = !title;
    this.find(".map-chosen h3").textContent = title;
    this.find(".map-chosen p").textContent = words;
    this.find(".map-chosen ol").replaceChildren(
      ...neighbours.map(([index, distance]) => listItem(this.classButton(index, distance))),
    );
    this.legend();
    if (title) this.speak(`${title}. ${words}`);
  }

  /** The shorter the distance, the longer the bar. @param {number} index @param {number} distance  cosine, 0 to 2 */
  classButton(index, distance) {
    const button = this.groupButton(this.points[index].name, this.group(index), distance.toFixed(3));
    button.classList.add("map-class");
    button.style.setProperty("--share", `${Math.max(0, 100 * (1 - distance)).toFixed(1)}%`);
    if (this.sprite) button.prepend(Object.assign(document.createElement("span"), { className: "map-thumbnail" }));
    button.querySelector(".map-thumbnail")?.setAttribute("style", this.thumbnail(index));
    button.addEventListener("click", () => this.goTo(index));
    return button;
  }

  legend() {
    const buttons = this.groups.map(({ name }, group) => {
      const members = this.points.filter((_, index) => this.group(index) === group).length;
      const button = this.groupButton(name, group, String(members));
      button.setAttribute("aria-pressed", String(!this.hidden.has(group)));
      button.addEventListener("click", () => this.toggle(group));
      return members ? [listItem(button)] : [];
    });
    this.find(".map-legend").replaceChildren(...buttons.flat());
    /** @type {HTMLButtonElement} */ (this.find(".map-all")).disabled = this.hidden.size === 0;
  }

  /** A button with the mark of a group, a name and a number. @param {string} name @param {number} group @param {string} number */
  groupButton(name, group, number) {
    const button = document.createElement("button");
    button.type = "button";
    button.innerHTML = `<svg viewBox="-8 -8 16 16" aria-hidden="true"><path d="${SHAPES[group]}"/></svg><span></span><span class="map-soft"></span>`;
    button.querySelector("path")?.setAttribute("fill", this.groups[group].color);
    const [words, count] = button.querySelectorAll("span");
    words.textContent = name;
    count.textContent = number;
    return button;
  }

  /** @param {number} group */
  toggle(group) {
    if (!this.hidden.delete(group)) this.hidden.add(group);
    this.legend();
    const position = this.groups
      .slice(0, group)
      .filter(({ name }) => this.points.some((point) => point.group === name));
    this.find(".map-legend").querySelectorAll("button")[position.length]?.focus();
    this.draw();
  }

  /** Background that shows one thumbnail of the sheet at any size. @param {number} index */
  thumbnail(index) {
    const { sprite, sheet } = this;
    if (!sprite || !sheet) return "";
    const rows = sprite.naturalHeight / sheet.side;
    const share = (/** @type {number} */ position, /** @type {number} */ count) =>
      count > 1 ? (100 * position) / (count - 1) : 0;
    const position = `${share(index % sheet.columns, sheet.columns)}% ${share(Math.floor(index / sheet.columns), rows)}%`;
    return `background: url("${sprite.src}") ${position} / ${100 * sheet.columns}% ${100 * rows}%`;
  }

  /** @param {string} words */
  speak(words) {
    this.find(".map-spoken").textContent = words;
  }

  // ---- geometry

  get size() {
    return { width: this.canvas.clientWidth, height: this.canvas.clientHeight };
  }

  /** @param {number} index */
  group(index) {
    return this.groupOf?.get(this.points[index].group) ?? this.groups.length - 1;
  }

  /** Position of a map point on the canvas, in CSS pixels. @param {Point} point */
  at({ x, y }) {
    const { scale, left, top } = this.view;
    return { x: left + x * scale, y: top - y * scale };
  }

  /** @param {number} index */
  visible(index) {
    return !this.hidden.has(this.group(index));
  }

  /** @param {Point} place @returns {number | null} */
  nearest(place, radius = HIT_RADIUS) {
    let best = null;
    let least = radius ** 2;
    this.points.forEach((point, index) => {
      const { x, y } = this.at(point);
      const squared = (x - place.x) ** 2 + (y - place.y) ** 2;
      if (squared < least && this.visible(index)) [best, least] = [index, squared];
    });
    return best;
  }

  /** Show all points. */
  fit() {
    const { width, height } = this.size;
    if (!width || !this.points.length) return;
    const [xs, ys] = [this.points.map(({ x }) => x), this.points.map(({ y }) => y)];
    const [left, right] = [Math.min(...xs), Math.max(...xs)];
    const [low, high] = [Math.min(...ys), Math.max(...ys)];
    const scale = Math.min((width - 2 * MARGIN) / (right - left || 1), (height - 2 * MARGIN) / (high - low || 1));
    this.fitScale = scale;
    this.fitted = true;
    this.view = { scale, left: width / 2 - ((left + right) / 2) * scale, top: height / 2 + ((low + high) / 2) * scale };
    this.draw();
  }

  /** Zoom by a factor around a point that stays in place. @param {number} factor @param {Point} place */
  zoom(factor, place = { x: this.size.width / 2, y: this.size.height / 2 }) {
    this.fitted = false;
    this.view = zoomed(this.view, factor, place, this.fitScale / 2, MAX_ZOOM * this.fitScale);
    this.draw();
  }

  /** @param {number} right @param {number} down */
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
    const inside = (/** @type {number} */ value, /** @type {number} */ length) =>
      Math.min(length - MARGIN, Math.max(MARGIN, value));
    if (width) this.pan(inside(x, width) - x, inside(y, height) - y);
  }

  resize() {
    const { width, height } = this.size;
    if (!width) return; // the tab is hidden
    const ratio = devicePixelRatio || 1;
    Object.assign(this.canvas, { width: Math.round(width * ratio), height: Math.round(height * ratio) });
    if (this.fitted) this.fit();
    this.paint(); // a resized canvas is blank until the next frame
    this.update(); // the tab may have been hidden until now
  }

  // ---- pointer and keys

  listen() {
    const { canvas } = this;
    const keys = this.find(".map-keys");
    keys.id = `map-keys-${(nextId += 1)}`;
    canvas.setAttribute("aria-describedby", keys.id);
    const gestures = new Gestures(canvas, {
      zoom: (factor, at) => this.zoom(factor, at),
      pan: (right, down) => this.pan(right, down),
    });
    canvas.addEventListener("pointermove", (event) => {
      const place = { x: event.offsetX, y: event.offsetY };
      if (gestures.take(event)) this.hover(null);
      else this.hover(this.nearest(place), place);
    });
    for (const name of ["pointerleave", "blur"]) canvas.addEventListener(name, () => this.hover(null));
    canvas.addEventListener("dblclick", ({ offsetX, offsetY }) => this.zoom(2, { x: offsetX, y: offsetY }));
    canvas.addEventListener("click", ({ offsetX, offsetY }) => {
      if (!gestures.moved) this.choose(this.nearest({ x: offsetX, y: offsetY }));
    });
    canvas.addEventListener("keydown", (event) => {
      if (this.key(event)) event.preventDefault();
    });
    for (const button of /** @type {NodeListOf<HTMLElement>} */ (this.root.querySelectorAll("[data-zoom]"))) {
      const factor = BUTTON_ZOOM[button.dataset.zoom ?? ""];
      button.addEventListener("click", () => (factor ? this.zoom(factor) : this.fit()));
    }
    this.find(".map-close").addEventListener("click", () => {
      this.choose(null);
      canvas.focus(); // the button is hidden now
    });
    this.find(".map-all").addEventListener("click", () => {
      this.hidden.clear();
      this.legend();
      this.draw();
    });
    new ResizeObserver(() => this.resize()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  /** @param {number | null} index @param {Point | null} place */
  hover(index, place = index === null ? null : this.at(this.points[index])) {
    if (index === null && this.hovered === null) return;
    const changed = index !== this.hovered;
    this.hovered = index;
    const tip = this.find(".map-tip");
    tip.hidden = index === null || !place;
    if (index !== null && place) this.showTip(tip, index, place);
    if (changed) this.draw();
  }

  /** @param {HTMLElement} tip @param {number} index @param {Point} place */
  showTip(tip, index, place) {
    const point = this.points[index];
    this.find(".map-tip strong").textContent = point.name;
    this.find(".map-tip .map-soft").textContent = summary(point);
    const thumbnail = this.find(".map-tip .map-thumbnail");
    thumbnail.hidden = !this.sprite;
    thumbnail.style.cssText = this.thumbnail(index);
    const { width, height } = this.size;
    tip.style.left = `${Math.max(0, Math.min(place.x + 16, width - tip.offsetWidth - 8))}px`;
    const above = place.y + 16 + tip.offsetHeight > height;
    tip.style.top = `${Math.max(0, above ? place.y - 16 - tip.offsetHeight : place.y + 16)}px`;
    this.speak(`${point.name}, ${summary(point)}`);
  }

  /** Handle a key; returns whether it had a meaning. @param {KeyboardEvent} event */
  key({ key, shiftKey, ctrlKey, metaKey, altKey }) {
    if (ctrlKey || metaKey || altKey) return false;
    const arrow = ARROWS[key];
    if (arrow && shiftKey) this.pan(-KEY_PAN * arrow[0], -KEY_PAN * arrow[1]);
    else if (arrow) this.step(...arrow);
    else if (key === "Enter" || key === " ") this.choose(this.hovered);
    else if (key === "+" || key === "=") this.zoom(KEY_ZOOM);
    else if (key === "-") this.zoom(1 / KEY_ZOOM);
    else if (key === "0") this.fit();
    else if (key === "Escape") this.choose(null);
    else return false;
    return true;
  }

  /** Move to the nearest class in a direction; sideways distance counts twice. @param {number} right @param {number} down */
  step(right, down) {
    const { width, height } = this.size;
    const start = this.hovered ?? this.chosen;
    const from = start === null ? { x: width / 2, y: height / 2 } : this.at(this.points[start]);
    const cost = (/** @type {number} */ index) => {
      const { x, y } = this.at(this.points[index]);
      const along = (x - from.x) * right + (y - from.y) * down;
      const aside = Math.abs((x - from.x) * down) + Math.abs((y - from.y) * right);
      return along > 0 && index !== start && this.visible(index) ? along + 2 * aside : Infinity;
    };
    const best =
      start === null
        ? this.nearest(from, Infinity)
        : this.points.reduce((least, _, index) => (cost(index) < cost(least) ? index : least), start);
    if (best === null || best === start) return;
    this.reach(this.points[best]);
    this.hover(best);
  }

  // ---- drawing

  /** Draw once, in the next frame. */
  draw() {
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => this.paint());
  }

  paint() {
    const { context, canvas } = this;
    const { width, height } = this.size;
    if (!width) return;
    const ratio = canvas.width / width;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    const style = getComputedStyle(canvas);
    Object.assign(this, { ink: style.color, paper: style.backgroundColor, accent: style.caretColor });
    context.font = `12px ${style.fontFamily}`;
    this.drawLines();
    const order = this.points.map((_, index) => index).filter((index) => this.visible(index));
    order.sort((one, other) => this.weight(one) - this.weight(other)); // important points on top
    for (const index of order) this.drawMark(index);
    if (this.placed) this.drawStar(this.placed);
    this.drawLabels(order.reverse());
  }

  ink = "";
  paper = "";
  accent = "";
  /** @type {Map<string, number> | undefined} */
  groupOf;

  /** Half the side of a mark; thumbnails fill the space that points have on average. */
  get half() {
    if (!this.pictures || !this.sprite) return MARK_RADIUS;
    const { width, height } = this.size;
    const space = Math.sqrt((width * height) / this.points.length) * (this.view.scale / this.fitScale);
    return Math.min(THUMBNAIL_SIDE[1], Math.max(THUMBNAIL_SIDE[0], space)) / 2;
  }

  /** Importance of a point. @param {number} index */
  weight(index) {
    if (index === this.hovered) return 3;
    if (index === this.chosen) return 2;
    return this.neighbours.includes(index) ? 1 : 0;
  }

  /** @param {number} index */
  faint(index) {
    return (this.chosen !== null || this.neighbours.length > 0) && this.weight(index) === 0;
  }

  /** Lines from the chosen class, or the placed image, to its neighbors. */
  drawLines() {
    const center = this.chosen !== null ? this.points[this.chosen] : this.placed;
    if (!center) return;
    const from = this.at(center);
    Object.assign(this.context, { strokeStyle: this.accent, globalAlpha: 0.55, lineWidth: 1.25 });
    this.context.beginPath();
    for (const index of this.neighbours) {
      const to = this.at(this.points[index]);
      this.context.moveTo(from.x, from.y);
      this.context.lineTo(to.x, to.y);
    }
    this.context.stroke();
    this.context.globalAlpha = 1;
  }

  /** @param {number} index */
  drawMark(index) {
    const { context, half, sprite, sheet } = this;
    const { x, y } = this.at(this.points[index]);
    const { color } = this.groups[this.group(index)];
    context.globalAlpha = this.faint(index) ? FAINT : 1;
    if (this.pictures && sprite && sheet) {
      const [column, row] = [index % sheet.columns, Math.floor(index / sheet.columns)];
      const [side, box] = [sheet.side, /** @type {Box} */ ([x - half, y - half, 2 * half, 2 * half])];
      context.drawImage(sprite, column * side, row * side, side, side, ...box);
      Object.assign(context, { strokeStyle: color, lineWidth: 2 });
      context.strokeRect(...box);
    } else {
      context.save();
      context.translate(x, y);
      if (this.weight(index)) context.scale(1.4, 1.4);
      context.fillStyle = color;
      context.fill(this.paths[this.group(index)]);
      context.restore();
    }
    if (index === this.chosen || index === this.hovered) this.drawRing(x, y, half * 1.5 + 4);
    context.globalAlpha = 1;
  }

  /** @param {number} x @param {number} y @param {number} radius */
  drawRing(x, y, radius) {
    Object.assign(this.context, { strokeStyle: this.accent, lineWidth: 2 });
    this.context.beginPath();
    this.context.arc(x, y, radius, 0, 2 * Math.PI);
    this.context.stroke();
  }

  /** The current image. @param {Point} placed */
  drawStar(placed) {
    const { context, paths } = this;
    const { x, y } = this.at(placed);
    const star = paths[paths.length - 1];
    context.save();
    context.translate(x, y);
    context.scale(1.9, 1.9);
    Object.assign(context, { fillStyle: this.accent, strokeStyle: this.paper, lineWidth: 0.8 });
    context.fill(star);
    context.stroke(star);
    context.restore();
    this.drawRing(x, y, 17);
  }

  /** Names next to their marks, important ones first, without covering other names or marks. @param {number[]} order */
  drawLabels(order) {
    const { context, half } = this;
    Object.assign(context, { textBaseline: "middle", lineJoin: "round", lineWidth: 3, strokeStyle: this.paper });
    /** @type {Box[]} */
    const taken = [];
    /** @type {Label[]} */
    const labels = order
      .filter((index) => !this.faint(index))
      .map((index) => {
        const at = this.at(this.points[index]);
        taken.push([at.x - half, at.y - half, at.x + half, at.y + half]);
        return { text: this.points[index].name, at, half, color: this.ink, required: this.weight(index) > 0 };
      });
    if (this.placed) {
      const text = `image: ${shortened(this.placed.name)}`;
      labels.unshift({ text, at: this.at(this.placed), half: 17, color: this.accent, required: true });
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

  /** Where a label fits: the first free side; a required one takes the least covered side. @param {Label} label @param {Box[]} taken @returns {Box | undefined} */
  boxFor({ text, at, half, required }, taken) {
    const { width, height } = this.size;
    if (at.x < 0 || at.y < 0 || at.x > width || at.y > height) return undefined;
    if (!this.widths.has(text)) this.widths.set(text, this.context.measureText(text).width);
    const length = this.widths.get(text) ?? 0;
    const sides = [
      [at.x + half + 5, at.y - LINE_HEIGHT / 2],
      [at.x - half - 5 - length, at.y - LINE_HEIGHT / 2],
      [at.x - length / 2, at.y - half - LINE_HEIGHT - 2],
      [at.x - length / 2, at.y + half + 2],
    ];
    const boxes = sides.map(([left, top]) => /** @type {Box} */ ([left, top, left + length, top + LINE_HEIGHT]));
    const inside = boxes.filter(([left, , right]) => left >= 4 && right <= width - 4);
    const covered = (/** @type {Box} */ box) => taken.filter((other) => overlap(box, other)).length;
    const candidates = required && !inside.length ? boxes : inside;
    const best = candidates.reduce((/** @type {Box | undefined} */ least, box) => {
      return least && covered(least) <= covered(box) ? least : box;
    }, undefined);
    return best && (required || covered(best) === 0) ? best : undefined;
  }
}

/** @param {ClassPoint} point */
function summary({ group, pictures }) {
  return `${group}, ${pictures === 1 ? "1 image" : `${pictures} images`}`;
}

/** @param {HTMLElement} child */
function listItem(child) {
  const item = document.createElement("li");
  item.append(child);
  return item;
}

/** Beginning and end of a long name. @param {string} name */
function shortened(name) {
  return name.length > MAX_LABEL ? `${name.slice(0, MAX_LABEL - 9)}…${name.slice(-8)}` : name;
}

/** @param {Box} one @param {Box} other */
function overlap(one, other) {
  return one[2] >= other[0] && other[2] >= one[0] && one[3] >= other[1] && other[3] >= one[1];
}

/**
 * SVG path of a regular polygon, first corner up and then turned by `turn` degrees; every second corner at `inner`.
 * @param {number} corners @param {number} turn @param {number} radius
 */
function polygon(corners, turn, radius, inner = radius) {
  const places = Array.from({ length: corners }, (_, corner) => {
    const angle = ((turn + (360 * corner) / corners) * Math.PI) / 180;
    const distance = corner % 2 ? inner : radius;
    return `${(distance * Math.sin(angle)).toFixed(2)} ${(-distance * Math.cos(angle)).toFixed(2)}`;
  });
  return `M${places.join("L")}z`;
}

/** @param {string} address @returns {Promise<any>} */
async function fetchJson(address) {
  const answer = await fetch(new URL(address, document.baseURI));
  if (!answer.ok) throw new Error(`${address}: found status ${answer.status}, expected 200`);
  return answer.json();
}

/** @param {string} address */
async function loadImage(address) {
  const image = new Image();
  image.src = new URL(address, document.baseURI).href;
  await image.decode();
  return image;
}
