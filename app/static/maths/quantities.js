// Quantities that can be shown, by the names of `app.attention_maps.Quantity`.

import {
  attentionMaps,
  keyCosineMaps,
  keySimilarityMap,
  logitMaps,
  rolloutMaps,
  tokenCosineMaps,
} from "./attention.js";

/**
 * arrays: input of `maps`, by kind in their address. maps: maps of one token. signed: values are no shares. fixed: the map
 * does not depend on the token. needsPatch: [CLS] is not the default. heads: one map per head. colors:
 * `arrays` are finished colors of all patches. colormap: default.
 * @typedef {object} Quantity
 * @property {"blocks" | "tokens" | "norms" | "rollout" | "key-pca" | "token-pca"} arrays
 * @property {(arrays: any, token: number) => Float32Array[]} [maps]
 * @property {boolean} [signed] @property {boolean} [needsPatch] @property {boolean} [heads] @property {boolean} [colors]
 * @property {boolean} [fixed] @property {string} [colormap]
 */

/** @type {Record<string, Quantity>} */
export const QUANTITIES = {
  "key-similarity": {
    arrays: "blocks",
    maps: (block, token) => [keySimilarityMap(block, token)],
    signed: true,
    needsPatch: true,
  },
  attention: { arrays: "blocks", maps: attentionMaps, heads: true },
  rollout: { arrays: "rollout", maps: rolloutMaps },
  logits: { arrays: "blocks", maps: logitMaps, signed: true, heads: true, colormap: "coolwarm" },
  "key-cosine": { arrays: "blocks", maps: keyCosineMaps, signed: true, heads: true },
  "token-cosine": { arrays: "tokens", maps: tokenCosineMaps, signed: true },
  "token-norm": { arrays: "norms", maps: (arrays) => [arrays.norms], signed: true, fixed: true },
  "key-pca": { arrays: "key-pca", colors: true },
  "token-pca": { arrays: "token-pca", colors: true },
};
