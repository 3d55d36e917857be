// The arithmetic of attention against plain versions of it, written from its definition.

import assert from "node:assert/strict";
import { test } from "node:test";
import * as attention from "../../app/static/maths/attention.js";
import { displayRange } from "../../app/static/maths/levels.js";
import { Maps } from "../../app/static/maths/maps.js";
import { random } from "./random.js";

const SHAPE = { heads: 2, tokens: 7, dim: 5, prefix: 1 };

function block() {
  const next = random(1);
  const values = () => Float32Array.from({ length: SHAPE.heads * SHAPE.tokens * SHAPE.dim }, () => next() - 0.5);
  return { ...SHAPE, queries: values(), keys: values() };
}

function vector(values, head, token) {
  const start = (head * SHAPE.tokens + token) * SHAPE.dim;
  return [...values.subarray(start, start + SHAPE.dim)];
}

const dot = (one, other) => one.reduce((sum, value, axis) => sum + value * other[axis], 0);

function close(found, expected, tolerance = 1e-6) {
  assert.equal(found.length, expected.length);
  expected.forEach((value, at) => assert.ok(Math.abs(found[at] - value) < tolerance, `${found[at]} is not ${value}`));
}

test("attention is the softmax of q · k / √d over all tokens, of which the patches are returned", () => {
  const { queries, keys } = block();
  for (const token of [0, 3]) {
    const maps = attention.attentionMaps(block(), token);
    maps.forEach((map, head) => {
      const row = Array.from({ length: SHAPE.tokens }, (_, other) =>
        Math.exp(dot(vector(queries, head, token), vector(keys, head, other)) / Math.sqrt(SHAPE.dim)),
      );
      const total = row.reduce((sum, value) => sum + value);
      close(
        map,
        row.slice(1).map((value) => value / total),
      );
    });
  }
});

test("cosines of keys are 1 with themselves and 0 with a key of zeros", () => {
  const made = block();
  made.keys.fill(0, (SHAPE.tokens - 1) * SHAPE.dim, SHAPE.tokens * SHAPE.dim); // the last token of the first head
  const [map] = attention.keyCosineMaps(made, 2);
  assert.ok(Math.abs(map[1] - 1) < 1e-6);
  assert.equal(map[SHAPE.tokens - 2], 0);
});

test("bytes of 16-bit floats are decoded, subnormal and negative ones too", () => {
  const halves = Uint16Array.of(0x3c00, 0xc000, 0x0001, 0x0000, 0x3555, 0x7bff, 0x3c00, 0x3c00);
  const { queries, keys } = attention.decodeBlock(halves.buffer, { heads: 1, tokens: 2, prefix: 1 });
  close(queries, [1, -2, 2 ** -24, 0], 1e-9);
  close(keys, [0.333251953125, 65504, 1, 1], 1e-9);
});

test("bytes that are no block are refused", () => {
  assert.throws(() => attention.decodeBlock(new ArrayBuffer(6), { heads: 2, tokens: 2, prefix: 1 }), /no block/);
});

/** The library's rule: sort, sum up from the least, keep what lies above 1 - mass. */
function plainKeepMass(map, mass) {
  const total = map.reduce((sum, value) => sum + value, 0);
  const order = [...map.keys()].sort((one, other) => map[one] - map[other] || one - other);
  const kept = new Uint8Array(map.length);
  let sum = 0;
  for (const patch of order) {
    sum += Math.fround(map[patch] / total);
    kept[patch] = Math.fround(sum) > Math.fround(1 - mass) ? 1 : 0;
  }
  kept[order.at(-1)] = 1;
  return kept;
}

test("the patches kept are those of a plain sort, ties too", () => {
  const next = random(2);
  for (const levels of [3, 1e6]) {
    for (const mass of [0.1, 0.35, 0.6, 0.9, 1]) {
      const map = Float32Array.from({ length: 200 }, () => Math.ceil(levels * next()) / levels);
      assert.deepEqual(attention.keepMass(map, mass), plainKeepMass(map, mass));
    }
  }
});

test("entropy is ln N where all is alike and 0 where one patch has all", () => {
  assert.ok(Math.abs(attention.entropy(new Float32Array(50).fill(0.3)) - Math.log(50)) < 1e-6);
  assert.equal(attention.entropy(Float32Array.of(0, 4, 0)), 0);
});

test("all heads together keep what any of them keeps", () => {
  const maps = new Maps([Float32Array.of(0.9, 0.05, 0.05), Float32Array.of(0.05, 0.05, 0.9)], { mass: 0.6 });
  assert.deepEqual([...maps.kept("heads")], [1, 0, 1]);
  assert.deepEqual([...maps.kept("0")], [1, 0, 0]);
});

test("a diverging scale has zero in the middle", () => {
  const [low, high] = new Maps([Float32Array.of(-1, 3)], { mass: 0.6, diverging: true, signed: true }).scale("0");
  assert.equal(low, -high);
  assert.ok(Math.abs(high - 2.96) < 1e-6); // the 98th percentile of 1 and 3
});

test("a range goes from the median to the 98th percentile, whatever the order of the values", () => {
  const next = random(4);
  const values = Float32Array.from({ length: 101 }, (_, rank) => rank).sort(() => next() - 0.5);
  assert.deepEqual(displayRange(values), [50, 98]);
  assert.deepEqual(displayRange(Float32Array.of(1, 1, 1, 1, 7))[0], 1);
  assert.deepEqual(displayRange(Float32Array.of(3, 3, 3)), [3, 3]);
});

test("key similarity is the cosine of keys of all heads at once, without the patches' mean", () => {
  const made = block();
  const { tokens, heads, prefix } = SHAPE;
  const all = Array.from({ length: tokens }, (_, token) =>
    Array.from({ length: heads }, (_, head) => vector(made.keys, head, token)).flat(),
  );
  const mean = all[0].map((_, axis) => all.slice(prefix).reduce((sum, one) => sum + one[axis], 0) / (tokens - prefix));
  const centred = all.map((one) => one.map((value, axis) => value - mean[axis]));
  for (const token of [0, 4]) {
    const cosine = (one) => dot(one, centred[token]) / Math.sqrt(dot(one, one) * dot(centred[token], centred[token]));
    close(attention.keySimilarityMap(made, token), centred.slice(prefix).map(cosine));
  }
});
