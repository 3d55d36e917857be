// Two images and one model: the right image shows what is similar to the patch under the pointer: `app.views.view`.
//
// The prop `value` is the encoding of the left image. The prop `matched` is { a, b, ratio, scale, scales, matches,
// directions }: the token of the left image, the encoding of the right one, mutual nearest neighbors, and the address of
// the vectors whose cosines are computed here.

import { decodeTokens, tokenCosineMaps } from "../maths/attention.js";
import { decimals } from "../maths/format.js";
import { displayRange, drawnSize } from "../maths/levels.js";
import { samePatch } from "../maths/pins.js";
import { el, svg } from "./dom.js";
import { Encoding, fetchBytes, memory } from "./encoding.js";
import { shownSection } from "./export.js";
import { LIGHT } from "./paint.js";
import { STAGE_PIXELS, Stage } from "./stage.js";
import { colorBar } from "./tiles.js";
import { View } from "./view.js";

const MAX_LINES = 100; // of the matches with the largest cosines
const PIXELS_PER_LINE = 8; // of the width of both images: on a phone, more lines would hide the images
const KEYS =
  "Move the pointer or use the arrow keys to choose a patch; the other image shows what is similar. Escape returns.";

export class PairView extends View {
  images = []; // encodings, the left one first
  shown = null; // the prop `matched`
  directions = null; // of the patches of the left image as prefix tokens, then of the right one
  side = 0; // of the image that is pointed at
  hovered = null; // its patch
  found = el("p", { class: "lab-found" });
  lines = svg("svg", { class: "lab-lines", "stroke-width": 1.5, "aria-hidden": "true" });
  scale = colorBar();
  stages = ["Left image", "Right image"].map((label, side) => {
    const point = (place) => this.point(side, place);
    const key = (event) => event.key === "Escape" && (point(null), true);
    return new Stage(`${label}: point at a patch`, KEYS, { point, press: point, key });
  });
  stage = this.stages[0]; // shows what is opened
  what = el("span", { class: "lab-chip lab-what" });
  pair = el("div", { class: "lab-pair" }, ...this.stages.map(({ cell }) => cell), this.lines);

  constructor(mounted) {
    super(mounted);
    this.stages[1].cell.append(el("div", { class: "lab-bottom" }, this.what, this.scale));
    this.mount(["value", "matched"], this.pair, this.found);
  }

  async load(signal) {
    const { value, matched } = this.props;
    if (!value.token) return;
    this.emitShown(value.token); // the server computes the matches
    if (matched?.a !== value.token) return this.wait(value);
    if (matched === this.shown) return;
    const { b } = matched;
    const directions = await memory.remembered(`directions/${value.token}/${b.token}`, async () => {
      const bytes = await fetchBytes(matched.directions, signal); // the same for every ratio
      const prefix = value.rows * value.columns;
      const tokens = prefix + b.rows * b.columns;
      return [decodeTokens(bytes, { tokens, prefix }), 2 * bytes.byteLength];
    });
    return { value, matched, directions };
  }

  /** Find the most similar patch of the other image, with the cosines of all. @param {number} side @param {Patch} patch */
  counterpart(side, { row, column }) {
    const { images, directions } = this;
    const { features, dim, tokens, prefix } = directions;
    const at = row * images[side].columns + column;
    const others = side ? { features, dim, tokens: prefix, prefix: 0 } : { features, dim, tokens, prefix };
    const [map] = tokenCosineMaps(others, side ? prefix + at : at);
    const best = map.indexOf(Math.max(...map));
    const { columns } = images[1 - side];
    return { map, cosine: map[best], patch: { row: Math.floor(best / columns), column: best % columns } };
  }

  sections() {
    return [shownSection(this.pair)];
  }

  /** Show the left image at once; the rest follows. @param {EncodingValue & { name: string }} value */
  wait(value) {
    this.shown = null;
    this.lines.replaceChildren();
    this.stage.preview(value);
  }

  show({ value, matched, directions }) {
    const images = [new Encoding(value), new Encoding(matched.b)];
    if (this.images.some(({ token }, side) => token !== images[side].token)) this.hovered = null;
    Object.assign(this, { images, encoding: images[0], directions, shown: matched });
    this.stages.forEach((stage, side) => stage.show(images[side]));
    this.render();
    this.element.dataset.token = `${value.token} ${matched.b.token} ${matched.ratio}`; // tests wait for it
  }

  render() {
    if (!this.shown) return;
    const { images, stages } = this;
    const side = this.hovered ? this.side : 0;
    const patch = this.hovered ?? images[0].pinned ?? images[0].patchAt({ x: 0.5, y: 0.5 });
    const found = this.counterpart(side, patch);
    const size = drawnSize(images[1 - side], STAGE_PIXELS);
    stages[side].draw([], images[side], patch);
    stages[side].canvas.clear();
    stages[1 - side].draw([], images[1 - side], found.patch);
    stages[1 - side].canvas.values(found.map, images[1 - side], size, displayRange(found.map), LIGHT);
    this.scale.hidden = false;
    this.what.textContent = `Most similar: cosine ${decimals(found.cosine)}`;
    const places = [patch, found.patch].map(({ row, column }) => `Row ${row}, column ${column}. `);
    this.spoken.textContent = places.join("") + this.what.textContent;
    this.drawLines();
  }

  drawLines() {
    const { shown, images, stages, lines } = this;
    const box = this.pair.getBoundingClientRect();
    if (!shown || !box.width) return;
    lines.setAttribute("viewBox", `0 0 ${box.width} ${box.height}`);
    lines.setAttribute("opacity", this.hovered ? "0.15" : "1");
    const [inA, inB] = stages.map((stage, side) => {
      const { width, height } = images[side];
      const sheet = stage.sheet.getBoundingClientRect();
      const place = (start, length, pixel, pixels) => start + (length * (pixel + 0.5)) / pixels;
      return ([y, x]) => [
        place(sheet.left - box.left, sheet.width, x, width),
        place(sheet.top - box.top, sheet.height, y, height),
      ];
    });
    const drawn = shown.matches.slice(0, Math.min(MAX_LINES, Math.round(box.width / PIXELS_PER_LINE)));
    const some = drawn.length < shown.matches.length ? `, the best ${drawn.length} drawn` : "";
    const none = "No patches match: point at single patches.";
    this.found.textContent = shown.matches.length ? `${shown.matches.length} mutual nearest neighbors${some}.` : none;
    const color = ([y]) => `hsl(${Math.round(240 - (240 * (y + 0.5)) / images[0].height)} 90% 60%)`; // by height in the left image
    lines.replaceChildren(...drawn.map((match) => line(inA(match.a), inB(match.b), color(match.a))));
  }

  resized() {
    this.drawLines();
  }

  /** @param {number} side @param {Place} place  null: the pointer has left */
  point(side, place) {
    const patch = place && this.images[side]?.patchAt(place);
    if (!this.shown || (side === this.side && samePatch(patch, this.hovered))) return;
    Object.assign(this, { side, hovered: patch });
    this.render();
  }
}

/** @param {number[]} from @param {number[]} to @param {string} color */
function line([x1, y1], [x2, y2], color) {
  const dot = (cx, cy) => svg("circle", { cx, cy, r: 3, fill: color });
  return svg("g", { class: "lab-mutual" }, svg("line", { x1, y1, x2, y2, stroke: color }), dot(x1, y1), dot(x2, y2));
}
