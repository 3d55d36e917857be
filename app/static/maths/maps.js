// Maps of one query and their masks, each computed at its first use.

import { aboveLeast, keepMass, maxMap, meanMap, range } from "./attention.js";
import { union } from "./labels.js";
import { displayRange } from "./levels.js";

export class Maps {
  /**
   * Each property takes "mean", "max" or the number of a head; `kept` also "heads", for all that any head keeps.
   * @param {Float32Array[]} heads  one map per head
   * @param {{ mass?: number, diverging?: boolean, signed?: boolean }} settings  mass: share that masks keep
   */
  constructor(heads, { mass, diverging, signed }) {
    this.heads = heads;
    this.map = once((key) => {
      if (key === "mean") return heads.length === 1 ? heads[0] : meanMap(heads);
      return key === "max" ? maxMap(heads) : heads[Number(key)];
    });
    /** Non-negative values of which masks keep a share. */
    this.weights = once((key) => (signed ? aboveLeast(this.map(key)) : this.map(key)));
    /** Mask with a byte per patch: 1 is kept. */
    this.kept = once((key) => {
      if (key === "heads") return union(heads.map((_, head) => this.kept(String(head))));
      return keepMass(this.weights(key), mass);
    });
    this.range = once((key) => range(this.map(key)));
    /** Values that are shown as nothing and as full. */
    this.scale = once((key) => displayRange(this.map(key), diverging));
  }
}

/** Keep what a function returns. @template T @param {(key: string) => T} compute @returns {(key: string) => T} */
function once(compute) {
  const known = new Map();
  return (key) => {
    if (!known.has(key)) known.set(key, compute(key));
    return known.get(key);
  };
}
