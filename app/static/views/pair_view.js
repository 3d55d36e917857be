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
import { LIGHT } from "./paint.js";
import { STAGE_PIXELS, Stage } from "./stage.js";
import { colorBar } from "./tiles.js";
import { View } from "./view.js";

const MAX_LINES = 100; // of the matches with the largest cosines
const PIXELS_PER_LINE = 8; // of the width of both images: on a phone, more lines would hide the images
const HINT = "Point at a patch or tap it: similar patches light up in the other image.";
const KEYS =
  "Move the pointer or use the arrow keys to choose a patch of the left image; the right one shows what is similar. Escape returns.";

export class PairView extends View {
  a = null;
  b = null;
  shown = null; // the prop `matched`
  directions = null; // of the patches of A as prefix tokens, then of B
  hovered = null;
  found = el("p", { class: "lab-found" });
  lines = svg("svg", { class: "lab-lines", "stroke-width": 1.5, "aria-hidden": "true" });
  scale = colorBar();
  left = new Stage("Left image: point at a patch", KEYS, this);
  right = new Stage("Right image: similar patches", "It follows the left image.", {});
  where = [el("span", { class: "lab-chip lab-where" }), el("span", { class: "lab-chip lab-where" })]; // of the patch in each image
  what = el("span", { class: "lab-chip lab-what" }, HINT);
  pair = el("div", { class: "lab-pair" }, this.left.cell, this.right.cell, this.lines);

  constructor(mounted) {
    super(mounted);
    const words = (...parts) => el("div", { class: "lab-bottom" }, ...parts);
    this.left.cell.append(words(this.where[0]));
    this.right.cell.append(words(this.where[1], this.what, this.scale));
    this.mount(["value", "matched"], this.pair, this.found);
  }

  resized() {
    this.drawLines();
  }

  async load(signal) {
    const { value, matched } = this.props;
    if (!value.token) return;
    this.emitShown(value.token); // the server computes the matches
    if (matched?.a !== value.token || matched === this.shown) return;
    return { value, matched, directions: await this.fetchDirections(matched, value, signal) };
  }

  /** Fetch the vectors of both images, which are the same for every ratio. @returns {Promise<Features>} */
  async fetchDirections({ directions, b }, a, signal) {
    return memory.remembered(`directions/${a.token}/${b.token}`, async () => {
      const bytes = await fetchBytes(directions, signal);
      const prefix = a.rows * a.columns;
      const found = decodeTokens(bytes, { heads: 1, tokens: prefix + b.rows * b.columns, prefix });
      return [found, 2 * bytes.byteLength];
    });
  }

  show({ value, matched, directions }) {
    const before = this.a;
    const [a, b] = [new Encoding(value), new Encoding(matched.b)];
    if (before?.token !== a.token) this.hovered = null; // another size may have fewer patches
    Object.assign(this, { a, b, directions, shown: matched });
    this.left.show(a);
    this.right.show(b);
    this.render();
    this.element.dataset.token = `${a.token} ${b.token} ${matched.ratio}`; // tests wait for it
  }

  /** The patch under the pointer, or the object of an example. */
  get patch() {
    return this.hovered ?? this.a.pinned;
  }

  point(place) {
    const patch = place && this.a?.patchAt(place);
    if (!this.shown || samePatch(patch, this.hovered)) return;
    this.hovered = patch;
    this.render();
  }

  press(place) {
    this.point(place);
  }

  key({ key }) {
    if (key === "Escape") this.point(null);
    return key === "Escape";
  }

  /** Find the most similar patch of the right image, with the cosines of all. @param {Patch} patch */
  counterpart({ row, column }) {
    const { a, b, directions } = this;
    const [map] = tokenCosineMaps(directions, row * a.columns + column);
    const best = map.indexOf(Math.max(...map));
    return { map, cosine: map[best], patch: { row: Math.floor(best / b.columns), column: best % b.columns } };
  }

  render() {
    if (!this.shown) return;
    const { a, b, patch, left, right } = this;
    const found = patch && this.counterpart(patch);
    left.draw([], a, patch);
    right.draw([], b, found?.patch);
    const range = found && displayRange(found.map);
    if (range) right.canvas.values(found.map, b, drawnSize(b, STAGE_PIXELS), range, LIGHT);
    else right.canvas.clear();
    this.scale.hidden = !range;
    const where = ({ rows, columns }, one) =>
      one ? `Row ${one.row}, column ${one.column} of ${rows} × ${columns}` : "";
    this.where[0].textContent = where(a, patch);
    this.where[1].textContent = where(b, found?.patch);
    this.what.textContent = found ? `Most similar: cosine ${decimals(found.cosine)}` : HINT;
    this.spoken.textContent = [...this.where, this.what].map((part) => part.textContent).join(". ");
    this.drawLines();
  }

  /** Draw lines between the best matches. */
  drawLines() {
    const { shown, a, b, left, right, lines } = this;
    const box = this.pair.getBoundingClientRect();
    if (!shown || !box.width) return;
    lines.setAttribute("viewBox", `0 0 ${box.width} ${box.height}`);
    lines.setAttribute("opacity", this.hovered ? "0.15" : "1");
    const on = (stage, { width, height }) => {
      const sheet = stage.sheet.getBoundingClientRect();
      const place = (start, length, pixel, pixels) => start + (length * (pixel + 0.5)) / pixels;
      return ([y, x]) => [
        place(sheet.left - box.left, sheet.width, x, width),
        place(sheet.top - box.top, sheet.height, y, height),
      ];
    };
    const [inA, inB] = [on(left, a), on(right, b)];
    const drawn = shown.matches.slice(0, Math.min(MAX_LINES, Math.round(box.width / PIXELS_PER_LINE)));
    this.found.textContent = this.summary(drawn.length);
    const color = ([y]) => `hsl(${Math.round(240 - (240 * (y + 0.5)) / a.height)} 90% 60%)`; // by height in the left image
    lines.replaceChildren(...drawn.map((match) => line(inA(match.a), inB(match.b), color(match.a))));
  }

  /** @param {number} drawn  number of lines */
  summary(drawn) {
    const { matches, scale, scales } = this.shown;
    const sizes = `${scales.slice(0, -1).join(", ")} and ${scales.at(-1)} times its size`;
    if (!matches.length) return `No patches match, with the second image at ${sizes}: point at single patches.`;
    const some = drawn && drawn < matches.length ? `, the best ${drawn} drawn` : "";
    return `${matches.length} mutual nearest neighbors${some}, with the second image at ${scale} of ${sizes}.`;
  }
}

/** @param {number[]} from @param {number[]} to @param {string} color */
function line([x1, y1], [x2, y2], color) {
  const dot = (cx, cy) => svg("circle", { cx, cy, r: 3, fill: color });
  return svg("g", { class: "lab-mutual" }, svg("line", { x1, y1, x2, y2, stroke: color }), dot(x1, y1), dot(x2, y2));
}
