// A picture is drawn by a pen: on a canvas, or as SVG.
const FONT = "system-ui, sans-serif";
const measure = document.createElement("canvas").getContext("2d");
const widths = new Map();
const widthOf = (text, size = 13) => {
  const key = `${size} ${text}`;
  let width = widths.get(key);
  if (width === undefined) {
    measure.font = `${size}px ${FONT}`;
    width = measure.measureText(text).width;
    widths.set(key, width);
  }
  return width;
};
// As much of a text as there is room for.
const fitted = (text, room, size = 13) => {
  if (widthOf(text, size) <= room) return text;
  const letters = Array.from(text);
  let [low, high] = [0, letters.length];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (widthOf(letters.slice(0, middle).join("") + "…", size) <= room) low = middle;
    else high = middle - 1;
  }
  return low ? letters.slice(0, low).join("") + "…" : "";
};

const canvasPen = (context) => ({
  rect(x, y, width, height, color, alpha = 1) {
    context.globalAlpha = alpha;
    context.fillStyle = color;
    context.fillRect(x, y, width, height);
  },
  frame(x, y, width, height, color, thick = 1) {
    context.globalAlpha = 1;
    context.strokeStyle = color;
    context.lineWidth = thick;
    context.strokeRect(x, y, width, height);
  },
  // Curves from one column to another: [x1, y1, x2, y2, …].
  links(points, color, alpha, thick) {
    context.globalAlpha = alpha;
    context.strokeStyle = color;
    context.lineWidth = thick;
    context.beginPath();
    for (let i = 0; i < points.length; i += 4) {
      const [x1, y1, x2, y2] = [points[i], points[i + 1], points[i + 2], points[i + 3]];
      const middle = (x1 + x2) / 2;
      context.moveTo(x1, y1);
      context.bezierCurveTo(middle, y1, middle, y2, x2, y2);
    }
    context.stroke();
  },
  text(text, x, y, { color, align = "left", size = 13, weight = 400, turned = false }) {
    context.globalAlpha = 1;
    context.fillStyle = color;
    context.font = `${weight} ${size}px ${FONT}`;
    context.textAlign = align;
    context.textBaseline = "middle";
    if (!turned) return context.fillText(text, x, y);
    context.save();
    context.translate(x, y);
    context.rotate(-Math.PI / 2);
    context.fillText(text, 0, 0);
    context.restore();
  },
  image(image, x, y, width, height) {
    context.globalAlpha = 1;
    context.imageSmoothingEnabled = width < image.width;
    context.drawImage(image, x, y, width, height);
  },
  within(x, y, width, height, draw) {
    context.save();
    context.beginPath();
    context.rect(x, y, width, height);
    context.clip();
    draw();
    context.restore();
  },
});

const escaped = (text) => text.replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
const svgPen = () => {
  const parts = [];
  let clips = 0;
  const n = (value) => String(Math.round(value * 100) / 100);
  return {
    rect(x, y, width, height, color, alpha = 1) {
      parts.push(`<rect x="${n(x)}" y="${n(y)}" width="${n(width)}" height="${n(height)}" fill="${color}" fill-opacity="${n(alpha)}"/>`);
    },
    frame(x, y, width, height, color, thick = 1) {
      parts.push(`<rect x="${n(x)}" y="${n(y)}" width="${n(width)}" height="${n(height)}" fill="none" stroke="${color}" stroke-width="${n(thick)}"/>`);
    },
    links(points, color, alpha, thick) {
      let path = "";
      for (let i = 0; i < points.length; i += 4) {
        const [x1, y1, x2, y2] = points.slice(i, i + 4).map(n);
        const middle = n((points[i] + points[i + 2]) / 2);
        path += `M${x1} ${y1}C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}`;
      }
      if (path) parts.push(`<path d="${path}" fill="none" stroke="${color}" stroke-opacity="${n(alpha)}" stroke-width="${n(thick)}"/>`);
    },
    text(text, x, y, { color, align = "left", size = 13, weight = 400, turned = false }) {
      const anchor = { left: "start", center: "middle", right: "end" }[align];
      const turn = turned ? ` transform="rotate(-90 ${n(x)} ${n(y)})"` : "";
      // An anchor is where a text begins, which is on the right for one from right to left.
      const way = ' direction="ltr" unicode-bidi="embed"';
      parts.push(`<text x="${n(x)}" y="${n(y)}" fill="${color}" font-size="${size}" font-weight="${weight}" text-anchor="${anchor}" dominant-baseline="central"${way}${turn}>${escaped(text)}</text>`);
    },
    image(image, x, y, width, height) {
      parts.push(`<image x="${n(x)}" y="${n(y)}" width="${n(width)}" height="${n(height)}" preserveAspectRatio="none" style="image-rendering:pixelated" href="${image.toDataURL()}"/>`);
    },
    within(x, y, width, height, draw) {
      const id = `clip-${clips++}`;
      parts.push(`<clipPath id="${id}"><rect x="${n(x)}" y="${n(y)}" width="${n(width)}" height="${n(height)}"/></clipPath><g clip-path="url(#${id})">`);
      draw();
      parts.push("</g>");
    },
    whole(width, height, title) {
      return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${n(width)} ${n(height)}" width="${n(width)}" height="${n(height)}" font-family="${FONT}"><title>${escaped(title)}</title><rect width="100%" height="100%" fill="${colors().paper}"/>${parts.join("")}</svg>\n`;
    },
  };
};
