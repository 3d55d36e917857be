// A picture and its maps that a script drives: the stage of the tour and of a run's checkpoints.
//
// Everything is arithmetic on the queries and keys of one block; see attention.js.

import { attentionMaps, entropy, keepMass, keptShares, maxMap, meanMap, range } from "./attention.js";
import { Encoding } from "./encoding.js";
import { colormap, outlinePath } from "./paint.js";
import { samePatch } from "./pins.js";
import { Stage } from "./stage.js";
import { Tiles } from "./tiles.js";

const SETTINGS = { show: "mean", layer: "heat", mass: 0.6, opacity: 0.65, patch: null, maps: true };

export class Viewer {
  /**
   * @param {HTMLElement} root  a .lab that holds a .lab-stage and a .lab-tiles
   * @param {object} facts  colours, as the server gives them once
   * @param {(view: object) => void} drawn  called after every drawing with what is seen
   */
  constructor(root, facts, drawn = () => {}) {
    this.root = root;
    this.facts = facts;
    this.drawn = drawn;
    this.colors = colormap(facts.colormaps.inferno);
    this.settings = { ...SETTINGS };
    this.encoding = this.block = this.hovered = null;
    const point = (patch) => this.hover(patch);
    const pin = (patch) => this.set({ patch });
    const rest = () => this.set({ patch: null });
    this.stage = new Stage(root.querySelector(".lab-stage"), {
      point, pin, rest, leave: () => point(null), remove: rest, undo: rest,
    });
    this.tiles = new Tiles(root.querySelector(".lab-tiles"), (show) => this.set({ show }));
  }

  /** Show a picture in one of its blocks, the last where none is named. Throws a Refusal. */
  async open(value, number = value.blocks - 1) {
    const encoding = new Encoding(value);
    const block = await encoding.block(number);
    const before = this.encoding;
    Object.assign(this, { encoding, block });
    // Another picture needs another stage; another model over the same patches does not lose the pointer.
    if (before?.example !== encoding.example || before.rows !== encoding.rows || before.heads !== encoding.heads) {
      this.hovered = this.settings.patch = null;
      this.stage.open(encoding);
      for (const side of ["rows", "columns"]) this.root.style.setProperty(`--${side}`, encoding[side]);
      this.tiles.open(encoding, this.shows());
    }
    this.set({});
  }

  /** Look at another block of the same picture. Throws a Refusal. */
  async openBlock(number) {
    const { encoding } = this;
    const block = await encoding.block(number);
    if (encoding === this.encoding) this.block = block;
    this.set({});
  }

  /**
   * Change what is seen: show ("heads", "mean", "max" or a head's number), layer ("heat" or "mask"), mass and opacity
   * (0 to 1), patch ({row, column} or null for [CLS]), maps (false: the bare picture).
   */
  set(settings) {
    Object.assign(this.settings, settings);
    if (!this.encoding) return;
    if (!this.tiles.tiles.has(this.settings.show)) this.settings.show = "mean";
    this.render();
  }

  hover(patch) {
    if (!this.encoding || samePatch(patch, this.hovered)) return;
    this.hovered = patch;
    this.render();
  }

  /** The patch asked about, or null for [CLS]. */
  get patch() {
    return this.hovered ?? this.settings.patch;
  }

  /** Maps of every head, their mean and their maximum, for a patch or [CLS], with what a mask of them keeps. */
  view(patch = this.patch) {
    const heads = attentionMaps(this.block, this.encoding.tokenOf(patch));
    const maps = new Map(heads.map((map, head) => [String(head), map]));
    maps.set("mean", meanMap(heads)).set("max", maxMap(heads));
    const kept = new Map([...maps].map(([key, map]) => [key, keepMass(map, this.settings.mass)]));
    return { patch, heads, maps, kept };
  }

  /** Of one map of a view: entropy and its greatest possible value in nats, shares of attention and area kept. */
  measure({ maps, kept }, key = this.settings.show === "heads" ? "mean" : this.settings.show) {
    const map = maps.get(key);
    return { entropy: entropy(map), flat: Math.log(map.length), ...keptShares(map, kept.get(key)) };
  }

  render() {
    const { settings, root } = this;
    const view = this.view();
    root.dataset.layer = settings.layer;
    root.dataset.show = settings.maps ? settings.show : "picture";
    root.classList.add("lab-smooth");
    root.style.setProperty("--opacity", settings.maps ? settings.opacity : 0);
    this.paint(this.stage.canvas, settings.show, view);
    for (const [key, { canvas }] of this.tiles.tiles) this.paint(canvas, key, view);
    this.tiles.choose(settings.show);
    this.stage.draw(this.outlines(view), view.patch, "#fff");
    this.drawn(view);
  }

  paint(canvas, key, { heads, maps, kept }) {
    if (key === "heads") {
      const keys = heads.map((_, head) => String(head));
      canvas.heads(heads, keys.map((head) => kept.get(head)), keys.map((head) => this.colorOf(head)));
    } else if (this.settings.layer === "mask") canvas.mask(kept.get(key), this.colorOf(key));
    else canvas.heat(maps.get(key), this.colors, range(maps.get(key)));
  }

  outlines({ kept }) {
    const { show, layer, maps } = this.settings;
    if (!maps || show === "heads" || layer !== "mask") return [];
    const path = outlinePath(kept.get(show), this.encoding.rows, this.encoding.columns);
    return [{ path, color: `rgb(${this.colorOf(show).join(" ")})` }];
  }

  colorOf(key) {
    const { heads, summary } = this.facts;
    return key === "mean" || key === "max" ? summary : heads[Number(key) % heads.length];
  }

  shows() {
    const css = (key) => `rgb(${this.colorOf(key).join(" ")})`;
    return [
      { key: "heads", label: "All heads", color: "transparent" },
      { key: "mean", label: "Mean", color: css("mean") },
      ...Array.from({ length: this.encoding.heads }, (_, head) => ({
        key: String(head), label: `Head ${head}`, color: css(String(head)),
      })),
    ];
  }
}

const PATIENCE = 60_000; // milliseconds after which a question counts as lost, as where the queue turned it away
const LOST = { error: "The model is busy with other visitors: try again in a while." };

/** Questions to the server whose answers come as the component's value: one at a time, in order. */
export class Questions {
  /** @param {(question: {model: string, example: string}) => void} send */
  constructor(send) {
    this.send = send;
    this.last = Promise.resolve();
    this.resolve = null;
  }

  /** The answer: an encoding, or {error}. */
  ask(question) {
    const answer = this.last.then(() => new Promise((resolve) => {
      this.resolve = resolve;
      setTimeout(() => resolve(LOST), PATIENCE);
      this.send(question);
    }));
    this.last = answer;
    return answer;
  }

  /** To be called with every value that comes. */
  answered(value) {
    this.resolve?.(value);
  }
}
