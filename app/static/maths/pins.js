// Pinned patches. Places are shares of width and height, so that they do not depend on the patch grid.

const MAX_PINS = 8;

export class Pins {
  /** @type {Pin[]} */
  list = []; // oldest first
  /** @type {Pin} */
  active = null; // null: [CLS]

  /** @param {string[]} colors  at least one per pin */
  constructor(colors) {
    this.colors = colors;
  }

  /**
   * Pin a patch and make it active; returns whether it is a new pin. The ninth pin replaces the oldest.
   * @param {Patch} patch @param {Encoding} grid
   */
  pin(patch, grid) {
    this.active = this.list.find((pin) => samePatch(grid.patchAt(pin), patch));
    if (this.active) return false;
    const kept = this.list.slice(1 - MAX_PINS);
    const color = this.colors.find((candidate) => kept.every((other) => other.color !== candidate)) ?? this.colors[0];
    this.active = { ...grid.placeOf(patch), color };
    this.list = [...kept, this.active];
    return true;
  }

  removeActive() {
    if (!this.active) return;
    this.list = this.list.filter((pin) => pin !== this.active);
    this.active = null;
  }

  /** Write pins for an address: "row,column;row,column" of all, and of the active one. @param {Encoding} grid */
  written(grid) {
    const text = (pin) => Object.values(grid.patchAt(pin)).join(",");
    return { pins: this.list.map(text).join(";"), patch: this.active ? text(this.active) : "" };
  }

  /** Read pins of an address; patches outside the grid are ignored. @param {Record<string, string>} parameters @param {Encoding} grid */
  read({ pins = "", patch = "" }, grid) {
    Object.assign(this, { list: [], active: null });
    const patches = [...pins.split(";"), patch].filter((place) => /^\d+,\d+$/.test(place));
    for (const [row, column] of patches.map((place) => place.split(",").map(Number)))
      if (row < grid.rows && column < grid.columns) this.pin({ row, column }, grid);
    if (!patch) this.active = null;
  }
}

/** @param {Patch} one @param {Patch} other  null: no patch */
export function samePatch(one, other) {
  return one?.row === other?.row && one?.column === other?.column;
}
