// Arithmetic of the views: patches under a pointer, zoom and pan, pixels, archives. No document is needed.

import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { inflateSync } from "node:zlib";
import "./document.js";
import { Encoding, Refusal, fetchBytes, memory } from "../../app/static/views/encoding.js";
import { maskFile, npyFile, npyText, zipFile } from "../../app/static/views/files.js";
import { followPointers } from "../../app/static/views/gestures.js";
import { COLORMAPS, LIGHT, PatchCanvas, packed } from "../../app/static/views/paint.js";
import { Stage } from "../../app/static/views/stage.js";

/** @type {any} */
const ENCODED = { token: "t", rows: 3, columns: 5, heads: 2, blocks: 2, prefix: 2, pin: [0.99, 0.4], arrays: {} };
const close = (found, expected) =>
  expected.forEach((value, at) => assert.ok(Math.abs(found[at] - value) < 1e-9, found));

test("a place is in a patch, whose center and token it has", () => {
  const encoding = new Encoding(ENCODED);
  assert.deepEqual(encoding.pinned, { row: 1, column: 4 });
  assert.deepEqual(encoding.patchAt({ x: 1, y: -0.1 }), { row: 0, column: 4 });
  assert.deepEqual(encoding.patchAt({ x: 0.19, y: 1 }), { row: 2, column: 0 });
  close(Object.values(encoding.placeOf({ row: 2, column: 1 })), [0.3, 5 / 6]);
  assert.deepEqual([encoding.tokenOf({ row: 1, column: 4 }), encoding.tokenOf(null)], [11, 0]);
  assert.deepEqual([encoding.hasEveryBlock, new Encoding({ ...ENCODED, arrays: "lab" }).hasEveryBlock], [false, true]);
});

test("arrays of a view that holds them are decoded and remembered", async () => {
  const halves = new Uint8Array(
    Uint16Array.from({ length: 2 * 2 * 17 }, (_, at) => (at < 34 ? 0x3c00 : 0x4000)).buffer,
  );
  const encoding = new Encoding({ ...ENCODED, arrays: { "blocks/1": Buffer.from(halves).toString("base64") } });
  const { queries, keys, tokens, dim, number } = await encoding.arrays("attention", 1);
  assert.deepEqual([queries[33], keys[0], tokens, dim, number], [1, 2, 17, 1, 1]);
  assert.deepEqual([encoding.holds("attention", 1), encoding.holds("attention", 0)], [true, false]);
  assert.deepEqual([memory.bytes, memory.most], [2 * 136, 192e6]);
  await assert.rejects(encoding.arrays("attention", 0), /does not hold blocks of block 1\.$/);
});

for (const [answer, message] of [
  [() => new Response("Too busy.", { status: 503 }), /^Too busy\.$/],
  [() => new Response("", { status: 503 }), /status 503/],
  [() => new Response("<p>", { status: 502, headers: { "content-type": "text/html" } }), /status 502/],
  [() => new Response(null, { status: 500 }), /status 500/],
  [() => assert.fail("no network"), /does not answer/],
])
  test(`a refused request says ${message}`, async () => {
    mock.method(globalThis, "fetch", async () => answer());
    await assert.rejects(fetchBytes("a"), (error) => error instanceof Refusal && message.test(error.message));
    const failed = fetchBytes("a", AbortSignal.abort());
    if (String(message).includes("answer/"))
      await assert.rejects(failed, /no network/); // nobody waits for it
    else await assert.rejects(failed, Refusal);
    mock.restoreAll();
  });

test("colors are packed as canvases store them", () => {
  assert.equal(packed(1, 2, 3), 0xff030201);
  assert.deepEqual([LIGHT[0], LIGHT[255], LIGHT.length, COLORMAPS.inferno.length], [0xff000000, 0, 256, 256]);
  assert.equal(COLORMAPS.inferno[255], packed(252, 255, 164));
  assert.deepEqual(
    [0, 128].map((level) => COLORMAPS.coolwarm[level] >>> 24),
    [255, 1],
  );
});

test("heads, objects and colors are drawn pixel by pixel", () => {
  const createImageData = (width, height) => ({ width, height, data: new Uint8ClampedArray(4 * width * height) });
  const canvas = new PatchCanvas(/** @type {any} */ ({ getContext: () => ({ createImageData, putImageData() {} }) }));
  const pixels = () => [...canvas.pixels];
  canvas.labels({ rows: 1, columns: 3, values: Uint8Array.of(2, 0, 1) }, [[1, 2, 3], [4, 5, 6]]); // prettier-ignore
  assert.deepEqual(pixels(), [packed(4, 5, 6), 0, packed(1, 2, 3)]);
  canvas.colors(Float32Array.of(0.8, 0.5, 1, 1, 0, 0.2, 0.4, 0.6, 0), { rows: 3, columns: 1 });
  assert.deepEqual(pixels(), [packed(204, 128, 255), packed(255, 0, 51), packed(102, 153, 0)]);
  canvas.labels({ rows: 2, columns: 1, values: Uint8Array.of(0, 1) }, [[1, 2, 3]]);
  assert.deepEqual(pixels(), [0, packed(1, 2, 3)]); // of another height
  const maps = [Float32Array.of(0.4, 0.1, 0.1), Float32Array.of(0.1, 0.1, 0.2)];
  const kept = [Uint8Array.of(1, 0, 0), Uint8Array.of(0, 0, 1)];
  canvas.heads(maps, kept, [[9, 0, 0], [0, 9, 0]], { rows: 1, columns: 3 }, { width: 3, height: 2 }); // prettier-ignore
  const row = [packed(9, 0, 0, 255), 0, packed(0, 9, 0, 255)];
  assert.deepEqual(pixels(), [...row, ...row]);
  kept[0][1] = 1;
  canvas.heads([...maps, new Float32Array(3)], [...kept, Uint8Array.of(1, 1, 1)], [[9, 0, 0], [0, 9, 0], [0, 0, 9]], { rows: 1, columns: 3 }, { width: 3, height: 1 }); // prettier-ignore
  assert.deepEqual(pixels(), [row[0], packed(9, 0, 0, 128), row[2]]); // nothing of a map of zeros
  canvas.labels(null, []);
  assert.deepEqual(pixels(), [0, 0, 0]);
});

/** A stage of 200 × 100 pixels without elements. */
function createStage() {
  const element = { style: { setProperty() {} }, toggleAttribute() {} };
  const stage = Object.assign(Object.create(Stage.prototype), { window: { x: 0, y: 0, zoom: 1 }, element, on: {} });
  const box = () => {
    const { x, y, zoom } = stage.window;
    return { left: -200 * zoom * x, top: -100 * zoom * y, width: 200 * zoom, height: 100 * zoom };
  };
  return Object.assign(stage, {
    reset: {},
    step: { x: 0.1, y: 0.2 },
    sheet: { style: {}, getBoundingClientRect: box },
  });
}

test("zoom keeps the point under the pointer, has bounds, and stays within the image", () => {
  const stage = createStage();
  const view = () => [stage.window.x, stage.window.y, stage.window.zoom];
  const point = { clientX: 150, clientY: 20 };
  const before = stage.placeAt(point);
  assert.ok(stage.zoomAt(4, point));
  close(Object.values(stage.placeAt(point)), Object.values(before));
  close(view(), [0.5625, 0.15, 4]);
  close(Object.values(stage.middle), [0.6875, 0.275]);
  const other = { clientX: 40, clientY: 90 };
  const under = stage.placeAt(other);
  assert.ok(stage.zoomAt(2, other));
  close(Object.values(stage.placeAt(other)), Object.values(under));
  stage.look({ x: 0.5625, y: 0.15, zoom: 4 });
  assert.deepEqual({ ...stage.reset }, { textContent: "4.0 ×", hidden: false });
  stage.key({ key: "-" });
  assert.equal(stage.window.zoom, 2);
  stage.look({ x: 0.9, y: -1, zoom: 4 });
  close(view(), [0.75, 0, 4]);
  assert.deepEqual([stage.zoomAt(100), stage.window.zoom, stage.zoomAt(2)], [true, 16, false]);
  assert.deepEqual([stage.zoomAt(0), ...view(), stage.reset.hidden], [true, 0, 0, 1, true]);
});

test("arrow keys move by patches, and the part that is shown follows", () => {
  const stage = createStage();
  const press = (key, shiftKey = false) => assert.ok(stage.key({ key, shiftKey }));
  stage.cursor = { x: 0.45, y: 0.5 };
  press("ArrowRight", true);
  close(Object.values(stage.cursor), [0.85, 0.5]);
  press("ArrowUp", true);
  close(Object.values(stage.cursor), [0.85, 0.1]);
  stage.look({ x: 0, y: 0, zoom: 2 });
  stage.cursor = { x: 0.45, y: 0.1 };
  press("ArrowRight");
  close([stage.window.x, stage.window.y], [0.05, 0]);
  press("ArrowDown");
  close(Object.values(stage.cursor), [0.55, 0.3]);
  for (const [key, from, to] of [
    ["ArrowRight", { x: 0.92, y: 0.5 }, [0.95, 0.5]], // the center of the last patch
    ["ArrowLeft", { x: 0.08, y: 0.5 }, [0.05, 0.5]],
    ["ArrowLeft", { x: 0.5, y: 0.5 }, [0.4, 0.5]],
    ["ArrowUp", { x: 0.5, y: 0.5 }, [0.5, 0.3]],
    ["ArrowDown", { x: 0.5, y: 0.8 }, [0.5, 0.9]],
  ]) {
    stage.cursor = from;
    press(key);
    close(Object.values(stage.cursor), to);
  }
  const box = stage.sheet.getBoundingClientRect();
  assert.deepEqual(stage.placeAt({ clientX: box.left + 999, clientY: box.top - 1 }), { x: 1 - 1e-6, y: 0 });
});

test("the wheel and two fingers zoom, a drag pans, a tremble is a click", () => {
  const on = {};
  const element = { addEventListener: (name, react) => (on[name] = react), setPointerCapture() {} };
  const calls = [];
  const note = (name) => (...values) => calls.push([name, ...values.slice(0, 2)]) && true; // prettier-ignore
  const gestures = { pans: () => true, zoom: note("zoom"), pan: note("pan"), point() {}, press: note("press") };
  followPointers(/** @type {any} */ (element), /** @type {any} */ (gestures));
  const event = (pointerId, clientX, clientY) => ({ pointerId, clientX, clientY, target: { closest: () => null } });
  on["pointerdown"](event(1, 10, 10));
  on["pointermove"](event(1, 13, 10));
  on["click"](event(1, 13, 10));
  on["pointermove"](event(1, 14, 10));
  on["pointerdown"](event(2, 14, 20));
  on["pointermove"](event(2, 14, 30));
  on["click"](event(2, 14, 30));
  for (const ctrlKey of [false, true]) on["wheel"]({ deltaY: -500, ctrlKey, preventDefault() {} });
  assert.deepEqual(calls.map(([name]) => name), ["press", "pan", "zoom", "zoom", "zoom"]); // prettier-ignore
  for (const id of [1, 2]) on["pointerup"]({ pointerId: id });
  on["pointerdown"](event(1, 50, 50));
  on["click"](event(1, 50, 50)); // no drag is left
  on["pointerdown"](event(2, 50, 50)); // at the place of the first
  on["pointermove"](event(2, 53, 54));
  assert.deepEqual(calls.slice(5).map(([name, factor]) => [name, name === "zoom" && factor]), [["press", false], ["zoom", 5]]); // prettier-ignore
  let prevented = 0;
  for (const touches of [[1], [1, 2]])
    on["touchmove"]({ touches, preventDefault: () => (prevented += touches.length) });
  assert.equal(prevented, 2); // one finger scrolls the page
  assert.deepEqual([calls[1].slice(1), calls[2][1]], [[4, 0], 2]);
  close([calls[3][1], calls[4][1]], [Math.exp(0.15), Math.exp(1)]);
});

test("files have the bytes of their formats", async () => {
  const bytes = async (file) => Buffer.from(await file.arrayBuffer());
  const hex = (text) => Buffer.from(text.replaceAll(" ", ""), "hex");
  const archive = await bytes(await zipFile({ "ä.txt": new Blob(["123456789"]), bc: new Blob(["x"]) }));
  // version 2, names in UTF-8, stored, 1980-01-01; CRC-32 of 123456789, twice the size, length of the name
  const facts = hex("1400 0008 0000 0000 2100 2639f4cb 09000000 09000000 0600 0000");
  const local = Buffer.concat([Buffer.from("PK\x03\x04"), facts, Buffer.from("ä.txt123456789")]);
  assert.deepEqual(archive.subarray(0, local.length), local);
  const end = archive.subarray(-22); // no comment follows
  const [size, start] = [end.readUInt32LE(12), end.readUInt32LE(16)];
  assert.deepEqual(end.subarray(0, 12), Buffer.concat([Buffer.from("PK\x05\x06"), hex("0000 0000 0200 0200")]));
  assert.equal(start + size, archive.length - 22);
  const entry = Buffer.concat([Buffer.from("PK\x01\x02"), hex("1400"), facts, hex("0000 0000 0000 00000000 00000000"), Buffer.from("ä.txt")]); // prettier-ignore
  assert.deepEqual(archive.subarray(start, start + entry.length), entry);
  const second = archive.readUInt32LE(start + entry.length + 42); // where the second file begins
  assert.deepEqual([archive.toString("latin1", second, second + 4), second], ["PK\x03\x04", local.length]);
  const array = await bytes(npyFile(Float32Array.of(1, 2), [2]));
  assert.deepEqual(array.subarray(0, 10), hex("93 4e554d5059 0100 7600")); // version 1, 118 bytes of header
  assert.deepEqual([array.length, array.readFloatLE(132)], [136, 2]);
  assert.match(array.toString("latin1", 10, 128), /^{'descr': '<f4', 'fortran_order': False, 'shape': \(2,\), } *\n$/);
  const long = await bytes(npyFile(new Uint8Array(), [...new Array(80).keys()], "|u1"));
  assert.deepEqual([long.readUInt16LE(8), long.length % 64], [long.length - 10, 0]);
  const mask = await bytes(await maskFile(Uint8Array.of(0, 1, 0, 0, 0, 1), { width: 3, height: 2 }));
  assert.deepEqual(mask.subarray(0, 8), hex("89504e470d0a1a0a"));
  assert.deepEqual([mask.readUInt32BE(16), mask.readUInt32BE(20), mask[24], mask[25]], [3, 2, 8, 0]);
  const length = mask.readUInt32BE(33); // of the pixels, each row behind the number of its filter
  assert.deepEqual([...inflateSync(mask.subarray(41, 41 + length))], [0, 0, 255, 0, 0, 0, 0, 255]);
  const white = await bytes(await maskFile(Uint8Array.of(1, 0), { width: 2, height: 1 }));
  assert.deepEqual([...inflateSync(white.subarray(41, 41 + white.readUInt32BE(33)))], [0, 255, 0]);
  assert.equal(mask.toString("hex", 41 + length + 4), "0000000049454e44ae426082"); // the last chunk
  assert.equal((await bytes(npyText("Ü1"))).readUInt32LE(128), 0xdc);
});
