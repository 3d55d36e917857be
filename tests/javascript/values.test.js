// The page's arithmetic, compared with the package's: values.json, which tests/app/test_shared_values.py writes.

import assert from "node:assert/strict";
import { test } from "node:test";
import * as attention from "../../app/static/maths/attention.js";
import { Guide } from "../../app/static/maths/guided.js";
import { jaccard, resized } from "../../app/static/maths/labels.js";
import { displayRange, drawnSize, enlarge, fitted } from "../../app/static/maths/levels.js";
import { Maps } from "../../app/static/maths/maps.js";
import { proposal, tidy } from "../../app/static/maths/proposal.js";
import { QUANTITIES } from "../../app/static/maths/quantities.js";
import { fedSize, resample } from "../../app/static/maths/resample.js";
import { cocoFile } from "../../app/static/views/files.js";
import { random } from "./random.js";
import { TABLE } from "./table.js";

const floats = ({ values }) => Float32Array.from(values);
const bytes = ({ values }) => Uint8Array.from(values);
const grid = ({ shape: [rows, columns], values }) => ({ rows, columns, values: Uint8Array.from(values) });
const rgba = ({ values }) =>
  Uint8ClampedArray.from(values.flatMap((value, at) => (at % 3 === 2 ? [value, 255] : [value])));

function close(found, expected, tolerance = 1e-5) {
  assert.equal(found.length, expected.length);
  expected.forEach((value, at) => assert.ok(Math.abs(found[at] - value) < tolerance, `${found[at]} is not ${value}`));
}

const { queries, keys, prefix, rows, columns } = TABLE.block;
const [heads, tokens, dim] = keys.shape;
const BLOCK = { queries: floats(queries), keys: floats(keys), heads, tokens, dim, prefix };
const ARRAYS = { ...BLOCK, features: BLOCK.keys.subarray(0, tokens * dim), values: floats(TABLE.rollout) };

for (const { token, ...expected } of TABLE.maps)
  for (const [quantity, { values }] of Object.entries(expected))
    test(`${quantity} of token ${token}`, () => {
      const maps = QUANTITIES[quantity].maps(ARRAYS, token);
      close(
        maps.flatMap((map) => [...map]),
        values,
      );
    });

test("the page offers every quantity in its mode", () => {
  const modes = Object.keys(TABLE.modes).map((mode) => [mode, Object.keys(QUANTITIES).filter((name) => QUANTITIES[name].mode === mode).sort()]); // prettier-ignore
  assert.deepEqual(Object.fromEntries(modes), TABLE.modes);
});

test("the patches of a click", () => {
  assert.deepEqual(proposal(BLOCK, { rows, columns }, { row: 1, column: 1 }, 0.9), bytes(TABLE.proposal));
});

/** Number of the connected part of each cell, edge to edge: the smallest of its cells. */
function partsOf(mask, columns) {
  const parts = [...mask.keys()];
  const joined = (one, other) => mask[one] === mask[other] && Math.floor(one / columns) - Math.floor(other / columns) + ((one % columns) - (other % columns)) === 1; // prettier-ignore
  for (let round = 0; round < mask.length; round++)
    for (const cell of parts.keys())
      for (const before of [cell - 1, cell - columns])
        if (before >= 0 && joined(cell, before)) parts[cell] = parts[before] = Math.min(parts[cell], parts[before]);
  return parts;
}

test("a click takes the similar patches that are connected with it; small parts and holes are inverted", () => {
  const next = random(4);
  const [rows, columns] = [5, 7];
  const keys = Float32Array.from({ length: 36 * 2 }, () => next() - 0.4).fill(0, 40, 42); // patch 19 has no key
  const block = { queries: keys, keys, heads: 1, tokens: 36, dim: 2, prefix: 1 };
  for (let patch = 0; patch < 35; patch++)
    for (const reach of [0.5, 0.9]) {
      const similar = attention.keySimilarityMap(block, 1 + patch).map((cosine) => Math.max(0, cosine));
      similar[patch] = 1;
      const kept = attention.keepMass(similar, reach);
      kept[patch] = 1;
      const parts = partsOf(kept, columns);
      const place = { row: Math.floor(patch / columns), column: patch % columns };
      const expected = parts.map((part) => Number(part === parts[patch]));
      assert.deepEqual([...proposal(block, { rows, columns }, place, reach)], expected);
    }
  for (let round = 0; round < 20; round++) {
    const mask = Uint8Array.from({ length: 35 }, () => Number(next() < 0.5));
    const parts = partsOf(mask, columns);
    const cells = (part) => parts.filter((other) => other === part).length;
    for (const least of [1, 3, 4.5]) {
      const expected = [...mask].map((value, cell) => (cells(parts[cell]) < least ? 1 - value : value));
      assert.deepEqual([...tidy(mask.slice(), columns, least)], expected);
    }
  }
});

for (const { map, mass, kept } of TABLE.keepMass)
  test(`the patches that keep ${mass} of a map`, () =>
    assert.deepEqual(attention.keepMass(floats(map), mass), bytes(kept)));

test("a map is interpolated between the centers of its patches", () => {
  const { map, levels } = TABLE.enlarged;
  const [height, width] = levels.shape;
  const pixels = new Uint32Array(height * width);
  const table = Uint32Array.from({ length: 256 }, (_, level) => level);
  enlarge(floats(map), { rows: 4, columns: 6 }, { width, height }, [0.2, 0.8], table, pixels);
  close(pixels, levels.values, 0.501);
  enlarge(new Float32Array(24).fill(3), { rows: 4, columns: 6 }, { width, height }, [3, 3], table, pixels);
  assert.ok(pixels.every((level) => level === 0)); // of a constant map
});

for (const { image, resized: expected } of TABLE.resample)
  test(`an image resized to ${expected.shape.slice(0, 2)}`, () => {
    const [from, to] = [image, expected].map(({ shape: [height, width] }) => ({ height, width }));
    assert.deepEqual([...resample(rgba(image), from, to)], expected.values);
  });

for (const { size, fed, patch } of TABLE.fedSize)
  test(`the input of ${size}`, () => {
    const [height, width, short] = size;
    assert.deepEqual(fedSize({ width, height }, short, patch), { height: fed[0], width: fed[1] });
  });

test("a mask whose edges follow the image", () => {
  const { image, mask, inside } = TABLE.refined;
  const [height, width] = mask.shape;
  assert.deepEqual(new Guide(rgba(image), width, height, 2).refine(bytes(mask)), bytes(inside));
});

test("labels at another size, and their Jaccard", () => {
  const { labels, other, resized: expected, jaccard: score } = TABLE.labels;
  assert.deepEqual(resized(grid(labels), grid(other)).values, bytes(expected));
  assert.ok(Math.abs(jaccard(grid(labels), grid(other), { rows: 12, columns: 15 }) - score) < 1e-6);
});

test("COCO run lengths", async () => {
  const { mask, counts } = TABLE.coco;
  const [height, width] = mask.shape;
  assert.deepEqual(JSON.parse(await cocoFile(bytes(mask), { width, height }).text()).counts, counts);
});

test("bytes of 16-bit floats are decoded, subnormal and negative ones too; others are refused", () => {
  const halves = Uint16Array.of(0x3c00, 0xc000, 0x0001, 0x0000, 0x3555, 0x7bff, 0x3c00, 0x3c00);
  const decoded = attention.decodeBlock(halves.buffer, { heads: 1, tokens: 2, prefix: 1 });
  close(decoded.queries, [1, -2, 2 ** -24, 0], 1e-9);
  close(decoded.keys, [0.333251953125, 65504, 1, 1], 1e-9);
  assert.deepEqual([decoded.dim, attention.decodeTokens(halves.buffer, { tokens: 2, prefix: 1 }).dim], [2, 4]);
  assert.throws(() => attention.decodeBlock(new ArrayBuffer(6), { heads: 2, tokens: 2, prefix: 1 }), /no block/);
});

test("two heads have a mean, and together keep what any of them keeps", () => {
  const maps = new Maps([Float32Array.of(0.05, 0.05, 0.9), Float32Array.of(0.9, 0.05, 0.05)], { mass: 0.6 });
  assert.deepEqual([...maps.kept("heads")], [1, 0, 1]);
  close(maps.map("mean"), [0.475, 0.05, 0.475]);
  close(maps.map("max"), [0.9, 0.05, 0.9]);
  for (const key of ["mean", "max", "0"]) close(new Maps([Float32Array.of(0.2, 0.8)], {}).map(key), [0.2, 0.8]);
  assert.deepEqual([...attention.aboveLeast(Float32Array.of(3, 3))], [1, 1]);
  assert.deepEqual([...attention.aboveLeast(Float32Array.of(3, 7, 4))], [0, 4, 1]);
});

test("a range goes from the median to the 98th percentile, or has zero in the middle", () => {
  const values = Float32Array.from({ length: 101 }, (_, rank) => (rank * 37) % 101);
  assert.deepEqual(displayRange(values), [50, 98]);
  close(displayRange(Float32Array.of(160, 0, 10, 20, 80, 40)), [30, 152]); // between two values
  for (const count of [1, 3]) assert.deepEqual(displayRange(new Float32Array(count).fill(3)), [3, 3]);
  assert.deepEqual(displayRange(new Float32Array(101).fill(5, 0, 1)), [0, 5]); // one patch above a median of 0
  const [low, high] = displayRange(Float32Array.of(-1, 3), true);
  assert.equal(low, -high);
  assert.ok(Math.abs(high - 2.96) < 1e-6);
});

for (const [rows, columns, row, column] of [
  [5, 6, 1, 1],
  [5, 6, 3, 4],
  [9, 9, 4, 4],
])
  test(`the likely patch ${row}, ${column} has the most attention of [CLS] within its 3 × 3 patches`, () => {
    const weights = new Array(rows * columns).fill(1);
    for (const down of [-1, 1]) for (const right of [-1, 1]) weights[columns * (row + down) + column + right] = 3;
    weights[24] = rows > 5 ? 1 : 4.5; // a single patch at the border
    if (rows > 5) for (const border of [8, 9, 17, 18, 26, 27]) weights[border] = 2.6;
    const keys = Float32Array.of(0, ...weights.map((weight) => 100 + Math.log(weight))); // of [CLS] and the patches
    const queries = new Float32Array(keys.length).fill(-1).fill(1, 0, 1); // all other tokens attend elsewhere
    const block = { queries, keys, heads: 1, tokens: keys.length, dim: 1, prefix: 1 };
    assert.deepEqual(attention.likelyPatch(block, { rows, columns }), { row, column });
  });

for (const [rows, columns, patch] of [
  [2, 5, { row: 1, column: 2 }], // without inner patches the middle
  [1, 6, { row: 0, column: 3 }],
  [4, 5, { row: 1, column: 1 }], // the first of equal ones
])
  test(`the likely patch of a map of ${rows} × ${columns} equal patches`, () => {
    const tokens = 1 + rows * columns;
    const block = { queries: new Float32Array(tokens), keys: new Float32Array(tokens), heads: 1, tokens, dim: 1, prefix: 1 }; // prettier-ignore
    assert.deepEqual(attention.likelyPatch(block, { rows, columns }), patch);
  });

test("sizes shrink in proportion to a number of pixels or a longer side, and never grow", () => {
  const size = { width: 400, height: 100 };
  assert.deepEqual(drawnSize(size, 10_000), { width: 200, height: 50 });
  assert.deepEqual(fitted(size, 300), { width: 300, height: 75 });
  assert.deepEqual([drawnSize(size, 1e9), fitted(size, 999)], [size, size]);
  assert.deepEqual(fitted({ width: 2, height: 900 }, 90), { width: 1, height: 90 });
});

test("patches that hold a share exactly need no other patch", () => {
  const map = Float32Array.of(0.25, 0.5, 0.25);
  const kept = attention.keepMass(map, 0.5);
  assert.deepEqual([...kept], [0, 1, 0]);
  assert.deepEqual(attention.keptShares(map, kept), { mass: 0.5, area: 1 / 3 });
  assert.deepEqual([...attention.keepMass(Float32Array.of(2, 3), 0.6)], [0, 1]); // 0.4 in 32 bits is more
  assert.deepEqual([...attention.keepMass(new Float32Array(3), 0.5)], [0, 0, 1]); // at least one
});
