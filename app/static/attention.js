// The arithmetic of attention, in plain arrays: no page, no canvas.
//
// A block is what the server sends of one transformer block: queries and keys of every token, prefix tokens
// ([CLS], registers) first. A map is one Float32Array with a value per patch, in reading order.

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

/**
 * Queries and keys from the bytes of one block: float16 [2, heads, tokens, dim], queries first.
 * @param {ArrayBuffer} bytes
 * @param {{heads: number, tokens: number, prefix: number}} shape
 */
export function decodeBlock(bytes, { heads, tokens, prefix }) {
  const halves = new Uint16Array(bytes);
  const values = Float32Array.from(halves, (bits) => HALF[bits]);
  const half = values.length / 2;
  const dim = half / (heads * tokens);
  if (!Number.isInteger(dim)) throw new Error(`${bytes.byteLength} bytes are no block of ${heads} heads`);
  return { queries: values.subarray(0, half), keys: values.subarray(half), heads, tokens, dim, prefix };
}

/**
 * Where one token looks, for one head: softmax over all tokens, of which the patches are returned.
 * @returns {Float32Array} [patches]; sums to less than 1, the prefix tokens hold the rest
 */
export function attentionRow({ queries, keys, tokens, dim, prefix }, token, head) {
  const start = head * tokens * dim;
  const query = queries.subarray(start + token * dim, start + (token + 1) * dim);
  const row = new Float32Array(tokens);
  const scale = 1 / Math.sqrt(dim);
  let peak = -Infinity;
  for (let other = 0, at = start; other < tokens; other++) {
    let product = 0;
    for (let axis = 0; axis < dim; axis++, at++) product += query[axis] * keys[at];
    row[other] = product * scale;
    if (row[other] > peak) peak = row[other];
  }
  let total = 0;
  for (let other = 0; other < tokens; other++) total += row[other] = Math.exp(row[other] - peak);
  for (let other = 0; other < tokens; other++) row[other] /= total;
  return row.subarray(prefix);
}

/** Maps of every head for one token. */
export function attentionMaps(block, token) {
  return Array.from({ length: block.heads }, (_, head) => attentionRow(block, token, head));
}

/** Mean over maps, patch by patch. */
export function meanMap(maps) {
  const mean = new Float32Array(maps[0].length);
  for (const map of maps) for (let patch = 0; patch < map.length; patch++) mean[patch] += map[patch];
  for (let patch = 0; patch < mean.length; patch++) mean[patch] /= maps.length;
  return mean;
}

/** Greatest value over maps, patch by patch. */
export function maxMap(maps) {
  const max = Float32Array.from(maps[0]);
  for (const map of maps) for (let patch = 0; patch < map.length; patch++) if (map[patch] > max[patch]) max[patch] = map[patch];
  return max;
}

/** Least and greatest value. */
export function range(map) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of map) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return [low, high];
}

/**
 * Smallest set of patches that holds at least `mass` of the map: one byte per patch, 1 = kept.
 * The patch that crosses the threshold is kept; of equal patches the later ones are.
 *
 * Sums up from the least value, as the library does and rounding where it rounds, but sorts only the values near the
 * threshold: the others are counted by their leading bits, whose order is the order of the values.
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
  const near = map.filter((_, patch) => bits[patch] >>> 16 === bucket).sort();
  let first = 0; // rank, within the bucket, of the least patch that is kept
  for (; first < near.length - 1; first++) {
    sum += Math.fround(near[first] / total);
    if (Math.fround(sum) > limit) break;
  }
  return keepFrom(map, near[first], first - near.indexOf(near[first]));
}

const SUMS = new Float64Array(1 << 15); // one per leading 16 bits of a float that is not negative

/** The patches above `least`, and those equal to it but for the first `dropped` in reading order. */
function keepFrom(map, least, dropped) {
  const kept = new Uint8Array(map.length);
  for (let patch = 0; patch < map.length; patch++) {
    kept[patch] = map[patch] > least || (map[patch] === least && dropped-- <= 0) ? 1 : 0;
  }
  return kept;
}

/** Entropy of a map brought to sum 1, in nats; log(patches) where it is flat. */
export function entropy(map) {
  let total = 0;
  for (const value of map) total += value;
  let sum = 0;
  for (const value of map) if (value > 0) sum -= (value / total) * Math.log(value / total);
  return sum;
}

/** Share of the map that kept patches hold, and share of the patches that are kept. */
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
