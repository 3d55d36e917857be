// What an attention view can export: the sections of its dialog.

import { Refusal } from "./encoding.js";
import { maskFormats, section, shownSection } from "./export.js";
import { dataAddress, pictureFile } from "./picture.js";

/** @typedef {import("./attention_view.js").AttentionView} AttentionView @typedef {import("./export.js").Format} Format */

const FRAME_SIDE = 640; // pixels of a frame of an animation
const MOST_FRAMES = 96;
const SECONDS = { blocks: 0.7, heads: 0.7, path: 0.1 }; // of a frame

/** Return the sections of views with one pointer, whose images are one picture. @param {AttentionView[]} views */
export function attentionSections(views) {
  const [view, ...others] = views;
  if (!others.length)
    return [shownSection(view.stage.element, view.shownScale), ...mapSections(view), ...moreSections(view)];
  const named = views.flatMap((one) =>
    mapSections(one).map((part) => section(`${part.title} · ${one.title.textContent}`, part.formats, part.options)),
  );
  return [shownSection(document.getElementById(view.props.exports)), ...named];
}

/** Masks, figures and values of the maps on the stage. @param {AttentionView} view */
function mapSections(view) {
  const { maps, props, encoding } = view;
  const ask = (file) => (options) => view.ask({ file, ...options });
  const mask = section(
    "Mask",
    maskFormats(() => view.mask(), encoding),
  );
  if (!props.exports)
    return maps ? [mask, section("Maps of all heads", [["NPY", "maps.npy", () => npyFile(view)]])] : [];
  const kinds = ["png", "svg", "pdf"];
  const figures = /** @type {Format[]} */ (kinds.map((kind) => [kind.toUpperCase(), `figure.${kind}`, ask(`figure.${kind}`)])); // prettier-ignore
  const figure = section("Figure of all heads", figures, {
    scale: [
      ["own", "Each head has its own scale"],
      ["common", "One scale for all heads"],
    ],
  });
  return [...(maps ? [mask, figure] : []), section("Maps of all heads", [["NPZ", "maps.npz", ask("maps.npz")]])];
}

/** Animations, and files of all images. @param {AttentionView} view */
function moreSections(view) {
  if (!view.props.exports) return [];
  const over = [["blocks", "Over the blocks"], ["path", "Along the pointer's path"], ["heads", "Over the heads"]]; // prettier-ignore
  const possible = /** @type {[string, string][]} */ (view.definition.heads ? over : over.slice(0, 2));
  const ownImages = async () => (await window["viewOf"]("images")?.names()) ?? [];
  const zip = async (options) => view.ask({ file: "maps.zip", ...options, images: await ownImages() });
  return [
    section("Animation", [["GIF", "gif", animate(view, "gif")], ["MP4", "mp4", animate(view, "mp4")]], { over: possible }),
    section("All your images, maps and masks", [["ZIP", "maps.zip", zip]], { examples: "Examples, too" }),
  ]; // prettier-ignore
}

/**
 * Draw the stage over blocks, heads or the pointer's path, and let the server join the frames.
 * @param {AttentionView} view @param {string} kind @returns {Format[2]}
 */
function animate(view, kind) {
  return async ({ over }) => {
    const { settings, hovered, arrays, encoding, trail } = view;
    const { head } = settings;
    const turns = {
      blocks: Array.from({ length: encoding.blocks }, (_, number) => async () => {
        view.arrays = await encoding.arrays(view.quantity, number);
        view.draw();
      }),
      heads: Array.from({ length: encoding.heads }, (_, number) => () => view.set({ head: String(number) })),
      path: trail.map((patch) => () => view.hover(patch)),
    }[over];
    if (!turns.length) throw new Refusal("Move the pointer over the image first: its last places are the path.");
    const frames = [];
    try {
      for (const turn of turns.slice(-MOST_FRAMES)) {
        await turn();
        frames.push(await dataAddress(await pictureFile(view.stage.element, "jpeg", { outline: true, pins: true, side: FRAME_SIDE }))); // prettier-ignore
      }
    } finally {
      Object.assign(view, { arrays, hovered, trail });
      view.set({ head });
    }
    return view.ask({ file: `animation.${kind}`, frames, seconds: SECONDS[over] });
  };
}

/** Write the maps of all heads as a NumPy file: float32 [heads, rows, columns]. @param {AttentionView} view */
function npyFile({ encoding: { rows, columns }, maps: { heads } }) {
  const shape = `(${heads.length}, ${rows}, ${columns})`;
  const fields = `{'descr': '<f4', 'fortran_order': False, 'shape': ${shape}, }`;
  const header = `${fields}${" ".repeat(63 - ((10 + fields.length) % 64))}\n`;
  const start = new Uint8Array(10);
  start.set([0x93, ...new TextEncoder().encode("NUMPY"), 1, 0, header.length & 255, header.length >> 8]);
  return new Blob([start, header, ...heads.map((map) => Float32Array.from(map))], { type: "application/octet-stream" });
}
