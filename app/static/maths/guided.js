// A mask whose edges follow those of the picture: the guided filter, guided by colour, as `segmentation.discovery` has it.
// Source: He, Sun, Tang 2013, "Guided image filtering", equations 14-16.

const SMOOTHNESS = 1e-3; // variance of colour, on a scale of 0 to 1, below which a region counts as flat
const CHANNELS = [0, 1, 2];
const PAIRS = [[0, 0], [0, 1], [0, 2], [1, 1], [1, 2], [2, 2]]; // prettier-ignore

export class Guide {
  /**
   * @param {Uint8ClampedArray} pixels  of an ImageData @param {number} width @param {number} height
   * @param {number} radius  how far, in pixels, an edge may move; about the side of a patch
   */
  constructor(pixels, width, height, radius) {
    this.width = width;
    this.height = height;
    this.mean = box(width, height, radius);
    this.colors = CHANNELS.map((channel) =>
      Float32Array.from({ length: width * height }, (_, at) => pixels[4 * at + channel] / 255),
    );
    this.means = this.colors.map((color) => this.mean(color));
    this.inverse = this.inverses();
  }

  /** Of the covariance of colours around every pixel: six numbers each, for `PAIRS`. */
  inverses() {
    const { colors, means } = this;
    const size = this.width * this.height;
    const [rr, rg, rb, gg, gb, bb] = PAIRS.map(([one, other]) => {
      const products = this.mean(product(colors[one], colors[other]));
      const added = one === other ? SMOOTHNESS : 0;
      for (let at = 0; at < size; at++) products[at] += added - means[one][at] * means[other][at];
      return products;
    });
    const inverse = PAIRS.map(() => new Float32Array(size));
    for (let at = 0; at < size; at++) {
      const [a, b, c, d, e, f] = [rr[at], rg[at], rb[at], gg[at], gb[at], bb[at]];
      const cofactors = [d * f - e * e, c * e - b * f, b * e - c * d, a * f - c * c, b * c - a * e, a * d - b * b];
      const determinant = a * cofactors[0] + b * cofactors[1] + c * cofactors[2];
      for (let pair = 0; pair < 6; pair++) inverse[pair][at] = cofactors[pair] / determinant;
    }
    return inverse;
  }

  /** @param {Uint8Array} mask  a byte per pixel, 1 = inside @returns {Uint8Array} */
  refine(mask) {
    const { colors, means, inverse } = this;
    const wanted = Float32Array.from(mask);
    const wantedMean = this.mean(wanted);
    const joint = CHANNELS.map((channel) => {
      const values = this.mean(product(colors[channel], wanted));
      for (let at = 0; at < values.length; at++) values[at] -= means[channel][at] * wantedMean[at];
      return values;
    });
    const [xx, xy, xz, yy, yz, zz] = inverse;
    const slope = CHANNELS.map(() => new Float32Array(mask.length));
    const offset = wantedMean;
    for (let at = 0; at < mask.length; at++) {
      const [r, g, b] = [joint[0][at], joint[1][at], joint[2][at]];
      slope[0][at] = xx[at] * r + xy[at] * g + xz[at] * b;
      slope[1][at] = xy[at] * r + yy[at] * g + yz[at] * b;
      slope[2][at] = xz[at] * r + yz[at] * g + zz[at] * b;
      offset[at] -= slope[0][at] * means[0][at] + slope[1][at] * means[1][at] + slope[2][at] * means[2][at];
    }
    const [red, green, blue, rest] = [...slope, offset].map((values) => this.mean(values));
    return mask.map((_, at) =>
      red[at] * colors[0][at] + green[at] * colors[1][at] + blue[at] * colors[2][at] + rest[at] > 0.5 ? 1 : 0,
    );
  }
}

/** @param {Float32Array} one @param {Float32Array} other */
function product(one, other) {
  return one.map((value, at) => value * other[at]);
}

/**
 * The mean over a square window around every pixel; beyond the border the picture is mirrored.
 * @param {number} width @param {number} height @param {number} radius
 */
function box(width, height, radius) {
  const across = line(width, radius);
  const down = line(height, radius);
  return (/** @type {Float32Array} */ values) => {
    const means = new Float32Array(values.length);
    for (let row = 0; row < height; row++) across(values, means, row * width, 1);
    for (let column = 0; column < width; column++) down(means, means, column, width);
    return means;
  };
}

/** Running means along one line. @param {number} length @param {number} radius */
function line(length, radius) {
  const reach = Math.min(radius, length - 1);
  const count = 2 * reach + 1;
  const kept = new Float64Array(length);
  const mirrored = (/** @type {number} */ at) => (at < 0 ? -1 - at : at >= length ? 2 * length - 1 - at : at);
  return (
    /** @type {Float32Array} */ from,
    /** @type {Float32Array} */ to,
    /** @type {number} */ start,
    /** @type {number} */ step,
  ) => {
    for (let at = 0; at < length; at++) kept[at] = from[start + at * step];
    let sum = 0;
    for (let at = -reach; at <= reach; at++) sum += kept[mirrored(at)];
    for (let at = 0; at < length; at++) {
      to[start + at * step] = sum / count;
      sum += kept[mirrored(at + reach + 1)] - kept[mirrored(at - reach)];
    }
  };
}
