// Attention and similarity maps, computed from queries and keys.
//
// A block holds queries and keys of all tokens, prefix tokens ([CLS], registers) first. A map is a Float32Array with one
// value per patch, in reading order.

const HALVES = Float32Array.from({ length: 65536 }, (_, bits) => {
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  return (bits & 0x8000 ? -1 : 1) * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : fraction * 2 ** -24);
});

/** Convert the bytes of 16-bit floats to 32-bit floats, which stay. @param {ArrayBuffer | Float32Array} bytes */
export function decodeHalves(bytes) {
  if (bytes instanceof Float32Array) return bytes;
  const halves = new Uint16Array(bytes);
  const values = new Float32Array(halves.length);
  for (let at = 0; at < halves.length; at++) values[at] = HALVES[halves[at]];
  return values;
}

/**
 * Decode one block: float16 [2, heads, tokens, dim], queries first.
 * @param {ArrayBuffer} bytes @param {Shape} shape @returns {Block}
 */
export function decodeBlock(bytes, { heads, tokens, prefix }) {
  const [queries, keys] = halves(decodeHalves(bytes));
  const dim = keys.length / (heads * tokens);
  if (!Number.isInteger(dim)) throw new Error(`${bytes.byteLength} bytes are no block of ${heads} heads`);
  return { queries, keys, heads, tokens, dim, prefix };
}

/** Part an array in the middle. @param {Float32Array} values */
export function halves(values) {
  return [values.subarray(0, values.length / 2), values.subarray(values.length / 2)];
}

/** Decode token features: float16 [tokens, dim]. @param {ArrayBuffer} bytes @param {Omit<Shape, "heads">} shape @returns {Features} */
export function decodeTokens(bytes, { tokens, prefix }) {
  const features = decodeHalves(bytes);
  return { features, tokens, dim: features.length / tokens, prefix };
}

/** Compute the inner product of two vectors of `dim` values, which begin at `at` and `to`. @param {Float32Array} one */
function inner(one, at, other, to, dim) {
  let sum = 0;
  for (let axis = 0; axis < dim; axis++) sum += one[at + axis] * other[to + axis];
  return sum;
}

/**
 * Compute the inner products of the vector at `at` with `count` vectors from `start` on, four at a time: four times as
 * fast as one by one.
 * @param {Float32Array} one @param {Float32Array} others
 */
function products(one, at, others, start, count, dim) {
  const query = Float64Array.from(one.subarray(at, at + dim));
  const found = new Float64Array(count);
  let other = 0;
  for (; other + 3 < count; other += 4) {
    const to = start + other * dim;
    let first = 0;
    let second = 0;
    let third = 0;
    let fourth = 0;
    for (let axis = 0; axis < dim; axis++) {
      const value = query[axis];
      first += value * others[to + axis];
      second += value * others[to + dim + axis];
      third += value * others[to + 2 * dim + axis];
      fourth += value * others[to + 3 * dim + axis];
    }
    found[other] = first;
    found[other + 1] = second;
    found[other + 2] = third;
    found[other + 3] = fourth;
  }
  for (; other < count; other++) found[other] = inner(one, at, others, start + other * dim, dim);
  return found;
}

/** Compute q · k / √d of one query with all keys of a head: [tokens]. @param {Block} block */
function logits({ queries, keys, tokens, dim }, token, head) {
  const start = head * tokens * dim;
  const scale = 1 / Math.sqrt(dim);
  const row = new Float32Array(products(queries, start + token * dim, keys, start, tokens, dim));
  for (let other = 0; other < tokens; other++) row[other] *= scale;
  return row;
}

/** Compute the attention of one token: a map per head, the softmax over all tokens. @param {Block} block @param {number} token */
export function attentionMaps(block, token) {
  return eachHead(block, (head) => {
    const row = logits(block, token, head);
    const [, peak] = range(row);
    let total = 0;
    for (let other = 0; other < row.length; other++) total += row[other] = Math.exp(row[other] - peak);
    for (let other = 0; other < row.length; other++) row[other] /= total;
    return row.subarray(block.prefix);
  });
}

/** Compute q · k / √d of one token: a map per head. @param {Block} block @param {number} token */
export function logitMaps(block, token) {
  return eachHead(block, (head) => logits(block, token, head).subarray(block.prefix));
}

/** Compute the cosine of one token's key with every patch's: a map per head. @param {Block} block @param {number} token */
export function keyCosineMaps(block, token) {
  return eachHead(block, (head) => cosines(block.keys, head, token, block));
}

/** Compute the cosine of one token's feature with every patch's: one map. @param {Features} block @param {number} token */
export function tokenCosineMaps(block, token) {
  return [cosines(block.features, 0, token, block)];
}

/**
 * Compute the cosine of one token's keys, all heads concatenated, with every patch's. The mean key of the patches is
 * subtracted first.
 * @param {Block} block @param {number} token
 */
export function keySimilarityMap(block, token) {
  const { tokens, dim, prefix, heads } = block;
  return cosines(keyVectors(block), 0, token, { tokens, dim: heads * dim, prefix });
}

/** Take the attention rollout of one token: one map. @param {{ values: Float32Array, tokens: number, prefix: number }} rollout  [tokens, tokens] @param {number} token */
export function rolloutMaps({ values, tokens, prefix }, token) {
  return [values.subarray(token * tokens + prefix, (token + 1) * tokens)];
}

/** @param {Block} block @param {(head: number) => Float32Array} compute */
function eachHead({ heads }, compute) {
  return Array.from({ length: heads }, (_, head) => compute(head));
}

/** Compute the cosines of one token with the patches, in one head's part of `vectors` [heads, tokens, dim]. */
function cosines(vectors, head, token, { tokens, dim, prefix }) {
  const lengths = lengthsOf(vectors, dim);
  const first = head * tokens;
  const row = products(vectors, (first + token) * dim, vectors, (first + prefix) * dim, tokens - prefix, dim);
  const length = lengths[first + token];
  for (let patch = 0; patch < row.length; patch++) row[patch] /= length * lengths[first + prefix + patch];
  return new Float32Array(row);
}

const VECTORS = new WeakMap(); // by the keys of a block
const LENGTHS = new WeakMap(); // by the vectors

/** Concatenate the keys of all heads and subtract the patches' mean: [tokens, heads * dim]. @param {Block} block */
function keyVectors({ keys, heads, tokens, dim, prefix }) {
  if (VECTORS.has(keys)) return VECTORS.get(keys);
  const width = heads * dim;
  const vectors = new Float32Array(tokens * width);
  for (let head = 0; head < heads; head++) {
    for (let axis = 0; axis < dim; axis++) {
      const from = head * tokens * dim + axis;
      let mean = 0;
      for (let token = prefix; token < tokens; token++) mean += keys[from + token * dim];
      mean /= tokens - prefix;
      const to = head * dim + axis;
      for (let token = 0; token < tokens; token++) vectors[token * width + to] = keys[from + token * dim] - mean;
    }
  }
  VECTORS.set(keys, vectors);
  return vectors;
}

/** Compute the length of every vector; 1 for zero vectors, so that their cosines are 0. @param {Float32Array} vectors */
function lengthsOf(vectors, dim) {
  if (LENGTHS.has(vectors)) return LENGTHS.get(vectors);
  const lengths = new Float64Array(vectors.length / dim);
  for (let at = 0; at < lengths.length; at++) {
    lengths[at] = Math.sqrt(inner(vectors, at * dim, vectors, at * dim, dim)) || 1;
  }
  LENGTHS.set(vectors, lengths);
  return lengths;
}

/**
 * Choose a patch on the object: the inner 3 × 3 patches to which [CLS] attends most. Single patches on the border often
 * attract attention without meaning.
 * @param {Block} block @param {Grid} grid @returns {Patch}
 */
export function likelyPatch(block, { rows, columns }) {
  const map = meanMap(attentionMaps(block, 0));
  let best = { row: Math.floor(rows / 2), column: Math.floor(columns / 2) };
  let most = -1;
  for (let row = 1; row < rows - 1; row++) {
    for (let column = 1; column < columns - 1; column++) {
      let sum = 0;
      for (let down = -1; down < 2; down++)
        for (let right = -1; right < 2; right++) sum += map[(row + down) * columns + column + right];
      if (sum > most) [most, best] = [sum, { row, column }];
    }
  }
  return best;
}

/** Average maps patch by patch. @param {Float32Array[]} maps */
export function meanMap(maps) {
  const mean = new Float32Array(maps[0].length);
  for (const map of maps) for (let patch = 0; patch < map.length; patch++) mean[patch] += map[patch];
  for (let patch = 0; patch < mean.length; patch++) mean[patch] /= maps.length;
  return mean;
}

/** Take the maximum over maps patch by patch. @param {Float32Array[]} maps */
export function maxMap(maps) {
  const max = maps[0].slice();
  for (const map of maps)
    for (let patch = 0; patch < max.length; patch++) if (map[patch] > max[patch]) max[patch] = map[patch];
  return max;
}

/** Find minimum and maximum. @param {Float32Array} map @returns {[number, number]} */
export function range(map) {
  let [low, high] = [Infinity, -Infinity];
  for (let patch = 0; patch < map.length; patch++) {
    if (map[patch] < low) low = map[patch];
    if (map[patch] > high) high = map[patch];
  }
  return [low, high];
}

/** Subtract the minimum, so that a share of the map can be kept. All 1 if all values are equal. @param {Float32Array} map */
export function aboveLeast(map) {
  const [low, high] = range(map);
  return high > low ? map.map((value) => value - low) : new Float32Array(map.length).fill(1);
}

/**
 * Select the smallest set of patches that holds a share of a non-negative map: one byte per patch, 1 = kept.
 * The patch that crosses the threshold is kept, and of equal patches the later ones. Sums are rounded as in
 * `segmentation.masks.keep_mass`.
 * @param {Float32Array} map @param {number} mass  share, in (0, 1]
 */
export function keepMass(map, mass) {
  let total = 0;
  for (const value of map) total += value;
  const limit = Math.fround(1 - mass);
  const rising = map.slice().sort(); // typed arrays sort numerically
  let first = 0; // rank of the smallest value that is kept
  for (let sum = 0; first < rising.length - 1; first++) {
    sum += Math.fround(rising[first] / total);
    if (Math.fround(sum) > limit) break;
  }
  const least = rising[first];
  let dropped = first - rising.indexOf(least); // of the patches equal to the least
  const kept = new Uint8Array(map.length);
  for (let patch = 0; patch < map.length; patch++) {
    kept[patch] = map[patch] > least || (map[patch] === least && dropped-- <= 0) ? 1 : 0;
  }
  return kept;
}

/** Compute the shares of mass and area that kept patches hold. @param {Float32Array} map @param {Uint8Array} kept */
export function keptShares(map, kept) {
  let [total, inside, count] = [0, 0, 0];
  for (let patch = 0; patch < map.length; patch++) {
    total += map[patch];
    if (kept[patch]) [inside, count] = [inside + map[patch], count + 1];
  }
  return { mass: inside / total, area: count / map.length };
}
