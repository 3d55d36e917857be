// What there is to see in a block, one entry per quantity: what is fetched, how maps are computed from it, what it is
// called. The keys are the server's.

import { attentionMaps, keyCosineMaps, logitMaps, tokenCosineMaps } from "./attention.js";
import { decimals, percent } from "./format.js";

const ofBlock = (encoding, block) => encoding.block(block);
const ofTokens = (encoding, block) => encoding.tokens(block);
const colorsOf = (quantity) => (encoding, block) => encoding.colors(block, quantity);

/**
 * title, legend: for people; the legend ends with what the figure at a map says, `figure` of its [least, greatest].
 * load(encoding, block): the arrays that everything is computed from. Throws a Refusal.
 * maps(arrays, token): one map per head; none for principal components, which are colours and ask no patch.
 * signed: maps have negative values, so that masks keep what lies above the least.
 * heads: whether each head has a map of its own.
 * colormap: the colours to begin with.
 */
export const QUANTITIES = {
  attention: {
    title: "Where each head looks",
    legend: "Softmax of q · k over all tokens; the figure is the strongest patch's share.",
    figure: ([, high]) => percent(high),
    load: ofBlock,
    maps: attentionMaps,
    heads: true,
    colormap: "inferno",
  },
  logits: {
    title: "What the softmax is taken of",
    legend: "q · k / √d, with its sign; the figure is the greatest value.",
    figure: ([, high]) => high.toFixed(1),
    load: ofBlock,
    maps: logitMaps,
    signed: true,
    heads: true,
    colormap: "coolwarm",
  },
  "key-cosine": {
    title: "Which keys are alike",
    legend: "Cosine with the key of the one asked, head by head; the figure is the least.",
    figure: ([low]) => decimals(low),
    load: ofBlock,
    maps: keyCosineMaps,
    signed: true,
    heads: true,
    colormap: "inferno",
  },
  "token-cosine": {
    title: "Which patches are alike",
    legend: "Cosine with the token of the one asked, after the block and the final norm. A token belongs to no head.",
    figure: ([low]) => decimals(low),
    load: ofTokens,
    maps: tokenCosineMaps,
    signed: true,
    colormap: "inferno",
  },
  "key-pca": {
    title: "What the keys tell apart",
    legend: "First three principal components of all heads' keys as red, green and blue: like colours, like keys.",
    load: colorsOf("key-pca"),
    colors: true,
  },
  "token-pca": {
    title: "What the tokens tell apart",
    legend: "First three principal components of the tokens as red, green and blue: like colours, like tokens.",
    load: colorsOf("token-pca"),
    colors: true,
  },
};
