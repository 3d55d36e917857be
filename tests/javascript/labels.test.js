// Masks as arrays: how well two agree, their borders, what is painted.

import assert from "node:assert/strict";
import { test } from "node:test";
import { area, countOf, jaccard, outlinePath, resized, union } from "../../app/static/maths/labels.js";
import { Painting, fromRuns, tint } from "../../app/static/maths/painting.js";
import { random } from "./random.js";

const labels = (rows, columns, values) => ({ rows, columns, values: Uint8Array.from(values) });

test("objects are counted and measured, one or all", () => {
  const found = labels(1, 5, [0, 1, 2, 2, 2]);
  assert.equal(countOf(found), 2);
  assert.equal(area(found), 0.8);
  assert.equal(area(found, 2), 0.6);
  assert.equal(jaccard(labels(1, 3, [1, 2, 2]), labels(1, 3, [0, 1, 1]), undefined, 2), 1);
  assert.equal(jaccard(labels(1, 2, [0, 2]), labels(1, 2, [0, 1])), 1);
  assert.equal(jaccard(labels(1, 1, [0]), labels(1, 1, [0])), 1);
  assert.deepEqual([...union([Uint8Array.of(0, 0, 1), Uint8Array.of(1, 0, 0)])], [1, 0, 1]);
  assert.deepEqual([...union([Uint8Array.of(0, 1)])], [0, 1]);
  assert.deepEqual([...resized(labels(1, 2, [1, 0]), { rows: 2, columns: 2 }).values], [1, 0, 1, 0]);
});

test("an outline goes around what is kept, at the edge of the image too", () => {
  const lines = (kept, rows, columns) => outlinePath(labels(rows, columns, kept)).match(/M[^M]+/g) ?? [];
  assert.deepEqual(lines([1], 1, 1).sort(), ["M0 0H1", "M0 0V1", "M0 1H1", "M1 0V1"]);
  assert.deepEqual(lines([0, 0], 1, 2), []);
  assert.deepEqual(lines([1, 1, 0, 0, 1, 0], 2, 3), ["M0 0H2", "M0 1H1", "M1 2H2", "M0 0V1", "M1 1V2", "M2 0V2"]);
  // Its length is the number of borders between kept and not kept.
  const next = random(3);
  const kept = Uint8Array.from({ length: 30 }, () => (next() < 0.5 ? 1 : 0));
  const length = lines(kept, 6, 5).reduce((sum, line) => {
    const [, x, y, way, end] = /M(\d+) (\d+)([HV])(\d+)/.exec(line);
    return sum + Number(end) - Number(way === "H" ? x : y);
  }, 0);
  const at = (row, column) => (row < 0 || column < 0 || row > 5 || column > 4 ? 0 : kept[row * 5 + column]);
  let borders = 0;
  for (let row = 0; row <= 6; row++) {
    for (let column = 0; column <= 5; column++) {
      borders += Number(at(row, column) !== at(row - 1, column)) + Number(at(row, column) !== at(row, column - 1));
    }
  }
  assert.equal(length, borders);
});

test("a stroke takes every pixel within its radius, and undo gives them back", () => {
  const near = ([x1, y1], [x2, y2], radius) =>
    Array.from({ length: 200 }, (_, pixel) => {
      const [x, y] = [(pixel % 20) + 0.5, Math.floor(pixel / 20) + 0.5];
      const steps = Array.from({ length: 1001 }, (_, step) => step / 1000);
      return Math.min(...steps.map((t) => Math.hypot(x - x1 - t * (x2 - x1), y - y1 - t * (y2 - y1)))) <= radius
        ? 1
        : 0;
    });
  const painting = new Painting({ width: 20, height: 10 }, 3);
  painting.remember();
  painting.line({ x: 4, y: 5 }, { x: 14, y: 5 }, 2);
  assert.deepEqual([...painting.values], near([4, 5], [14, 5], 2));
  painting.undo();
  assert.equal(painting.labels, null);
  painting.line({ x: 4, y: 5.3 }, { x: 14, y: 5.3 }, 1.4); // between rows
  assert.deepEqual([...painting.values], near([4, 5.3], [14, 5.3], 1.4));
  painting.clear();
  painting.line({ x: 15.2, y: 7.9 }, { x: 13.6, y: 1.8 }, 1.45); // upwards and to the left
  assert.deepEqual([...painting.values], near([15.2, 7.9], [13.6, 1.8], 1.45));
  for (const [from, to, radius] of [
    [[4.5, 5.5], [14.5, 5.5], 1], // centers at the radius itself
    [[18.5, 5], [19.5, 5], 3], // at the edge of the image
  ]) {
    // prettier-ignore
    painting.clear();
    painting.line({ x: from[0], y: from[1] }, { x: to[0], y: to[1] }, radius);
    assert.deepEqual([...painting.values], near(from, to, radius));
  }
});

test("runs hold a painting", () => {
  const painting = new Painting({ width: 4, height: 2 }, 2);
  painting.values = Uint8Array.of(0, 1, 1, 2, 2, 2, 0, 0);
  assert.deepEqual(painting.runs(), [0, 1, 1, 2, 2, 3, 0, 2]);
  assert.deepEqual(fromRuns(painting.runs(), 8), painting.values);
});

test("history is bounded by bytes", () => {
  const painting = new Painting({ width: 2000, height: 1000 });
  for (let stroke = 0; stroke < 20; stroke++) painting.remember();
  assert.ok(painting.past.length * painting.values.length <= 12e6);
  assert.ok(painting.past.length >= 3);
  for (const [width, most] of [
    [4, 30],
    [850, 7],
    [3000, 3],
  ]) {
    const other = new Painting({ width, height: 2000 });
    for (let stroke = 0; stroke < 40; stroke++) other.remember();
    assert.equal(other.past.length, most);
  }
});

test("objects are added, removed and take the free number", () => {
  const painting = new Painting({ width: 2, height: 1 }, 3);
  painting.values = Uint8Array.of(1, 0);
  painting.add();
  assert.deepEqual([painting.objects, painting.active], [[1, 2], 2]);
  painting.remove(1);
  assert.deepEqual([painting.objects, painting.active, [...painting.values]], [[2], 2, [0, 0]]);
  painting.add();
  assert.deepEqual([painting.objects, painting.active], [[1, 2], 1]); // the smallest free number
  painting.remove(1);
  assert.deepEqual([painting.objects, painting.active], [[2], 2]);
  painting.remove(2);
  assert.deepEqual([painting.objects, painting.active], [[1], 1]); // one is always left
  for (let step = 0; step < 3; step++) painting.undo();
  assert.deepEqual(
    [painting.objects, [...painting.values]],
    [
      [1, 2],
      [1, 0],
    ],
  );
});

test("an object is colored and its edges are opaque", () => {
  const values = Uint8Array.from({ length: 25 }, (_, pixel) =>
    pixel % 5 && pixel % 5 < 4 && pixel > 4 && pixel < 20 ? 1 : 0,
  );
  const data = new Uint8ClampedArray(100);
  tint(values, 5, [[9, 8, 7]], data);
  assert.deepEqual([...data.subarray(4 * 12, 4 * 12 + 4)], [9, 8, 7, 115]);
  assert.deepEqual([...data.subarray(4 * 6, 4 * 6 + 4)], [9, 8, 7, 255]);
  assert.equal(data[3], 0);
  tint(values, 5, [[9, 8, 7]], data, true);
  assert.deepEqual([data[3], data[4 * 12 + 3], data[4 * 6 + 3]], [175, 0, 255]); // the outside is darkened
  assert.deepEqual([...data.subarray(0, 4)], [0, 0, 0, 175]);
  for (const [pixel, edges] of [
    [7, [3, 6, 7, 11]], // at the right border
    [0, [0, 1, 4]],
  ]) {
    // prettier-ignore
    const alpha = new Uint8ClampedArray(64).fill(9);
    tint(new Uint8Array(16).fill(1).fill(2, pixel, pixel + 1), 4, [[1], [2]], alpha); // prettier-ignore
    assert.deepEqual([...Array(16).keys()].filter((at) => alpha[4 * at + 3] === 255), edges); // prettier-ignore
  }
});

test("what is taken at another size is given to the active object, or taken away", () => {
  const painting = new Painting({ width: 4, height: 2 }, 2);
  assert.deepEqual([painting.most, new Painting({ width: 1, height: 1 }).most], [2, 1]);
  painting.take(labels(1, 2, [1, 0]));
  assert.deepEqual([...painting.values], [1, 1, 0, 0, 1, 1, 0, 0]);
  painting.clear();
  painting.take(labels(1, 2, [0, 1]));
  assert.deepEqual([...painting.values], [0, 0, 1, 1, 0, 0, 1, 1]);
  painting.take(labels(2, 2, [1, 1, 0, 0]), 0);
  assert.deepEqual([...painting.values], [0, 0, 0, 0, 0, 0, 1, 1]);
});
