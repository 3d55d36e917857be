// What an attention view can export: the sections of its dialog.

import { Encoding, Refusal, fetchBytes } from "./encoding.js";
import { maskFormats, section, shownSection } from "./export.js";
import { maskFile, npyFile, npyText, zipFile } from "./files.js";
import { dataAddress, pictureFile } from "./picture.js";
import { resized } from "../maths/labels.js";

/** @typedef {import("./attention_view.js").AttentionView} AttentionView */

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
  const { maps, encoding, props } = view;
  const values = section("Maps of all heads", [["NPZ", "maps.npz", () => mapsFile(view)]]);
  if (!maps) return [values];
  const masks = maskFormats(() => view.mask(), encoding);
  const mask = section("Mask", masks);
  const kinds = ["png", "svg", "pdf"];
  const figures = /** @type {Format[]} */ (kinds.map((kind) => [kind.toUpperCase(), `figure.${kind}`, (options) => askFigure(view, kind, options)])); // prettier-ignore
  const figure = section("Figure of all heads", figures, {
    scale: [
      ["own", "Each head has its own scale"],
      ["common", "One scale for all heads"],
    ],
  });
  return props.exports ? [mask, figure, values] : [mask, values];
}

/** Animations, and files of all images. @param {AttentionView} view */
function moreSections(view) {
  if (!view.props.exports) return [];
  const over = [["blocks", "Over the blocks"], ["path", "Along the pointer's path"], ["heads", "Over the heads"]]; // prettier-ignore
  const possible = /** @type {[string, string][]} */ (view.definition.heads ? over : over.slice(0, 2));
  return [
    section("Animation", [["GIF", "gif", animate(view, "gif")], ["MP4", "mp4", animate(view, "mp4")]], { over: possible }),
    section("All your images, maps and masks", [["ZIP", "maps.zip", (options, say) => imagesFile(view, options, say)]], { examples: "Examples, too" }),
  ]; // prettier-ignore
}

/** Let the server draw the maps of all heads for print. @param {AttentionView} view */
function askFigure(view, kind, options) {
  const { maps, encoding, quantity, definition, patch, arrays } = view;
  const percent = quantity === "attention";
  const values = maps.heads.flatMap((map) => Array.from(map, (value) => (percent ? 100 * value : value)));
  const bytes = new Uint8Array(Float32Array.from(values).buffer);
  const place = patch && !definition.fixed ? encoding.placeOf(patch) : null;
  const of = definition.fixed ? "all patches" : patch ? `the marked patch (row ${patch.row}, column ${patch.column})` : "[CLS]"; // prettier-ignore
  const words = quantity.replaceAll("-", " ");
  const { model, size } = encoding.value;
  const { scale } = options;
  const scaled = scale === "common" ? "All maps have the same scale." : "Each map is scaled to its own maximum.";
  return view.ask({
    file: `figure.${kind}`,
    name: encoding.name,
    token: encoding.token,
    maps: btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join("")),
    shape: [maps.heads.length, encoding.rows, encoding.columns],
    label: percent ? "attention (%)" : words,
    caption: `${words[0].toUpperCase()}${words.slice(1)} of ${of} in block ${arrays.number + 1} of ${model}, short side ${size} pixels. ${scaled}`,
    place: place && [place.x, place.y],
    scale,
  });
}

/**
 * Write maps and masks of all heads of an image as an archive of NumPy.
 * @param {AttentionView} view @param {Encoding} encoding @param {any} arrays
 */
function mapsFile(view, encoding = view.encoding, arrays = view.arrays) {
  const { quantity, definition, settings, patch } = view;
  const { rows, columns, value } = encoding;
  const here = patch && encoding.patchAt(view.encoding.placeOf(patch));
  const query = here && !definition.fixed && !definition.colors ? `${here.row},${here.column}` : "cls";
  const integers = (...numbers) => Int32Array.from(numbers);
  const fields = {
    "quantity.npy": npyText(quantity),
    "query.npy": npyText(query),
    "model.npy": npyText(value.model ?? ""),
    "block.npy": npyFile(integers(arrays.number), [], "<i4"),
    "grid.npy": npyFile(integers(rows, columns), [2], "<i4"),
    "mass.npy": npyFile(Float64Array.of(settings.mass / 100), [], "<f8"),
  };
  if (definition.colors) return zipFile({ ...fields, "maps.npy": npyFile(arrays.colors, [rows, columns, 3]) });
  const maps = view.mapsOf(here, arrays, encoding);
  const kept = maps.heads.map((_, head) => maps.kept(String(head)));
  const shape = [maps.heads.length, rows, columns];
  return zipFile({
    ...fields,
    "maps.npy": npyFile(Float32Array.from(maps.heads.flatMap((map) => [...map])), shape),
    "mask.npy": npyFile(Uint8Array.from(kept.flatMap((mask) => [...mask])), shape, "|b1"),
    ...(definition.fixed && { "outliers.npy": npyFile(arrays.outliers, [rows, columns], "|b1") }),
  });
}

/** Write maps and the mask of every own image at the place that is shown. @param {AttentionView} view */
async function imagesFile(view, options, say) {
  const { quantity, definition, shown, patch } = view;
  const rail = window["viewOf"]("images");
  const names = [...(await rail.names()), ...(options.examples ? rail.props.examples.map(([name]) => name) : [])];
  if (!names.length) throw new Refusal("You have opened no image yet: open some, or choose the examples, too.");
  const files = {};
  const refused = [];
  for (const [number, name] of names.entries()) {
    say(`Image ${number + 1} of ${names.length}`);
    const [key, title = key] = name.split("/");
    const token = view.encoding.token.replace(/^[^.]*/, key);
    const start = `${String(number + 1).padStart(2, "0")}-${title.replace(/\.[^.]*$/, "").replace(/[^\w.-]+/g, "-")}`;
    try {
      const shape = JSON.parse(new TextDecoder().decode(await fetchBytes(`lab/shapes/${token}`)));
      const value = { ...view.encoding.value, ...shape, pin: null, token, source: name, arrays: `lab/arrays/${token}` };
      const encoding = new Encoding(value);
      const arrays = await encoding.arrays(quantity, view.arrays.number);
      files[`${start}-maps.npz`] = await mapsFile(view, encoding, arrays);
      if (definition.colors) continue;
      const here = patch && encoding.patchAt(view.encoding.placeOf(patch));
      const { rows, columns, width, height } = encoding;
      const mask = { rows, columns, values: view.mapsOf(here, arrays, encoding).kept(shown) };
      files[`${start}-mask.png`] = await maskFile(resized(mask, { rows: height, columns: width }).values, encoding);
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      refused.push(`${title}: ${error.message}\n`);
    }
  }
  return zipFile({ ...files, ...(refused.length && { "left-out.txt": new Blob(refused) }) });
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
    return view.ask({ file: `animation.${kind}`, name: encoding.name, frames, seconds: SECONDS[over] });
  };
}
