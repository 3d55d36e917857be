// Two models on one image with one pointer and one mask by hand: the view behind `app.views.compare_view`.
//
// The prop `value` is the encoding of the left model, `right` that of the other. Both are shown once they are about the
// same image at the same resolution; all numbers are computed here.

import { css, percent } from "../maths/format.js";
import { area, best, jaccard } from "../maths/labels.js";
import { displayRange, within } from "../maths/levels.js";
import { joined } from "../maths/maps.js";
import { Brush, drawingKeys, drawingTools, drawings } from "./brush.js";
import { el, find, style } from "./dom.js";
import { Encoding, Refusal } from "./encoding.js";
import { Newest } from "./newest.js";
import { COLORS } from "./palette.js";
import { Viewer } from "./viewer.js";

const MASK_COLOR = [86, 180, 233]; // of both sides: colors tell heads apart, not models
const LONG_SIDE = 1024; // cells of the long side at which two masks are compared
const KEYS =
  "Move the pointer or use the arrow keys to choose the same place for both models. Escape returns to the whole image. With the brush, Enter draws and Control Z undoes.";

export class CompareView {
  /** @param {Mounted} mounted */
  constructor({ element, props, watch, emit, server = null }) {
    this.element = element;
    this.props = props;
    this.emit = emit;
    this.server = server;
    for (const sheet of ["views.css", "masks.css"]) style(element, new URL(sheet, import.meta.url).href);
    const { quantity = "likeness", layer = "light", mass = 60 } = props;
    this.settings = { quantity, layer, mass };
    /** @type {Place | null} */
    this.place = null; // null: [CLS]
    this.newest = new Newest();
    this.loaded = ""; // token of the left encoding that "shown" was emitted for
    const parts = ["left", "right"].map((name) => sideParts(name));
    const problem = el("p", { class: "lab-problem", role: "alert", hidden: true });
    const agreement = el("p", { class: "lab-agreement" });
    element.classList.add("lab-compare");
    element.replaceChildren(
      problem,
      el("div", { class: "lab-pair" }, ...parts),
      agreement,
      el("p", { class: "lab-spoken", "aria-live": "polite" }),
    );
    this.sides = parts.map((part) => new Side(part, this));
    const brushes = this.sides.map(({ brush }) => brush);
    this.tools = drawingTools("Point", brushes, { refused: (sentence) => this.refuse(sentence) });
    problem.after(this.tools.form);
    this.waiting = false;
    watch(["value", "right"], () => this.look());
    new ResizeObserver(() => this.waiting && this.look()).observe(element);
    this.look();
  }

  /** Change settings. @param {Partial<CompareView["settings"]>} settings */
  set(settings) {
    const { quantity } = this.settings;
    Object.assign(this.settings, settings);
    if (this.settings.quantity !== quantity) this.look();
    else this.render();
  }

  /** @param {string} sentence */
  refuse(sentence) {
    Object.assign(find(this.element, ".lab-problem"), { textContent: sentence, hidden: false });
  }

  /** Name of the model on the right, as shown. */
  get other() {
    return this.sides[1].viewer.encoding?.value.model ?? "";
  }

  async look() {
    const { value, right } = this.props;
    this.waiting = !this.element.getClientRects().length;
    if (this.waiting || !value?.token) return;
    if (this.loaded !== value.token) {
      this.loaded = value.token;
      this.emit("shown", { token: value.token }); // the server is asked for the other model
    }
    if (right?.photo !== value.photo || right?.size !== value.size) return;
    const encodings = [value, right].map((each) => new Encoding(each, this.server));
    const { quantity } = this.settings;
    try {
      const blocks = await this.newest.run((signal) =>
        Promise.all(encodings.map((encoding) => encoding.arrays(quantity, encoding.blocks - 1, signal))),
      );
      if (blocks) this.show(encodings, blocks, quantity);
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      this.refuse(error.message);
    }
  }

  /** @param {Encoding[]} encodings @param {any[]} blocks @param {string} quantity */
  show(encodings, blocks, quantity) {
    const again = this.sides[0].viewer.encoding?.photo === encodings[0].photo;
    if (!again) this.place = null;
    const painting = drawings.of(encodings[0]); // Segment may have drawn on it
    find(this.element, ".lab-problem").hidden = true;
    this.sides.forEach((side, index) => side.open(encodings[index], blocks[index], painting, quantity));
    this.render();
    this.element.dataset.token = encodings.map(({ token }) => token).join(" "); // says what is on the screen
    this.element.dataset.quantity = quantity;
  }

  // ---- what both sides share

  /** @param {Place | null} place */
  point(place) {
    if (place?.x === this.place?.x && place?.y === this.place?.y) return;
    this.place = place;
    this.render();
  }

  /** One mask lies over both images. @param {Place} from @param {Place} to @param {Brush} brush */
  stroke(from, to, brush) {
    brush.stroke(from, to);
    for (const side of this.sides) if (side.brush !== brush) side.brush.show();
  }

  /** A stroke has ended, or the mask was changed otherwise. */
  drawn() {
    const { encoding } = this.sides[0].viewer;
    if (!encoding) return;
    for (const { brush } of this.sides) {
      brush.show();
      brush.outline();
    }
    drawings.keep(encoding);
    this.render();
  }

  /** As in the paper: of both models the best head by the mask, each with 60 % of the attention of [CLS]. */
  bestHeads() {
    this.place = null;
    for (const side of this.sides) side.chosen = "best";
    this.set({ quantity: "attention", layer: "mask", mass: 60 });
  }

  /** What is on the screen, as arguments of the figure. */
  get request() {
    const [left, right] = this.sides;
    if (!left.viewer.encoding || !right.viewer.encoding) return null;
    const { painting } = left.brush;
    const { width, height, labels } = painting;
    return {
      left: left.viewer.grid.token,
      right: right.viewer.grid.token,
      left_head: left.head,
      right_head: right.head,
      mass: this.settings.mass / 100,
      name: left.viewer.grid.name,
      drawn: labels && { size: [height, width], runs: painting.runs() },
    };
  }

  /** On the object, where a quantity needs a patch and none is chosen: the left model's. */
  get likelyPlace() {
    const { viewer } = this.sides[0];
    return viewer.likely && viewer.grid.placeOf(viewer.likely);
  }

  render() {
    const [left, right] = this.sides;
    if (!left.viewer.encoding || !right.viewer.encoding) return;
    const { painting } = left.brush;
    const { layer, mass } = this.settings;
    find(this.element, ".lab-undo").disabled = !painting.past.length;
    const place = this.place ?? this.likelyPlace;
    for (const side of this.sides) side.choose(place, { mass: mass / 100, layer });
    const range = displayRange(joined(this.sides.map((side) => side.map)), "median", false);
    for (const side of this.sides) {
      side.render(range); // one scale: brighter is more
      side.viewer.stage.cross(side.viewer.stage.cursor ? null : this.place);
    }
    const agreement = jaccard(left.mask, right.mask, commonSize(left.viewer.encoding));
    const words = `Jaccard similarity of the two masks: ${agreement.toFixed(3)}.`;
    const hint = painting.empty ? " Draw the object, and each model's best head is chosen by it." : "";
    find(this.element, ".lab-agreement").textContent = words + hint;
    find(this.element, ".lab-spoken").textContent = `${this.sides.map((side) => side.words).join(". ")}. ${words}`;
  }
}

/** The elements of one side. @param {string} name  left or right */
function sideParts(name) {
  const stage = {
    class: "lab-stage",
    tabindex: 0,
    role: "application",
    "aria-label": `Image with maps of the ${name} model`,
    "aria-description": KEYS,
  };
  return el(
    "section",
    { class: "lab-side", "aria-label": `The ${name} model` },
    el("h3", { class: "lab-model" }),
    el("div", stage),
    el("p", { class: "lab-readout" }, el("span", { class: "lab-where" }), el("span", { class: "lab-what" })),
    el("div", { class: "lab-tiles", role: "radiogroup", "aria-label": `Head of the ${name} model` }),
    el(
      "p",
      { class: "lab-banner", hidden: true },
      el("strong", {}, "Random weights."),
      " Never trained: the maps show the architecture.",
    ),
  );
}

/** A viewer with one more tile: the head that agrees best with the mask by hand. */
class SideViewer extends Viewer {
  bestHead = "mean";
  /** @type {Labels | null} */
  byHand = null;

  /** @param {Labels | null} labels @param {Maps} maps */
  seek(labels, maps) {
    this.byHand = labels;
    const masks = new Map(maps.heads.map((_, head) => [String(head), this.masked(maps, String(head))]));
    this.bestHead = labels && this.asked.heads ? best(masks, labels) : "mean";
  }

  /** @param {string} key */
  resolve(key) {
    return key === "best" ? this.bestHead : key;
  }

  colorOf() {
    return MASK_COLOR;
  }

  /** @param {string} key */
  note(key) {
    const mask = this.masked(/** @type {Maps} */ (this.maps), this.resolve(key));
    return this.byHand ? jaccard(mask, this.byHand).toFixed(2) : percent(area(mask));
  }

  /** @param {Maps} maps @param {string} key @returns {Labels} */
  masked(maps, key) {
    const { rows, columns } = this.grid;
    return { rows, columns, values: maps.kept(key) };
  }
}

/** The maps of one model. */
class Side {
  /** @param {HTMLElement} element @param {CompareView} view */
  constructor(element, view) {
    this.element = element;
    this.view = view;
    this.chosen = "best"; // or "mean", the number of a head
    this.words = "";
    /** @type {Maps | null} */
    this.maps = null;
    this.viewer = new SideViewer(element, COLORS, {
      drawn: () => this.describe(),
      choose: (key) => {
        this.chosen = key;
        view.render();
      },
      point: (patch) => view.point(patch && this.viewer.grid.placeOf(patch)),
      press: (patch) => view.point(this.viewer.grid.placeOf(patch)),
    });
    const { stage } = this.viewer;
    /** @type {Brush} */
    this.brush = new Brush(stage, () => view.drawn());
    const { point } = stage.on;
    Object.assign(stage.on, {
      point: (/** @type {Place} */ place) => (view.tools.draws() ? this.brush.ring() : point?.(place)),
      leave: () => {
        this.brush.ring(false);
        view.point(null);
      },
      stroke: (/** @type {Place} */ from, /** @type {Place} */ to) => view.stroke(from, to, this.brush),
      lift: () => view.drawn(),
      rest: () => view.point(null),
      look: (/** @type {View} */ look) => {
        for (const side of view.sides) if (side !== this) side.viewer.stage.look(look);
      },
      ...drawingKeys(() => this.brush),
    });
  }

  /** @param {Encoding} encoding @param {any} block @param {Painting} painting @param {string} quantity */
  open(encoding, block, painting, quantity) {
    const heads = Array.from({ length: encoding.heads }, (_, head) => String(head));
    if (!["best", "mean", ...heads].includes(this.chosen)) this.chosen = "best";
    const tile = (/** @type {string} */ key, /** @type {string} */ label) => ({ key, label, color: css(MASK_COLOR) });
    const shows = [tile("best", "Best"), tile("mean", "Mean"), ...heads.map((key) => tile(key, `Head ${key}`))];
    this.viewer.open(encoding, block, quantity, shows);
    find(this.element, ".lab-tiles").hidden = !this.viewer.asked.heads;
    this.brush.open(painting);
    this.brush.outline();
    find(this.element, ".lab-model").textContent = encoding.value.model ?? "";
    find(this.element, ".lab-banner").hidden = !encoding.random;
  }

  /** Compute the maps of a place. @param {Place | null} place @param {{ mass: number, layer: string }} settings */
  choose(place, settings) {
    const { viewer } = this;
    viewer.hovered = null;
    const patch = place && viewer.grid.patchAt(place);
    Object.assign(viewer.settings, settings, { patch });
    this.maps = viewer.mapsOf(patch);
    viewer.seek(this.brush.painting.labels, this.maps);
  }

  /** The map that is shown. */
  get map() {
    return /** @type {Maps} */ (this.maps).map(this.head);
  }

  /** @param {[number, number]} range  of values, for both sides */
  render(range) {
    this.viewer.set({ show: this.chosen, range });
  }

  /** The head that the chosen tile stands for. */
  get head() {
    return this.viewer.resolve(this.chosen);
  }

  /** The mask that is shown. */
  get mask() {
    return this.viewer.masked(/** @type {Maps} */ (this.viewer.maps), this.head);
  }

  describe() {
    const { viewer, view, mask } = this;
    const { rows, columns } = viewer.grid;
    const { patch } = viewer;
    const { labels } = this.brush.painting;
    const { heads } = viewer.asked;
    const head = !heads ? "All heads" : this.head === "mean" ? "Mean of the heads" : `Head ${this.head}`;
    const of = heads ? "the attention" : "the key similarity";
    const score = labels ? ` · Jaccard with your mask ${jaccard(mask, labels).toFixed(3)}` : "";
    find(this.element, ".lab-where").textContent =
      (patch ? `Row ${patch.row}, column ${patch.column}` : "[CLS], the whole image") +
      ` of ${rows} × ${columns} patches`;
    this.words = `${head}: ${view.settings.mass} % of ${of} on ${percent(area(mask))} of the image${score}`;
    find(this.element, ".lab-what").textContent = this.words;
  }
}

/** Rows and columns at which masks of several grids are compared: those of the image, up to a limit. @param {Encoding} encoding */
function commonSize({ width, height }) {
  const size = within({ width, height }, LONG_SIDE / Math.max(width, height));
  return { rows: size.height, columns: size.width };
}
