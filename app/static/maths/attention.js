// The arithmetic of attention, in plain arrays: no page, no canvas.
//
// A block is what the server sends of one transformer block: queries and keys of every token, prefix tokens
// ([CLS], registers) first. A map is one Float32Array with a value per patch, in reading order. Attention is never
// negative; logits and cosines are, and masks keep a share of how far they lie above their least (`aboveLeast`).

const HALF = halfTable();

/** Float32 values of every 16-bit float. */
function halfTable() {
  const table = new Float32Array(65536);
  for (let bits = 0; bits < 65536; bits++) {
    const sign = bits & 0x8000 ? -1 : 1;
    const exponent = (bits >> 10) & 31;
    const fraction = bits & 1023;
    table[bits] = sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : fraction * 2 ** -24);
  }
  return table;
}

/** Float32 values of the bytes of 16-bit floats. @param {ArrayBuffer} bytes */
function decodeHalves(bytes) {
  const halves = new Uint16Array(bytes);
  const values = new Float32Array(halves.length);
  for (let at = 0; at < halves.length; at++) values[at] = HALF[halves[at]];
  return values;
}

/**
 * Queries and keys from the bytes of one block: float16 [2, heads, tokens, dim], queries first.
 * @param {ArrayBuffer} bytes
 * @param {Shape} shape
 * @returns {Block}
 */
export function decodeBlock(bytes, { heads, tokens, prefix }) {
  const values = decodeHalves(bytes);
  const half = values.length / 2;
  const dim = half / (heads * tokens);
  if (!Number.isInteger(dim)) throw new Error(`${bytes.byteLength} bytes are no block of ${heads} heads`);
  return { queries: values.subarray(0, half), keys: values.subarray(half), heads, tokens, dim, prefix };
}

/**
 * Token features from the bytes of one block: float16 [tokens, dim].
 * @param {ArrayBuffer} bytes
 * @param {Shape} shape
 * @returns {Features}
 */
export function decodeTokens(bytes, { tokens, prefix }) {
  const features = decodeHalves(bytes);
  return { features, tokens, dim: features.length / tokens, prefix };
}

/** How much of every token comes from which: float16 [tokens, tokens]. @param {ArrayBuffer} bytes @param {Shape} shape */
export function decodeRollout(bytes, { tokens, prefix }) {
  return { shares: decodeHalves(bytes), tokens, prefix };
}

/** Where one token comes from, through all blocks: a single map. @param {ReturnType<typeof decodeRollout>} rollout @param {number} token */
export function rolloutMaps({ shares, tokens, prefix }, token) {
  return [shares.slice(token * tokens + prefix, (token + 1) * tokens)];
}

/**
 * Inner product of two vectors of `dim` values that start at `at` and at `to`; four sums, so that none waits.
 * @param {Float32Array} one @param {number} at @param {Float32Array} other @param {number} to @param {number} dim
 */
function inner(one, at, other, to, dim) {
  let first = 0;
  let second = 0;
  let third = 0;
  let fourth = 0;
  let axis = 0;
  for (; axis + 3 < dim; axis += 4) {
    first += one[at + axis] * other[to + axis];
    second += one[at + axis + 1] * other[to + axis + 1];
    third += one[at + axis + 2] * other[to + axis + 2];
    fourth += one[at + axis + 3] * other[to + axis + 3];
  }
  for (; axis < dim; axis++) first += one[at + axis] * other[to + axis];
  return first + second + (third + fourth);
}

/**
 * q · k / √d of one token's query with the key of every token, for one head: [tokens].
 * @param {Block} block @param {number} token @param {number} head
 */
function logits({ queries, keys, tokens, dim }, token, head) {
  const start = head * tokens * dim;
  const row = new Float32Array(tokens);
  const scale = 1 / Math.sqrt(dim);
  for (let other = 0; other < tokens; other++) {
    row[other] = scale * inner(queries, start + token * dim, keys, start + other * dim, dim);
  }
  return row;
}

/**
 * Where one token looks, for one head: softmax over all tokens, of which the patches are returned.
 * @param {Block} block @param {number} token @param {number} head
 * @returns {Float32Array} [patches]; sums to less than 1, the prefix tokens hold the rest
 */
function attentionRow(block, token, head) {
  const row = logits(block, token, head);
  const [, peak] = range(row);
  let total = 0;
  for (let other = 0; other < row.length; other++) total += row[other] = Math.exp(row[other] - peak);
  for (let other = 0; other < row.length; other++) row[other] /= total;
  return row.subarray(block.prefix);
}

/** Attention of every head for one token. @param {Block} block @param {number} token */
export function attentionMaps(block, token) {
  return eachHead(block, (head) => attentionRow(block, token, head));
}

/** What the softmax of attention is taken of, q · k / √d, of every head for one token. @param {Block} block @param {number} token */
export function logitMaps(block, token) {
  return eachHead(block, (head) => logits(block, token, head).subarray(block.prefix));
}

/** Cosine of one token's key with the key of every patch, of every head. @param {Block} block @param {number} token */
export function keyCosineMaps(block, token) {
  return eachHead(block, (head) => cosines(block.keys, head, token, block));
}

/** Cosine of one token's feature with that of every patch: a single map. @param {Features} block @param {number} token */
export function tokenCosineMaps(block, token) {
  return [cosines(block.features, 0, token, block)];
}

/** @param {Block} block @param {(head: number) => Float32Array} compute */
function eachHead({ heads }, compute) {
  return Array.from({ length: heads }, (_, head) => compute(head));
}

/**
 * Cosines of one token's vector with those of the patches, in one head's part of `vectors` [heads, tokens, dim].
 * @param {Float32Array} vectors @param {number} head @param {number} token
 * @param {{ tokens: number, dim: number, prefix: number }} shape
 */
function cosines(vectors, head, token, { tokens, dim, prefix }) {
  const lengths = lengthsOf(vectors, dim);
  const first = head * tokens;
  const row = new Float32Array(tokens - prefix);
  for (let patch = 0; patch < row.length; patch++) {
    const other = first + prefix + patch;
    const product = inner(vectors, (first + token) * dim, vectors, other * dim, dim);
    row[patch] = product / (lengths[first + token] * lengths[other]);
  }
  return row;
}

/**
 * Likeness of one token's key with that of every patch, all heads at once: cosine, after the mean key of the patches was
 * taken off. What they have in common says nothing of the parts of a picture.
 * @param {Block} block @param {number} token
 */
export function likenessMap(block, token) {
  const { tokens, dim, prefix, heads } = block;
  return cosines(keyVectors(block), 0, token, { tokens, dim: heads * dim, prefix });
}

/** @type {WeakMap<Float32Array, Float32Array>} */
const VECTORS = new WeakMap(); // computed once for the keys of a block

/** Keys of all heads side by side, without their patches' mean: [tokens, heads * dim]. @param {Block} block */
function keyVectors({ keys, heads, tokens, dim, prefix }) {
  const known = VECTORS.get(keys);
  if (known) return known;
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

/**
 * The patch that a picture is opened with: the one that [CLS] attends to most, of those not on the border, where
 * single patches draw attention that mean nothing.
 * @param {Block} block @param {{ rows: number, columns: number }} grid
 */
export function likelyPatch(block, { rows, columns }) {
  const map = meanMap(attentionMaps(block, 0));
  const about = (/** @type {number} */ row, /** @type {number} */ column) => {
    let sum = 0;
    for (const [down, right] of NEIGHBOURHOOD) sum += map[(row + down) * columns + column + right] ?? 0;
    return sum;
  };
  let best = { row: Math.floor(rows / 2), column: Math.floor(columns / 2) };
  let most = -1;
  for (let row = 1; row < rows - 1; row++) {
    for (let column = 1; column < columns - 1; column++) {
      const sum = about(row, column);
      if (sum > most) [most, best] = [sum, { row, column }];
    }
  }
  return best;
}

const NEIGHBOURHOOD = [-1, 0, 1].flatMap((down) => [-1, 0, 1].map((right) => [down, right]));

/** @type {WeakMap<Float32Array, Float64Array>} */
const LENGTHS = new WeakMap(); // computed once for the vectors of a block

/**
 * The length of every vector; 1 for a vector of zeros, which has cosine 0 with all.
 * @param {Float32Array} vectors @param {number} dim
 */
function lengthsOf(vectors, dim) {
  let lengths = LENGTHS.get(vectors);
  if (!lengths) {
    lengths = new Float64Array(vectors.length / dim);
    for (let at = 0; at < lengths.length; at++) {
      lengths[at] = Math.sqrt(inner(vectors, at * dim, vectors, at * dim, dim)) || 1;
    }
    LENGTHS.set(vectors, lengths);
  }
  return lengths;
}

/** Mean over maps, patch by patch. @param {Float32Array[]} maps */
export function meanMap(maps) {
  const mean = new Float32Array(maps[0].length);
  for (const map of maps) for (let patch = 0; patch < map.length; patch++) mean[patch] += map[patch];
  for (let patch = 0; patch < mean.length; patch++) mean[patch] /= maps.length;
  return mean;
}

/** Greatest value over maps, patch by patch. @param {Float32Array[]} maps */
export function maxMap(maps) {
  const max = Float32Array.from(maps[0]);
  for (const map of maps)
    for (let patch = 0; patch < map.length; patch++) if (map[patch] > max[patch]) max[patch] = map[patch];
  return max;
}

/** Least and greatest value. @param {Float32Array} map @returns {[number, number]} */
export function range(map) {
  let low = Infinity;
  let high = -Infinity;
  for (let patch = 0; patch < map.length; patch++) {
    const value = map[patch];
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return [low, high];
}

/**
 * How far each value lies above the map's least: weights of which a share can be kept. All 1 where all are equal.
 * @param {Float32Array} map
 */
export function aboveLeast(map) {
  const [low, high] = range(map);
  return high > low ? map.map((value) => value - low) : new Float32Array(map.length).fill(1);
}

/**
 * Smallest set of patches that holds at least `mass` of the map: one byte per patch, 1 = kept.
 * The patch that crosses the threshold is kept; of equal patches the later ones are.
 *
 * Sums up from the least value, as the library does and rounding where it rounds, but sorts only the values near the
 * threshold: the others are counted by their leading bits, whose order is the order of the values.
 * @param {Float32Array} map @param {number} mass
 */
export function keepMass(map, mass) {
  let total = 0;
  for (const value of map) total += value;
  const limit = Math.fround(1 - mass);
  const bits = new Uint32Array(map.buffer, map.byteOffset, map.length);
  SUMS.fill(0);
  let last = 0; // the bucket of the greatest value
  for (let patch = 0; patch < map.length; patch++) {
    const bucket = bits[patch] >>> 16;
    SUMS[bucket] += Math.fround(map[patch] / total);
    if (bucket > last) last = bucket;
  }
  let bucket = 0;
  let sum = 0;
  while (bucket < last && Math.fround(sum + SUMS[bucket]) <= limit) sum += SUMS[bucket++];
  const near = map.filter((_, patch) => bits[patch] >>> 16 === bucket).sort(); // numerically, as typed arrays do
  let first = 0; // rank, within the bucket, of the least patch that is kept
  for (; first < near.length - 1; first++) {
    sum += Math.fround(near[first] / total);
    if (Math.fround(sum) > limit) break;
  }
  return keepFrom(map, near[first], first - near.indexOf(near[first]));
}

const SUMS = new Float64Array(1 << 15); // one per leading 16 bits of a float that is not negative

/**
 * The patches above `least`, and those equal to it but for the first `dropped` in reading order.
 * @param {Float32Array} map @param {number} least @param {number} dropped
 */
function keepFrom(map, least, dropped) {
  const kept = new Uint8Array(map.length);
  for (let patch = 0; patch < map.length; patch++) {
    kept[patch] = map[patch] > least || (map[patch] === least && dropped-- <= 0) ? 1 : 0;
  }
  return kept;
}

/** Entropy of a map brought to sum 1, in nats; log(patches) where it is flat. @param {Float32Array} map */
export function entropy(map) {
  let total = 0;
  for (const value of map) total += value;
  let sum = 0;
  for (const value of map) if (value > 0) sum -= (value / total) * Math.log(value / total);
  return sum;
}

/**
 * Share of the map that kept patches hold, and share of the patches that are kept.
 * @param {Float32Array} map @param {Uint8Array} kept
 */
export function keptShares(map, kept) {
  let total = 0;
  let inside = 0;
  let count = 0;
  for (let patch = 0; patch < map.length; patch++) {
    total += map[patch];
    if (kept[patch]) {
      inside += map[patch];
      count++;
    }
  }
  return { mass: inside / total, area: count / map.length };
}
