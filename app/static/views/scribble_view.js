// An image with strokes of several classes, and the segmentation by a head that is trained on them:
// `app.views.view`. After every stroke the view emits "edited", the server reads `request`, and the prop
// `found` repeats its key.

import { percent } from "../maths/format.js";
import { area } from "../maths/labels.js";
import { fitted } from "../maths/levels.js";
import { Painting, fromRuns } from "../maths/painting.js";
import { el } from "./dom.js";
import { Editor } from "./editor.js";
import { section, shownSection } from "./export.js";
import { COLORS } from "./palette.js";

const LONG_SIDE = 512; // cells of the strokes
const KEYS = "Move with the arrow keys and paint with Enter. B draws, E erases, C marks an object, digits choose a class, Control Z undoes."; // prettier-ignore
const HELP = "Draw a few strokes on the background and on each class. After every stroke a k-NN head on the patch features segments this image; the same head applies to all your images."; // prettier-ignore

export class ScribbleView extends Editor {
  colors = [[255, 255, 255], ...COLORS.objects]; // the background is the first object
  digits = 1;
  requestNumber = 0;
  labels = null; // of the image on the stage
  help = el("p", { class: "lab-soft" }, HELP);

  constructor(mounted) {
    super(mounted, {}, ["Image with strokes of several classes", KEYS]);
    this.element.classList.add("lab-masks");
    this.tools.querySelector("[value=draw]")["checked"] = true;
    this.watch("found", () => this.receive());
    this.mount("value", this.stage.cell, this.asideOf(this.chips, this.help));
  }

  open(encoding, block) {
    super.open(encoding, block);
    this.labels = null;
    this.take(encoding.token, () => new Painting(fitted(encoding, LONG_SIDE), this.colors.length, [1, 2]));
    this.painting.encoding = encoding;
    this.changed();
  }

  /** The view as arguments of `app.handlers.scribbles.ScribbleRequest`, the image on the stage first; null without two classes. */
  get request() {
    if (!this.encoding) return null;
    const { painting, encoding } = this;
    const usable = ({ empty, encoding: { value } }) =>
      !empty && value.model === encoding.value.model && value.size === encoding.value.size;
    const others = [...this.paintings.values()].filter((other) => other !== painting && usable(other));
    const images = [painting, ...others];
    const classes = new Set(images.flatMap(({ values }) => [...new Set(values)]));
    classes.delete(0);
    if (classes.size < 2) return null;
    const strokes = (image) => ({
      ...{ token: image.encoding.token, name: image.encoding.name, rows: image.height, columns: image.width },
      runs: image.empty ? [] : image.runs(),
    });
    return { key: `${encoding.token} ${this.requestNumber}`, images: images.map(strokes) };
  }

  sections() {
    const write = (file, own) => async () => this.ask({ file, own: own ? await own() : [] });
    const images = () => window["viewOf"]("images").names();
    return [
      shownSection(this.stage.element),
      section("Masks of all your images", [["PNG, several as ZIP", "masks.zip", write("masks.zip", images)]]),
      section("Head for the command line", [["safetensors", "head.safetensors", write("head.safetensors")]]),
    ];
  }

  /** The strokes have changed: show them and request the segmentation. */
  changed() {
    this.showMask();
    this.listObjects();
    this.apply();
    this.requestNumber += 1;
    if (this.request) this.emit("edited", {});
    else this.labels = null;
    this.render();
  }

  /** Use the response to the newest request. */
  receive() {
    const { found } = this.props;
    if (!this.encoding || found?.key !== `${this.encoding.token} ${this.requestNumber}`) return;
    const { rows, columns, runs, key } = found;
    this.labels = { rows, columns, values: fromRuns(runs, rows * columns) };
    this.element.dataset.found = key; // tests wait for it
    this.render();
  }

  render() {
    const { labels, stage } = this;
    stage.canvas.labels(labels, COLORS.objects);
    const used = labels ? [...new Set(labels.values)].filter(Boolean).sort() : [];
    const shares = used.map((number) => `class ${number} ${percent(area(labels, number))}`);
    this.status.textContent = labels
      ? shares.join(", ") || "background only"
      : "Draw on the background and on each class";
  }

  listObjects() {
    super.listObjects((number) => (number === 1 ? "Background" : `Class ${number - 1}`), undefined, "+ Class");
  }
}
