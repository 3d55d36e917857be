// Quantities that can be shown, by the names of `app.view.Quantity`.

import { attentionMaps, keyCosineMaps, likenessMap, logitMaps, tokenCosineMaps } from "./attention.js";

/**
 * arrays: input of `maps`: "blocks", "tokens", "norms", or finished "colors" of all patches. maps: maps of one token.
 * signed: values are no shares. fixed: the map does not depend on the token. asks: needs a patch, so that [CLS] is not the default. heads: one map per head.
 * colormap: default colors.
 * @typedef {object} Quantity
 * @property {"blocks" | "tokens" | "norms" | "colors"} arrays
 * @property {(arrays: any, token: number) => Float32Array[]} [maps]
 * @property {boolean} [signed] @property {boolean} [asks] @property {boolean} [heads] @property {boolean} [colors]
 * @property {boolean} [fixed]
 * @property {string} [colormap]
 */

const norms = (arrays) => [arrays.norms];
const likeness = (block, token) => [likenessMap(block, token)];

/** @type {Record<string, Quantity>} */
export const QUANTITIES = {
  likeness: { arrays: "blocks", maps: likeness, signed: true, asks: true, colormap: "inferno" },
  attention: { arrays: "blocks", maps: attentionMaps, heads: true, colormap: "inferno" },
  logits: { arrays: "blocks", maps: logitMaps, signed: true, heads: true, colormap: "coolwarm" },
  "key-cosine": { arrays: "blocks", maps: keyCosineMaps, signed: true, heads: true, colormap: "inferno" },
  "token-cosine": { arrays: "tokens", maps: tokenCosineMaps, signed: true, colormap: "inferno" },
  "token-norm": { arrays: "norms", maps: norms, signed: true, fixed: true, colormap: "inferno" },
  "key-pca": { arrays: "colors", colors: true },
  "token-pca": { arrays: "colors", colors: true },
};
