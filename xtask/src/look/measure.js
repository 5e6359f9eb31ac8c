// What a reader would notice about this page, as a list of sentences.
(() => {
  const SMALLEST = 10; // CSS pixels
  const CONTRAST = 4.5; // WCAG 2.2, 1.4.3
  const CONTRAST_OF_LARGE = 3; // of letters of 24 pixels, or 18.66 if bold; and of lines, 1.4.11
  const problems = new Set();
  const root = document.documentElement;
  const shown = (text) => JSON.stringify(text.trim().replace(/\s+/g, " ").slice(0, 40));

  const parse = (color) => {
    const numbers = (color.match(/-?[\d.]+(e-?\d+)?/g) || []).map(Number);
    if (color.startsWith("color(srgb")) {
      const [r, g, b, a = 1] = numbers;
      return [r * 255, g * 255, b * 255, a];
    }
    const [r = 0, g = 0, b = 0, a = 1] = numbers;
    return color === "transparent" || color === "none" ? [0, 0, 0, 0] : [r, g, b, a];
  };
  const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
  const luminance = (color) => {
    const [r, g, b] = color.slice(0, 3).map((value) => {
      const share = value / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (a, b) => {
    const [light, dark] = [luminance(a), luminance(b)].sort((x, y) => y - x);
    return (light + 0.05) / (dark + 0.05);
  };

  // The canvas below everything: white, or what the browser gives a dark page.
  const canvas = (() => {
    const isPrint = matchMedia("print").matches;
    const isDark = !isPrint && matchMedia("(prefers-color-scheme: dark)").matches;
    return isDark && /dark/.test(getComputedStyle(root).colorScheme) ? [18, 18, 18, 1] : [255, 255, 255, 1];
  })();
  // The ground at a place within an element: the backgrounds of its ancestors, and rectangles drawn before it.
  const ground = (element, x, y) => {
    const layers = [];
    const svg = element.closest("svg");
    if (svg) {
      for (const shape of svg.querySelectorAll("rect")) {
        if (!(shape.compareDocumentPosition(element) & Node.DOCUMENT_POSITION_FOLLOWING)) break;
        const box = shape.getBoundingClientRect();
        const style = getComputedStyle(shape);
        if (style.fill === "none" || x < box.left || x > box.right || y < box.top || y > box.bottom) continue;
        const fill = parse(style.fill);
        layers.unshift([fill[0], fill[1], fill[2], fill[3] * Number(style.fillOpacity) * Number(style.opacity)]);
      }
    }
    for (let at = element; at; at = at.parentElement) layers.push(parse(getComputedStyle(at).backgroundColor));
    return layers.reduceRight((below, layer) => over(layer, below), canvas);
  };
  const isVisible = (element) => element.checkVisibility({ opacityProperty: true, visibilityProperty: true });
  // Whether an ancestor scrolls or cuts it off on purpose.
  const isClipped = (element) => {
    for (let at = element; at && at !== root; at = at.parentElement) {
      if (at !== document.body && getComputedStyle(at).overflowX !== "visible" && at.namespaceURI.endsWith("xhtml")) return true;
    }
    return false;
  };

  // Letters.
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  const letters = new Map();
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (!node.data.trim() || !element || element.closest("head, style, script, title, noscript")) continue;
    if (!isVisible(element)) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const box = range.getBoundingClientRect();
    if (box.width === 0 || box.height === 0) continue;
    const style = getComputedStyle(element);
    const svg = element.closest("svg");
    const matrix = svg && element.getScreenCTM && element.getScreenCTM();
    const size = parseFloat(style.fontSize) * (matrix ? Math.hypot(matrix.a, matrix.b) : 1);
    if (size < SMALLEST) problems.add(`letters of ${size.toFixed(1)} px, as in ${shown(node.data)}`);
    const color = parse(svg ? style.fill : style.color);
    if (svg) color[3] *= Number(style.fillOpacity);
    const below = ground(element, box.left + box.width / 2, box.top + box.height / 2);
    const isLarge = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    const found = contrast(over(color, below), below);
    if (found < (isLarge ? CONTRAST_OF_LARGE : CONTRAST)) {
      problems.add(`letters with a contrast of ${found.toFixed(1)}, as in ${shown(node.data)}`);
    }
    if (!isClipped(element)) {
      const right = box.right + scrollX;
      if (right > innerWidth + 1 || box.left + scrollX < -1) problems.add(`cut off at the window's edge: ${shown(node.data)}`);
    }
    if (svg) {
      const frame = svg.getBoundingClientRect();
      const isOutside = box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 2 || box.bottom > frame.bottom + 2;
      if (isOutside && svg !== root) problems.add(`outside of its picture: ${shown(node.data)}`);
      letters.set(svg, (letters.get(svg) || []).concat({ box, text: node.data }));
    }
  }
  for (const all of letters.values()) {
    for (let i = 0; i < all.length && i < 400; i++) {
      for (let j = i + 1; j < all.length && j < 400; j++) {
        const [a, b] = [all[i].box, all[j].box];
        const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        // Boxes are higher than letters.
        if (across > 1 && down > 0.35 * Math.min(a.height, b.height)) {
          problems.add(`overlapping: ${shown(all[i].text)} and ${shown(all[j].text)}`);
        }
      }
    }
  }

  // Lines of charts: they stand out, and those of one panel can be told apart.
  for (const chart of document.querySelectorAll("svg.chart")) {
    for (const line of chart.querySelectorAll("polyline:not(.raw)")) {
      const box = line.getBoundingClientRect();
      const below = ground(line, box.left, box.top);
      const found = contrast(over(parse(getComputedStyle(line).stroke), below), below);
      if (found < CONTRAST_OF_LARGE) problems.add(`a line with a contrast of ${found.toFixed(1)}`);
    }
    let looks = new Map();
    for (const text of chart.querySelectorAll("text.axis, text.legend")) {
      if (text.classList.contains("axis")) {
        looks = new Map();
        continue;
      }
      const sample = text.previousElementSibling;
      const { stroke, strokeDasharray } = getComputedStyle(sample.querySelector("polyline"));
      const mark = sample.querySelector("circle, polygon");
      const { width = 0, height = 0 } = mark ? mark.getBBox() : {};
      const corners = mark && mark.points ? mark.points.numberOfItems : 0;
      const look = [stroke, strokeDasharray, Boolean(mark), corners, Math.round(width), Math.round(height)].join();
      if (looks.has(look)) problems.add(`lines that look the same: ${shown(looks.get(look))} and ${shown(text.textContent)}`);
      looks.set(look, text.textContent);
    }
  }

  // The page.
  if (root.scrollWidth > innerWidth + 1) {
    const right = (element) => element.getBoundingClientRect().right + scrollX;
    const all = [...root.querySelectorAll("body *")].filter((element) => !isClipped(element.parentElement));
    const widest = all.reduce((a, b) => (right(b) > right(a) ? b : a), root);
    const name = `<${widest.localName} class="${widest.getAttribute("class") || ""}"> ${shown(widest.textContent)}`;
    problems.add(`the page is ${root.scrollWidth} px wide in a window of ${innerWidth}: ${name}`);
  }
  if (matchMedia("print").matches && luminance(ground(document.body || root, 0, 0)) < 0.8) problems.add("printed on a dark ground");
  return [...problems];
})()
