// A picture as PDF of one page: the image as JPEG, the shapes over it as vectors, one point per pixel.

const KAPPA = 0.5523; // of a quarter of a circle as Bézier curve

/** @param {import("./picture.js").Picture} picture @returns {Promise<Blob>} */
export async function pdfFile({ canvas, shapes, width, height }) {
  const jpeg = await canvas.convertToBlob({ type: "image/jpeg", quality: 0.95 });
  const opacities = [...new Set(shapes.map(opacityOf))];
  const states = opacities.map((opacity, at) => `/G${at} << /ca ${opacity} /CA ${opacity} >>`).join(" ");
  const photo = `q ${canvas.width} 0 0 ${canvas.height} 0 ${height - canvas.height} cm /Im Do Q\n`;
  const drawing = shapes.map((shape) => `q /G${opacities.indexOf(opacityOf(shape))} gs ${draw(shape, height)} Q\n`);
  const content = photo + drawing.join("");
  const font = "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>";
  const resources = `<< /XObject << /Im 5 0 R >> /Font << /F ${font} >> /ExtGState << ${states} >> >>`;
  const size = `/Width ${canvas.width} /Height ${canvas.height}`;
  return assemble([
    ["<< /Type /Catalog /Pages 2 0 R >>"],
    ["<< /Type /Pages /Kids [3 0 R] /Count 1 >>"],
    [`<< /Type /Page /Parent 2 0 R /MediaBox [0 0 ${width} ${height}] /Contents 4 0 R /Resources ${resources} >>`],
    [`<< /Length ${content.length} >>\nstream\n${content}\nendstream`],
    [
      `<< /Type /XObject /Subtype /Image ${size} /ColorSpace /DeviceRGB /BitsPerComponent 8 /Filter /DCTDecode /Length ${jpeg.size} >>\nstream\n`,
      jpeg,
      "\nendstream",
    ],
  ]);
}

/** @param {import("./picture.js").Shape} shape */
function opacityOf({ color, fill }) {
  return (color ?? fill)[3].toFixed(2);
}

/** Return the operators of a shape; y points up. @param {import("./picture.js").Shape} shape @param {number} top */
function draw({ points, x, y, width, height, radius, text, size, color, fill, line }, top) {
  const number = (value) => value.toFixed(2);
  const place = ([right, down]) => `${number(right)} ${number(top - down)}`;
  /** @param {number[]} color @param {string} operator */
  const paint = ([red, green, blue], operator) => `${[red, green, blue].map((one) => number(one / 255)).join(" ")} ${operator}`; // prettier-ignore
  const style = [fill && paint(fill, "rg"), color && `${paint(color, "RG")} ${number(line)} w`].filter(Boolean).join(" "); // prettier-ignore
  const end = fill && color ? "B" : fill ? "f" : "S";
  if (text) return `${style} BT /F ${number(size)} Tf ${place([x, y])} Td (${latin(text)}) Tj ET`;
  if (radius) return `${style} ${circle({ x, y, radius }, place)} ${end}`;
  if (!points) return `${style} ${place([x, y + height])} ${number(width)} ${number(height)} re ${end}`;
  return `${style} ${points.map(([from, ...rest]) => `${place(from)} m ${rest.map((point) => `${place(point)} l`).join(" ")}`).join(" ")} S`; // prettier-ignore
}

function circle({ x, y, radius }, place) {
  const at = (right, down) => place([x + right * radius, y + down * radius]);
  /** @param {number[]} from @param {number[]} to */
  const quarter = ([a, b], [c, d]) => `${at(a + KAPPA * c, b + KAPPA * d)} ${at(c + KAPPA * a, d + KAPPA * b)} ${at(c, d)} c`; // prettier-ignore
  const corners = [[1, 0], [0, 1], [-1, 0], [0, -1], [1, 0]]; // prettier-ignore
  return `${at(1, 0)} m ${corners
    .slice(1)
    .map((corner, index) => quarter(corners[index], corner))
    .join(" ")} h`;
}

/** Escape a text; letters beyond Latin-1 become question marks. @param {string} text */
function latin(text) {
  const codes = [...text].map((letter) => ("\\()".includes(letter) ? `\\${letter}` : letter));
  return codes.map((letter) => (letter.charCodeAt(0) > 126 ? escaped(letter) : letter)).join("");
}

function escaped(letter) {
  const code = letter.charCodeAt(0);
  return code > 255 ? "?" : `\\${code.toString(8).padStart(3, "0")}`;
}

/** Number objects and write the table of their places. @param {(string | Blob)[][]} objects */
function assemble(objects) {
  /** @type {(string | Blob)[]} */
  const parts = ["%PDF-1.4\n"];
  const places = [];
  let length = parts[0]["length"];
  objects.forEach((object, index) => {
    places.push(length);
    for (const part of [`${index + 1} 0 obj\n`, ...object, "\nendobj\n"]) {
      parts.push(part);
      length += part instanceof Blob ? part.size : part.length;
    }
  });
  const table = places.map((place) => `${String(place).padStart(10, "0")} 00000 n \n`).join("");
  const count = objects.length + 1;
  parts.push(`xref\n0 ${count}\n0000000000 65535 f \n${table}trailer\n<< /Size ${count} /Root 1 0 R >>\nstartxref\n${length}\n%%EOF\n`); // prettier-ignore
  return new Blob(parts, { type: "application/pdf" });
}
