// What a stage shows as a picture: PNG, SVG or PDF. Everything is read from the elements on the screen and their styles.

import { pdfFile } from "./pdf.js";

/**
 * A shape over the image, in pixels of the picture. points: of a line. color, fill: [red, green, blue, opacity].
 * @typedef {{ points?: [number, number][][], x?: number, y?: number, width?: number, height?: number, radius?: number,
 *   text?: string, size?: number, color?: number[], fill?: number[], line?: number }} Shape
 * @typedef {{ canvas: OffscreenCanvas, shapes: Shape[], width: number, height: number }} Picture
 * What to draw over the image. side: the longest, in pixels.
 * @typedef {{ outline: boolean, pins: boolean, scale?: { ends: string[], stops: string[] }, side?: number }} Parts
 */

const MOST_SIDE = 1600; // pixels
const STEPS = 96; // of a color bar
const ENCODERS = { png: pngFile, svg: svgFile, pdf: pdfFile };

/**
 * Draw a stage as a file. Throws Error where a canvas has no filters.
 * @param {import("./stage.js").Stage} stage @param {keyof typeof ENCODERS} kind @param {Parts} parts
 * @returns {Promise<Blob>}
 */
export async function pictureFile(stage, kind, parts) {
  return ENCODERS[kind](await pictureOf(stage, parts));
}

/**
 * Draw the part of the image that is on the screen, and list the shapes over it.
 * @param {import("./stage.js").Stage} stage @param {Parts} parts
 * @returns {Promise<Picture>}
 */
export async function pictureOf(stage, { outline, pins, scale, side = MOST_SIDE }) {
  const { image, sheet, window: part } = stage;
  if (image instanceof HTMLImageElement) await image.decode();
  const natural = { width: image["naturalWidth"] || image.width, height: image["naturalHeight"] || image.height };
  const shrink = Math.min(1, side / Math.max(natural.width, natural.height));
  const [width, height] = [natural.width, natural.height].map((length) => Math.round(length * shrink));
  const frame = { x: -part.x * part.zoom * width, y: -part.y * part.zoom * height, width: width * part.zoom, height: height * part.zoom }; // prettier-ignore
  const ratio = width / stage.element.clientWidth; // pixels of the picture per pixel of the screen
  const bar = scale ? Math.round(Math.max(18, width / 28)) : 0;
  const canvas = new OffscreenCanvas(width, height);
  for (const layer of sheet.querySelectorAll("img, canvas")) drawLayer(canvas, layer, frame);
  const shapes = [
    ...(outline ? linesOf(stage.ink, frame, ratio) : []),
    ...(pins ? pinsOf(stage, frame, ratio) : []),
    ...(scale ? barOf(scale, { y: height, width, height: bar }) : []),
  ];
  return { canvas, shapes, width, height: height + bar };
}

/** Draw an image or a canvas as its style shows it. */
function drawLayer(canvas, layer, { x, y, width, height }) {
  const context = canvas.getContext("2d");
  const style = getComputedStyle(layer);
  if (style.display === "none" || style.visibility === "hidden") return;
  if (style.filter !== "none" && !("filter" in context))
    throw new Error("This browser draws no filters into files: choose another layer, or another browser.");
  context.filter = style.filter;
  context.globalAlpha = Number(style.opacity);
  context.imageSmoothingEnabled = style.imageRendering !== "pixelated";
  context.globalCompositeOperation = style.mixBlendMode === "normal" ? "source-over" : style.mixBlendMode;
  context.drawImage(layer, x, y, width, height);
}

/** Return the outlines as lines. @returns {Shape[]} */
function linesOf(ink, frame, ratio) {
  const { width: columns, height: rows } = ink.viewBox.baseVal ?? {};
  /** @param {number[]} point @returns {[number, number]} */
  const place = ([x, y]) => [frame.x + (x / columns) * frame.width, frame.y + (y / rows) * frame.height];
  return [...ink.children].map((node) => {
    const { stroke, strokeWidth } = getComputedStyle(node);
    const points = (node.tagName === "rect" ? [cornersOf(node)] : segmentsOf(node.getAttribute("d") ?? "")).map((line) => line.map(place)); // prettier-ignore
    return { points, color: colorOf(stroke), line: parseFloat(strokeWidth) * ratio };
  });
}

function cornersOf(rect) {
  const [x, y, width, height] = ["x", "y", "width", "height"].map((name) => Number(rect.getAttribute(name)));
  const corners = [[x, y], [x + width, y], [x + width, y + height], [x, y + height], [x, y]]; // prettier-ignore
  return corners;
}

/** Return the lines of a path of M, H, V and L. @param {string} path */
function segmentsOf(path) {
  const lines = [];
  let [x, y] = [0, 0];
  for (const [, letter, numbers] of path.matchAll(/([MHVL])([^MHVL]*)/g)) {
    const values = numbers.trim().split(/[ ,]+/).map(Number);
    const from = [x, y];
    if (letter === "H") [x] = values;
    else if (letter === "V") [y] = values;
    else [x, y] = values;
    if (letter !== "M") lines.push([from, [x, y]]);
  }
  return lines;
}

/** Return the pins as discs with numbers. @returns {Shape[]} */
function pinsOf({ markers, element }, frame, ratio) {
  const zoom = Number(getComputedStyle(element).getPropertyValue("--zoom")) || 1;
  return [...markers.children].flatMap((marker) => {
    const style = getComputedStyle(marker);
    const share = (side) => parseFloat(marker.style[side]) / 100;
    const [x, y] = [frame.x + share("left") * frame.width, frame.y + share("top") * frame.height];
    const radius = (marker.getBoundingClientRect().width / 2) * ratio || (10 * ratio) / zoom;
    const size = parseFloat(style.fontSize) * ratio;
    const disc = { x, y, radius, fill: colorOf(style.backgroundColor), color: [255, 255, 255, 1], line: 2 * ratio };
    const text = marker.textContent;
    return [disc, ...(text ? [{ x: x - 0.28 * size * text.length, y: y + 0.36 * size, text, size, fill: colorOf(style.color) }] : [])]; // prettier-ignore
  });
}

/** Return a color bar between the values at its ends. @param {Parts["scale"]} scale @param {Shape} box @returns {Shape[]} */
function barOf({ ends: [low, high], stops }, { y, width, height }) {
  const size = height * 0.55;
  const space = height / 3;
  const label = (text) => 0.52 * size * text.length + 2 * space;
  const [from, to] = [label(low), width - label(high)];
  const text = (x, words) => ({ x, y: y + height / 2 + 0.36 * size, text: words, size, fill: [17, 17, 17, 1] });
  const colors = stops.map((stop) => colorOf(stop));
  const step = (to - from) / STEPS;
  const steps = Array.from({ length: Math.max(0, step > 0 ? STEPS : 0) }, (_, at) => {
    const place = ((at + 0.5) / STEPS) * (colors.length - 1);
    const first = colors[Math.floor(place)];
    const next = colors[Math.min(colors.length - 1, Math.floor(place) + 1)];
    const fill = first.map((value, channel) => value + (next[channel] - value) * (place % 1));
    return { x: from + at * step, y: y + height / 4, width: step + 0.5, height: height / 2, fill };
  });
  return [{ x: 0, y, width, height, fill: [255, 255, 255, 1] }, ...steps, text(space, low), text(to + space, high)];
}

let probe = null;

/** Return [red, green, blue, opacity] of a color of CSS. @param {string} text */
export function colorOf(text) {
  probe ??= new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  probe.clearRect(0, 0, 1, 1);
  probe.fillStyle = text;
  probe.fillRect(0, 0, 1, 1);
  const [red, green, blue, alpha] = probe.getImageData(0, 0, 1, 1).data;
  return [red, green, blue, alpha / 255];
}

/** @param {number[]} color */
const css = ([red, green, blue, alpha]) => `rgb(${Math.round(red)} ${Math.round(green)} ${Math.round(blue)} / ${alpha})`; // prettier-ignore

/** @param {Picture} picture */
export function drawn({ canvas, shapes, width, height }) {
  const whole = new OffscreenCanvas(width, height);
  const context = whole.getContext("2d");
  context.drawImage(canvas, 0, 0);
  for (const { points, x, y, radius, text, size, color, fill, line, ...box } of shapes) {
    if (fill) context.fillStyle = css(fill);
    if (color) Object.assign(context, { strokeStyle: css(color), lineWidth: line });
    context.beginPath();
    for (const [from, ...rest] of points ?? []) {
      context.moveTo(...from);
      for (const point of rest) context.lineTo(...point);
    }
    if (radius) context.arc(x, y, radius, 0, 2 * Math.PI);
    else if (text) {
      context.font = `${size}px Helvetica, Arial, sans-serif`;
      context.fillText(text, x, y);
    } else if (fill) context.fillRect(x, y, box.width, box.height);
    if (radius && fill) context.fill();
    if (color) context.stroke();
  }
  return whole;
}

/** @param {Picture} picture */
function pngFile(picture) {
  return drawn(picture).convertToBlob({ type: "image/png" });
}

/** Write the image as PNG and the shapes as vectors. @param {Picture} picture */
async function svgFile({ canvas, shapes, width, height }) {
  const image = await dataAddress(await canvas.convertToBlob({ type: "image/png" }));
  const escaped = (text) => text.replace(/[&<>]/g, (letter) => `&#${letter.charCodeAt(0)};`);
  const parts = shapes.map(({ points, x, y, radius, text, size, color, fill, line, ...box }) => {
    const style = `fill="${fill ? css(fill) : "none"}"${color ? ` stroke="${css(color)}" stroke-width="${line}"` : ""}`;
    if (points) return `<path d="${points.map((each) => `M${each.map((point) => point.join(" ")).join("L")}`).join("")}" ${style}/>`; // prettier-ignore
    if (radius) return `<circle cx="${x}" cy="${y}" r="${radius}" ${style}/>`;
    if (text) return `<text x="${x}" y="${y}" font-family="Helvetica, Arial, sans-serif" font-size="${size}" ${style}>${escaped(text)}</text>`; // prettier-ignore
    return `<rect x="${x}" y="${y}" width="${box.width}" height="${box.height}" ${style}/>`;
  });
  const start = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}">`;
  const photo = `<image href="${image}" width="${canvas.width}" height="${canvas.height}"/>`;
  return new Blob([start, photo, ...parts, "</svg>\n"], { type: "image/svg+xml" });
}

/** @param {Blob} file @returns {Promise<string>} */
export function dataAddress(file) {
  return new Promise((resolve) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result));
    reader.readAsDataURL(file);
  });
}
