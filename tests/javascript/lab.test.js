// What the page remembers: addresses, pins, bytes, and which of several questions counts.

import assert from "node:assert/strict";
import { test } from "node:test";
import { read, write } from "../../app/static/views/address.js";
import { Pins } from "../../app/static/maths/pins.js";
import { decimals, figure, fromBase64, percent } from "../../app/static/maths/format.js";
import { Memory } from "../../app/static/views/memory.js";
import { Newest, rested } from "../../app/static/views/newest.js";

const START = { image: "kitten", size: 224, block: 0, layer: "light" };

const grid = (rows, columns) => ({
  rows,
  columns,
  patchAt: ({ x, y }) => ({ row: Math.floor(y * rows), column: Math.floor(x * columns) }),
  placeOf: ({ row, column }) => ({ x: (column + 0.5) / columns, y: (row + 0.5) / rows }),
});

/** Put a query into the address of a page that is not there. @param {string} search */
function at(search) {
  const location = { search, pathname: "/", changes: 0 };
  const replaceState = (/** @type {any} */ _, /** @type {string} */ __, /** @type {string} */ address) =>
    void ((location.search = address.startsWith("?") ? address : ""), (location.changes += 1));
  Object.assign(globalThis, { location, history: { state: null, replaceState } });
  return location;
}

test("an address holds what differs from the start, and is read back", () => {
  const location = at("?__theme=dark");
  write({ image: "owl", size: 224, block: 3, pins: "1,2;3,4" }, START);
  assert.equal(location.search, "?__theme=dark&image=owl&block=3&pins=1,2;3,4");
  assert.deepEqual(read(), { image: "owl", block: "3", pins: "1,2;3,4" });
  write({ image: "kitten", block: 0, pins: "" }, START);
  assert.equal(location.search, "?__theme=dark");
  write({ image: "kitten", block: 0, pins: "" }, START);
  assert.equal(location.changes, 2); // the last wrote nothing new
});

test("an address holds no uploaded image", () => {
  const location = at("?image=owl&second=sheep");
  write({ image: "abc/mine.png", second: "turned", other: "random:vit_tiny/16" }, { second: "turned" });
  assert.equal(location.search, "?other=random:vit_tiny/16");
});

test("a Space gets the query of its page", () => {
  const messages = [];
  const location = at("");
  Object.assign(location, { hostname: "me-lab.hf.space" });
  const parent = { postMessage: (/** @type {any} */ ...message) => messages.push(message) };
  Object.assign(globalThis, { window: { parent } });
  write({ layer: "mask" });
  assert.deepEqual(messages, [[{ queryString: "layer=mask" }, "https://huggingface.co"]]);
});

test("words that cannot be in an address are left out", () => {
  at("?block=-1&mass=7&layer=dark&image=../x&size=abc&pins=1&step=12&unknown=1&head=max");
  assert.deepEqual(read(), { head: "max" });
});

test("pins stay where they are under another grid, and an address brings them back", () => {
  const pins = new Pins(["red", "green", "blue"]);
  pins.pin({ row: 1, column: 2 }, grid(4, 4));
  pins.pin({ row: 3, column: 0 }, grid(4, 4));
  assert.deepEqual(pins.written(grid(4, 4)), { pins: "1,2;3,0", patch: "3,0" });
  assert.deepEqual(pins.written(grid(8, 8)), { pins: "3,5;7,1", patch: "7,1" });
  const again = new Pins(["red", "green", "blue"]);
  again.read(pins.written(grid(8, 8)), grid(8, 8));
  assert.deepEqual(again.written(grid(8, 8)), pins.written(grid(8, 8)));
  again.read({ pins: "1,1;8,1;1,8", patch: "" }, grid(8, 8));
  assert.deepEqual(again.written(grid(8, 8)), { pins: "1,1", patch: "" });
});

test("the ninth pin takes the place of the oldest", () => {
  const pins = new Pins(Array.from({ length: 8 }, (_, index) => `color ${index}`));
  for (let column = 0; column < 9; column++) pins.pin({ row: 0, column }, grid(10, 10));
  assert.equal(pins.list.length, 8);
  assert.equal(new Set(pins.list.map(({ color }) => color)).size, 8);
  assert.deepEqual(grid(10, 10).patchAt(pins.list[0]), { row: 0, column: 1 });
  const alike = new Pins(["red"]);
  for (const column of [1, 2]) alike.pin({ row: 0, column }, grid(10, 10));
  assert.deepEqual(alike.list.map(({ color }) => color), ["red", "red"]); // prettier-ignore
});

test("memory is bounded by bytes, the least recently used goes first, the newest stays", () => {
  const memory = new Memory(100);
  memory.put("a", 1, 60);
  memory.put("b", 2, 30);
  memory.get("a");
  memory.put("c", 3, 40);
  assert.deepEqual([memory.get("a"), memory.get("b"), memory.get("c")], [1, undefined, 3]);
  memory.put("d", 4, 500);
  assert.deepEqual([memory.get("c"), memory.get("d"), memory.bytes], [undefined, 4, 500]);
  memory.put("e", 5, 10);
  assert.equal(memory.bytes, 10);
});

test("of several questions the newest is answered, in whatever order answers come", async () => {
  const newest = new Newest();
  const answers = [];
  const request = (name) => newest.run((signal) => new Promise((answer) => answers.push({ name, answer, signal })));
  const requests = ["first", "second", "third"].map(request);
  assert.deepEqual(
    answers.map(({ signal }) => signal.aborted),
    [true, true, false],
  );
  for (const { name, answer } of answers.reverse()) answer(name);
  assert.deepEqual(await Promise.all(requests), [undefined, undefined, "third"]);
});

test("a failure of an earlier request is dropped, one of the newest is raised", async () => {
  const newest = new Newest();
  const earlier = newest.run(() => Promise.reject(new Error("late")));
  const failed = assert.rejects(
    newest.run(() => Promise.reject(new Error("now"))),
    /now/,
  );
  assert.equal(await earlier, undefined);
  await failed;
});

test("a delayed action runs once after the last call, and not after cancel", (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  Object.assign(globalThis, { window: globalThis });
  let runs = 0;
  const action = rested(() => (runs += 1), 100);
  for (let call = 0; call < 3; call++) {
    action();
    context.mock.timers.tick(99);
  }
  assert.equal(runs, 0);
  context.mock.timers.tick(1);
  assert.equal(runs, 1);
  action();
  action.cancel();
  context.mock.timers.tick(1000);
  assert.equal(runs, 1);
  rested(() => (runs += 1))();
  context.mock.timers.tick(149);
  assert.equal(runs, 1);
  context.mock.timers.tick(1);
  assert.equal(runs, 2); // after 150 milliseconds, unless another time is given
});

test("numbers are written as people read them", () => {
  assert.deepEqual([0.042, 0.0994, 0.0995, 0.6].map(percent), ["4.2 %", "9.9 %", "10 %", "60 %"]);
  assert.deepEqual(
    [12345.6, 0.00012, 0.001, 0.00105, 0, -2.5].map((value) => figure(value)),
    ["12,350", "1.2e-4", "0.001", "0.00105", "0", "-2.5"],
  );
  assert.deepEqual([1.237, -0.004, -0.005, -0.0052].map(decimals), ["1.24", "0.00", "-0.01", "-0.01"]);
  assert.deepEqual([...fromBase64("AQD/")], [1, 0, 255]);
});
