// Maps become pixels: one canvas pixel per patch, enlarged by the style sheet.

/** A colour as one number, as canvases store it: red in the lowest byte. */
function packed(red, green, blue, alpha = 255) {
  return ((alpha << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

/** 256 packed colours from the 768 bytes that the server sends for a colour map. */
export function colormap(base64) {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  return Uint32Array.from({ length: 256 }, (_, level) => packed(...bytes.subarray(3 * level, 3 * level + 3)));
}

/** A canvas with one pixel per patch, and the numbers behind it. */
export class PatchCanvas {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
  }

  resize(rows, columns) {
    this.canvas.width = columns;
    this.canvas.height = rows;
    this.image = this.context.createImageData(columns, rows);
    this.pixels = new Uint32Array(this.image.data.buffer);
  }

  show() {
    this.context.putImageData(this.image, 0, 0);
  }

  /** A map in false colours, from `low` to `high`. */
  heat(map, colors, [low, high]) {
    const scale = high > low ? 255 / (high - low) : 0;
    for (let patch = 0; patch < map.length; patch++) {
      const level = Math.round((map[patch] - low) * scale);
      this.pixels[patch] = colors[level < 0 ? 0 : level > 255 ? 255 : level];
    }
    this.show();
  }

  /** The kept patches in one colour [red, green, blue], the others clear. */
  mask(kept, color) {
    const fill = packed(...color);
    for (let patch = 0; patch < kept.length; patch++) this.pixels[patch] = kept[patch] ? fill : 0;
    this.show();
  }

  /** Objects in their colours [[red, green, blue], …]: 0 stays clear, 1 takes the first. */
  labels(values, colors) {
    const fills = [0, ...colors.map((color) => packed(...color))];
    for (let cell = 0; cell < values.length; cell++) this.pixels[cell] = fills[values[cell]];
    this.show();
  }

  /**
   * Every head in its colour: a patch takes the head that attends to it most, each head measured against its own
   * strongest patch; the stronger, the more opaque. Only kept patches are coloured.
   */
  heads(maps, kept, colors) {
    const peaks = maps.map((map) => peakOf(map));
    for (let patch = 0; patch < this.pixels.length; patch++) {
      let best = 0;
      let winner = 0;
      for (let head = 0; head < maps.length; head++) {
        const strength = kept[head][patch] ? maps[head][patch] / peaks[head] : 0;
        if (strength > best) {
          best = strength;
          winner = head;
        }
      }
      this.pixels[patch] = best ? packed(...colors[winner], Math.round(255 * Math.sqrt(best))) : 0;
    }
    this.show();
  }
}

function peakOf(map) {
  let peak = 0;
  for (const value of map) if (value > peak) peak = value;
  return peak || 1;
}

/** The border of kept patches as an SVG path, in units of patches. */
export function outlinePath(kept, rows, columns) {
  const inside = (row, column) =>
    row >= 0 && row < rows && column >= 0 && column < columns && kept[row * columns + column] === 1;
  const parts = [];
  for (let row = 0; row <= rows; row++) {
    for (let column = 0; column < columns; column++) {
      if (inside(row - 1, column) === inside(row, column)) continue;
      const start = column;
      while (column + 1 < columns && inside(row - 1, column + 1) !== inside(row, column + 1)) column++;
      parts.push(`M${start} ${row}H${column + 1}`);
    }
  }
  for (let column = 0; column <= columns; column++) {
    for (let row = 0; row < rows; row++) {
      if (inside(row, column - 1) === inside(row, column)) continue;
      const start = row;
      while (row + 1 < rows && inside(row + 1, column - 1) !== inside(row + 1, column)) row++;
      parts.push(`M${column} ${start}V${row + 1}`);
    }
  }
  return parts.join("");
}
