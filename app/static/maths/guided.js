// Guided filter with a color image as guide, as in `segmentation.discovery`.
// Source: He, Sun, Tang 2013, "Guided image filtering", equations 14-16.

const SMOOTHNESS = 1e-3; // variance of color, on a scale of 0 to 1, below which a region counts as flat
const CHANNELS = [0, 1, 2];
const PAIRS = [[0, 0], [0, 1], [0, 2], [1, 1], [1, 2], [2, 2]]; // prettier-ignore

export class Guide {
  /** @param {Uint8ClampedArray} pixels  RGBA @param {number} radius  pixels that an edge may move, about a patch */
  constructor(pixels, width, height, radius) {
    this.size = width * height;
    this.mean = box(width, height, radius);
    this.colors = CHANNELS.map((channel) =>
      Float32Array.from({ length: this.size }, (_, at) => pixels[4 * at + channel] / 255),
    );
    this.means = this.colors.map((color) => this.mean(color));
    this.inverse = this.inverses();
  }

  /** Invert the color covariance around every pixel: six values each, in the order of `PAIRS`. */
  inverses() {
    const { colors, means, size } = this;
    const covariances = PAIRS.map(([one, other]) => {
      const products = this.mean(colors[one].map((value, at) => value * colors[other][at]));
      const added = one === other ? SMOOTHNESS : 0;
      return products.map((value, at) => value + added - means[one][at] * means[other][at]);
    });
    const inverse = PAIRS.map(() => new Float32Array(size));
    for (let at = 0; at < size; at++) {
      const [a, b, c, d, e, f] = covariances.map((values) => values[at]);
      const cofactors = [d * f - e * e, c * e - b * f, b * e - c * d, a * f - c * c, b * c - a * e, a * d - b * b];
      const determinant = a * cofactors[0] + b * cofactors[1] + c * cofactors[2];
      for (let pair = 0; pair < 6; pair++) inverse[pair][at] = cofactors[pair] / determinant;
    }
    return inverse;
  }

  /** Move the edges of a mask to those of the image. @param {Uint8Array} mask  1 = inside */
  refine(mask) {
    const { colors, means } = this;
    const target = Float32Array.from(mask);
    const offset = this.mean(target);
    const joint = CHANNELS.map((channel) => {
      const products = this.mean(target.map((value, at) => value * colors[channel][at]));
      return products.map((value, at) => value - means[channel][at] * offset[at]);
    });
    const [xx, xy, xz, yy, yz, zz] = this.inverse;
    const rows = [[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]; // prettier-ignore
    const slopes = rows.map((row) => offset.map((_, at) => sum(CHANNELS, (one) => row[one][at] * joint[one][at])));
    for (let at = 0; at < offset.length; at++) offset[at] -= sum(CHANNELS, (one) => slopes[one][at] * means[one][at]);
    const [red, green, blue, rest] = [...slopes, offset].map((values) => this.mean(values));
    return mask.map((_, at) =>
      red[at] * colors[0][at] + green[at] * colors[1][at] + blue[at] * colors[2][at] + rest[at] > 0.5 ? 1 : 0,
    );
  }
}

function sum(items, value) {
  return items.reduce((total, item) => total + value(item), 0);
}

/** Return a function that averages over a square window around every pixel; the border mirrors the image. */
function box(width, height, radius) {
  const across = line(width, radius);
  const down = line(height, radius);
  return (values) => {
    const means = new Float32Array(values.length);
    for (let row = 0; row < height; row++) across(values, means, row * width, 1);
    for (let column = 0; column < width; column++) down(means, means, column, width);
    return means;
  };
}

function line(length, radius) {
  const reach = Math.min(radius, length - 1);
  const count = 2 * reach + 1;
  const kept = new Float64Array(length);
  const mirrored = (at) => (at < 0 ? -1 - at : at >= length ? 2 * length - 1 - at : at);
  return (from, to, start, step) => {
    for (let at = 0; at < length; at++) kept[at] = from[start + at * step];
    let total = 0;
    for (let at = -reach; at <= reach; at++) total += kept[mirrored(at)];
    for (let at = 0; at < length; at++) {
      to[start + at * step] = total / count;
      total += kept[mirrored(at + reach + 1)] - kept[mirrored(at - reach)];
    }
  };
}
