// Quantities that can be shown, by name; `app.tabs.explore.MODES` offers them.

import {
  attentionMaps,
  keyCosineMaps,
  keySimilarityMap,
  logitMaps,
  rolloutMaps,
  tokenCosineMaps,
} from "./attention.js";

/** @type {Record<string, Quantity>} */
export const QUANTITIES = {
  "key-similarity": {
    mode: "similarity",
    says: "Bright patches are similar to this one · keys of all heads",
    arrays: "blocks",
    maps: (block, token) => [keySimilarityMap(block, token)],
    signed: true,
    needsPatch: true,
  },
  attention: {
    mode: "attention",
    says: "SUBJECT attends to the lit places",
    arrays: "blocks",
    maps: attentionMaps,
    heads: true,
  },
  rollout: {
    mode: "attention",
    says: "SUBJECT attends to the lit places through blocks 1 to BLOCK",
    arrays: "rollout",
    maps: rolloutMaps,
  },
  logits: {
    mode: "attention",
    says: "SUBJECT: attention before the softmax, q · k",
    arrays: "blocks",
    maps: logitMaps,
    signed: true,
    heads: true,
    colormap: "coolwarm",
  },
  "key-cosine": {
    mode: "similarity",
    says: "SUBJECT is similar to the bright patches · keys",
    arrays: "blocks",
    maps: keyCosineMaps,
    signed: true,
    heads: true,
  },
  "token-cosine": {
    mode: "similarity",
    says: "SUBJECT is similar to the bright patches · tokens",
    arrays: "tokens",
    maps: tokenCosineMaps,
    signed: true,
  },
  "token-norm": {
    mode: "overview",
    says: "Bright patches have long tokens; outliers are outlined",
    arrays: "norms",
    maps: (arrays) => [arrays.norms],
    signed: true,
    fixed: true,
  },
  "key-pca": {
    mode: "overview",
    says: "Similar patches have similar colors · PCA of the keys",
    arrays: "key-pca",
    colors: true,
  },
};
