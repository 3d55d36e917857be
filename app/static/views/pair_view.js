// Two images seen by one model: the patch under the pointer, and what is similar in the other image. The view behind
// `app.views.pair_view`.
//
// The prop `value` is the encoding of the first image. The prop `matched` is { a, b, ratio, scale, scales, matches,
// directions }: the token of the first, the encoding of the second, and where vectors for cosines are fetched. The server
// finds the mutual nearest neighbors; all cosines of a patch are computed here.

import { decodeTokens, tokenCosineMaps } from "../maths/attention.js";
import { decimals, fromBase64 } from "../maths/format.js";
import { displayRange, drawnSize } from "../maths/levels.js";
import { Pins, samePatch } from "../maths/pins.js";
import { read, write } from "./address.js";
import { el, find, style, svg } from "./dom.js";
import { Encoding, Refusal, fetchBytes, memory } from "./encoding.js";
import { Newest } from "./newest.js";
import { LIGHT } from "./paint.js";
import { COLORS } from "./palette.js";
import { Stage } from "./stage.js";
import { scaleBelow, tellScale } from "./tiles.js";
import { STAGE_PIXELS } from "./viewer.js";

/**
 * @typedef {{ a: [number, number], b: [number, number], cosine: number, ratio: number }} Match  y and x in pixels
 * @typedef {{ a: Encoding, b: Encoding, ratio: number, scale: number, scales: number[], matches: Match[], directions: Features }} Matched
 *   directions: of every patch of A as prefix tokens, then of B; b: at the scale with the most matches
 */

const MAX_LINES = 100; // of the matches with the highest cosines
const PIXELS_PER_LINE = 10; // of the pair's width: more lines would hide the images of a phone
const KEYS =
  "Move the pointer or use the arrow keys to choose a patch of the left image; the right one shows what is similar. Enter pins the pair, Delete removes it, Escape returns, Control Z undoes.";

export class PairView {
  /** @param {Mounted} mounted */
  constructor({ element, props, watch, emit, server = null }) {
    this.element = element;
    this.props = props;
    this.emit = emit;
    this.server = server;
    for (const sheet of ["views.css", "masks.css"]) style(element, new URL(sheet, import.meta.url).href);
    this.settings = { lines: true };
    /** @type {Matched | null} */
    this.shown = null;
    /** @type {Patch | null} */
    this.hovered = null;
    this.words = props.address ? read() : {};
    this.pins = new Pins(COLORS.pins);
    this.newest = new Newest();
    this.loaded = "";
    this.halves = halves();
    this.lines = svg("svg", { class: "lab-lines", "aria-hidden": "true" });
    this.pair = el("div", { class: "lab-pair" }, ...this.halves);
    this.pair.append(this.lines);
    const undo = () => this.changePins(() => this.pins.undo());
    const clear = () => this.changePins(() => this.pins.clear());
    this.undo = el("button", { type: "button", class: "lab-undo", onclick: undo }, "Undo");
    this.clear = el("button", { type: "button", onclick: clear }, "Clear the pins");
    element.classList.add("lab-match");
    element.replaceChildren(
      el("p", { class: "lab-problem", role: "alert", hidden: true }),
      this.pair,
      el("div", { class: "lab-tools" }, el("p", { class: "lab-found" }), this.undo, this.clear),
      el("p", { class: "lab-spoken", "aria-live": "polite" }),
    );
    this.left = new Stage(find(this.halves[0], ".lab-stage"), {
      point: (place) => this.hover(this.first.patchAt(place)),
      leave: () => this.hover(null),
      press: (place) => this.changePins(() => this.pins.pin(this.first.patchAt(place), this.first)),
      undo,
      remove: () => this.changePins(() => this.pins.remove(this.pins.active)),
      rest: () => this.changePins(() => (this.pins.active = null)),
      look: () => this.drawLines(),
    });
    this.right = new Stage(find(this.halves[1], ".lab-stage"), { look: () => this.drawLines() });
    this.scale = scaleBelow(this.right.element);
    this.waiting = false;
    watch(["value", "matched"], () => this.look());
    new ResizeObserver(() => (this.waiting ? this.look() : this.drawLines())).observe(element);
    this.look();
  }

  /** Change settings. @param {Partial<PairView["settings"]>} settings */
  set(settings) {
    Object.assign(this.settings, settings);
    this.drawLines();
  }

  /** @param {string} sentence */
  refuse(sentence) {
    Object.assign(find(this.element, ".lab-problem"), { textContent: sentence, hidden: false });
  }

  // ---- a pair

  async look() {
    const { value, matched } = this.props;
    this.waiting = !this.element.getClientRects().length;
    if (this.waiting || !value?.token) return;
    if (this.loaded !== value.token) {
      this.loaded = value.token;
      this.emit("shown", { token: value.token }); // the server is asked for the matches
    }
    if (matched?.a !== value.token || matched === this.told) return;
    try {
      const directions = await this.newest.run((signal) => this.directions(matched, value, signal));
      if (!directions) return;
      this.told = matched;
      this.show({ ...matched, a: new Encoding(value), b: new Encoding(matched.b), directions });
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      this.refuse(error.message);
    }
  }

  /** @type {any} */
  told;

  /** Vectors of both images, the same for every ratio; fetched once. @param {any} matched @param {Told} a @param {AbortSignal} signal @returns {Promise<Features>} */
  async directions({ directions, b }, a, signal) {
    const key = `directions/${a.token}/${b.token}`;
    const known = memory.get(key);
    if (known) return known;
    const bytes = directions
      ? await fetchBytes(directions, signal)
      : fromBase64(await this.server?.fetch_directions?.([a.token, b.token])).buffer;
    const prefix = a.rows * a.columns;
    const found = decodeTokens(bytes, { heads: 1, tokens: prefix + b.rows * b.columns, prefix });
    return memory.put(key, found, 2 * bytes.byteLength);
  }

  /** @param {Matched} matched */
  show(matched) {
    const { a, b } = matched;
    const another = this.shown?.a.photo !== a.photo;
    if (this.shown?.a.token !== a.token) this.hovered = null; // at another size it may be beyond the last patch
    this.shown = matched;
    this.left.show(a);
    this.right.show(b);
    find(this.element, ".lab-problem").hidden = true;
    if (another) this.pins.read({ pins: this.words.pins ?? "", patch: this.words.patch ?? "" }, a);
    else this.pins.read(this.pins.written(a), a);
    this.words = {};
    this.render();
    this.element.dataset.token = `${a.token} ${b.token} ${matched.ratio}`; // says what is on the screen
  }

  /** @param {Matched} matched @param {number} drawn  number of lines */
  summary({ matches, scale, scales }, drawn) {
    const tried = `at ${scales.slice(0, -1).join(", ")} and ${scales.at(-1)} times its size`;
    if (!matches.length) return `No patches match, with the second image ${tried}: point at single patches.`;
    const some = drawn && drawn < matches.length ? `, the best ${drawn} drawn` : "";
    return `${matches.length} mutual nearest neighbors${some}. The second image was tried ${tried}; ${scale} has the most.`;
  }

  // ---- pins

  get first() {
    return /** @type {Matched} */ (this.shown).a;
  }

  /** The patch under the pointer, pinned last, or on the object of an example. */
  get patch() {
    const { active } = this.pins;
    return this.hovered ?? (active ? this.first.patchAt(active) : this.first.pinned);
  }

  /** @param {Patch | null} patch */
  hover(patch) {
    if (!this.shown || samePatch(patch, this.hovered)) return;
    this.hovered = patch;
    this.render();
  }

  /** @param {() => void} action */
  changePins(action) {
    if (!this.shown) return;
    action();
    this.render();
  }

  /** Cosines of a patch of the first with every patch of the second. @param {Patch} patch */
  cosines({ row, column }) {
    const { a, directions } = /** @type {Matched} */ (this.shown);
    return tokenCosineMaps(directions, row * a.columns + column)[0];
  }

  /** The most similar patch of the second. @param {Patch} patch */
  counterpart(patch) {
    const { columns } = /** @type {Matched} */ (this.shown).b;
    const map = this.cosines(patch);
    let best = 0;
    for (let at = 1; at < map.length; at++) if (map[at] > map[best]) best = at;
    return { map, cosine: map[best], patch: { row: Math.floor(best / columns), column: best % columns } };
  }

  /** What is on the screen, as arguments of the files. */
  get request() {
    const { shown } = this;
    if (!shown) return null;
    const { a, b, ratio } = shown;
    const pins = this.pins.list.map((pin) => ({ ...a.patchAt(pin), color: pin.color }));
    return { a: a.token, b: b.token, ratio, pins, lines: this.settings.lines, names: [a.name, b.name] };
  }

  // ---- what is seen

  render() {
    const { pins, patch, left, right } = this;
    const { a, b } = /** @type {Matched} */ (this.shown);
    const color = this.hovered ? "#fff" : (pins.active?.color ?? "#fff");
    const found = patch && this.counterpart(patch);
    left.draw([], patch, color);
    right.draw([], found?.patch, color);
    const range = found && displayRange(found.map, "median", false);
    if (range) right.canvas.values(found.map, b, drawnSize(b, STAGE_PIXELS), range, LIGHT);
    else right.canvas.clear();
    tellScale(this.scale, range && [`${decimals(range[0])} or less`, `${decimals(range[1])} or more`]);
    left.mark(pins.list);
    right.mark(pins.list.map((pin) => ({ ...b.placeOf(this.counterpart(a.patchAt(pin)).patch), color: pin.color })));
    const where = (/** @type {Patch} */ { row, column }, /** @type {Encoding} */ { rows, columns }) =>
      `Row ${row}, column ${column} of ${rows} × ${columns} patches`;
    const words = found
      ? [
          where(/** @type {Patch} */ (patch), a),
          where(found.patch, b),
          `Most similar: cosine ${decimals(found.cosine)}`,
        ]
      : ["", "", ""];
    find(this.halves[0], ".lab-where").textContent = words[0];
    find(this.halves[1], ".lab-where").textContent = words[1];
    find(this.halves[1], ".lab-what").textContent = words[2];
    find(this.element, ".lab-spoken").textContent = words.filter(Boolean).join(". ");
    this.undo.disabled = !pins.history.length;
    this.clear.disabled = !pins.list.length;
    if (this.props.address) write(pins.written(a), {});
    this.drawLines();
  }

  /** Lines between the best matches, and over them those of the pins. */
  drawLines() {
    const { shown, pins, left, right, lines } = this;
    const box = this.pair.getBoundingClientRect();
    if (!shown || !box.width) return;
    const { a, b, matches } = shown;
    lines.setAttribute("viewBox", `0 0 ${box.width} ${box.height}`);
    lines.toggleAttribute("data-asked", Boolean(this.hovered));
    const on = (/** @type {Stage} */ stage) => {
      const { left: x, top: y, width, height } = stage.sheet.getBoundingClientRect();
      return (/** @type {Place} */ place) => ({ x: x - box.left + place.x * width, y: y - box.top + place.y * height });
    };
    const [inA, inB] = [on(left), on(right)];
    const share = (/** @type {[number, number]} */ [y, x], /** @type {Encoding} */ { width, height }) => ({
      x: (x + 0.5) / width,
      y: (y + 0.5) / height,
    });
    const most = Math.min(MAX_LINES, Math.round(box.width / PIXELS_PER_LINE));
    const mutual = this.settings.lines ? matches.slice(0, most) : [];
    find(this.element, ".lab-found").textContent = this.summary(shown, mutual.length);
    lines.replaceChildren(
      ...mutual.map((match) => {
        const from = share(match.a, a);
        return line(inA(from), inB(share(match.b, b)), hue(from.y), "lab-mutual");
      }),
      ...pins.list.map((pin) => {
        const patch = a.patchAt(pin);
        return line(inA(a.placeOf(patch)), inB(b.placeOf(this.counterpart(patch).patch)), pin.color, "lab-pinned");
      }),
    );
  }
}

/** The elements of both images: a stage and what is under the pointer. */
function halves() {
  const half = (/** @type {string} */ label, /** @type {Record<string, any>} */ stage, hint = "") =>
    el(
      "section",
      { class: "lab-side", "aria-label": label },
      el("div", { class: "lab-stage", ...stage }),
      el("p", { class: "lab-readout" }, el("span", { class: "lab-where" }), el("span", { class: "lab-what" }, hint)),
    );
  const pointed = {
    tabindex: 0,
    role: "application",
    "aria-label": "Left image: point at a patch",
    "aria-description": KEYS,
  };
  const lit = { role: "group", "aria-label": "Right image: patches similar to the chosen one" };
  return [
    half(
      "The image of the header",
      pointed,
      "Point at a patch or tap it: similar patches light up in the other image.",
    ),
    half("The second image", lit),
  ];
}

/** @param {Place} from @param {Place} to @param {string} color @param {string} kind */
function line(from, to, color, kind) {
  const ends = { x1: from.x, y1: from.y, x2: to.x, y2: to.y };
  const dot = (/** @type {Place} */ { x, y }) => svg("circle", { cx: x, cy: y, r: 3, fill: color });
  const edge = kind === "lab-pinned" ? [svg("line", { ...ends, class: "lab-edge" })] : [];
  return svg("g", { class: kind }, ...edge, svg("line", { ...ends, stroke: color }), dot(from), dot(to));
}

/** A color by how far down a match starts, as a share. @param {number} y */
function hue(y) {
  return `hsl(${Math.round(240 - 240 * y)} 90% 60%)`;
}
