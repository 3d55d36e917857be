// What the page remembers: addresses, pins, bytes, and which of several questions counts.

import assert from "node:assert/strict";
import { test } from "node:test";
import { held, read, written } from "../../app/static/address.js";
import { Pins } from "../../app/static/maths/pins.js";
import { scale, nearest } from "../../app/static/maths/scale.js";
import { duration, figure, megabytes, percent } from "../../app/static/maths/format.js";
import { Memory } from "../../app/static/memory.js";
import { Newest } from "../../app/static/newest.js";
import { zoomed } from "../../app/static/widgets/gestures.js";

const START = {
  tab: "explore",
  photo: "cat",
  name: "",
  second: "",
  secondName: "",
  model: "embedded",
  other: "random:embedded",
  size: 224,
  quantity: "attention",
  block: 0,
  head: "heads",
  layer: "heat",
  mass: 60,
  patch: "",
  pins: "",
  method: "attention",
  clip: "coffee",
  clipName: "",
  map: "caltech101",
  run: "",
  step: 1,
};

test("an address says what differs from the start, and is read back", () => {
  assert.equal(written(START, START), "");
  const state = {
    ...START,
    tab: "segment",
    photo: "rocket",
    model: "random:vit_tiny/16",
    mass: 35,
    pins: "1,2;3,4",
    patch: "3,4",
  };
  const query = written(state, START);
  assert.equal(query, "?tab=segment&photo=rocket&model=random:vit_tiny/16&mass=35&patch=3,4&pins=1,2;3,4");
  assert.deepEqual(read(query, START, null), state);
});

test("a visitor's own photograph is not in the address, and without it the page says what is missing", () => {
  const state = { ...START, photo: "f4e2secret", name: "me.jpg" };
  const query = written(state, START);
  assert.equal(query, "?photo=own");
  assert.deepEqual(read(query, START, held(state)), state); // a reload of the same browser
  assert.deepEqual(read(query, START, null), { ...START, missing: "photo" }); // whoever was sent the link
});

test("of two photographs of a visitor's own, each is told apart, and the one that is missing is named", () => {
  const state = { ...START, second: "f4e2secret", secondName: "you.jpg" };
  assert.equal(written(state, START), "?second=own");
  assert.deepEqual(held(state), { second: "f4e2secret", secondName: "you.jpg" });
  assert.deepEqual(read("?second=own", START, held(state)), state);
  assert.deepEqual(read("?second=own", START, held({ ...START, name: "me.jpg" })), { ...START, missing: "second" });
});

test("what cannot be in an address is left as at the start", () => {
  const query = "?mass=400&patch=<b>&size=many&block=-1&head=7e9&pins=1&nonsense=2&layer=heat'&name=x&model=a%00b";
  assert.deepEqual(read(query, START, null), START);
});

const grid = (rows, columns) => ({
  rows,
  columns,
  patchAt: ({ x, y }) => ({ row: Math.floor(y * rows), column: Math.floor(x * columns) }),
  placeOf: ({ row, column }) => ({ x: (column + 0.5) / columns, y: (row + 0.5) / rows }),
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
  again.read({ pins: "1,1;90,1", patch: "" }, grid(8, 8));
  assert.deepEqual(again.written(grid(8, 8)), { pins: "1,1", patch: "" });
});

test("the ninth pin takes the place of the oldest, and undo brings it back", () => {
  const pins = new Pins(Array.from({ length: 8 }, (_, index) => `color ${index}`));
  for (let column = 0; column < 9; column++) pins.pin({ row: 0, column }, grid(10, 10));
  assert.equal(pins.list.length, 8);
  assert.equal(new Set(pins.list.map(({ color }) => color)).size, 8);
  pins.undo();
  assert.deepEqual(grid(10, 10).patchAt(pins.list[0]), { row: 0, column: 0 });
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
  const ask = (name) => newest.run((signal) => new Promise((answer) => answers.push({ name, answer, signal })));
  const asked = ["first", "second", "third"].map(ask);
  assert.deepEqual(
    answers.map(({ signal }) => signal.aborted),
    [true, true, false],
  );
  for (const { name, answer } of answers.reverse()) answer(name);
  assert.deepEqual(await Promise.all(asked), [undefined, undefined, "third"]);
});

test("a failure of a question that was given up is nobody's", async () => {
  const newest = new Newest();
  const given = newest.run(() => Promise.reject(new Error("late")));
  newest.stop();
  assert.equal(await given, undefined);
  await assert.rejects(
    newest.run(() => Promise.reject(new Error("now"))),
    /now/,
  );
  assert.equal(newest.busy, false);
});

test("scales have round ticks inside, and what is drawn lies between", () => {
  for (const [values, logarithmic] of [
    [[0, 17, 3], false],
    [[0.01, 900], true],
    [[5], false],
    [[], false],
    [[2, 3], true],
  ]) {
    const { low, high, place, ticks } = scale(values, logarithmic);
    assert.ok(ticks.every((tick) => tick >= low && tick <= high));
    assert.ok(ticks.length >= 1 && ticks.length <= 11, String(ticks));
    assert.deepEqual(
      [place(low), place(high)].map((value) => Math.round(1e9 * value) / 1e9),
      [0, 1],
    );
  }
  assert.equal(nearest([1, 5, 9], 6), 1);
  assert.equal(nearest([], 6), -1);
  assert.equal(nearest([1, 5], Infinity), 1);
});

test("numbers are written as people read them", () => {
  assert.deepEqual([percent(0.042), percent(0.6), percent(0.0996)], ["4.2 %", "60 %", "10 %"]);
  assert.deepEqual([figure(12345.6), figure(0.00012), figure(null)], ["12,350", "1.2e-4", "–"]);
  assert.deepEqual([megabytes(25e6), megabytes(1.5e6)], ["25 MB", "1.5 MB"]);
  assert.deepEqual([duration(90), duration(600), duration(9000)], ["90 s", "10 min", "3 h"]);
});

test("what lies at a place stays there when one comes nearer, as near as is allowed", () => {
  const whole = { scale: 1, left: 0, top: 0 };
  const near = zoomed(whole, 3, { x: 0.25, y: 0.5 }, 1, 12);
  assert.deepEqual(near, { scale: 3, left: -0.5, top: -1 });
  assert.equal(near.left + (0.25 / whole.scale) * near.scale, 0.25);
  assert.equal(zoomed(near, 100, { x: 0, y: 0 }, 1, 12).scale, 12);
  assert.equal(zoomed(near, 0, { x: 0, y: 0 }, 1, 12).scale, 1);
});
