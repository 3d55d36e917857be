// What there is to see in a block, one entry per quantity: what is fetched, how maps are computed from it, what it is
// called. The keys are the server's.

import { attentionMaps, keyCosineMaps, likenessMap, logitMaps, rolloutMaps, tokenCosineMaps } from "./attention.js";

/**
 * title, legend: for people.
 * arrays: what everything is computed from: queries and keys ("blocks"), "tokens", "rollout", or finished "colors".
 * maps(arrays, token): one map per head; none for principal components, which are colours and ask no patch.
 * signed: maps have negative values, so that masks keep what lies above the least.
 * asks: whether it is about a patch even where none is pinned: the object's own; others are then about [CLS].
 * heads: whether each head has a map of its own.
 * colormap: the colours to begin with.
 * @typedef {object} Quantity
 * @property {string} name
 * @property {string} title
 * @property {string} legend
 * @property {"blocks" | "tokens" | "rollout" | "colors"} arrays
 * @property {(arrays: any, token: number) => Float32Array[]} [maps]
 * @property {boolean} [signed]
 * @property {boolean} [asks]
 * @property {boolean} [heads]
 * @property {boolean} [colors]
 * @property {string} [colormap]
 */

export const QUANTITIES = /** @type {Record<string, Quantity>} */ ({
  likeness: {
    name: "Likeness",
    title: "Everything like the patch you point at",
    legend: "Cosine with the key of the patch asked, all heads at once, without the mean key of the picture.",
    arrays: "blocks",
    maps: (block, token) => [likenessMap(block, token)],
    signed: true,
    asks: true,
    colormap: "inferno",
  },
  attention: {
    name: "Attention",
    title: "Where the network looks",
    legend:
      "What each head of the last block attends to when it sums the picture up: shares by the softmax of q · k over all tokens.",
    arrays: "blocks",
    maps: attentionMaps,
    heads: true,
    colormap: "inferno",
  },
  logits: {
    name: "q · k",
    title: "What the softmax is taken of",
    legend: "q · k / √d, with its sign.",
    arrays: "blocks",
    maps: logitMaps,
    signed: true,
    heads: true,
    colormap: "coolwarm",
  },
  "key-cosine": {
    name: "Key cosine",
    title: "Which keys are alike",
    legend: "Cosine with the key of the one asked, head by head.",
    arrays: "blocks",
    maps: keyCosineMaps,
    signed: true,
    heads: true,
    colormap: "inferno",
  },
  "token-cosine": {
    name: "Token cosine",
    title: "Which patches are alike",
    legend: "Cosine with the token of the one asked, after the block and the final norm. A token belongs to no head.",
    arrays: "tokens",
    maps: tokenCosineMaps,
    signed: true,
    colormap: "inferno",
  },
  rollout: {
    name: "Rollout",
    title: "Where it comes from, through all blocks",
    legend:
      "Attention of all blocks so far, multiplied; half of every token is passed on as it is (Abnar and Zuidema 2020).",
    arrays: "rollout",
    maps: rolloutMaps,
    colormap: "inferno",
  },
  "key-pca": {
    name: "Key PCA",
    title: "What the keys tell apart",
    legend: "First three principal components of all heads' keys as red, green and blue: like colours, like keys.",
    arrays: "colors",
    colors: true,
  },
  "token-pca": {
    name: "Token PCA",
    title: "What the tokens tell apart",
    legend: "First three principal components of the tokens as red, green and blue: like colours, like tokens.",
    arrays: "colors",
    colors: true,
  },
});
