// The maps of one query, and what follows from them; each is computed when it is first asked for.

import { aboveLeast, keepMass, maxMap, meanMap, range } from "./attention.js";
import { union } from "./labels.js";
import { displayRange } from "./levels.js";

export class Maps {
  /**
   * @param {Float32Array[]} heads  one map per head
   * @param {{mass: number, scale: string, shared: boolean, range: [number, number] | null, diverging: boolean, signed: boolean}} settings
   *   share that masks keep; which range is shown, see `displayRange`, the same for all heads, or given; colours with
   *   zero in the middle; whether values can be negative
   */
  constructor(heads, settings) {
    this.heads = heads;
    this.settings = settings;
    /** @type {Map<string, any>} */
    this.known = new Map();
  }

  /** The map of "mean", "max", or a head's number. @param {string} key @returns {Float32Array} */
  map(key) {
    return this.once(`map ${key}`, () => {
      if (key === "mean") return this.heads.length === 1 ? this.heads[0] : meanMap(this.heads);
      return key === "max" ? maxMap(this.heads) : this.heads[Number(key)];
    });
  }

  /** What masks keep a share of: the map, or how far it lies above its least where values can be negative. @param {string} key @returns {Float32Array} */
  weights(key) {
    return this.once(`weights ${key}`, () => (this.settings.signed ? aboveLeast(this.map(key)) : this.map(key)));
  }

  /** The kept patches, one byte each; of "heads", all that any head keeps. @param {string} key @returns {Uint8Array} */
  kept(key) {
    if (key === "heads") return this.once("kept", () => union(this.heads.map((_, head) => this.kept(String(head)))));
    return this.once(`kept ${key}`, () => keepMass(this.weights(key), this.settings.mass));
  }

  /** Least and greatest value. @param {string} key @returns {[number, number]} */
  range(key) {
    return this.once(`range ${key}`, () => range(this.map(key)));
  }

  /** The values that are shown as nothing and as full. @param {string} key @returns {[number, number]} */
  scale(key) {
    const { range: given, scale, shared, diverging } = this.settings;
    if (given) return given;
    const spread = () => (shared ? joined(this.heads) : this.map(key));
    return this.once(shared ? "scale" : `scale ${key}`, () => displayRange(spread(), scale, diverging));
  }

  /** @template T @param {string} name @param {() => T} compute @returns {T} */
  once(name, compute) {
    if (!this.known.has(name)) this.known.set(name, compute());
    return this.known.get(name);
  }
}

/** All values of several maps, whose grids may differ. @param {Float32Array[]} maps */
export function joined(maps) {
  const all = new Float32Array(maps.reduce((total, { length }) => total + length, 0));
  let at = 0;
  for (const map of maps) {
    all.set(map, at);
    at += map.length;
  }
  return all;
}
