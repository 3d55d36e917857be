// Two models on one image with one pointer and one mask by hand: `app.views.compare_view`.
//
// The prop `value` is the encoding of the left model, `right` that of the other. They are shown once they belong to the
// same image at the same resolution.

import { css, percent } from "../maths/format.js";
import { area, best, jaccard } from "../maths/labels.js";
import { displayRange } from "../maths/levels.js";
import { joined } from "../maths/maps.js";
import { Brush, Tools, paintingOf } from "./brush.js";
import { el } from "./dom.js";
import { Encoding } from "./encoding.js";
import { COLORS } from "./palette.js";
import { View } from "./view.js";
import { Viewer } from "./viewer.js";

const KEYS =
  "Move the pointer or use the arrow keys to choose the same place for both models. Escape returns to the whole image. B draws, E erases, C points; Control Z undoes.";

/** A viewer with a tile for the head whose mask is most similar to the mask by hand. */
class SideViewer extends Viewer {
  bestHead = "mean";
  drawn = null;

  /** Choose the best head for a mask by hand. @param {Labels} drawn */
  compareWith(drawn) {
    this.drawn = drawn;
    const masks = new Map(this.maps.heads.map((_, head) => [String(head), this.maskOf(String(head))]));
    this.bestHead = drawn && this.asked.heads ? best(masks, drawn) : "mean";
  }

  resolve(key) {
    return key === "best" ? this.bestHead : key;
  }

  colorOf(_key = "") {
    return COLORS.objects[0]; // of both sides: other colors stand for heads
  }

  note(key) {
    const mask = this.maskOf(key);
    return this.drawn ? jaccard(mask, this.drawn).toFixed(2) : percent(area(mask));
  }

  entries({ heads }) {
    const entry = (key, label) => ({ key, label, color: css(this.colorOf(key)) });
    const each = Array.from({ length: heads }, (_, head) => entry(String(head), `Head ${head}`));
    return [entry("best", "Best"), entry("mean", "Mean"), ...each];
  }
}

/** The maps of one model. */
class Side {
  chosen = "best"; // or "mean", the number of a head
  title = el("h3", { class: "lab-model" });
  banner = el("p", { class: "lab-banner", hidden: true }, "Random weights: the maps show the architecture.");

  /** @param {string} name  left or right @param {CompareView} view */
  constructor(name, view) {
    this.view = view;
    this.element = el("section", { class: "lab-side", "aria-label": `The ${name} model` });
    const words = { label: `Image with maps of the ${name} model`, keys: KEYS, heads: `Head of the ${name} model` };
    const place = (patch) => patch && this.viewer.encoding.placeOf(patch);
    this.viewer = new SideViewer(this.element, words, {
      drawn: () => this.describe(),
      choose: (key) => {
        this.chosen = key;
        view.render();
      },
      point: (patch) => view.point(place(patch)),
      press: (patch) => view.point(place(patch)),
    });
    const { stage, readout, tiles, scale } = this.viewer;
    this.element.append(this.title, stage.element, scale, readout, tiles.element, this.banner);
    this.brush = new Brush(stage, () => view.drawn());
    const { point, leave } = stage.on;
    Object.assign(stage.on, this.brush.events, {
      point: (at) => (stage.paints ? this.brush.ring() : point(at)),
      leave: () => {
        this.brush.ring(false);
        leave();
        view.point(null);
      },
      stroke: (from, to) => {
        this.brush.stroke(from, to);
        for (const side of view.sides) side.brush.show();
      },
      rest: () => view.point(null),
      look: (look) => view.sides.forEach((side) => side !== this && side.viewer.stage.look(look)),
      key: (event) => view.tools.key(event),
    });
  }

  open(encoding, arrays, painting, quantity) {
    if (Number(this.chosen) >= encoding.heads) this.chosen = "best";
    this.viewer.open(encoding, arrays, quantity);
    this.viewer.tiles.element.hidden = !this.viewer.asked.heads;
    this.brush.open(painting);
    this.brush.outline();
    this.title.textContent = encoding.value.model ?? "";
    this.banner.hidden = !encoding.random;
  }

  /** Compute the maps of a place. @param {Place} place  null: [CLS] @param {{ mass: number, layer: string }} settings */
  compute(place, settings) {
    const { viewer } = this;
    viewer.hovered = null;
    Object.assign(viewer.settings, settings, { patch: place && viewer.encoding.patchAt(place), range: null });
    viewer.maps = viewer.mapsOf();
    viewer.compareWith(this.brush.painting.labels);
  }

  /** Draw the map of the chosen tile, and those of the tiles, on a scale of both sides. @param {number[]} range */
  render(range) {
    this.viewer.set({ show: this.chosen, range });
  }

  get head() {
    return this.viewer.asked.heads ? this.viewer.resolve(this.chosen) : "mean";
  }

  get mask() {
    return this.viewer.maskOf(this.head);
  }

  describe() {
    const { viewer, view, mask, head } = this;
    const { patch, encoding, asked, drawn } = viewer;
    const name = !asked.heads ? "All heads" : head === "mean" ? "Mean of the heads" : `Head ${head}`;
    const of = asked.heads ? "the attention" : "the key similarity";
    const score = drawn ? ` · Jaccard with your mask ${jaccard(mask, drawn).toFixed(3)}` : "";
    const where = patch ? `Row ${patch.row}, column ${patch.column}` : "[CLS], the whole image";
    viewer.where.textContent = `${where} of ${encoding.rows} × ${encoding.columns} patches`;
    viewer.what.textContent = `${name}: ${view.settings.mass} % of ${of} on ${percent(area(mask))} of the image${score}`;
  }
}

export class CompareView extends View {
  place = null; // null: [CLS]
  sides = ["left", "right"].map((name) => new Side(name, this));
  tools = new Tools(
    this.sides.map(({ brush }) => brush),
    "Point",
  );
  agreement = el("p", { class: "lab-agreement" });

  /** @param {Mounted} mounted */
  constructor(mounted) {
    super(mounted, { quantity: "likeness", layer: "light", mass: 60 });
    const pair = el("div", { class: "lab-pair lab-compare" }, ...this.sides.map(({ element }) => element));
    this.mount(["value", "right"], this.tools.element, pair, this.agreement);
  }

  /** Change settings. @param {Record<string, any>} change */
  set(change) {
    const { quantity } = this.settings;
    Object.assign(this.settings, change);
    if (this.settings.quantity === quantity) this.render();
    else this.look();
  }

  /** Name of the right model on the screen. */
  get other() {
    return this.sides[1].viewer.encoding?.value.model ?? "";
  }

  async load(signal) {
    const { value, right } = this.props;
    if (!value.token) return;
    this.announce(value.token, { token: value.token }); // asks the server for the other model
    if (right?.photo !== value.photo || right?.size !== value.size) return;
    const encodings = [value, right].map((each) => new Encoding(each, this.server));
    const { quantity } = this.settings;
    const arrays = encodings.map((encoding) => encoding.arrays(quantity, encoding.blocks - 1, signal));
    return { encodings, quantity, arrays: await Promise.all(arrays) };
  }

  show({ encodings, arrays, quantity }) {
    if (this.sides[0].viewer.encoding?.photo !== encodings[0].photo) this.place = null;
    const painting = paintingOf(encodings[0]); // Segment may have changed it
    this.sides.forEach((side, index) => side.open(encodings[index], arrays[index], painting, quantity));
    this.render();
    const token = encodings.map((encoding) => encoding.token).join(" ");
    Object.assign(this.element.dataset, { token, quantity }); // tests wait for it
  }

  /** @param {Place} place  null: [CLS] */
  point(place) {
    if (place?.x === this.place?.x && place?.y === this.place?.y) return;
    this.place = place;
    this.render();
  }

  drawn() {
    for (const { brush } of this.sides) {
      brush.show();
      brush.outline();
    }
    this.render();
  }

  /** Choose the best head of both models at 60 % of the attention of [CLS], as in the paper. */
  bestHeads() {
    this.place = null;
    for (const side of this.sides) side.chosen = "best";
    this.set({ quantity: "attention", layer: "mask", mass: 60 });
  }

  /** The view as arguments of the figure. */
  get request() {
    const [left, right] = this.sides;
    if (!this.other) return null;
    const { width, height, labels } = left.brush.painting;
    const { token, name } = left.viewer.encoding;
    return {
      left: token,
      right: right.viewer.encoding.token,
      left_head: left.head,
      right_head: right.head,
      mass: this.settings.mass / 100,
      name,
      drawn: labels && { size: [height, width], runs: left.brush.painting.runs() },
    };
  }

  render() {
    if (!this.other) return;
    const { sides, settings, tools } = this;
    const [left, right] = sides;
    const { likely, encoding } = left.viewer;
    tools.apply();
    const place = this.place ?? (likely && encoding.placeOf(likely));
    for (const side of sides) side.compute(place, { mass: settings.mass / 100, layer: settings.layer });
    const maps = sides.map(({ viewer, head }) => viewer.maps.map(head));
    const range = displayRange(joined(maps)); // one scale for both models
    for (const side of sides) {
      side.render(range);
      side.viewer.stage.cross(side.viewer.stage.cursor ? null : this.place);
    }
    const size = { rows: left.brush.painting.height, columns: left.brush.painting.width };
    const words = `Jaccard similarity of the two masks: ${jaccard(left.mask, right.mask, size).toFixed(3)}.`;
    const hint = left.brush.painting.empty ? " Draw the object to choose each model's best head." : "";
    this.agreement.textContent = words + hint;
    this.spoken.textContent = `${sides.map(({ viewer }) => viewer.what.textContent).join(". ")}. ${words}`;
  }
}
