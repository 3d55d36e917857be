// What stages show as a file: SVG, and PNG and PDF drawn from it. Everything is read from the elements on the screen.

import { el } from "./dom.js";

const MOST_SIDE = 1600; // pixels
const STYLES = ["fill", "stroke", "stroke-width", "paint-order", "font-family", "font-size"]; // of a plot
const FONT = 'font-family="Helvetica, Arial, sans-serif"';

/**
 * Draw the stages in an element, or a plot, as a file. Throws Error where a canvas has no filters.
 * @param {Element} place @param {"png" | "jpeg" | "svg" | "pdf"} kind @param {Parts} parts @returns {Promise<Blob>}
 */
export async function pictureFile(place, kind, parts) {
  const picture = await (place instanceof SVGSVGElement ? plotOf(place) : svgOf(place, parts));
  if (kind === "svg") return picture.file;
  const canvas = await drawn(picture);
  return kind === "pdf" ? pdfFile(canvas) : canvas.convertToBlob({ type: `image/${kind}`, quality: 0.92 });
}

/** Draw images and maps as pixels, and everything over them as vectors. @param {Element} place @param {Parts} parts */
async function svgOf(place, { outline, pins, scale, side = MOST_SIDE }) {
  const stages = place.matches(".lab-stage") ? [place] : [...place.querySelectorAll(".lab-stage")];
  const frame = around(stages);
  const widths = await Promise.all(stages.map((stage) => naturalWidth(stage.querySelector(".lab-image"))));
  const natural = Math.max(...widths.map((width, at) => width / stages[at].getBoundingClientRect().width));
  const ratio = Math.min(natural, side / Math.max(frame.width, frame.height)); // pixels of the file per pixel of the screen
  /** @param {Element} element  null: the whole file @returns {Box} */
  const within = (element) => {
    const box = element ? element.getBoundingClientRect() : frame;
    const [x, y, width, height] = [box.x - frame.x, box.y - frame.y, box.width, box.height].map((length) => Math.round(length * ratio)); // prettier-ignore
    return { x, y, width, height };
  };
  const { width, height } = within(null);
  const canvas = new OffscreenCanvas(width, height);
  for (const stage of stages) drawLayers(canvas.getContext("2d"), stage, within);
  const size = (box) => `x="${box.x}" y="${box.y}" width="${box.width}" height="${box.height}"`;
  const photo = await dataAddress(await canvas.convertToBlob({ type: "image/png" }));
  const over = stages.map((stage, at) => {
    const box = size(within(stage));
    const lines = outline ? linesOf(stage.querySelector(".lab-sheet > svg"), within, ratio) : "";
    const marks = pins ? [...stage.querySelectorAll(".lab-markers > *")].map((mark) => pinOf(mark, within(mark), ratio)) : []; // prettier-ignore
    return `<clipPath id="stage${at}"><rect ${box}/></clipPath><g clip-path="url(#stage${at})">${lines}${marks.join("")}</g>`;
  });
  const joins = place.querySelector(":scope > .lab-lines");
  if (outline && joins) over.push(linesOf(joins, within, ratio));
  const bar = scale ? Math.round(Math.max(18, width / 28)) : 0;
  const full = { width, height: height + bar };
  const start = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${full.height}" viewBox="0 0 ${width} ${full.height}">`;
  const image = `<image href="${photo}" width="${width}" height="${height}"/>`;
  const ends = scale ? barOf(scale, { y: height, width, height: bar }) : "";
  return { ...full, file: new Blob([start, image, ...over, ends, "</svg>\n"], { type: "image/svg+xml" }) };
}

/** Copy a plot with its styles and images. @param {SVGSVGElement} plot */
async function plotOf(plot) {
  const { clientWidth: width, clientHeight: height } = plot;
  const copy = /** @type {SVGSVGElement} */ (plot.cloneNode(true));
  const nodes = plot.querySelectorAll("*");
  copy.querySelectorAll("*").forEach((node, at) => {
    const style = getComputedStyle(nodes[at]);
    node.removeAttribute("style"); // it may name variables of the page
    for (const name of STYLES) node.setAttribute(name, style.getPropertyValue(name));
  });
  for (const image of copy.querySelectorAll("image")) {
    const answer = await fetch(image.getAttribute("href"));
    image.setAttribute("href", await dataAddress(await answer.blob()));
  }
  for (const [name, value] of Object.entries({ width, height })) copy.setAttribute(name, String(value));
  const background = getComputedStyle(plot.parentElement).backgroundColor;
  copy.insertAdjacentHTML("afterbegin", `<rect width="${width}" height="${height}" fill="${background}"/>`);
  return { width, height, file: new Blob([new XMLSerializer().serializeToString(copy)], { type: "image/svg+xml" }) };
}

function around(elements) {
  const boxes = elements.map((element) => element.getBoundingClientRect());
  const [x, y] = [Math.min(...boxes.map(({ left }) => left)), Math.min(...boxes.map(({ top }) => top))];
  const [right, bottom] = [Math.max(...boxes.map((box) => box.right)), Math.max(...boxes.map((box) => box.bottom))];
  return { x, y, width: right - x, height: bottom - y };
}

/** @param {any} image  an image or a canvas @returns {Promise<number>} */
async function naturalWidth(image) {
  if (image instanceof HTMLImageElement) await image.decode();
  return image.naturalWidth || image.width;
}

/** Draw the image and the canvases of a stage as their styles show them. */
function drawLayers(context, stage, within) {
  const { x, y, width, height } = within(stage);
  context.save();
  context.rect(x, y, width, height);
  context.clip();
  for (const layer of stage.querySelectorAll(".lab-sheet > :is(img, canvas)")) {
    const style = getComputedStyle(layer);
    if (style.filter !== "none" && !("filter" in context))
      throw new Error("This browser draws no filters into files: choose another layer, or another browser.");
    Object.assign(context, { filter: style.filter, globalAlpha: Number(style.opacity) });
    context.imageSmoothingEnabled = style.imageRendering !== "pixelated";
    const box = within(layer);
    context.drawImage(layer, box.x, box.y, box.width, box.height);
  }
  context.restore();
}

function linesOf(ink, within, ratio) {
  const { x, y, width, height } = within(ink);
  const { width: columns, height: rows } = ink.viewBox.baseVal;
  const [across, down] = [width / columns, height / rows];
  const copies = [...ink.querySelectorAll("path, rect, line, circle")].map((node) => {
    const { stroke, strokeWidth, fill } = getComputedStyle(node);
    const copy = node.cloneNode();
    const style = { stroke, fill, "stroke-width": (parseFloat(strokeWidth) * ratio) / across };
    for (const [name, value] of Object.entries(style)) copy.setAttribute(name, value);
    return copy.outerHTML;
  });
  return `<g transform="translate(${x} ${y}) scale(${across} ${down})">${copies.join("")}</g>`;
}

/** Draw a pin as a disc with its number. @param {Element} mark @param {Box} box @param {number} ratio */
function pinOf(mark, box, ratio) {
  const { color, backgroundColor, fontSize } = getComputedStyle(mark);
  const [x, y, size] = [box.x + box.width / 2, box.y + box.height / 2, parseFloat(fontSize) * ratio];
  const disc = `<circle cx="${x}" cy="${y}" r="${box.width / 2}" fill="${backgroundColor}" stroke="#fff" stroke-width="${2 * ratio}"/>`;
  const text = `<text x="${x}" y="${y + 0.36 * size}" text-anchor="middle" ${FONT} font-size="${size}" fill="${color}">`;
  return `${disc}${text}${mark.textContent}</text>`;
}

/** Draw a color bar between the values at its ends. @param {Parts["scale"]} scale @param {Size & { y: number }} box */
function barOf({ ends: [low, high], stops }, { y, width, height }) {
  const size = height * 0.55;
  const [from, to] = [low, high].map((words) => 0.55 * size * words.length + size);
  const colors = stops.map((stop, at) => `<stop offset="${at / (stops.length - 1)}" stop-color="${stop}"/>`).join("");
  const text = (x, anchor, words) =>
    `<text x="${x}" y="${y + 0.7 * height}" text-anchor="${anchor}" ${FONT} font-size="${size}" fill="#111">${words}</text>`;
  const bar = `<rect x="${from}" y="${y + height / 4}" width="${Math.max(0, width - from - to)}" height="${height / 2}" fill="url(#scale)"/>`;
  return `<linearGradient id="scale">${colors}</linearGradient><rect y="${y}" width="${width}" height="${height}" fill="#fff"/>${bar}${text(size / 2, "start", low)}${text(width - size / 2, "end", high)}`;
}

/** Draw an SVG file as pixels. @param {{ file: Blob } & Size} picture */
async function drawn({ file, width, height }) {
  const image = el("img", { src: await dataAddress(file) });
  await image.decode();
  const canvas = new OffscreenCanvas(width, height);
  canvas.getContext("2d").drawImage(image, 0, 0);
  return canvas;
}

/** Write a canvas as PDF of one page, one point per pixel. @param {OffscreenCanvas} canvas */
async function pdfFile(canvas) {
  const { width, height } = canvas;
  const jpeg = await canvas.convertToBlob({ type: "image/jpeg", quality: 0.95 });
  const draw = `q ${width} 0 0 ${height} 0 0 cm /Im Do Q`;
  const objects = [
    ["<< /Type /Catalog /Pages 2 0 R >>"],
    ["<< /Type /Pages /Kids [3 0 R] /Count 1 >>"],
    [`<< /Type /Page /Parent 2 0 R /MediaBox [0 0 ${width} ${height}] /Contents 4 0 R /Resources << /XObject << /Im 5 0 R >> >> >>`],
    [`<< /Length ${draw.length} >>\nstream\n${draw}\nendstream`],
    [`<< /Type /XObject /Subtype /Image /Width ${width} /Height ${height} /ColorSpace /DeviceRGB /BitsPerComponent 8 /Filter /DCTDecode /Length ${jpeg.size} >>\nstream\n`, jpeg, "\nendstream"],
  ]; // prettier-ignore
  let file = new Blob(["%PDF-1.4\n"]);
  const places = objects.map((object, at) => {
    const start = file.size;
    file = new Blob([file, `${at + 1} 0 obj\n`, ...object, "\nendobj\n"]);
    return `${String(start).padStart(10, "0")} 00000 n \n`;
  });
  const table = `xref\n0 6\n0000000000 65535 f \n${places.join("")}trailer\n<< /Size 6 /Root 1 0 R >>`;
  return new Blob([file, table, `\nstartxref\n${file.size}\n%%EOF\n`], { type: "application/pdf" });
}

/** @param {Blob} file @returns {Promise<string>} */
export function dataAddress(file) {
  return new Promise((resolve) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result));
    reader.readAsDataURL(file);
  });
}
