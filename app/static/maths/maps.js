// The maps of one query, and what follows from them; each is computed when it is first asked for.

import { aboveLeast, keepMass, maxMap, meanMap, range } from "./attention.js";
import { union } from "./labels.js";

export class Maps {
  /**
   * @param {Float32Array[]} heads  one map per head
   * @param {{mass: number, shared: boolean, diverging: boolean, signed: boolean}} settings  share that masks keep;
   *   one colour range for all heads; colours with zero in the middle; whether values can be negative
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

  /**
   * The kept patches, one byte each; of "heads", all that any head keeps.
   * @param {string} key @returns {Uint8Array}
   */
  kept(key) {
    if (key === "heads") return this.once("kept", () => union(this.heads.map((_, head) => this.kept(String(head)))));
    return this.once(`kept ${key}`, () => keepMass(this.weights(key), this.settings.mass));
  }

  /** Least and greatest value. @param {string} key @returns {[number, number]} */
  range(key) {
    return this.once(`range ${key}`, () => range(this.map(key)));
  }

  /** The values that the first and the last colour stand for. @param {string} key @returns {[number, number]} */
  scale(key) {
    const [low, high] = this.settings.shared ? this.commonRange : this.range(key);
    const reach = Math.max(-low, high);
    return this.settings.diverging ? [-reach, reach] : [low, high];
  }

  /** Least and greatest value of any head. @returns {[number, number]} */
  get commonRange() {
    return this.once("common", () => {
      const all = this.heads.map((_, head) => this.range(String(head)));
      return [Math.min(...all.map(([low]) => low)), Math.max(...all.map(([, high]) => high))];
    });
  }

  /** @template T @param {string} name @param {() => T} compute @returns {T} */
  once(name, compute) {
    if (!this.known.has(name)) this.known.set(name, compute());
    return this.known.get(name);
  }
}
