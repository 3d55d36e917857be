// The patches a visitor has pinned, which of them is shown, and the way back.

const MAX_PINS = 8;
const MAX_HISTORY = 50;

export class Pins {
  /** @param {string[]} colors  at least one per pin */
  constructor(colors) {
    this.colors = colors;
    this.clear();
  }

  clear() {
    this.list = []; // [{row, column, color}], oldest first
    this.active = null; // the one shown while nothing is pointed at; null: [CLS]
    this.history = [];
  }

  /** Pin a patch and show it; one that is pinned already is only shown. The oldest gives way to the ninth. */
  pin(patch) {
    this.remember();
    let pin = this.at(patch);
    if (!pin) {
      const kept = this.list.slice(1 - MAX_PINS);
      const color = this.colors.find((candidate) => kept.every((other) => other.color !== candidate));
      pin = { ...patch, color };
      this.list = [...kept, pin];
    }
    this.active = pin;
  }

  remove(pin) {
    if (!pin) return;
    this.remember();
    this.list = this.list.filter((other) => other !== pin);
    if (this.active === pin) this.active = null;
  }

  at(patch) {
    return this.list.find((pin) => samePatch(pin, patch)) ?? null;
  }

  remember() {
    this.history = [...this.history.slice(1 - MAX_HISTORY), { list: this.list, active: this.active }];
  }

  undo() {
    const before = this.history.pop();
    if (before) ({ list: this.list, active: this.active } = before);
  }
}

export function samePatch(one, other) {
  return one?.row === other?.row && one?.column === other?.column;
}
