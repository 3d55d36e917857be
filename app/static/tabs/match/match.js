// The tab Match: two photographs seen by one model. A patch of the first asks for what is like it in the second; the
// server tells which patches are each other's nearest, the cosines are computed here.

import { find, controls } from "../../dom.js";
import { Encoding, memory } from "../../encoding.js";
import { decodeTokens, tokenCosineMaps } from "../../maths/attention.js";
import { decimals } from "../../maths/format.js";
import { displayRange, drawnSize } from "../../maths/levels.js";
import { Pins, samePatch } from "../../maths/pins.js";
import { rested } from "../../newest.js";
import { askBytes, askPicture, askSlowly, keepDrawn } from "../../server.js";
import { Tab } from "../../tab.js";
import { render, svg } from "../../vendor/lit-html.js";
import { thumbnail } from "../../widgets/header.js";
import { LIGHT } from "../../widgets/paint.js";
import { scaleBelow, tellScale } from "../../widgets/tiles.js";
import { STAGE_PIXELS } from "../../widgets/viewer.js";
import { Stage } from "../../widgets/stage.js";

/**
 * @typedef {{ a: [number, number], b: [number, number], cosine: number, ratio: number }} Match  y and x in pixels
 * @typedef {{ a: Encoding, b: Encoding, scale: number, scales: number[], matches: Match[], directions: Features }} Matched
 *   directions: of every patch of A as prefix tokens, then of B; b: at the scale at which most patches match
 */

const SHOWN = 100; // lines, of the surest matches
const ROOM = 10; // pixels of the pair's width that each of them takes: more would hide the photographs of a phone
const TURN = 20; // degrees, of the second photograph where none is chosen
const MATCH = 200; // bytes that one takes, about
const REST = 150; // milliseconds after which the slider's ratio is asked for

export default class Matching extends Tab {
  /** @param {HTMLElement} root @param {Lab} lab */
  constructor(root, lab) {
    super(root, lab);
    this.tools = controls(this.find(".lab-tools"));
    /** @type {Matched | null} */
    this.shown = null;
    this.chosen = { second: "", secondName: "" }; // of what is shown
    /** @type {Patch | null} */
    this.hovered = null;
    this.pins = new Pins(lab.facts.colors.pins);
    /** @type {Map<string, { photo: string, name: string }>} */
    this.copies = new Map(); // turned ones, by photograph
    const [left, right] = this.findAll(".match-half");
    this.halves = [left, right];
    this.left = new Stage(find(left, ".lab-stage"), {
      point: (place) => this.hover(this.first.patchAt(place)),
      leave: () => this.hover(null),
      press: (place) => this.changePins(() => this.pins.pin(this.first.patchAt(place), this.first)),
      undo: () => this.changePins(() => this.pins.undo()),
      remove: () => this.changePins(() => this.pins.remove(this.pins.active)),
      rest: () => this.changePins(() => (this.pins.active = null)),
      look: () => this.drawLines(),
    });
    this.right = new Stage(find(right, ".lab-stage"), { look: () => this.drawLines() });
    this.scale = scaleBelow(this.right.element);
    this.seek = rested(() => this.look(), REST);
    this.listen();
  }

  listen() {
    const file = this.find("input[type=file]");
    file.accept = this.lab.facts.kinds.photo;
    file.addEventListener("change", () => {
      this.take(file.files?.[0]);
      file.value = ""; // so that the same file can be chosen again
    });
    this.find(".lab-tools").addEventListener("input", (event) => {
      if (event.target === this.tools.ratio) this.seek();
      this.showTools();
      this.drawLines();
    });
    this.onPress(".lab-undo", () => this.changePins(() => this.pins.undo()));
    this.onPress(".lab-clear", () => this.changePins(() => this.pins.clear()));
    this.onDownload((file) => this.download(file));
    new ResizeObserver(() => this.drawLines()).observe(this.find(".lab-pair"));
  }

  /** A photograph of the visitor's own. @param {File} [file] */
  async take(file) {
    if (!file) return;
    const sent = await this.asker.ask(({ signal }) => this.lab.send("photo", file, signal));
    if (sent) this.lab.change({ second: sent.photo, secondName: sent.name });
  }

  // ---- what the lab says

  async look() {
    const { lab } = this;
    const { question } = lab;
    const { second, secondName } = lab.state;
    this.seek.cancel();
    this.listSeconds();
    this.showTools();
    const brought = await this.asker.ask(
      async (listening) => {
        const a = await lab.open(listening);
        const other = second ? { photo: second, name: secondName } : await this.turned(a, listening);
        const b = await lab.encode({ ...question, ...other }, listening);
        return this.matched(a, b, listening);
      },
      () => this.fallBack(question),
    );
    if (!brought) return;
    this.chosen = { second, secondName };
    this.show(brought);
  }

  /** The first photograph turned within its frame, sent as a second one: its matches can be seen to be right. @param {Encoding} a @param {Listening} listening */
  async turned(a, { signal }) {
    const known = this.copies.get(a.photo);
    if (known) return known;
    const picture = await askPicture(a.picture);
    const { naturalWidth: width, naturalHeight: height } = picture;
    const canvas = new OffscreenCanvas(width, height);
    const context = /** @type {OffscreenCanvasRenderingContext2D} */ (canvas.getContext("2d"));
    context.fillStyle = "#808080";
    context.fillRect(0, 0, width, height);
    context.translate(width / 2, height / 2);
    context.rotate((-TURN * Math.PI) / 180);
    context.drawImage(picture, -width / 2, -height / 2);
    const blob = await canvas.convertToBlob({ type: "image/jpeg", quality: 0.95 });
    const { photo } = await this.lab.send("photo", new File([blob], "turned.jpg"), signal);
    const copy = { photo, name: `${a.name.replace(/\.\w+$/, "")} turned` };
    this.copies.set(a.photo, copy);
    return copy;
  }

  /** What the server tells of a pair; asked once. @param {Encoding} a @param {Encoding} b @param {Listening} listening @returns {Promise<Matched>} */
  async matched(a, b, listening) {
    const asked = { a: a.token, b: b.token, ratio: this.ratio };
    const key = JSON.stringify(asked);
    let told = memory.get(key);
    if (!told) {
      told = await askSlowly("api/match", asked, listening);
      memory.put(key, told, MATCH * told.matches.length);
    }
    const { scale, scales, seen, matches } = told;
    const best = new Encoding(seen, b.name);
    return { a, b: best, scale, scales, matches, directions: await this.directions(a, best, listening) };
  }

  /** What cosines are computed from, whatever the ratio; fetched once. @param {Encoding} a @param {Encoding} b @param {Listening} listening @returns {Promise<Features>} */
  async directions(a, b, { signal }) {
    const address = `api/match/directions?${new URLSearchParams({ a: a.token, b: b.token })}`;
    const known = memory.get(address);
    if (known) return known;
    const bytes = await askBytes(address, { signal });
    const prefix = a.rows * a.columns;
    const directions = decodeTokens(bytes, { heads: 1, tokens: prefix + b.rows * b.columns, prefix });
    return memory.put(address, directions, 2 * bytes.byteLength);
  }

  /** What cannot be had gives way to what is seen. @param {Question} refused */
  fallBack(refused) {
    this.lab.note(this.chosen);
    this.listSeconds();
    this.lab.giveWay(refused);
  }

  /** @param {Matched} matched */
  show(matched) {
    const { a, b } = matched;
    const { pins, patch } = this.lab.state;
    if (this.shown?.a.token !== a.token) this.hovered = null; // at another size it may be beyond the last
    this.shown = matched;
    this.left.show(a);
    this.right.show(b);
    this.pins.read({ pins, patch }, a);
    this.render();
    this.root.dataset.token = `${a.token} ${b.token} ${this.ratio}`; // says that both are on the screen
  }

  /** @param {Matched} matched @param {number} drawn  how many lines */
  words({ matches, scale, scales }, drawn) {
    const tried = `at ${scales.slice(0, -1).join(", ")} and ${scales.at(-1)} times its size`;
    if (!matches.length) return `No patches match, with the second photograph ${tried}: ask one by one.`;
    const some = drawn && drawn < matches.length ? `, the surest ${drawn} drawn` : "";
    return `${matches.length} mutual matches${some}. The second photograph was tried ${tried}; ${scale} matches most.`;
  }

  // ---- pins

  get first() {
    return /** @type {Matched} */ (this.shown).a;
  }

  get ratio() {
    return Number(this.tools.ratio.value) / 100;
  }

  /** The patch that is asked about: under the pointer, pinned last, or on the example's object. */
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
    this.lab.note(this.pins.written(this.first));
    this.render();
  }

  /** How like a patch of the first every patch of the second is. @param {Patch} patch */
  cosines({ row, column }) {
    const { a, directions } = /** @type {Matched} */ (this.shown);
    return tokenCosineMaps(directions, row * a.columns + column)[0];
  }

  /** What a patch is found as: where in the second, and how like. @param {Patch} patch */
  counterpart(patch) {
    const { columns } = /** @type {Matched} */ (this.shown).b;
    const map = this.cosines(patch);
    let best = 0;
    for (let at = 1; at < map.length; at++) if (map[at] > map[best]) best = at;
    return { map, cosine: map[best], patch: { row: Math.floor(best / columns), column: best % columns } };
  }

  // ---- what is seen

  listSeconds() {
    const { state, facts } = this.lab;
    const choose = (/** @type {string} */ second, secondName = "") => this.lab.change({ second, secondName });
    const own = state.secondName ? [{ photo: state.second, title: state.secondName, name: state.secondName }] : [];
    const turned = { photo: "", title: `The first, turned by ${TURN}°`, name: "" };
    const all = [turned, ...own, ...facts.examples.map(({ photo, title }) => ({ photo, title, name: "" }))];
    render(
      all.map(({ photo, title, name }) =>
        thumbnail(title, `api/photos/${photo || state.photo}/thumbnail.jpg`, photo, photo === state.second, () =>
          choose(photo, name),
        ),
      ),
      this.find(".lab-examples"),
    );
  }

  showTools() {
    find(this.root, ".match-ratio output").textContent = this.ratio.toFixed(2);
    this.find(".lab-undo").disabled = !this.pins.history.length;
    this.find(".lab-clear").disabled = !this.pins.list.length;
  }

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
    const words =
      found && patch
        ? [where(patch, a), where(found.patch, b), `Most like it: cosine ${decimals(found.cosine)}`]
        : ["", "", ""];
    find(this.halves[0], ".lab-where").textContent = words[0];
    find(this.halves[1], ".lab-where").textContent = words[1];
    find(this.halves[1], ".lab-what").textContent = words[2];
    this.lab.speak(words.join(". "));
    this.showTools();
    this.drawLines();
  }

  /** Lines between the surest matches, and over them those of the pins. */
  drawLines() {
    const { shown, pins, left, right } = this;
    const box = this.find(".lab-pair").getBoundingClientRect();
    if (!shown || !box.width) return;
    const { a, b, matches } = shown;
    const sheet = this.find(".match-lines");
    sheet.setAttribute("viewBox", `0 0 ${box.width} ${box.height}`);
    sheet.toggleAttribute("data-asked", Boolean(this.hovered));
    const on = (/** @type {Stage} */ stage) => {
      const { left: x, top: y, width, height } = stage.sheet.getBoundingClientRect();
      return (/** @type {Place} */ place) => ({ x: x - box.left + place.x * width, y: y - box.top + place.y * height });
    };
    const [inA, inB] = [on(left), on(right)];
    const share = (/** @type {[number, number]} */ [y, x], /** @type {Encoding} */ { width, height }) => ({
      x: (x + 0.5) / width,
      y: (y + 0.5) / height,
    });
    const most = Math.min(SHOWN, Math.round(box.width / ROOM));
    const mutual = this.tools.lines.checked ? matches.slice(0, most) : [];
    this.find(".match-found").textContent = this.words(shown, mutual.length);
    const ends = (/** @type {Match} */ match) => [share(match.a, a), share(match.b, b)];
    render(
      [
        ...mutual.map(ends).map(([from, to]) => line(inA(from), inB(to), hue(from.y), "match-mutual")),
        ...pins.list.map((pin) => {
          const patch = a.patchAt(pin);
          const to = b.placeOf(this.counterpart(patch).patch);
          return line(inA(a.placeOf(patch)), inB(to), pin.color, "match-pinned");
        }),
      ],
      sheet,
    );
  }

  /** @param {string} file */
  async download(file) {
    if (!this.shown) return;
    const { a, b } = this.shown;
    const pins = this.pins.list.map((pin) => ({ ...a.patchAt(pin), color: pin.color }));
    const lines = this.tools.lines.checked;
    const asked = { a: a.token, b: b.token, ratio: this.ratio, pins, lines, names: [a.name, b.name] };
    await keepDrawn(`api/match/${file}`, asked);
  }
}

/** @param {Place} from @param {Place} to @param {string} color @param {string} kind */
function line(from, to, color, kind) {
  const drawn = (/** @type {string} */ name, /** @type {string} */ stroke) =>
    svg`<line class=${name} x1=${from.x} y1=${from.y} x2=${to.x} y2=${to.y} stroke=${stroke} />`;
  const dot = (/** @type {Place} */ { x, y }) => svg`<circle cx=${x} cy=${y} r="3" fill=${color} />`;
  return svg`<g class=${kind}>${kind === "match-pinned" ? drawn("match-edge", "") : ""}${drawn("", color)}${dot(from)}${dot(to)}</g>`;
}

/** A colour by how far down a match starts, as a share. @param {number} y */
function hue(y) {
  return `hsl(${Math.round(240 - 240 * y)} 90% 60%)`;
}
