// Views as a user sees them: what they draw and write for a value, and how they answer to pointer and keys.

import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { Element, media, mounted, served, settled } from "./document.js";
import { Busy } from "../../app/static/views/busy.js";
import { ChartView } from "../../app/static/views/chart_view.js";
import { ClipView } from "../../app/static/views/clip_view.js";
import { AttentionView } from "../../app/static/views/attention_view.js";
import { Refusal, memory } from "../../app/static/views/encoding.js";
import { shownSection } from "../../app/static/views/export.js";
import { cutoutFile } from "../../app/static/views/files.js";
import { MaskView } from "../../app/static/views/mask_view.js";
import { PairView } from "../../app/static/views/pair_view.js";
import { COLORMAPS as VIEWS, packed } from "../../app/static/views/paint.js";
import { COLORS } from "../../app/static/views/palette.js";
import { pictureFile } from "../../app/static/views/picture.js";
import { Stage } from "../../app/static/views/stage.js";
import { attentionMaps, keepMass, meanMap } from "../../app/static/maths/attention.js";
import { Guide } from "../../app/static/maths/guided.js";
import { resized } from "../../app/static/maths/labels.js";
import { Maps } from "../../app/static/maths/maps.js";
import { proposal, tidy } from "../../app/static/maths/proposal.js";
import { random } from "./random.js";
import { TABLE } from "./table.js";

mock.timers.enable({ apis: ["setTimeout"] });

const attributes = (element, ...names) => names.map((name) => Number(element.attributes[name]));
const close = (found, expected, most = 1e-6) =>
  expected.forEach((value, at) => assert.ok(Math.abs(found[at] - value) < most, `${found} is not ${expected}`));
const next = random(11);
const numbers = (count) => Float32Array.from({ length: count }, () => 2 * next() - 1);
const halves = (values) => Buffer.from(Uint16Array.from(values, half).buffer).toString("base64");

/** Encode a number whose fraction fits into 16 bits. */
function half(value) {
  if (!value) return 0;
  const power = Math.floor(Math.log2(Math.abs(value)));
  return (value < 0 ? 0x8000 : 0) | ((power + 15) << 10) | Math.round((Math.abs(value) / 2 ** power - 1) * 1024);
}

/** Two heads with one number each on 3 × 5 patches and [CLS]: keys and queries of a block. */
const KEYS = Array.from({ length: 32 }, (_, at) => Math.round(8 * Math.sin(at)) / 4);
const BLOCK = halves([...KEYS.map((key) => -key / 2), ...KEYS]);
const VALUE = {
  ...{ token: "t.1", name: "owl", source: "owl", image: "owl.jpg", width: 50, height: 30, rows: 3, columns: 5 },
  ...{ heads: 2, blocks: 2, prefix: 1, model: "toy", size: 30, arrays: { "blocks/0": BLOCK, "blocks/1": BLOCK } },
};

test("curves fill the plot between its edges, break at missing values, and a marker shows a step", async () => {
  const points = [[10, 1], [20, null], [30, 3], [50, 2]]; // prettier-ignore
  const value = { title: "Loss", curves: [{ label: "a", points }, { label: "b", points: [[20, 2]] }] }; // prettier-ignore
  const view = new ChartView(mounted({ value, marker: 30 }, [0, 0, 500, 0]));
  await settled();
  const [frame, ...lines] = view.plot.querySelectorAll("path").map((path) => path.attributes.d);
  // 500 × 200 pixels, of which 40 are free at the left, 8 at the right and at the top, 20 below
  const x = (step) => (40 + (452 * (step - 10)) / 40).toFixed(1);
  const y = (loss) => (180 - (172 * (loss - 1)) / 2).toFixed(1);
  assert.equal(frame, "M40 8V180H500");
  assert.deepEqual(lines, [`M${x(10)} ${y(1)}M${x(30)} ${y(3)}L${x(50)} ${y(2)}`, `M${x(20)} ${y(2)}`, `M${Number(x(30))} 8V180`]); // prettier-ignore
  const texts = view.plot.querySelectorAll("text").map((text) => [text.textContent, ...attributes(text, "x", "y")]);
  assert.deepEqual(texts, [["1", 35, 184], ["3", 35, 12], ["10", 40, 195], ["step 50", 492, 195]]); // prettier-ignore
  for (const [width, height] of [
    [100, 130],
    [404, 162],
    [2000, 360],
  ]) {
    view.element.box[2] = width;
    view.draw("Loss", [{ label: "flat", points: [[1, 5]] }]); // prettier-ignore
    assert.deepEqual(attributes(view.plot, "width", "height"), [width, height]);
    assert.equal(view.plot.querySelectorAll("path")[1].attributes.d, `M${(40 + (width - 48) / 2).toFixed(1)} ${((8 + height - 20) / 2).toFixed(1)}`); // prettier-ignore
  }
  view.draw("Loss", [{ label: "long", points: [[1, 0.1234], [12345, 2]] }]); // prettier-ignore
  assert.deepEqual(view.plot.querySelectorAll("text").map((text) => text.textContent), ["0.12", "2", "1", "step 12,350"]); // prettier-ignore
  view.draw("Loss", []);
  assert.deepEqual(view.plot.querySelectorAll("text").map((text) => text.textContent), ["0", "1", "0", "step 1"]); // prettier-ignore
  const colors = view.legend.children.map((label) => label.attributes.style);
  assert.deepEqual(
    colors,
    [7, 8].map((at) => `--pin: rgb(${COLORS.heads[at % COLORS.heads.length].join(" ")})`),
  );
  const hidden = () => [view.title, view.plot, view.legend].map((part) => "hidden" in part.attributes);
  assert.deepEqual(hidden(), [false, false, false]);
  view.props.value = { title: "Loss", curves: [] };
  await view.reload();
  assert.deepEqual(hidden(), [true, true, true]);
});

/** A pair of 2 × 3 and 4 × 2 patches whose images fill boxes of the screen. */
async function pair(matches) {
  const [inA, inB] = [
    { rows: 2, columns: 3, width: 30, height: 20 },
    { rows: 4, columns: 2, width: 20, height: 40 },
  ];
  const [value, b] = [
    { ...VALUE, ...inA, token: "a" },
    { ...VALUE, ...inB, token: "b" },
  ];
  const directions = numbers(14 * 2).map((direction) => Math.round(16 * direction) / 16 || 0.5);
  served["directions"] = Uint16Array.from(directions, half).buffer;
  const view = new PairView(mounted({ value, matched: { a: "a", b, directions: "directions", ratio: 1, matches } }));
  view.pair.box = [5, 7, 160, 90];
  view.stages[0].sheet.box = [15, 17, 60, 40];
  view.stages[1].sheet.box = [95, 27, 30, 60];
  await settled();
  view.render();
  return { view, directions };
}

test("of two images, the patch with the largest cosine is found from either side", async () => {
  const held = memory.bytes;
  const { view, directions } = await pair([]);
  assert.equal(memory.bytes - held, 4 * directions.length);
  const vector = (token) => directions.subarray(2 * token, 2 * token + 2);
  const cosine = (one, other) => (one[0] * other[0] + one[1] * other[1]) / Math.hypot(...one) / Math.hypot(...other);
  const firsts = [0, 6];
  for (const side of [0, 1]) {
    const [here, there] = [view.images[side], view.images[1 - side]];
    for (let row = 0; row < here.rows; row++)
      for (let column = 0; column < here.columns; column++) {
        const from = vector(firsts[side] + row * here.columns + column);
        const all = Array.from({ length: there.rows * there.columns }, (_, at) => cosine(from, vector(firsts[1 - side] + at))); // prettier-ignore
        const found = view.counterpart(side, { row, column });
        close(found.map, all);
        const best = all.findIndex((value) => Math.max(...all) - value < 1e-6);
        assert.deepEqual(found.patch, { row: Math.floor(best / there.columns), column: best % there.columns });
      }
    view.point(side, { x: 0.9, y: 0.1 });
    const frames = view.stages.map(({ ink }) => attributes(ink.children.at(-1), "x", "y"));
    const { patch, cosine: most } = view.counterpart(side, { row: 0, column: here.columns - 1 });
    assert.deepEqual(frames[side], [here.columns - 1, 0]);
    assert.deepEqual(frames[1 - side], [patch.column, patch.row]);
    assert.equal(view.what.textContent, `Most similar: cosine ${most.toFixed(2)}`);
    assert.equal(view.spoken.textContent, `Row 0, column ${here.columns - 1}. Row ${patch.row}, column ${patch.column}. ${view.what.textContent}`); // prettier-ignore
    assert.deepEqual(view.stages.map(({ ink }) => ink.attributes.viewBox), ["0 0 3 2", "0 0 2 4"]); // prettier-ignore
    const renders = mock.method(view, "render");
    for (const [other, x] of [[side, 0.9], [1 - side, 0.9], [1 - side, 0.9], [side, 0.9]]) view.point(other, { x, y: 0.1 }); // prettier-ignore
    assert.equal(renders.mock.callCount(), 2); // not for the same patch
    mock.restoreAll();
    assert.equal(view.stages[side].canvas.pixels.some(Boolean), false);
    assert.equal(view.stages[1 - side].canvas.pixels.some(Boolean), true);
    assert.equal(view.lines.attributes.opacity, "0.15");
  }
  view.stages[1].element.fire("keydown", { key: "Escape" });
  assert.deepEqual([view.hovered, view.lines.attributes.opacity], [null, "1"]);
  assert.equal(view.found.textContent, "No patches match: point at single patches.");
  assert.deepEqual(attributes(view.stages[0].ink.children.at(-1), "x", "y"), [1, 1]); // the middle
  assert.equal(view.encoding.token, "a");
  view.point(1, { x: 0.9, y: 0.1 });
  view.show({ ...view.props, directions: view.directions });
  assert.deepEqual([view.side, view.hovered], [1, { row: 0, column: 1 }]); // of the same images
  view.point(1, null);
  view.images[0].pinned = { row: 0, column: 2 };
  view.render();
  assert.deepEqual(attributes(view.stages[0].ink.children.at(-1), "x", "y"), [2, 0]); // the object of an example
  view.props.value = { ...VALUE, token: "c", image: "c.jpg" };
  await view.reload();
  assert.deepEqual([view.shown, view.stages[0].image.src, view.stages[1].image.src], [null, "c.jpg", "owl.jpg"]);
  new PairView(mounted({ value: {} }, [0, 0, 9, 9])).resized(); // nothing is shown yet
});

test("lines join the centers of matched pixels, with hues by height, one per 8 pixels of width", async () => {
  const matches = Array.from({ length: 30 }, (_, at) => ({ a: [at % 20, at], b: [39 - at, at % 20] }));
  const { view } = await pair(matches);
  assert.deepEqual(attributes(view.lines, "stroke-width"), [1.5]);
  assert.equal(view.lines.attributes.viewBox, "0 0 160 90");
  assert.equal(view.lines.children.length, 20); // of 160 pixels
  assert.equal(view.found.textContent, "30 mutual nearest neighbors, the best 20 drawn.");
  for (const [at, group] of view.lines.children.entries()) {
    const [line, from, to] = group.children;
    const { a, b } = matches[at];
    const ends = [10 + (60 * (a[1] + 0.5)) / 30, 10 + (40 * (a[0] + 0.5)) / 20, 90 + (30 * (b[1] + 0.5)) / 20, 20 + (60 * (b[0] + 0.5)) / 40]; // prettier-ignore
    close(attributes(line, "x1", "y1", "x2", "y2"), ends);
    close([...attributes(from, "cx", "cy"), ...attributes(to, "cx", "cy"), ...attributes(to, "r")], [...ends, 3]);
    assert.equal(line.attributes.stroke, `hsl(${Math.round(240 - (240 * (a[0] + 0.5)) / 20)} 90% 60%)`);
  }
  Object.assign(view.shown, { matches: matches.slice(0, 20) });
  view.resized();
  assert.equal(view.found.textContent, "20 mutual nearest neighbors.");
  view.pair.box[2] = 148; // 18.5 lines
  view.images[0].height = 23;
  view.resized();
  assert.equal(view.lines.children.length, 19);
  assert.equal(view.lines.children[0].children[0].attributes.stroke, "hsl(235 90% 60%)");
  view.pair.box[2] = 5000;
  Object.assign(view.shown, { matches: Array.from({ length: 120 }, () => matches[0]) });
  view.resized();
  assert.equal(view.lines.children.length, 100); // at most
});

/** A stage of 200 × 100 pixels at (10, 20) of the screen that notes what it tells its view. */
function stage(kind) {
  const told = [];
  const note = (name) => (...values) => told.push([name, ...values]) && undefined; // prettier-ignore
  const made = new Stage("Label", "Keys", Object.fromEntries(["point", "press", "stroke", "lift", "retract"].map((name) => [name, note(name)])), kind); // prettier-ignore
  made.sheet.box = [10, 20, 200, 100];
  made.show({ image: "a.jpg", name: "a", width: 20, height: 10, rows: 5, columns: 4 });
  return { stage: made, told, fire: (name, event) => made.element.fire(name, { target: { closest: () => null }, pointerId: 1, detail: 1, ...event }) }; // prettier-ignore
}

test("a stage can be focused, and shows an image with its ratio, step and grid", () => {
  const { stage: made } = stage();
  assert.deepEqual([made.element.attributes.tabindex, made.element.attributes.role], ["0", "application"]);
  assert.deepEqual([made.step, made.canvas.image.width, made.canvas.image.height], [{ x: 0.25, y: 0.2 }, 4, 5]);
  const wide = () => [made.cell.style["--ratio"], "data-wide" in made.cell.attributes];
  assert.deepEqual(wide(), ["2", false]);
  made.look({ x: 0.5, y: 0.25, zoom: 2.5 });
  assert.equal(made.sheet.style.transform, "translate(-125%,-62.5%) scale(2.5)");
  assert.deepEqual([made.element.style["--zoom"], "data-zoomed" in made.element.attributes], ["2.5", true]);
  made.preview({ image: "b.jpg", name: "b", width: 23, height: 10 });
  assert.deepEqual([wide(), made.window.zoom, made.open, made.image.alt], [["2.3", true], 1, false, "Image b"]);
  made.preview({ image: "b.jpg", name: "b", width: 22, height: 10 });
  assert.deepEqual(wide(), ["2.2", false]);
  assert.deepEqual([made.ink.attributes.viewBox, made.canvas.image.width, made.canvas.image.height], ["0 0 1 1", 1, 1]);
  made.look({ x: 0, y: 0, zoom: 3 });
  made.reset.click();
  assert.deepEqual([made.window.zoom, "data-zoomed" in made.element.attributes], [1, false]);
});

test("outlines, markers, pins and circles are drawn at their places", () => {
  const { stage: made } = stage();
  made.draw([{ path: "M0 0H1", color: "red" }], { rows: 3, columns: 7 }, { row: 2, column: 5 }, "blue");
  assert.equal(made.ink.attributes.viewBox, "0 0 7 3");
  const drawn = made.ink.children.map((part) => [part.tag, part.attributes.stroke, part.attributes.d, ...attributes(part, "x", "y", "width", "height")]); // prettier-ignore
  const box = [undefined, 5, 2, 1, 1];
  assert.deepEqual(drawn.map((part) => part.slice(0, 3)), [["path", undefined, "M0 0H1"], ["path", "red", "M0 0H1"], ["rect", undefined, undefined], ["rect", "blue", undefined]]); // prettier-ignore
  assert.deepEqual(
    drawn.slice(2).map((part) => part.slice(2)),
    [box, box],
  );
  made.mark([{ x: 0.25, y: 0.5, color: "red" }, { x: 1, y: 0, color: "blue", number: "" }]); // prettier-ignore
  const marks = made.markers.children.map((mark) => [mark.textContent, mark.attributes.style]);
  assert.deepEqual(marks, [
    ["1", "--pin: red; left: 25%; top: 50%"],
    ["", "--pin: blue; left: 100%; top: 0%"],
  ]);
  for (const [part, show] of [
    [made.walker, "pin"],
    [made.ring, "circle"],
  ]) {
    // prettier-ignore
    made[show]({ x: 0.1, y: 0.7 });
    assert.deepEqual([part.style.left, part.style.top, part.hidden], ["10%", "70%", false]);
    made[show](null);
    assert.equal(part.hidden, true);
  }
});

test("pointing, clicks, strokes and double clicks reach the view as places", () => {
  const { stage: made, told, fire } = stage();
  const place = { x: 0.25, y: 0.75 };
  const event = { clientX: 60, clientY: 95 };
  fire("pointermove", event);
  fire("click", { ...event, altKey: true });
  fire("click", { ...event, detail: 2 }); // the second of a double click
  assert.deepEqual(told.splice(0), [["point", place], ["press", place, true]]); // prettier-ignore
  fire("pointerdown", event);
  fire("pointermove", { ...event, clientX: 80 });
  fire("pointerup", event);
  assert.deepEqual([made.window.x, told.splice(0).every(([name]) => name === "point")], [0, true]); // no pan, no stroke
  fire("click", event); // nor a drag
  assert.deepEqual(told.splice(0), [["press", place, false]]);
  fire("dblclick", event);
  assert.deepEqual([told.splice(0), made.window.zoom], [[["retract"]], 2]);
  fire("pointerdown", event);
  fire("pointermove", { ...event, clientX: 80, clientY: 90 }); // a drag of the enlarged image
  close([made.window.x, made.window.y], [0.125 - 0.1, 0.375 + 0.05]);
  fire("pointerup", event);
  fire("pointerleave");
  assert.equal(made.cursor, null);
  told.length = 0;
  made.paints = true;
  fire("dblclick", event);
  assert.deepEqual([told.length, made.window.zoom], [0, 2]);
  fire("pointerdown", event);
  fire("pointermove", { clientX: 110, clientY: 45 });
  fire("pointerleave"); // the stroke goes on
  fire("pointerup");
  fire("pointerdown", { ...event, button: 2 }); // no stroke
  fire("pointerup");
  const end = { x: 0.5, y: 0.25 };
  assert.deepEqual(told.splice(0, 3), [["stroke", place, place], ["stroke", place, end], ["lift"]]); // prettier-ignore
  assert.equal(told.some(([name]) => name === "stroke"), false); // prettier-ignore
  told.length = 0;
  made.cursor = null;
  made.element.fire("keydown", { key: "Enter" });
  assert.deepEqual(told, [["stroke", { x: 0.5, y: 0.5 }, { x: 0.5, y: 0.5 }], ["lift"]]); // prettier-ignore
  assert.deepEqual([made.key({ key: "Enter", altKey: true }), made.key({ key: "+", ctrlKey: true })], [false, false]);
  assert.deepEqual([made.key({ key: "=" }), made.window.zoom, made.key({ key: "0" }), made.window.zoom], [true, 4, true, 1]); // prettier-ignore
  for (const [state, changes] of [
    [{ paints: true, zoom: 2 }, false], // a stroke
    [{ paints: true, zoom: 2, fingers: [1, 2] }, false], // a second finger while one draws
    [{ paints: false, zoom: 2, open: false }, false],
    [{ paints: false, zoom: 1, fingers: [1, 2], open: false }, false],
    [{ paints: false, zoom: 1, fingers: [1, 2] }, true],
    [{ paints: false, zoom: 1.5 }, true],
  ]) {
    const { zoom, fingers = [1], ...rest } = /** @type {any} */ (state);
    made.look({ x: 0, y: 0, zoom });
    assert.equal("data-zoomed" in made.element.attributes, zoom > 1);
    Object.assign(made, { open: true, ...rest });
    for (const pointerId of fingers) fire("pointerdown", { clientX: 100 * pointerId, clientY: 50, pointerId });
    fire("pointermove", { clientX: 40, clientY: 50 });
    assert.equal(made.window.x > 0 || made.window.zoom > 2, changes);
    for (const pointerId of fingers) fire("pointerup", { pointerId });
  }
  Object.assign(made, { open: false });
  made.look({ x: 0, y: 0, zoom: 2 });
  fire("wheel", { ...event, deltaY: -100 });
  assert.equal(made.window.zoom, 2); // a preview is not enlarged
});

/** An attention view of the last block of `VALUE`. */
async function attention(props = {}) {
  const view = new AttentionView(mounted({ value: VALUE, ...props }));
  await settled();
  return view;
}

test("maps of a patch, the mean or a head are drawn with the opacity, colors and words of the settings", async () => {
  const view = await attention();
  const part = (name) => view.element.style[`--${name}`];
  assert.equal(view.settings.mass, TABLE.settings.mass);
  assert.deepEqual([view.arrays.number, view.shown, part("opacity"), part("rows"), part("columns")], [1, "mean", "0.85", "3", "5"]); // prettier-ignore
  assert.match(view.caption.textContent, /block 2|mean of 2 heads/);
  assert.deepEqual(view.stops, [0, 51, 102, 153, 204, 255].map((level) => `rgb(${[0, 8, 16].map((bits) => (VIEWS.inferno[level] >> bits) & 255).join(" ")})`)); // prettier-ignore
  assert.deepEqual(view.entries().map(({ key, label }) => [key, label]), [["mean", "Mean"], ["0", "Head 0"], ["1", "Head 1"]]); // prettier-ignore
  assert.deepEqual(view.entries()[2].color, `rgb(${COLORS.heads[1].join(" ")})`);
  assert.deepEqual(view.colorOf(String(COLORS.heads.length + 1)), COLORS.heads[1]);
  view.set({ head: "1", layer: "mask", mass: 50, opacity: 50 });
  assert.deepEqual([part("opacity"), view.element.dataset.show, view.shownScale], ["0.3", "1", null]);
  assert.match(view.caption.textContent, /head 1 of 0 to 1 · mask of 50 %$/);
  const [map] = view.maps.heads.slice(1);
  const kept = view.maps.kept("1");
  const [inside, total] = [0, 0].map((_, all) =>
    map.reduce((sum, value, at) => sum + (all || kept[at] ? value : 0), 0),
  );
  const area = kept.reduce((sum, one) => sum + one, 0) / 15;
  const percent = (share) => `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`;
  assert.deepEqual(view.describe(), ["[CLS], the token of the whole image", `The mask keeps ${percent(inside / total)} of the attention on ${percent(area)} of the image`]); // prettier-ignore
  view.set({ layer: "heat", head: "max", block: 1 });
  mock.timers.tick(200); // arrays that are not in memory are fetched after a rest
  await settled();
  assert.deepEqual([view.arrays.number, view.entries()[0].key, view.state.block], [0, "max", 1]);
  const { ends } = view.shownScale;
  assert.match(ends[1], / %$/);
  close([Number.parseFloat(ends[1])], [100 * view.maps.scale("max")[1]], 1);
  assert.deepEqual([view.valueText(0.1234), view.valueText(0.99)], ["12 %", "99 %"]);
  assert.deepEqual([view.colorOf("heads"), view.colorOf("mean")], [COLORS.heads[0], COLORS.summary.mean]);
  for (let mass = 10; mass <= 100; mass++) {
    view.set({ mass });
    assert.deepEqual([...view.maps.kept("0")], [...keepMass(view.maps.heads[0], mass / 100)]);
  }
  view.settings.block = 2;
  view.refuse("Not now.");
  assert.equal(view.settings.block, 1); // as shown
  view.arrays = { ...view.arrays, number: 1 };
  view.refuse("Not now.");
  assert.equal(view.settings.block, 0); // the last
  view.set({ block: 9 });
  assert.equal(view.settings.block, 0);
});

const [HEAT, WHITE, HEAD] = ["inferno", "#fff", `rgb(${COLORS.heads[1].join(" ")})`];
for (const [
  settings,
  shown,
  colormap,
  layer,
  outlines,
  caption,
] of [
  [{}, "mean", HEAT, "heat", [], "attends to the lit places · mean of 2 heads"],
  [{ head: "1", outline: true }, "1", HEAT, "heat", [WHITE], "attends to the lit places · head 1 of 0 to 1"],
  [{ head: "7", layer: "light" }, "mean", HEAT, "light", [], "attends to the lit places · mean of 2 heads"],
  [{ head: "1", layer: "mask" }, "1", HEAT, "mask", [HEAD], "attends to the lit places · head 1 of 0 to 1 · mask of 60 %"],
  [{ head: "heads", layer: "mask" }, "heads", HEAT, "mask", [], "attends to the lit places · all 2 heads · mask of 60 %"],
  [{ quantity: "logits" }, "mean", "coolwarm", "heat", [], "attention before the softmax, q · k · mean of 2 heads"],
  [{ quantity: "logits", layer: "light" }, "mean", "coolwarm", "light", [], "attention before the softmax, q · k · mean of 2 heads"],
  [{ quantity: "logits", colormap: "gray" }, "mean", "gray", "heat", [], "attention before the softmax, q · k · mean of 2 heads"],
  [{ quantity: "rollout", head: "1" }, "mean", HEAT, "heat", [], "attends to the lit places through blocks 1 to 2"],
  [{ quantity: "token-norm", layer: "mask" }, "mean", HEAT, "mask", ["#0ff"], "Bright patches have long tokens; outliers are outlined"],
  [{ quantity: "key-pca", layer: "mask", outline: true }, "mean", HEAT, "colors", [], "Similar patches have similar colors · PCA of the keys"],
]) // prettier-ignore
  test(`the stage with ${JSON.stringify(settings)}`, async () => {
    const view = await attention({ value: { ...VALUE, token: "stage", arrays: ARRAYS }, ...settings, shown_head: settings.head, exports: "place" }); // prettier-ignore
    const { quantity = "attention", layer: chosen = "heat" } = /** @type {any} */ (settings);
    assert.deepEqual([view.quantity, view.shown, view.colormap, view.element.dataset.layer], [quantity, shown, colormap, layer]); // prettier-ignore
    assert.deepEqual(view.outlines().map(({ color }) => color), outlines); // prettier-ignore
    assert.equal(view.caption.textContent.replace(/^.*?(attends|attention)/, "$1"), caption);
    const maps = view.maps && new Maps(view.definition.maps(view.arrays, 0), { mass: 0.6, diverging: colormap === "coolwarm" && layer === "heat", signed: view.definition.signed }); // prettier-ignore
    const hasScale = maps && shown !== "heads" && chosen !== "mask";
    assert.equal(view.scale.hidden, !hasScale);
    const table = VIEWS[colormap];
    if (hasScale) {
      const ends = maps.scale(shown).map((value) => view.valueText(value));
      assert.deepEqual(view.shownScale, { ends, stops: view.stops });
      const color = (level) => (chosen === "light" ? packed(0, 0, 0, 255 - level) : table[level]);
      assert.ok(view.stage.canvas.pixels.every((pixel) => Array.from({ length: 256 }, (_, level) => color(level)).includes(pixel))); // prettier-ignore
    }
    assert.equal(Boolean(view.pinBox.hidden), ["token-norm", "key-pca"].includes(quantity));
    assert.equal(view.tiles.element.hidden, !view.definition.heads);
    assert.equal(Boolean(view.ranges.textContent), Boolean(view.definition.heads));
  });

test("a view has the title, numbers and banner that its value and props ask for", async () => {
  for (const [title, numbers, random] of [
    [true, true, true],
    [false, false, false],
  ]) {
    const view = await attention({ value: { ...VALUE, token: "props", random }, title, numbers });
    const chips = view.element.querySelectorAll(".lab-top > *");
    assert.deepEqual([chips.includes(view.title), !view.banner.hidden], [title, random]);
    assert.equal(!("hidden" in view.element.querySelector("details").attributes), numbers);
  }
  Object.assign(globalThis, { location: { search: "", pathname: "/" } });
  for (const [address, mass] of [
    [true, 60], // controls at their defaults do not replace an address
    [undefined, 20],
  ]) {
    const view = new AttentionView(mounted({ value: VALUE, address }));
    assert.equal(view.state.block, 0);
    view.set({ mass: 20 });
    view.point({ x: 0.5, y: 0.5 }); // nothing is shown yet
    await settled();
    assert.deepEqual([view.settings.mass, view.state.block], [mass, 2]);
  }
});

test("a large image is drawn on 400,000 pixels, divided among the heads, and a tile on 8,000", async () => {
  const view = await attention({ value: { ...VALUE, token: "large", width: 2000, height: 1200 }, tiles: false, pins: false }); // prettier-ignore
  const size = ({ canvas }) => [canvas.width, canvas.height];
  assert.deepEqual([size(view.stage.canvas), size(view.tiles.tiles.get("1").canvas)], [[816, 490], [115, 69]]); // prettier-ignore
  view.set({ head: "heads" });
  assert.deepEqual(size(view.stage.canvas), [577, 346]);
  assert.deepEqual([view.tiles.element.hidden, view.pinBox.hidden], [true, true]);
});

test("the first view walks over its places, and an address of another image shows nothing", async () => {
  const view = await attention({ value: { ...VALUE, token: "walk" }, walk: { source: "owl", places: [[0.1, 0.1], [0.9, 0.9]] } }); // prettier-ignore
  const places = [view.guided];
  for (let step = 0; step < 2; step++) {
    mock.timers.tick(1299);
    assert.equal(view.guided, places.at(-1));
    mock.timers.tick(1);
    places.push(view.guided);
  }
  mock.timers.tick(399);
  assert.equal(view.element.dataset.walk, "on");
  mock.timers.tick(1);
  assert.equal(view.element.dataset.walk, "over");
  assert.deepEqual(places, [{ row: 0, column: 0 }, { row: 2, column: 4 }, { row: 0, column: 0 }]); // prettier-ignore
  view.stage.element.fire("pointermove", { pointerId: 1, target: { closest: () => null } });
  assert.deepEqual([view.guided, view.element.dataset.walk], [null, "over"]);
  media.matches = true; // the user wants less motion
  const still = await attention({ value: { ...VALUE, token: "still" }, walk: { source: "owl", places: [[0.9, 0.9], [0.1, 0.1]] } }); // prettier-ignore
  mock.timers.tick(5000);
  assert.deepEqual(still.guided, { row: 2, column: 4 });
  media.matches = false;
  for (const [search, found] of [
    ["?image=kitten", null],
    ["?image=owl&size=30", "linked"],
  ]) {
    // prettier-ignore
    Object.assign(globalThis, { location: { search, pathname: "/" }, history: { replaceState() {} } }); // prettier-ignore
    const { encoding } = await attention({ value: { ...VALUE, token: "linked" }, address: true });
    assert.equal(encoding?.token ?? null, found);
  }
});

/** Files of an archive that is not compressed. @param {Blob} file @returns {Promise<Record<string, Buffer>>} */
async function unzip(file) {
  const bytes = Buffer.from(await file.arrayBuffer());
  const files = {};
  for (let at = 0; bytes.readUInt32LE(at) === 0x04034b50; ) {
    const [size, name] = [bytes.readUInt32LE(at + 18), bytes.readUInt16LE(at + 26)];
    const start = at + 30 + name;
    files[bytes.toString("utf-8", at + 30, start)] = bytes.subarray(start, start + size);
    at = start + size;
  }
  return files;
}

/** Shape and values of an array of NumPy; a text is an array of code points. @param {Buffer} bytes @returns {any} */
function numpy(bytes) {
  const start = 10 + bytes.readUInt16LE(8);
  const [, kind, shape] = bytes.toString("latin1", 10, start).match(/'descr': '(.*?)'.*\((.*?),?\)/);
  const data = Uint8Array.from(bytes.subarray(start)).buffer;
  const kinds = { "<f4": Float32Array, "<f8": Float64Array, "<i4": Int32Array, "|b1": Uint8Array };
  if (kind.startsWith("<U")) return String.fromCodePoint(...new Uint32Array(data));
  return [shape.split(", ").map(Number), [...new kinds[kind](data)]];
}

const NORMS = Float32Array.from({ length: 30 }, (_, at) => (at < 15 ? at + 0.25 : Number(at === 20 || at === 22)));
const PCA = Float32Array.from({ length: 48 }, (_, at) => (at < 45 ? at / 45 : [0.5, 0.25, 0.125][at - 45]));
const ROLLOUT = halves(Array.from({ length: 256 }, (_, at) => ((at * 7) % 32) / 32));
const ARRAYS = { "norms/1": NORMS, "key-pca/1": PCA, "rollout/1": ROLLOUT, "blocks/1": BLOCK, "blocks/0": BLOCK };
const AS_SHOWN = ["As shown", "Mask", "Figure of all heads", "Maps of all heads", "Animation", "All your images, maps and masks"]; // prettier-ignore

for (const [
  quantity,
  query,
  sections,
  animations,
  caption,
  label,
  scale,
] of [
  ["attention", "2,1", AS_SHOWN, 3, /^Attention of the marked patch \(row 2, column 1\) in block 2 of toy, short side 30 pixels\. Each map/, "attention (%)", "own"],
  ["attention", "cls", AS_SHOWN, 3, /^Attention of \[CLS\] in .* All maps/, "attention (%)", "common"],
  ["key-similarity", "2,1", AS_SHOWN, 2, /^Key similarity of the marked/, "key similarity", "own"],
  ["token-norm", "cls", AS_SHOWN, 2, /^Token norm of all patches/, "token norm", "own"],
  ["key-pca", "cls", AS_SHOWN.filter((_, at) => at !== 1 && at !== 2), 2],
]) // prettier-ignore
  test(`files of ${quantity} of ${query} hold maps, masks and settings; a figure of the server, percents`, async () => {
    const view = await attention({ value: { ...VALUE, token: "files", arrays: ARRAYS }, exports: "place", quantity });
    if (query !== "cls" || quantity !== "attention") view.hover({ row: 2, column: 1 });
    const parts = view.sections();
    assert.deepEqual(parts.map(({ title }) => title), sections); // prettier-ignore
    assert.equal(parts.at(-2).options.over.length, animations);
    const make = (name) => parts.flatMap((part) => part.formats).find(([, ending]) => ending === name)[2];
    const files = await unzip(await make("maps.npz")());
    const { maps, mask, outliers, ...rest } = Object.fromEntries(Object.entries(files).map(([name, bytes]) => [name.slice(0, -4), numpy(bytes)])); // prettier-ignore
    assert.deepEqual(rest, { quantity, query, model: "toy", block: [[0], [1]], grid: [[2], [3, 5]], mass: [[0], [0.6]] }); // prettier-ignore
    assert.deepEqual(outliers, quantity === "token-norm" ? [[3, 5], [...view.arrays.outliers]] : undefined);
    if (quantity === "key-pca") return void assert.deepEqual([maps, mask], [[[3, 5, 3], [...PCA.subarray(0, 45)]], undefined]); // prettier-ignore
    const values = view.maps.heads.flatMap((map) => [...map]);
    const shape = [view.maps.heads.length, 3, 5];
    assert.deepEqual(maps, [shape, values]);
    assert.deepEqual(mask, [shape, view.maps.heads.flatMap((_, head) => [...view.maps.kept(String(head))])]);
    assert.equal(make("figure.png")({ scale }), null);
    const { maps: sent, caption: words, ...figure } = view.exportRequest;
    const place = query === "2,1" ? [0.3, 5 / 6] : null;
    assert.deepEqual(figure, { place, shape, label, scale, file: "figure.png", name: "owl", token: "files" });
    const factor = quantity === "attention" ? 100 : 1;
    close(new Float32Array(Uint8Array.from(Buffer.from(sent, "base64")).buffer), values.map((value) => factor * value), 1e-4); // prettier-ignore
    assert.match(words, caption);
  });

test("views with one pointer export one picture, and their own masks and maps", async () => {
  const place = new Element("div");
  place.id = "both";
  document.body.replaceChildren(/** @type {any} */ (place));
  for (const model of ["first", "second"]) {
    const view = await attention({ value: { ...VALUE, model, token: model }, exports: "both", group: "pair" });
    view.element.setAttribute("class", "lab-view");
    place.append(view.element);
  }
  const [view, other] = place.children.map((element) => element["view"]);
  const names = view.sections().map(({ title }) => title);
  assert.deepEqual(names, ["As shown", "Mask · first", "Figure of all heads · first", "Maps of all heads · first", "Mask · second", "Figure of all heads · second", "Maps of all heads · second"]); // prettier-ignore
  const strange = await attention({ value: { ...VALUE, token: "strange" }, group: "another" });
  const empty = new AttentionView(mounted({ value: {}, group: "pair" }));
  for (const { element } of [strange, empty]) {
    element.setAttribute("class", "lab-view");
    place.append(element);
  }
  assert.deepEqual(view.group, [view, other]);
  view.point({ x: 0.5, y: 0.5 });
  assert.deepEqual([other.hovered, other.stage.ring.hidden], [{ row: 1, column: 2 }, false]);
  const alone = await attention({ value: { ...VALUE, token: "alone" } });
  assert.deepEqual(alone.sections().map(({ title }) => title), ["As shown", "Mask", "Maps of all heads"]); // prettier-ignore
  document.body.replaceChildren();
});

test("all own images are in one archive with the maps and masks of the same place, and what is left out", async () => {
  const view = await attention({ value: { ...VALUE, token: "here.1" }, exports: "place" });
  view.hover({ row: 2, column: 4 });
  const own = ["k1/my photo.v2.png", "k2/lost.png"];
  const rail = { names: async () => own, props: { examples: [["sheep"]] } };
  Object.assign(globalThis, { viewOf: () => rail });
  for (const key of ["k1", "sheep"]) {
    served[`lab/shapes/${key}.1`] = JSON.stringify({ rows: 3, columns: 5, width: 7, height: 9 });
    served[`lab/arrays/${key}.1/blocks/1`] = Buffer.from(BLOCK, "base64");
  }
  const write = view.sections().at(-1).formats[0][2];
  for (const [examples, names] of [
    [false, ["01-my-photo.v2-maps.npz", "01-my-photo.v2-mask.png", "left-out.txt"]],
    [
      true,
      ["01-my-photo.v2-maps.npz", "01-my-photo.v2-mask.png", "03-sheep-maps.npz", "03-sheep-mask.png", "left-out.txt"],
    ],
  ]) {
    const said = [];
    const files = await unzip(await write({ examples }, (words) => said.push(words)));
    assert.deepEqual([Object.keys(files), said.at(-1)], [names, examples ? "Image 3 of 3" : "Image 2 of 2"]);
    assert.match(String(files["left-out.txt"]), /^lost\.png: The server answered with status 404/);
    const mask = files["01-my-photo.v2-mask.png"];
    assert.deepEqual([mask.readUInt32BE(16), mask.readUInt32BE(20)], [7, 9]);
    const { "query.npy": query } = await unzip(new Blob([/** @type {any} */ (files["01-my-photo.v2-maps.npz"])]));
    assert.equal(numpy(query), "2,4");
  }
  own.splice(1, 1);
  view.hover(null);
  const { "01-my-photo.v2-maps.npz": maps, ...rest } = await unzip(await write({}, () => {}));
  assert.deepEqual(Object.keys(rest), ["01-my-photo.v2-mask.png"]);
  assert.equal(numpy((await unzip(new Blob([/** @type {any} */ (maps)])))["query.npy"]), "cls");
  own.pop();
  await assert.rejects(
    write({ examples: false }, () => {}),
    /You have opened no image yet/,
  );
  view.encoding.value.arrays = null;
  own.push("k1/broken");
  served["lab/shapes/k1.1"] = "no JSON";
  await assert.rejects(
    write({}, () => {}),
    SyntaxError,
  );
});

test("an animation has a frame of at most 640 pixels per block, head or patch of the path, and changes no view", async () => {
  const view = await attention({ value: { ...VALUE, token: "film.1", arrays: ARRAYS }, exports: "place" });
  const box = [0, 0, 2000, 1200];
  for (const layer of [
    view.stage.image,
    view.stage.canvas.canvas,
    view.stage.overlay,
    view.stage.element,
    view.stage.ink,
  ])
    Object.assign(layer, { box, computed: { filter: "none", opacity: "1" } });
  Object.assign(view.stage.image, { width: 2000, height: 1200 });
  const make = view.sections().at(-2).formats[0][2];
  await assert.rejects(
    make({ over: "path" }, () => {}),
    Refusal,
  );
  for (let step = 0; step < 100; step++) view.hover({ row: step % 3, column: step % 5 });
  const seen = [];
  const { draw } = view;
  view.draw = () => (seen.push(`${view.arrays.number} ${view.settings.head} ${view.patch.row}`), draw.call(view));
  for (const [over, count, seconds, first, last] of [
    ["blocks", 2, 0.7, "0 mean 0", "1 mean 0"],
    ["heads", 2, 0.7, "1 0 0", "1 1 0"],
    ["path", TABLE.limits.animation, 0.1, "1 mean 1", "1 mean 0"],
  ]) {
    seen.length = 0;
    const before = [view.arrays, view.hovered, view.trail, view.settings.head];
    assert.equal(await make({ over }, () => {}), null);
    const { frames, ...request } = view.exportRequest;
    assert.deepEqual(request, { file: "animation.gif", name: "owl", seconds });
    assert.deepEqual([frames.length, new Set(frames)], [count, new Set(["data:640 384 0.92"])]);
    assert.deepEqual([seen[0], seen.at(-2)], [first, last]);
    assert.deepEqual([view.arrays, view.hovered, view.trail, view.settings.head], before);
  }
});

test("pins are compared, and the last 96 patches under the pointer are remembered", async () => {
  const view = await attention();
  const at = (row, column) => view.encoding.placeOf({ row, column });
  assert.deepEqual([view.hint.hidden, view.remove.hidden], [false, true]);
  view.stage.sheet.box = [0, 0, 500, 300];
  const click = (row, column) => view.stage.element.fire("click", { clientX: 100 * column + 50, clientY: 100 * row + 50, detail: 1, target: { closest: () => null } }); // prettier-ignore
  click(1, 3);
  click(2, 0);
  const tiles = view.pinTiles.element.querySelectorAll("label").map((tile) => tile.textContent);
  assert.deepEqual(tiles, ["[CLS]", "1row 1, column 3", "2row 2, column 0"]);
  const styles = view.pinTiles.element.querySelectorAll("label").map((tile) => tile.attributes.style);
  assert.deepEqual(styles, [undefined, ...COLORS.pins.slice(0, 2).map((color) => `--pin: ${color}`)]);
  assert.ok(view.tiles.element.querySelectorAll("img").every((image) => image.src === "owl.jpg"));
  assert.equal(document.head.querySelectorAll("link").length, 1); // one style sheet for all views
  assert.equal(view.pinTiles.element.style["--ratio"], String(5 / 3));
  view.pinTiles.element.box = [0, 0, 90, 0];
  view.pinTiles.tiles.get("1").element.box = [200, 0, 40, 0];
  view.pinTiles.mark("0");
  view.pinTiles.mark("1");
  assert.equal(view.pinTiles.element.scrollLeft, 200 - 25); // in the middle of its row
  const row = view.pinTiles.element;
  const scrolled = (key, width) => {
    Object.assign(row, { scrollLeft: 7 }).box[2] = width;
    view.pinTiles.mark(key);
    return row.scrollLeft;
  };
  assert.deepEqual([scrolled("1", 90), scrolled("0", 0), scrolled("2", 90)], [7, 7, 7]); // known, hidden, unknown
  assert.equal(scrolled("0", 90), -45);
  assert.deepEqual(
    view.stage.markers.children.map((mark) => mark.textContent),
    ["1", "2"],
  );
  const frame = () => view.stage.ink.children.at(-1).attributes.stroke;
  assert.equal(frame(), "#fff"); // under the pointer
  view.point(null);
  assert.equal(frame(), COLORS.pins[1]); // of the active pin
  view.activate(null);
  assert.equal(view.stage.ink.children.length, 0);
  const draws = mock.method(view, "draw");
  for (let move = 0; move < 3; move++) view.point(at(2, 0));
  assert.equal(draws.mock.callCount(), 1); // of the same patch
  mock.restoreAll();
  view.activate(view.pins.list[1]);
  const buttons = () => [view.remove, view.hint, view.pinBox, view.tiles.element].map(({ hidden }) => Boolean(hidden));
  assert.deepEqual(buttons(), [false, true, false, false]);
  assert.equal(view.where.textContent, "Patch row 2, column 0");
  for (const key of ["ArrowRight", "Enter", "Delete", "Delete"]) view.stage.element.fire("keydown", { key }); // the second has no pin
  assert.equal(view.pins.list.length, 2);
  click(2, 0);
  view.stage.element.fire("dblclick", { clientX: 50, clientY: 250 }); // of a pin that was there
  assert.deepEqual([view.pins.list.length, view.stage.window.zoom], [2, 2]);
  view.stage.zoomAt(0);
  view.stage.element.fire("keydown", { key: "Delete" });
  assert.equal(view.pins.list.length, 1);
  assert.deepEqual(buttons(), [true, true, false, false]);
  view.hover({ row: 0, column: 0 });
  view.show(view); // the same image again keeps its pins
  assert.deepEqual([view.pins.list.length, view.hovered], [1, { row: 0, column: 0 }]);
  view.hovered = null;
  view.retract(); // the last press made a pin, which is gone
  for (let step = 0; step < 100; step++) view.point(at(step % 3, step % 5));
  assert.deepEqual([view.trail.length, view.trail.at(-1), view.trail[0]], [96, { row: 0, column: 4 }, { row: 1, column: 4 }]); // prettier-ignore
  view.hoverAt(at(2, 2));
  assert.deepEqual(view.patch, { row: 2, column: 2 });
  view.guide(at(0, 1));
  view.point(null);
  assert.deepEqual([view.guided, view.stage.walker.hidden], [{ row: 0, column: 1 }, false]);
  view.hover({ row: 1, column: 1 });
  view.props.value = { ...VALUE, token: "p.2", source: "kitten" };
  await view.reload();
  assert.deepEqual([view.hovered, view.trail, view.guided, view.pins.list], [null, [], null, []]);
});

test("norms, outliers and components of all patches are described", async () => {
  const view = await attention({ value: { ...VALUE, token: "n", arrays: ARRAYS }, quantity: "token-norm" });
  assert.deepEqual(view.describe(), ["All patches", "2 outliers of over 6 deviations above the median"]);
  view.hover({ row: 1, column: 2 });
  assert.equal(view.what.textContent, "Norm 7.25 · 2 outliers of over 6 deviations above the median");
  assert.deepEqual([view.valueText(3.456), view.outlines()[0].color], ["3.5", "#0ff"]);
  view.hover(null);
  view.set({ quantity: "key-pca" });
  mock.timers.tick(200);
  await settled();
  assert.equal(view.what.textContent, "Principal components as red, green and blue: 50 %, 25 %, 13 % of the variance");
  const levels = [0, 1, 2].map((at) => Math.round((255 * at) / 45));
  assert.equal(view.stage.canvas.pixels[0], packed(...levels));
});

test("a point is shown in the file of a stage at the size of its image, with lines, pins and scale", async () => {
  const { stage: made } = stage();
  Object.assign(made.element, { box: [10, 20, 200, 100] });
  Object.assign(made.image, { box: [10, 20, 200, 100], width: 7, height: 7, naturalWidth: 500, naturalHeight: 250, computed: { filter: "none", opacity: "1" } }); // prettier-ignore
  Object.assign(made.canvas.canvas, { box: [30, 40, 50, 60], computed: { filter: "none", opacity: "0.5", imageRendering: "pixelated" } }); // prettier-ignore
  made.overlay.computed = { filter: "none", opacity: "1" };
  made.ink.box = [10, 20, 200, 100];
  made.draw([{ path: "M0 0H1", color: "red" }], { rows: 5, columns: 4 });
  for (const path of made.ink.children) path.computed = { stroke: "red", strokeWidth: "2px", fill: "none" };
  made.mark([{ x: 0.5, y: 0.5, color: "red" }]); // prettier-ignore
  Object.assign(made.markers.children[0], { box: [100, 60, 20, 20], computed: { color: "white", backgroundColor: "red", fontSize: "10px" } }); // prettier-ignore
  const scale = { ends: ["0 %", "10 %"], stops: ["black", "gray", "white"] };
  const { options, formats } = shownSection(/** @type {any} */ (made.cell), scale);
  assert.deepEqual(options, { outline: "Outlines", pins: "Pins", scale: "Scale" });
  const write = async (chosen) => (await formats[1][2](chosen, () => {})).text();
  const file = await write({ outline: true, pins: true, scale: true });
  assert.match(await write({}), /^<svg [^>]*width="500" height="250"/);
  // 2.5 pixels of the file per pixel of the screen; the bar is a 28th of the width
  assert.match(file, /^<svg [^>]*width="500" height="268" viewBox="0 0 500 268"><image href="data:500 250 " width="500" height="250"\/>/); // prettier-ignore
  assert.match(file, /<rect x="0" y="0" width="500" height="250"\/><\/clipPath>/);
  assert.match(file, /<g transform="translate\(0 0\) scale\(125 50\)">.*stroke-width="0.04"/);
  assert.match(file, /<circle cx="250" cy="125" r="25" fill="red" stroke="#fff" stroke-width="5"\/><text x="250" y="134" text-anchor="middle" [^>]*font-size="25" fill="white">1</); // prettier-ignore
  const size = 0.55 * 18;
  const [from, to] = [3, 4].map((letters) => 0.55 * size * letters + size);
  assert.deepEqual(file.match(/offset="[\d.]+"/g), ['offset="0"', 'offset="0.5"', 'offset="1"']);
  const bar = file.match(/<rect x="([\d.]+)" y="254.5" width="([\d.]+)" height="9" fill="url/);
  close(bar.slice(1).map(Number), [from, 500 - from - to]);
  const words = [...file.matchAll(/<text x="([\d.]+)" y="([\d.]+)" text-anchor="(?:start|end)" [^>]*font-size="([\d.]+)"/g)]; // prettier-ignore
  close(words.flatMap((word) => word.slice(1).map(Number)), [size / 2, 262.6, size, 500 - size / 2, 262.6, size]); // prettier-ignore
  const blob = async (kind) => (await pictureFile(made.element, kind, {})).text();
  assert.equal(await blob("jpeg"), "500 250 0.92");
  const pdf = await blob("pdf");
  assert.match(pdf, /MediaBox \[0 0 500 250\][\s\S]*stream\n500 250 0.95\nendstream/);
  const starts = [...pdf.matchAll(/^(\d{10}) 00000 n $/gm)].map(([, place]) => pdf.slice(Number(place)).split("\n")[0]);
  assert.deepEqual(
    starts,
    [1, 2, 3, 4, 5].map((number) => `${number} 0 obj`),
  );
  assert.match(pdf.slice(Number(pdf.match(/startxref\n(\d+)/)[1])), /^xref/);
  Object.assign(made.image, { naturalWidth: 5000 });
  for (const [parts, width, height] of [
    [{ side: 100 }, 100, 50],
    [{}, 1600, 800], // at most
    [{ side: 1500, scale }, 1500, 750 + 54],
    [{ side: 20, scale }, 20, 10 + 18],
  ]) {
    const drawn = await (await pictureFile(made.element, "svg", parts)).text();
    assert.ok(drawn.includes(` width="${width}" height="${height}" viewBox="0 0 ${width} ${height}">`));
    assert.ok(!drawn.includes("<circle"));
    if (width === 20) assert.match(drawn, /y="14.5" width="0" height="9" fill="url/); // no room for the bar
  }
  made.image.computed.filter = "blur(1px)";
  await assert.rejects(pictureFile(made.element, "svg", {}), /no filters/);
});

test("layers of a stage are drawn at their boxes and opacities", async () => {
  const { stage: made } = stage();
  const drawn = [];
  mock.method(OffscreenCanvas.prototype, "getContext", () => ({ save() {}, restore() {}, clip() {}, rect: (...box) => drawn.push(box), drawImage(layer, ...box) { drawn.push([layer.tag, ...box, this.globalAlpha, this.imageSmoothingEnabled]); } })); // prettier-ignore
  made.element.box = [10, 20, 200, 100];
  Object.assign(made.image, { box: [0, 20, 200, 100], width: 200, computed: { filter: "none", opacity: "1" } }); // prettier-ignore
  Object.assign(made.canvas.canvas, { box: [30, 40, 50, 60], computed: { filter: "none", opacity: "0.5", imageRendering: "pixelated" } }); // prettier-ignore
  made.overlay.computed = { filter: "none", opacity: "1" };
  await pictureFile(made.element, "svg", {});
  assert.deepEqual(drawn.slice(0, 3), [[0, 0, 200, 100], ["img", -10, 0, 200, 100, 1, true], ["canvas", 20, 20, 50, 60, 0.5, false]]); // prettier-ignore
  await pictureFile(made.element, "png", {});
  assert.deepEqual(drawn.at(-1).slice(0, 3), ["img", 0, 0]); // the whole file
  mock.restoreAll();
});

/** Pixels of an image, RGBA: bands with noise. */
function photo(width, height) {
  return Uint8ClampedArray.from({ length: 4 * width * height }, (_, at) => 60 * (Math.floor(at / 4 / width / 40) % 3) + 50 * next()); // prettier-ignore
}

test("edges of a click are refined on at most 640 pixels, and parts below an 800th are removed", async () => {
  const view = new MaskView(mounted({ value: { ...VALUE, token: "r.1", source: "r" } }));
  await settled();
  for (const [width, height, columns, rows, radius] of [
    [1300, 65, TABLE.limits.refined, 32, 128], // pixels of a patch: 128 × 11
    [33, 500, 33, 500, 167],
    [5, 3, 5, 3, 1],
  ]) {
    Object.assign(view.encoding, { width, height });
    view.guide = null;
    const pixels = (view.stage.image.pixels = photo(columns, rows));
    const patches = view.proposed(view.encoding.placeOf({ row: 1, column: 2 }));
    const size = { rows, columns };
    const refined = new Guide(pixels, columns, rows, radius).refine(resized(patches, size).values);
    assert.deepEqual(view.refined(patches), { ...size, values: tidy(refined, columns, (columns * rows) / 800) });
  }
  for (let image = 0; image < 10; image++) view.take(`key ${image}`, () => ({ width: 1, height: 1 }));
  assert.deepEqual(
    [...view.paintings.keys()],
    [2, 3, 4, 5, 6, 7, 8, 9].map((image) => `key ${image}`),
  ); // the last 8
});

/** Wait for what a view computes after a rest. */
async function rested() {
  mock.timers.tick(1000);
  await settled();
}

const labels = (rows, columns, values) => ({ rows, columns, values: Uint8Array.from(values) });
const runs = (values) => values.flatMap((value) => [value, 1]);

test("objects of a method are scored against the mask by hand, one line each and one for all", async () => {
  const methods = [
    { key: "lost", label: "LOST", help: "Help", needs: ["count"] },
    { key: "attention", label: "Attention", help: "Help", needs: ["mass"] },
  ];
  const given = mounted({ value: { ...VALUE, token: "m.1", source: "m", width: 2000, height: 1200 }, methods });
  const view = new MaskView(given);
  await settled();
  const { painting } = view;
  assert.deepEqual([painting.width, painting.height], [1024, 614]);
  assert.deepEqual([view.settings.mass, view.settings.count], [TABLE.settings.mass, TABLE.settings.count]);
  const rows = () => view.scores.children.map((row) => row.children.map((cell) => cell.textContent));
  view.set({ method: "attention" });
  const kept = view.labels();
  assert.deepEqual([kept.rows, kept.columns, rows()[0][2]], [3, 5, "draw a mask"]);
  const map = meanMap(attentionMaps(view.block, 0));
  assert.deepEqual([...kept.values], [...keepMass(map, 0.6)]);
  view.set({ mass: 100 });
  assert.deepEqual([...view.labels().values], Array(15).fill(1));
  view.set({ mass: 60 });
  assert.deepEqual([view.searchRequest, view.chips.hidden, view.table.hidden], [null, true, false]);
  const sections = () => view.sections().map(({ title }) => title);
  assert.deepEqual(sections(), ["As shown", "Objects"]);
  assert.deepEqual(view.question("attention", true), { method: "attention", refined: true, mass: 0.6 });
  view.set({ method: "lost", count: 2 });
  assert.deepEqual([rows(), view.status.textContent, view.table.hidden], [[["Not found", "", ""]], "LOST: Not found", true]); // prettier-ignore
  served["lab/thumbnails/m.jpg"] = "";
  await rested();
  assert.deepEqual(rows(), [["Computing …", "", ""]]);
  const request = view.searchRequest;
  assert.deepEqual([request.count, request.token, given.emitted.at(-1)[0]], [2, "m.1", "edited"]);
  // Two objects of 3 and 2 of 10 cells; by hand, the left half.
  const found = [1, 1, 0, 0, 2, 1, 0, 0, 0, 2];
  view.props.found = { token: "m.1", key: request.key, rows: 2, columns: 5, runs: runs(found) };
  view.props.found.token = "another";
  view.receive();
  assert.equal(view.labels(), undefined);
  view.props.found.token = "m.1";
  view.receive();
  const tile = (key) => view.methods.tiles.get(key).canvas;
  assert.deepEqual([view.pendingKey, tile("lost").pixels[4]], ["", packed(...COLORS.objects[1])]);
  assert.deepEqual([...tile("attention").pixels].map(Boolean), [...keepMass(map, 0.6)].map(Boolean));
  for (let pixel = 0; pixel < painting.values.length; pixel++) painting.values[pixel] = Number(pixel % 1024 < 512);
  view.render();
  const inside = (cells) => cells.reduce((sum, cell) => sum + Math.max(0, Math.min(1, 2.5 - (cell % 5))), 0);
  const score = (cells) => {
    const both = inside(cells);
    return both / (cells.length + 5 - both);
  };
  const line = (name, cells) => [name, `${10 * cells.length} %`, score(cells)];
  const expected = [line("Object 1", [0, 1, 5]), line("Object 2", [4, 9]), line("All objects", [0, 1, 4, 5, 9])];
  for (const [at, [name, share, value]] of expected.entries()) {
    assert.deepEqual(rows()[at].slice(0, 2), [name, share]);
    close([Number(rows()[at][2])], [value], 0.01);
    assert.match(rows()[at][2], /^0\.\d{3}$/);
  }
  assert.deepEqual(rows()[3], ["Your mask", "50 %", ""]);
  assert.equal(view.status.textContent, "LOST: 2 objects");
  assert.match(view.spoken.textContent, /^Object 1, 30 %, 0\.\d{3}\. Object 2, 20 %, 0/);
  const colors = view.scores.children.slice(0, 2).map((row) => row.children[0].attributes.style);
  assert.deepEqual(
    colors,
    [0, 1].map((at) => `--pin: rgb(${COLORS.objects[at].join(" ")})`),
  );
  const edges = view.stage.ink.children.map((path) => path.attributes.stroke).filter(Boolean);
  assert.deepEqual(
    edges,
    [0, 1].map((at) => `rgb(${COLORS.objects[at].join(" ")})`),
  );
  view.found.set(request.key, labels(1, 2, [0, 0]));
  view.render();
  assert.deepEqual(rows()[0], ["No object found", "0.0 %", "0.000"]);
  view.found.set(request.key, labels(1, 2, [1, 0]));
  view.render();
  assert.deepEqual(rows().map(([name]) => name), ["Object 1", "Your mask"]); // prettier-ignore
  view.found.set(JSON.stringify({ ...view.question("lost", true) }), labels(2, 4, [1, 1, 1, 1, 0, 0, 0, 0]));
  view.set({ refined: true });
  assert.deepEqual(
    ["lost", "attention"].map((key) => tile(key).canvas.width),
    [4, 5],
  ); // the edges of the shown method
  view.set({ method: "click" });
  assert.equal(view.status.textContent, "Your mask: 50 % of the image");
  assert.deepEqual([view.request.mass, view.request.count, sections()], [0.6, 2, ["As shown", "Mask"]]);
  assert.deepEqual([view.key({ key: "1" }), view.key({ key: "0" }), view.colors], [true, false, [[255, 255, 255]]]);
  view.set({ method: "attention" });
  view.stage.image.pixels = photo(640, 384);
  view.press({ x: 0.5, y: 0.5 }, false);
  assert.equal(view.settings.method, "click"); // which the mask is of
  view.painting.clear();
  view.stage.cursor = null;
  view.changed();
  assert.deepEqual([sections(), rows(), view.table.hidden, view.stage.markers.children.length], [["As shown"], [], true, 1]); // prettier-ignore
  view.stage.cursor = { x: 0.5, y: 0.5 };
  view.render();
  assert.equal(view.stage.markers.children.length, 0); // the suggestion has gone
});

test("a search is sent once, and again after the server was lost; a method of an address must be offered", async () => {
  const methods = [{ key: "lost", label: "LOST", help: "Help", needs: ["count"] }];
  for (const [method, shown] of [
    ["lost", "lost"],
    ["nonsense", "click"],
  ]) {
    // prettier-ignore
    const view = new MaskView(mounted({ value: { ...VALUE, token: "a.1", source: "a" }, methods, method }));
    await settled();
    assert.equal(view.settings.method, shown);
  }
  const given = mounted({ value: { ...VALUE, token: "q.1", source: "q" }, methods, method: "lost" });
  const view = new MaskView(given);
  const edits = () => given.emitted.filter(([name]) => name === "edited").length;
  assert.equal(view.searchRequest, null);
  await settled();
  await rested();
  assert.match(view.reason.textContent, /status 404/);
  assert.deepEqual([edits(), view.pendingKey], [1, ""]);
  served["lab/thumbnails/q.jpg"] = "";
  view.set({ count: 4 });
  await rested();
  view.render();
  await rested();
  assert.deepEqual([edits(), view.pendingKey], [2, view.searchRequest.key]);
  view.props.found = { token: "q.1", key: view.searchRequest.key, rows: 1, columns: 2, runs: [0, 2] };
  view.receive();
  assert.equal(view.problem.hidden, true);
  await rested();
  view.pendingKey = "";
  await view.search();
  assert.equal(edits(), 2); // it is known
  view.set({ count: 5 });
  mock.method(globalThis, "fetch", async () => ({ ok: true, arrayBuffer: () => assert.fail("a fault of the page") }));
  await assert.rejects(view.search(), /a fault of the page/);
  mock.restoreAll();
  const empty = new MaskView(mounted({ value: {}, method: "scribbles" }));
  assert.equal(empty.searchRequest, null);
});

test("strokes of two classes are sent with those of other images, and only the newest answer counts", async () => {
  const view = new MaskView(mounted({ value: { ...VALUE, token: "s.1", source: "s", width: 1000, height: 600 } }));
  await settled();
  view.set({ method: "scribbles" });
  const first = view.painting;
  assert.deepEqual([first.width, first.height, first.objects, first.active], [512, 307, [1, 2], 2]);
  assert.deepEqual(
    view.chips.children.map((chip) => chip.textContent),
    ["Background", "Class 1", "+ Class"],
  );
  assert.deepEqual([view.chips.hidden, view.scores.children[0].textContent, view.sections().length], [false, "Draw on the background and on each class", 3]); // prettier-ignore
  first.values.fill(2, 0, 100);
  view.changed();
  assert.equal(view.request, null); // one class
  view.key({ key: "0" }); // the background
  assert.equal(first.active, 1);
  const pressed = view.chips.children.slice(0, 2).map((chip) => chip.children[0].attributes["aria-pressed"]);
  assert.deepEqual(pressed, ["true", "false"]);
  first.values.fill(1, 100, 250);
  view.changed();
  const { key, images } = view.request;
  assert.deepEqual([key, images.length, images[0].runs.slice(0, 4)], ["s.1 2", 1, [2, 100, 1, 150]]);
  const answer = (number) => ({ token: "s.1", key: `s.1 ${number}`, rows: 1, columns: 2, runs: [0, 1, 1, 1] });
  view.props.found = answer(1);
  view.receive();
  assert.equal(view.labels(), undefined);
  view.props.found = answer(2);
  view.receive();
  assert.deepEqual(view.labels(), labels(1, 2, [0, 1]));
  assert.equal(view.status.textContent, "Scribbles: 1 class");
  assert.equal(view.scores.children[0].children[0].textContent, "Class 1");
  const drawn = first.values.slice();
  first.values.fill(0, 100, 250);
  view.changed();
  assert.equal(view.labels(), undefined); // of strokes that are gone
  first.values.set(drawn);
  view.changed();
  view.props.found = answer(4);
  view.receive();
  view.changed();
  assert.deepEqual(view.labels(), labels(1, 2, [0, 1])); // until the next answer
  view.props.value = { ...VALUE, token: "s.2", source: "z", width: 1000, height: 600 };
  await view.reload();
  const two = view.request.images;
  assert.deepEqual(two.map(({ token, rows, columns, runs }) => [token, rows, columns, runs.length]), [["s.2", 307, 512, 0], ["s.1", 307, 512, 6]]); // prettier-ignore
  view.props.value = { ...VALUE, token: "s.3", source: "y", size: 99, width: 1000, height: 600 };
  await view.reload();
  assert.equal(view.request, null); // strokes at another input size do not count
});

test("a click takes its patches, and the brush has a radius in percent of the long side", async () => {
  const view = new MaskView(mounted({ value: { ...VALUE, token: "c.1", source: "c", width: 50, height: 30 } }));
  await settled();
  const pixels = new Uint8ClampedArray(4 * 50 * 30);
  pixels.forEach((_, at) => (pixels[at] = at % 4 === 3 ? 255 : 40 + Math.floor(at / 200) * 5));
  view.stage.image.pixels = pixels;
  const place = view.encoding.placeOf({ row: 1, column: 2 });
  const patches = view.proposed(place);
  for (const [reach, share] of [
    [90, 0.9],
    [50, 0.5],
  ]) {
    // prettier-ignore
    view.settings.reach = reach;
    assert.deepEqual(view.proposed(place).values, proposal(view.block, view.encoding, { row: 1, column: 2 }, share));
  }
  view.settings.reach = 90;
  assert.deepEqual([view.block.number, view.proposed(null)], [1, null]);
  const looks = () =>
    [view.brush.hidden, view.undo.disabled, view.stage.ring.hidden, view.image.data.includes(175)].map(Number);
  view.stage.cursor = place;
  view.render();
  assert.deepEqual(looks(), [1, 1, 1, 0]); // nothing is darkened
  view.press(place, false);
  const { values } = view.painting;
  const share = values.reduce((sum, value) => sum + value, 0) / 1500;
  close([share], [patches.values.reduce((sum, value) => sum + value, 0) / 15], 0.1);
  assert.deepEqual(looks(), [1, 0, 1, 1]); // the outside is
  view.enabled = false;
  assert.equal(view.proposed(place), null);
  view.enabled = true;
  const { guide } = view;
  await view.reload();
  assert.equal(view.guide, guide); // of the same image
  view.stage.preview({ image: "x", name: "x", width: 5, height: 3 });
  await view.reload();
  assert.deepEqual([view.guide, view.stage.open], [null, true]);
  view.press(place, true);
  assert.ok(view.painting.values.reduce((sum, value) => sum + value, 0) < 150);
  assert.deepEqual(attributes(view.size, "min", "max", "value"), [1, 25, 8]);
  for (const [percent, radius] of [
    ["8", 2],
    ["1", 0.5],
  ]) {
    // prettier-ignore
    view.size.value = percent;
    assert.equal(view.radius, radius);
  }
  view.size.value = "20"; // percent of 50 pixels: a radius of 5
  view.painting.clear();
  view.tools.querySelector(":checked").checked = false;
  view.tools.querySelector("[value=draw]").checked = true;
  view.apply();
  view.stage.cursor = null;
  view.showBrush();
  assert.deepEqual(looks().slice(0, 3), [0, 0, 1]);
  view.stage.cursor = place;
  view.showBrush();
  assert.deepEqual([view.stage.ring.style.width, view.stage.ring.hidden], ["20%", false]);
  view.stroke(place, place);
  const drawn = [...view.painting.values.keys()].filter((at) => view.painting.values[at]);
  const near = (at) => Math.hypot((at % 50) + 0.5 - 25, Math.floor(at / 50) + 0.5 - 15) <= 5;
  assert.deepEqual(drawn, [...view.painting.values.keys()].filter(near));
  assert.equal(view.painting.past.length, 4);
  view.tools.querySelector("[value=draw]").checked = false;
  view.tools.querySelector("[value=erase]").checked = true;
  view.stroke(place, place);
  assert.equal(view.painting.empty, true);
});

/** A clip of 25 frames of 3 × 2 pixels with two objects. */
const CLIP = {
  ...{ clip: "c", name: "walk", width: 3, height: 2, count: 25, fps: 10, note: "A note.", frames: "frames" },
  ...{ colors: [[9, 0, 0], [0, 9, 0]], palette: [[0, 0, 0], [128, 0, 0], [0, 128, 0]] }, // prettier-ignore
};

async function clip(value = CLIP) {
  for (let frame = 0; frame < 25; frame++) served[`frames/${frame}.jpg`] = `${frame}`;
  const given = mounted({ value }, [0, 0, 10, 10]);
  const view = new ClipView(given);
  await settled();
  return Object.assign(view, { encoded_: () => given.emitted.filter(([name]) => name === "shown").map(([, { token }]) => token) }); // prettier-ignore
}

/** Take an answer about a run, and wait for what it shows. */
async function proceed(view, done, state, progress, run = view.run.run) {
  view.props.tracked = { run, id: "id", done, state, progress };
  await view.reload();
  await settled();
  return [view.status.textContent, view.number, view.progress.value, view.progress.hidden];
}

test("a frame is encoded after a rest, unless the clip plays or objects are tracked, when no tool can be used", async () => {
  const view = await clip();
  const now = mock.method(performance, "now", () => 1000);
  assert.deepEqual([view.encoded_(), view.enabled, view.stage.step], [["c 0"], true, { x: 1, y: 1 }]);
  const sizes = [view.frames.most, view.masks.most, ...attributes(view.scrub, "min", "max")];
  assert.deepEqual(sizes, [200e6, 64e6, 1, 1]);
  view.seek(6);
  await settled();
  await rested();
  assert.deepEqual(view.encoded_(), ["c 0", "c 6"]);
  const playing = view.playOn();
  await settled();
  assert.deepEqual([view.number, view.enabled, view.play.textContent], [7, false, "❚❚"]);
  await view.reload();
  mock.timers.tick(99);
  await settled();
  assert.equal(view.number, 7); // ten frames a second
  mock.timers.tick(1);
  await settled();
  assert.deepEqual([view.number, view.encoded_().length], [8, 2]);
  view.element.box[2] = 0; // another tab
  mock.timers.tick(100);
  await playing;
  assert.equal(view.play.textContent, "▶");
  view.element.box[2] = 10;
  await rested();
  assert.deepEqual(view.encoded_(), ["c 0", "c 6", "c 8"]);
  view.painting.values[0] = 1;
  view.changed();
  view.begin();
  assert.deepEqual([view.enabled, view.progress.value, view.request.done], [false, 0, 0]);
  view.pause();
  await view.seekTo(9);
  await rested();
  await view.reload();
  assert.equal(view.encoded_().length, 3);
  now.mock.restore();
  const shorter = await clip({ ...CLIP, clip: "d", count: 19 });
  const film = shorter.film.children.map((image) => Number(image.attributes.src.match(/(\d+)\.jpg/)[1]));
  assert.deepEqual(film, [0, 2, 4, 6, 8, 10, 12, 14, 16, 18]);
  delete served["frames/5.jpg"];
  shorter.seek(5);
  await settled();
  assert.match(shorter.reason.textContent, /status 404/);
  shorter.labels = shorter.frame = () => assert.fail("a fault of the page");
  await assert.rejects(shorter.seekTo(5), /a fault of the page/);
});

test("marks and tracked objects of a frame are told apart, and a run that is stopped early leaves none", async () => {
  const view = await clip();
  view.painting.values[0] = 1;
  view.changed();
  view.painting.clear();
  view.changed();
  assert.match(view.status.textContent, /^Nothing is marked yet/);
  view.painting.values[0] = 1;
  view.changed();
  view.begin();
  const colors = [0, 2, 1].map((object) => packed(...CLIP.palette[object]));
  served["pixels"] = new Uint8ClampedArray(Uint32Array.from([...colors, packed(7, 7, 7), 0, 0]).buffer);
  for (let frame = 0; frame < 25; frame++) served[`lab/tracked/id/${frame}.png`] = "";
  await proceed(view, 9, "running", 0.4, 99);
  assert.equal(view.run.done, 0); // of another run
  await proceed(view, 0, "running", 0);
  assert.equal(view.number, 0);
  assert.deepEqual((await proceed(view, 5, "running", 0.2)).slice(0, 3), ["5 of 25 frames", 4, 0.2]);
  assert.deepEqual([...view.painting.values], [0, 2, 1, 0, 0, 0]); // an unknown color is no object
  for (const [number, values] of [
    [3, [0, 2, 1, 0, 0, 0]],
    [5, [0, 0, 0, 0, 0, 0]],
    [0, [1, 0, 0, 0, 0, 0]],
  ]) {
    // prettier-ignore
    view.seek(number);
    await settled();
    assert.deepEqual([...view.painting.values], values); // tracked, not yet, and marked
  }
  await proceed(view, 6, "running", 0.3);
  assert.equal(view.number, 0); // the user has chosen a frame
  view.painting.objects = [2];
  view.openFrame(3, Uint8Array.of(1, 0, 0, 0, 0, 0));
  assert.deepEqual(view.painting.objects, [1, 2]);
  await proceed(view, 25, "done", 1);
  view.seek(4);
  await settled();
  view.begin();
  view.stop();
  await settled();
  assert.deepEqual([view.run, view.painting.empty], [null, true]);
});

test("a clip has a film of ten frames, and shows the frame of its slider", async () => {
  const view = await clip();
  const film = view.film.children.map((image) => image.attributes.src.slice(18));
  assert.deepEqual(
    film,
    [1, 3, 6, 8, 11, 13, 16, 18, 21, 23].map((number) => `${number}.jpg`),
  );
  assert.equal(view.place.textContent, "1 of 25");
  assert.deepEqual([view.frames.bytes, view.progress.value, view.request], [24, 0, { id: "", done: 0, name: "walk" }]);
  assert.deepEqual([view.stage.image.width, view.stage.image.height], [3, 2]);
  view.scrub.value = "7";
  view.scrub.fire("input");
  await settled();
  assert.deepEqual([view.number, view.place.textContent, view.element.dataset.frame], [6, "7 of 25", "6"]);
  const [image, ...box] = view.stage.image.getContext("2d").drawn.at(-1);
  assert.deepEqual([image.address, ...box], ["6", 0, 0, 3, 2]);
  view.film.children[9].fire("click");
  await settled();
  assert.deepEqual([view.number, view.scrub.value], [23, "24"]);
  const value = { ...VALUE, token: "f", frame: 23, clip: "c" };
  const encoding = { value, token: "f", rows: 4, columns: 8 };
  view.show({ encoding, block: {} });
  assert.notEqual(view.block, null);
  assert.deepEqual(view.stage.step, { x: 1 / 8, y: 1 / 4 });
  view.props.encoding = { ...VALUE, clip: "c", frame: 23 };
  await view.reload();
  assert.deepEqual([view.block.number, view.encoding.token], [1, VALUE.token]);
  view.seek(0);
  await settled();
  assert.equal(view.block, null); // of another frame
  view.seek(23);
  await settled();
  const playing = view.playOn();
  for (const number of [24, 0]) {
    await settled();
    assert.equal(view.number, number);
    mock.timers.tick(100);
  }
  view.pause();
  mock.timers.tick(100);
  await playing;
  assert.deepEqual([view.play.textContent, view.number], ["▶", 0]);
});

test("marks of several frames are tracked, finished frames are decoded, and later marks need another run", async () => {
  const view = await clip();
  assert.equal(view.status.textContent, "Nothing is marked yet. A note.");
  const mark = async (number, values) => {
    view.seek(number);
    await settled();
    view.painting.values.set(values);
    view.changed();
  };
  await mark(10, [0, 1, 1, 0, 0, 0]);
  await mark(2, [0, 0, 0, 0, 2, 0]);
  assert.equal(view.status.textContent, "Ready to track. Marked frames: 3, 11. A note.");
  const { run, marks } = view.begin();
  assert.equal(run, 1);
  assert.deepEqual(marks, [{ frame: 10, runs: [0, 1, 1, 2, 0, 3], objects: [1] }, { frame: 2, runs: [0, 4, 2, 1, 0, 1], objects: [2] }]); // prettier-ignore
  assert.equal(view.status.textContent, "Waiting for the model.");
  const mask = [0, 2, 1, 1, 0, 0].map((object) => packed(...CLIP.palette[object]));
  served["pixels"] = new Uint8ClampedArray(Uint32Array.from(mask).buffer);
  for (let frame = 0; frame < 25; frame++) served[`lab/tracked/id/${frame}.png`] = "";
  assert.deepEqual(await proceed(view, 5, "running", 0.2), ["5 of 25 frames", 4, 0.2, false]);
  assert.deepEqual([...view.painting.values], [0, 2, 1, 1, 0, 0]);
  assert.deepEqual([view.painting.objects, view.masks.bytes, view.decoder.drawn.at(-1).slice(1)], [[1, 2], 6, [0, 0]]);
  assert.equal(view.chips.children.at(-1).children[0].disabled, true); // both objects are there
  assert.equal((await proceed(view, 5, "running", 0.4))[0], "Tracking backward. 5 of 25 frames are finished.");
  assert.deepEqual(await proceed(view, 25, "done", 1), ["All 25 frames are finished.", 24, 1, true]);
  assert.deepEqual(view.request, { id: "id", done: 25, name: "walk" });
  assert.equal(view.chips.children.at(-1).children[0].disabled, true); // there are colors for two objects
  view.key({ key: "1" });
  assert.equal(view.painting.active, 1);
  view.key({ key: "2" });
  assert.deepEqual([view.painting.active, view.key({ key: "3" })], [2, false]);
  view.remove(2);
  assert.deepEqual([...view.marks.keys()], [10, 2, 24]);
  assert.equal(view.status.textContent, "All 25 frames are finished. The marks have changed since: track again.");
  view.act("undo");
  assert.deepEqual([...view.marks.keys()], [10, 2]); // as it was tracked
  view.seek(2); // its own mark
  await settled();
  assert.deepEqual([...view.painting.values], [0, 0, 0, 0, 2, 0]);
  assert.deepEqual(view.begin().run, 2);
  view.proceed({ id: "id", done: 3, state: "running", progress: 0.1 });
  view.stop();
  assert.equal(view.status.textContent, "Stopped: 3 of 25 frames are finished and can be downloaded.");
  view.begin();
  view.stop();
  await settled();
  assert.match(view.status.textContent, /^Ready to track/);
});

test("the stages of a view are one picture, with the size of all of them", async () => {
  const both = new Element("div");
  for (const [left, top, width, height] of [
    [10, 50, 100, 60],
    [130.3, 20, 80, 40],
  ]) {
    // prettier-ignore
    const { stage: made } = stage();
    const shown = { box: [left, top, width, height], computed: { filter: "none", opacity: "1" } };
    made.element.box = shown.box;
    for (const layer of [made.canvas.canvas, made.overlay]) Object.assign(layer, shown);
    Object.assign(made.image, shown, { width: left < 100 ? 2 * width : width });
    both.append(made.element);
  }
  const file = await (await pictureFile(both, "svg", {})).text();
  assert.match(file, /^<svg [^>]*width="401" height="180"/);
  const boxes = [...file.matchAll(/<clipPath id="stage\d"><rect (.*?)\/>/g)].map(([, box]) => box);
  assert.deepEqual(boxes, ['x="0" y="60" width="200" height="120"', 'x="241" y="0" width="160" height="80"']);
});

test("keys choose tools, paint, erase and undo, and a removed object comes back", async () => {
  const view = await clip();
  for (const input of view.tools.querySelectorAll("input")) input.click = () => chooseTool(view, input.value);
  const press = (key, more = {}) => view.stage.element.fire("keydown", { key, ...more });
  press("b");
  view.stage.cursor = { x: 0.5, y: 0.25 };
  press(" ");
  assert.deepEqual([...view.painting.values], [0, 1, 0, 0, 0, 0]);
  press("z", { ctrlKey: true });
  assert.equal(view.painting.empty, true);
  press(" ");
  press("e");
  press(" ");
  assert.equal(view.painting.empty, true);
  press("b");
  press(" ");
  view.chips.children.at(-1).children[0].click(); // another object
  view.stage.cursor = { x: 0.9, y: 0.9 };
  press(" ");
  view.remove(1);
  assert.deepEqual([[...view.painting.values], view.painting.objects], [[0, 0, 0, 0, 0, 2], [2]]); // prettier-ignore
  view.undo.click();
  assert.deepEqual([...view.painting.values], [0, 1, 0, 0, 0, 2]);
  press("Delete");
  assert.equal(view.painting.empty, true);
});

function chooseTool(view, tool) {
  for (const input of view.tools.querySelectorAll("[type=radio]")) input.checked = input.value === tool;
  view.apply();
}

test("a film has a tile for every block, and a matrix one for every head of every block", async () => {
  const first = halves([...KEYS, ...KEYS]);
  const value = { ...VALUE, token: "film", arrays: { "blocks/0": first, "blocks/1": BLOCK } };
  const view = await attention({ value, blocks: true });
  const { blocks } = view;
  mock.timers.tick(799);
  await settled();
  assert.equal(blocks.arrays.filter(Boolean).length, 1);
  mock.timers.tick(1); // a rest after the first map
  await settled();
  assert.equal(blocks.arrays.filter(Boolean).length, 2);
  assert.equal(blocks.element.dataset.blocks, "film attention");
  const tiles = ({ element }) => element.querySelectorAll("label").map((tile) => [tile.attributes["data-key"], tile.textContent]); // prettier-ignore
  const marked = ({ tiles: all }) => [...all].filter(([, { input }]) => input.checked).map(([key]) => key);
  assert.deepEqual(tiles(blocks.film), [["0", "1"], ["1", "2"]]); // prettier-ignore
  assert.deepEqual([blocks.element.hidden, marked(blocks.film)], [false, ["1"]]);
  blocks.choose("0");
  assert.equal(view.settings.head, "mean");
  await rested();
  assert.deepEqual([view.settings.block, view.arrays.number, marked(blocks.film)], [1, 0, ["0"]]);
  assert.deepEqual(
    blocks.arrays.map(({ number }) => number),
    [0, 1],
  );
  blocks.open();
  blocks.dialog.open = true;
  await settled();
  const names = [0, 1].flatMap((block) => [0, 1].map((head) => [`${block} ${head}`, `Block ${block + 1} · head ${head}`])); // prettier-ignore
  assert.deepEqual(tiles(blocks.matrix), names);
  const pixels = (tiles, key) => [...tiles.tiles.get(key).canvas.pixels];
  for (const block of [0, 1])
    for (const head of ["0", "1"]) {
      view.set({ head });
      blocks.paint();
      assert.deepEqual(pixels(blocks.matrix, `${block} ${head}`), pixels(blocks.film, String(block)));
    }
  assert.notDeepEqual(pixels(blocks.film, "0"), pixels(blocks.film, "1"));
  for (const { canvas } of blocks.film.tiles.values()) canvas.clear();
  blocks.paint(0);
  assert.deepEqual(["0", "1"].map((block) => pixels(blocks.film, block).some(Boolean)), [true, false]); // prettier-ignore
  blocks.choose("1 1");
  await rested();
  assert.deepEqual([view.settings.block, view.settings.head, marked(blocks.matrix)], [0, "1", ["1 1"]]); // the last
  const changes = [];
  blocks.view = /** @type {any} */ ({ ...view, definition: {}, shown: "mean", arrays: view.arrays, set: (change) => changes.push(change) }); // prettier-ignore
  blocks.choose("0 mean");
  assert.deepEqual(changes, [{ block: 1 }]); // of a quantity without heads
  blocks.view = view;
});

test("blocks are fetched for the film if the server has them and they are below 96 MB, and dropped if they come late", async () => {
  const view = await attention({ value: { ...VALUE, token: "fetched" }, blocks: true });
  const { blocks } = view;
  const loads = mock.method(blocks, "load", async () => {});
  mock.timers.tick(800);
  const half_ = (bytes) => ({ keys: { byteLength: 24e6 }, queries: { byteLength: bytes }, number: 1 });
  for (const [definition, bytes, loaded] of [
    [{ arrays: "blocks" }, 24e6 - 1, 1], // 96 MB less 2 bytes
    [{ arrays: "blocks" }, 24e6, 0],
    [{ arrays: "tokens" }, 1, 1],
    [{ arrays: "rollout" }, 1, 0], // is computed
  ]) {
    loads.mock.resetCalls();
    blocks.shown = "";
    const mapsOf = () => new Maps([new Float32Array(15)], { mass: 1 });
    blocks.view = /** @type {any} */ ({ ...view, definition, arrays: half_(bytes), encoding: view.encoding, shown: "mean", paint() {}, mapsOf }); // prettier-ignore
    blocks.show();
    mock.timers.tick(800);
    assert.equal(loads.mock.callCount(), loaded);
  }
  mock.restoreAll();
  blocks.view = view;
  blocks.arrays = [];
  for (const [name, visible] of [
    ["hidden", false],
    ["shown", true],
  ]) {
    // prettier-ignore
    blocks.element.hidden = !visible;
    blocks.element.getClientRects = () => (visible ? [[]] : [[], []]);
    await blocks.load();
    assert.equal(blocks.arrays.length, visible ? 2 : 0, name);
  }
  blocks.element.getClientRects = () => [];
  blocks.arrays = [];
  await blocks.load();
  assert.equal(blocks.arrays.length, 0); // on another tab
  blocks.element.getClientRects = () => [[]];
  const late = blocks.load();
  blocks.shown = "another image";
  await late;
  assert.equal(blocks.arrays.length, 0);
  view.encoding.arrays = async () => assert.fail("a fault of the page");
  await assert.rejects(blocks.load(), /a fault of the page/);
  for (const [arrays, count, hidden] of [
    [{ "blocks/0": BLOCK }, 1, true],
    [{ "blocks/1": BLOCK }, 2, true], // the value holds only the last
    [{ "blocks/0": BLOCK, "blocks/1": BLOCK }, 2, false],
  ]) {
    const some = await attention({ value: { ...VALUE, token: `of ${count} ${hidden}`, arrays, blocks: count }, blocks: true }); // prettier-ignore
    assert.equal(Boolean(some.blocks.element.hidden), hidden);
  }
});

test("a cut-out has the pixels of the mask only", async () => {
  const pixels = new Uint8ClampedArray(24).fill(7);
  const file = await cutoutFile(Uint8Array.of(1, 0, 0, 1, 0, 0), { width: 3, height: 2 }, /** @type {any} */ ({ pixels })); // prettier-ignore
  assert.equal((await file.text()).trim(), "3 2");
  assert.deepEqual([...pixels.keys()].filter((at) => !pixels[at]), [7, 11, 19, 23]); // prettier-ignore
});

test("a work is shown after 350 milliseconds until it ends, and its bar until all is sent", () => {
  const busy = new Busy();
  const first = busy.start("Sending", () => {});
  const work = busy.start("Sending", () => {});
  mock.timers.tick(349);
  assert.equal(busy.element.hidden, true);
  mock.timers.tick(1);
  for (const share of [0.5, 1]) {
    busy.progress(share);
    assert.equal(busy.bar.value, share < 1 ? "0.5" : undefined);
  }
  busy.end(first);
  assert.equal(busy.element.hidden, false);
  busy.end(work);
  assert.equal(busy.element.hidden, true);
});

test("settings are kept when a view is made anew, unless its props have changed since", async () => {
  const remade = async (mass) => new AttentionView({ ...mounted({ value: VALUE, mass }), id: 5 });
  (await remade(60)).set({ mass: 30 });
  assert.equal((await remade(60)).settings.mass, 30);
  assert.equal((await remade(40)).settings.mass, 40);
});

test("an image is shown without maps while they take long, and a preview ends when it is refused", async () => {
  const view = await attention({ value: { ...VALUE, token: "before" } });
  const other = { ...VALUE, token: "after", source: "after", image: "after.jpg" };
  const stage = () => [view.stage.open, view.stage.image.src];
  let wait = /** @type {any} */ (null);
  const { load } = view;
  const late = async (change) => {
    Object.assign(view, change);
    view.load = () => new Promise((resolve, reject) => (wait = { resolve, reject }));
    const loading = view.reload();
    mock.timers.tick(350);
    const shown = [...stage(), view.working.element.hidden];
    wait.resolve();
    view.load = load;
    await loading;
    return shown;
  };
  assert.deepEqual(await late({}), [true, "owl.jpg", false]); // the same image
  assert.deepEqual(await late({ live: other }), [true, "owl.jpg", false]); // of a camera, without flicker
  view.props.value = other;
  assert.deepEqual(await late({ live: null }), [false, "after.jpg", false]);
  view.problem.hidden = false;
  await view.reload(true);
  assert.deepEqual([view.problem.hidden, ...stage()], [false, true, "after.jpg"]);
  await view.reload();
  assert.deepEqual([view.problem.hidden, "data-empty" in view.element.attributes], [true, false]);
  view.refuse("No.");
  assert.equal(view.again.hidden, true);
  view.refuse("No.", true);
  assert.deepEqual([view.again.hidden, view.problem.hidden], [false, false]);
  view.preview({ image: "sent.jpg", name: "sent", width: 3, height: 2 }, () => {});
  mock.timers.tick(350);
  assert.deepEqual([...stage(), view.working.text.textContent], [false, "sent.jpg", "Sending sent"]);
  view.endPreview();
  assert.deepEqual([...stage(), view.working.element.hidden], [true, "after.jpg", true]);
  view.stage.preview({ image: "x.jpg", name: "x", width: 3, height: 2 });
  view.endPreview(); // there is none
  assert.deepEqual(stage(), [false, "x.jpg"]);
  view.preview({ image: "sent.jpg", name: "sent", width: 3, height: 2 }, () => {});
  await view.reload();
  view.stage.preview({ image: "y.jpg", name: "y", width: 3, height: 2 });
  view.endPreview(); // it was shown
  assert.deepEqual(stage(), [false, "y.jpg"]);
  view.load = async () => assert.fail("a fault of the page");
  await assert.rejects(view.reload(), /a fault of the page/);
  view.load = async () => assert.fail(new Refusal("Too busy."));
  await view.reload();
  assert.deepEqual([view.reason.textContent, view.again.hidden], ["Too busy.", false]);
  view.props.value = null;
  await view.reload();
  assert.deepEqual(["data-empty" in view.element.attributes, view.encoding], [true, null]);
});

test("parts of a view are in the inspector of the page, if it has one", async () => {
  const inspector = new Element("div");
  inspector.id = "inspector";
  document.body.replaceChildren(/** @type {any} */ (inspector));
  for (const [aside, place] of [
    ["inspector", () => inspector],
    ["elsewhere", ({ element }) => element.querySelector(".lab-aside")],
    [undefined, ({ element }) => element.querySelector(".lab-aside")],
  ]) {
    const view = await attention({ aside });
    assert.ok(place(view).children.includes(view.pinBox));
  }
});

test("a dialog writes files in the formats that the view offers, with the options that apply", async () => {
  const view = await attention({ value: { ...VALUE, token: "dialog", name: "my.owl.png" }, exports: "place" });
  const [saved, made] = [[], []];
  const { createElement } = document;
  mock.method(document, "createElement", (tag) => {
    const element = createElement(tag);
    if (tag === "a") element.addEventListener("click", () => saved.push(element.getAttribute("download")));
    if (tag === "dialog") made.push(element);
    return element;
  });
  view.export();
  const buttons = () =>
    made
      .at(-1)
      .querySelectorAll("button")
      .filter((one) => one.dataset.ending);
  const titles = made[0].querySelectorAll("section").map((part) => [part.children[0].textContent, part.children[1].elements.map(({ name, type, checked }) => `${name} ${type} ${Boolean(checked)}`)]); // prettier-ignore
  assert.deepEqual(titles, [
    ["As shown", ["scale checkbox true"]],
    ["Mask", []],
    ["Figure of all heads", ["scale undefined false"]],
    ["Maps of all heads", []],
    ["Animation", ["over undefined false"]],
    ["All your images, maps and masks", ["examples checkbox false"]],
  ]);
  const press = (ending) => buttons().find((one) => one.dataset.ending === ending).listeners.click[0](); // prettier-ignore
  const status = () => made.at(-1).children.at(-1).textContent;
  const revoked = mock.method(URL, "revokeObjectURL", () => {});
  await press("mask.json");
  assert.deepEqual([saved, status()], [["my.owl-mask.json"], ""]);
  mock.timers.tick(59_999);
  assert.equal(revoked.mock.callCount(), 0); // the browser may still be saving
  mock.timers.tick(1);
  assert.equal(revoked.mock.callCount(), 1);
  view.set({ layer: "mask" });
  view.pins.pin({ row: 0, column: 0 }, view.encoding);
  view.render();
  view.export();
  const [shown, , figure] = made[1].querySelectorAll("section");
  assert.deepEqual(shown.children[1].elements.map(({ name }) => name), ["outline", "pins"]); // prettier-ignore
  figure.children[1].elements[0].value = "common";
  await press("figure.pdf"); // of the server
  assert.deepEqual([view.exportRequest.scale, view.exportRequest.file, saved.length], ["common", "figure.pdf", 1]);
  made[1].querySelector("[name=over]").value = "path";
  await press("gif");
  assert.match(status(), /^Move the pointer over the image first/);
  view.mask = () => assert.fail("a fault of the page");
  await assert.rejects(press("mask.png"), /a fault of the page/);
  assert.equal(status(), "a fault of the page");
  delete view.element.dataset.token;
  view.export(); // nothing is shown yet
  assert.equal(made.length, 2);
  mock.restoreAll();
});
