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

  /** Colours of their own: red, green and blue from 0 to 1 for every patch. */
  colors(values) {
    for (let patch = 0; patch < this.pixels.length; patch++) {
      const [red, green, blue] = [0, 1, 2].map((channel) => Math.round(255 * values[3 * patch + channel]));
      this.pixels[patch] = packed(red, green, blue);
    }
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
  for (let patch = 0; patch < map.length; patch++) if (map[patch] > peak) peak = map[patch];
  return peak || 1;
}

/** The border of kept patches as an SVG path, in units of patches. */
export function outlinePath(kept, rows, columns) {
  const width = columns + 2; // framed by patches that are not kept, so that no edge of the grid is special
  const framed = new Uint8Array((rows + 2) * width);
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      framed[(row + 1) * width + column + 1] = kept[row * columns + column];
    }
  }
  const parts = [];
  for (let row = 0; row <= rows; row++) {
    for (let column = 0, at = row * width + 1; column < columns; column++, at++) {
      const start = column;
      for (; framed[at] !== framed[at + width]; at++) column++;
      if (column > start) parts.push(`M${start} ${row}H${column}`);
    }
  }
  for (let column = 0; column <= columns; column++) {
    for (let row = 0, at = width + column; row < rows; row++, at += width) {
      const start = row;
      for (; framed[at] !== framed[at + 1]; at += width) row++;
      if (row > start) parts.push(`M${column} ${start}V${row}`);
    }
  }
  return parts.join("");
}
