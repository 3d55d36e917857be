// What an attention view can export: the sections of its dialog.

import { resized } from "../maths/labels.js";
import { Refusal } from "./encoding.js";
import { shownSection } from "./export_dialog.js";
import { cocoFile, maskFile } from "./files.js";
import { dataAddress, drawn, pictureOf } from "./picture.js";

/** @typedef {import("./attention_view.js").AttentionView} AttentionView */

const FRAME_SIDE = 640; // pixels of a frame of an animation
const MOST_FRAMES = 96;
const SECONDS = { blocks: 0.7, heads: 0.7, path: 0.1 }; // of a frame

/** @param {AttentionView} view @returns {import("./export_dialog.js").Section[]} */
export function attentionSections(view) {
  const { definition, maps, props } = view;
  const ask = (file) => (options) => askServer(view, { file, ...options });
  const asked = (kind) => ({ label: kind.toUpperCase(), ending: `figure.${kind}`, make: ask(`figure.${kind}`) });
  const mask = (make) => () => {
    const { rows, columns } = { rows: view.encoding.height, columns: view.encoding.width };
    return make(resized(view.mask(), { rows, columns }).values, view.encoding);
  };
  const server = Boolean(props.exports);
  const scale = /** @type {[string, string][]} */ ([["own", "Each head has its own scale"], ["common", "One scale for all heads"]]); // prettier-ignore
  const over = /** @type {[string, string][]} */ ([["blocks", "Over the blocks"], ["heads", "Over the heads"], ["path", "Along the pointer's path"]]); // prettier-ignore
  return [
    shownSection(view.stage, () => view.shownScale),
    maps && {
      title: "Mask",
      formats: [
        { label: "PNG, one channel", ending: "mask.png", make: mask(maskFile) },
        { label: "COCO", ending: "mask.json", make: mask(cocoFile) },
      ],
    },
    server && maps && { title: "Figure of all heads", options: { scale }, formats: ["png", "svg", "pdf"].map(asked) },
    server && { title: "Maps of all heads", formats: [{ label: "NPZ", ending: "maps.npz", make: ask("maps.npz") }] },
    !server && maps && { title: "Maps of all heads", formats: [{ label: "NPY", ending: "maps.npy", make: () => npyFile(view) }] },
    server && {
      title: "Animation",
      options: { over: definition.heads ? over : over.filter(([name]) => name !== "heads") },
      formats: ["gif", "mp4"].map((kind) => ({ label: kind.toUpperCase(), ending: kind, make: animate(view, kind) })),
    },
    server && {
      title: "All your images, maps and masks",
      options: { examples: ["Examples, too", false] },
      formats: [{ label: "ZIP", ending: "maps.zip", make: async (options) => askServer(view, { file: "maps.zip", ...options, images: await ownImages() }) }],
    },
  ]; // prettier-ignore
}

/** Let the server write a file of what is shown. @param {AttentionView} view @param {Record<string, any>} request @returns {null} */
function askServer(view, request) {
  view.exportRequest = { ...view.request, ...request };
  view.emit("exported", {});
  return null;
}

/** @returns {Promise<string[]>} */
async function ownImages() {
  return (await window["viewOf"]("images")?.names()) ?? [];
}

/**
 * Draw the stage over blocks, heads or the pointer's path, and let the server join the frames.
 * @param {AttentionView} view @param {string} kind @returns {import("./export_dialog.js").Format["make"]}
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
        const picture = await pictureOf(view.stage, { outline: true, pins: true, side: FRAME_SIDE });
        frames.push(await dataAddress(await drawn(picture).convertToBlob({ type: "image/jpeg", quality: 0.9 })));
      }
    } finally {
      Object.assign(view, { arrays, hovered, trail });
      view.set({ head });
    }
    return askServer(view, { file: `animation.${kind}`, frames, seconds: SECONDS[over] });
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
