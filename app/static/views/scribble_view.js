// An image with strokes of several classes, and the segmentation by a head that is trained on them:
// `app.views.view`. After every stroke the view emits "edited", the server reads `request`, and the prop
// `found` repeats its key.

import { css, percent } from "../maths/format.js";
import { area } from "../maths/labels.js";
import { within } from "../maths/levels.js";
import { Painting, fromRuns } from "../maths/painting.js";
import { Brush, Tools } from "./brush.js";
import { button, el } from "./dom.js";
import { Encoding } from "./encoding.js";
import { COLORS } from "./palette.js";
import { Stage } from "./stage.js";
import { View } from "./view.js";

const COLORS_OF_STROKES = [[255, 255, 255], ...COLORS.objects]; // background first
const LONG_SIDE = 512; // cells of the strokes
const MOST_IMAGES = 8; // with strokes
const KEYS = "Move with the arrow keys and paint with Enter. B draws, E erases, C marks an object, digits choose a class, Control Z undoes."; // prettier-ignore
const HELP = "Draw a few strokes on the background and on each class. After every stroke a k-NN head on the patch features segments this image; the same head applies to all your images."; // prettier-ignore

export class ScribbleView extends View {
  encoding = null;
  /** @type {Map<string, { token: string, name: string, model: string, size: number, painting: Painting }>} */
  scribbles = new Map(); // by the token of an encoding
  asked = 0; // number of the last question
  labels = null; // of the image on the stage
  stage = new Stage("Image with strokes of several classes", KEYS, {
    point: () => this.point(),
    leave: () => this.point(),
    press: (place) => this.brush.press(place),
    key: (event) => this.tools.key(event) || this.choose(Number(event.key)),
  });
  brush = new Brush(this.stage, () => this.changed(), COLORS_OF_STROKES);
  tools = new Tools(this.brush);
  chips = el("ul", { class: "lab-tools", "aria-label": "Classes" });
  status = el("p", { class: "lab-soft", role: "status" }, HELP);

  /** @param {Mounted} mounted */
  constructor(mounted) {
    super(mounted);
    Object.assign(this.stage.on, this.brush.events);
    this.element.classList.add("lab-masks");
    this.tools.element.querySelector("[value=draw]")["click"]();
    this.watch("found", () => this.receive());
    this.mount("value", this.stage.element, this.tools.element, this.chips, this.status);
  }

  async load(signal) {
    const { value } = this.props;
    if (!value.token || value.token === this.encoding?.token) return;
    const encoding = new Encoding(value, this.server);
    return { encoding, block: await encoding.arrays("attention", encoding.blocks - 1, signal) };
  }

  show({ encoding, block }) {
    const { token, name, width, height } = encoding;
    const painting = new Painting({ ...within({ width, height }, LONG_SIDE / Math.max(width, height)), most: COLORS_OF_STROKES.length }); // prettier-ignore
    painting.objects = [1, 2];
    painting.active = 2;
    const { model, size } = encoding.value;
    const scribble = this.scribbles.get(token) ?? { token, name, model, size, painting };
    this.scribbles.delete(token);
    this.scribbles.set(token, scribble); // the newest is last
    if (this.scribbles.size > MOST_IMAGES) this.scribbles.delete([...this.scribbles.keys()][0]);
    Object.assign(this, { encoding, labels: null });
    this.stage.show(encoding);
    this.brush.encoded(encoding, block, this.stage.photo);
    this.brush.open(scribble.painting);
    this.changed();
    this.element.dataset.token = token; // tests wait for it
    this.announce(token, { token });
  }

  point() {
    this.brush.ring();
    if (!this.brush.preview(this.stage.cursor)) this.stage.draw([], this.encoding);
  }

  /** Strokes with which a head can be trained on the image on the stage: it comes first. */
  get images() {
    const { model, size } = this.encoding.value;
    const current = this.scribbles.get(this.encoding.token);
    const others = [...this.scribbles.values()].filter(
      (one) => one !== current && !one.painting.empty && one.model === model && one.size === size,
    );
    return [current, ...others];
  }

  /** The view as arguments of `app.scribbles.ScribbleRequest`; null without two classes. */
  get request() {
    if (!this.encoding) return null;
    const { images } = this;
    const classes = new Set(images.flatMap(({ painting }) => [...new Set(painting.values)]));
    classes.delete(0);
    if (classes.size < 2) return null;
    const strokes = ({ token, name, painting }) => ({
      ...{ token, name, rows: painting.height, columns: painting.width },
      runs: painting.empty ? [] : painting.runs(),
    });
    return { key: `${this.encoding.token} ${this.asked}`, images: images.map(strokes) };
  }

  /** The strokes have changed: show them, and ask for the segmentation. */
  changed() {
    this.brush.show();
    this.listClasses();
    this.tools.apply();
    this.asked += 1;
    if (this.request) this.emit("edited", {});
    else this.labels = null;
    this.render();
  }

  /** Take an answer to the newest question. */
  receive() {
    const { found } = this.props;
    if (!this.encoding || found?.key !== `${this.encoding.token} ${this.asked}`) return;
    const { rows, columns, runs, key } = found;
    this.labels = { rows, columns, values: fromRuns(runs, rows * columns) };
    this.element.dataset.found = key; // tests wait for it
    this.render();
  }

  render() {
    const { labels, stage } = this;
    if (!labels) stage.canvas.clear();
    else stage.canvas.labels(labels, COLORS.objects);
    const used = labels ? [...new Set(labels.values)].filter(Boolean).sort() : [];
    const shares = used.map((number) => `class ${number} ${percent(area(labels, number))}`);
    this.status.textContent = labels ? `Share of the image: ${shares.join(", ") || "background only"}.` : HELP;
  }

  // ---- classes

  /** Choose a class by its number, 0 for background; returns whether there is one. @param {number} number */
  choose(number) {
    const known = this.brush.painting.objects.includes(number + 1);
    if (known) this.edit(() => (this.brush.painting.active = number + 1));
    return known;
  }

  /** @param {() => void} change  of the classes, not of the strokes */
  edit(change) {
    change();
    this.listClasses();
  }

  listClasses() {
    const { painting } = this.brush;
    const item = (number) =>
      el(
        "li",
        { style: `--pin: ${css(COLORS_OF_STROKES[number - 1])}` },
        button(number === 1 ? "Background" : `Class ${number - 1}`, () => this.choose(number - 1), {
          class: "lab-swatch",
          "aria-pressed": String(number === painting.active),
        }),
      );
    const full = painting.objects.length >= painting.most;
    const add = button("+ Class", () => this.edit(() => this.addClass()), { disabled: full });
    this.chips.replaceChildren(...painting.objects.map(item), el("li", {}, add));
  }

  addClass() {
    const { painting } = this.brush;
    const number = Math.max(...painting.objects) + 1;
    Object.assign(painting, { objects: [...painting.objects, number], active: number });
  }
}
