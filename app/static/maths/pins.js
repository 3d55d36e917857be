// The places a visitor has pinned, which of them is shown, and the way back. Places are shares of width and height, so
// that they stay where they are when another model lays another grid over the picture.

const MAX_PINS = 8;
const MAX_HISTORY = 50;

export class Pins {
  /** @param {string[]} colors  at least one per pin */
  constructor(colors) {
    this.colors = colors;
    /** @type {Pin[]} */
    this.list = []; // oldest first
    /** @type {Pin | null} */
    this.active = null; // the one shown while nothing is pointed at; null: [CLS]
    /** @type {{ list: Pin[], active: Pin | null }[]} */
    this.history = [];
  }

  /** Pin a patch and show it; one that is pinned already is only shown. The oldest gives way to the ninth.
   * @param {Patch} patch @param {Encoding} grid
   */
  pin(patch, grid) {
    this.remember();
    let pin = this.at(patch, grid);
    if (!pin) {
      const kept = this.list.slice(1 - MAX_PINS);
      const color = this.colors.find((candidate) => kept.every((other) => other.color !== candidate)) ?? this.colors[0];
      pin = { ...grid.placeOf(patch), color };
      this.list = [...kept, pin];
    }
    this.active = pin;
  }

  /** @param {Pin | null} pin */
  remove(pin) {
    if (!pin) return;
    this.remember();
    this.list = this.list.filter((other) => other !== pin);
    if (this.active === pin) this.active = null;
  }

  clear() {
    this.remember();
    Object.assign(this, { list: [], active: null });
  }

  /** @param {Patch | null} patch @param {Encoding} grid */
  at(patch, grid) {
    return (patch && this.list.find((pin) => samePatch(grid.patchAt(pin), patch))) ?? null;
  }

  remember() {
    this.history = [...this.history.slice(1 - MAX_HISTORY), { list: this.list, active: this.active }];
  }

  undo() {
    const before = this.history.pop();
    if (before) ({ list: this.list, active: this.active } = before);
  }

  /** As an address says it: "row,column;row,column" of all, and of the active one. @param {Encoding} grid */
  written(grid) {
    const words = (/** @type {Pin} */ pin) => writtenPatch(grid.patchAt(pin));
    return { pins: this.list.map(words).join(";"), patch: this.active ? words(this.active) : "" };
  }

  /** Take up what an address says; patches that the grid does not have are left out.
   * @param {{ pins: string, patch: string }} words @param {Encoding} grid
   */
  read({ pins, patch }, grid) {
    Object.assign(this, { list: [], active: null });
    const patches = [...pins.split(";"), patch].map(readPatch);
    for (const one of patches) if (one && one.row < grid.rows && one.column < grid.columns) this.pin(one, grid);
    if (!readPatch(patch)) this.active = null;
    this.history = [];
  }
}

/** @param {Patch} patch */
function writtenPatch({ row, column }) {
  return `${row},${column}`;
}

/** The patch of "row,column", or null. @param {string} words @returns {Patch | null} */
function readPatch(words) {
  const [, row, column] = /^(\d+),(\d+)$/.exec(words) ?? [];
  return row === undefined ? null : { row: Number(row), column: Number(column) };
}

/** @param {Patch | null} one @param {Patch | null} other */
export function samePatch(one, other) {
  return one?.row === other?.row && one?.column === other?.column;
}
