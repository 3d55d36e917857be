// Maps of one query and their masks, each computed at its first use.

import { aboveLeast, keepMass, maxMap, meanMap, range } from "./attention.js";
import { union } from "./labels.js";
import { displayRange } from "./levels.js";

export class Maps {
  known = new Map();

  /**
   * @param {Float32Array[]} heads  one map per head
   * @param {{ mass?: number, diverging?: boolean, signed?: boolean }} settings
   *   mass: share that masks keep
   */
  constructor(heads, settings) {
    this.heads = heads;
    this.settings = settings;
  }

  /** Return the map of "mean", "max" or a head's number. @param {string} key @returns {Float32Array} */
  map(key) {
    return this.once(`map ${key}`, () => {
      if (key === "mean") return this.heads.length === 1 ? this.heads[0] : meanMap(this.heads);
      return key === "max" ? maxMap(this.heads) : this.heads[Number(key)];
    });
  }

  /** Return the non-negative values of which masks keep a share. @param {string} key @returns {Float32Array} */
  weights(key) {
    return this.once(`weights ${key}`, () => (this.settings.signed ? aboveLeast(this.map(key)) : this.map(key)));
  }

  /** Return the kept patches, one byte each; for "heads" all that any head keeps. @param {string} key @returns {Uint8Array} */
  kept(key) {
    if (key === "heads") return this.once("kept", () => union(this.heads.map((_, head) => this.kept(String(head)))));
    return this.once(`kept ${key}`, () => keepMass(this.weights(key), this.settings.mass));
  }

  /** Return minimum and maximum. @param {string} key @returns {[number, number]} */
  range(key) {
    return this.once(`range ${key}`, () => range(this.map(key)));
  }

  /** Return the values that are shown as nothing and as full. @param {string} key @returns {[number, number]} */
  scale(key) {
    return this.once(`scale ${key}`, () => displayRange(this.map(key), this.settings.diverging));
  }

  once(name, compute) {
    if (!this.known.has(name)) this.known.set(name, compute());
    return this.known.get(name);
  }
}
