// An image resized to the input of a model, as `dino_model.inference.resize` does it.

/** Return the size that an image is resized to: whole patches, the short side near `size`. @param {Size} image */
export function fedSize({ width, height }, size, patch) {
  const short = Math.min(width, height);
  const whole = (pixels) => Math.max(1, Math.floor((pixels * size) / short / patch + 0.5)) * patch; // in Python's order
  return { width: whole(width), height: whole(height) };
}

/**
 * Resize an RGBA image with an antialiased triangle filter, first along rows, then along columns; both passes round to
 * bytes, as Pillow's BILINEAR does.
 * @param {Uint8ClampedArray} pixels @param {Size} from @param {Size} to @returns {Uint8ClampedArray} RGB
 */
export function resample(pixels, from, to) {
  const rows = new Uint8ClampedArray(3 * to.width * from.height);
  along(pixels, 4, rows, from.width, to.width, from.height, 1, from.width, to.width);
  const found = new Uint8ClampedArray(3 * to.width * to.height);
  along(rows, 3, found, from.height, to.height, to.width, to.width, 1, 1);
  return found;
}

/** Resample lines of `from` pixels to `to`; `step`, `start` and `target` pixels lie between neighbors, and between lines. */
function along(source, channels, found, from, to, lines, step, start, target) {
  for (let at = 0; at < to; at++) {
    const { first, weights } = triangle(from, to, at);
    for (let line = 0; line < lines; line++) {
      const begin = line * start + first * step;
      const place = 3 * (line * target + at * step);
      for (let channel = 0; channel < 3; channel++) {
        let sum = 0.5;
        for (let tap = 0; tap < weights.length; tap++)
          sum += weights[tap] * source[channels * (begin + tap * step) + channel];
        found[place + channel] = Math.floor(sum);
      }
    }
  }
}

/** Return the first source pixel of an output pixel, and its weights. */
function triangle(from, to, at) {
  const scale = from / to;
  const support = Math.max(1, scale);
  const center = (at + 0.5) * scale;
  const first = Math.max(0, Math.floor(center - support + 0.5));
  const last = Math.min(from, Math.floor(center + support + 0.5));
  const weights = [];
  for (let pixel = first; pixel < last; pixel++)
    weights.push(Math.max(0, 1 - Math.abs((pixel - center + 0.5) / support)));
  const sum = weights.reduce((one, other) => one + other, 0);
  return { first, weights: weights.map((weight) => weight / sum) };
}
