// The matrix: a row for what attends, a column for what is attended to, darker for larger shares.
const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
// A picture with one point a share.
const imageOf = (values, rows, columns, largest, color) => {
  const image = document.createElement("canvas");
  [image.width, image.height] = [columns, rows];
  const context = image.getContext("2d");
  const pixels = context.createImageData(columns, rows);
  const [red, green, blue] = rgb(color);
  const scale = largest > 0 ? 255 / largest : 0;
  // Bytes are in the order of the machine: red first on all that browsers run on.
  const points = new Uint32Array(pixels.data.buffer);
  const ink = (blue << 16) | (green << 8) | red;
  for (let r = 0, at = 0; r < rows; r++) {
    for (let from = r; from < values.length; from += rows) points[at++] = (Math.round(values[from] * scale) << 24) | ink;
  }
  context.putImageData(pixels, 0, 0);
  return image;
};

const matrix = {
  says: "A row is a token, and its shares over the columns add up to 1: the darker, the larger; the darkest is the largest share of the picture. It shows where heads read from; a large share is no reason for the answer.",
  frame(width) {
    const labels = Math.min(96, width * 0.22);
    const fit = (Math.min(width, 760) - labels - 2) / Math.max(scene.columns.length, 1);
    const cell = Math.min(44, fit) * 1.35 ** state.zoom;
    return { left: labels, top: 76, cell };
  },
  size(width) {
    const { left, top, cell } = this.frame(width);
    return { width: Math.max(width, left + cell * scene.columns.length + 2), height: top + cell * scene.rows.length + 2 };
  },
  draw(pen, box) {
    const { paper, ink, soft, line, more } = colors();
    const { rows, columns, mean, largest } = scene;
    const { left, top, cell } = this.frame(box.view);
    if (scene.image?.color !== more) scene.image = { color: more, canvas: imageOf(mean, rows.length, columns.length, largest, more) };
    const [width, height] = [cell * columns.length, cell * rows.length];
    pen.image(scene.image.canvas, left, top, width, height);
    pen.frame(left - 0.5, top - 0.5, width + 1, height + 1, line);
    // Numbers where there is room.
    if (cell >= 34) {
      rows.forEach((_, r) => columns.forEach((_, c) => {
        const value = mean[c * rows.length + r];
        if (value >= 0.005) pen.text(value >= 0.995 ? "1" : value.toFixed(2).slice(1), left + cell * (c + 0.5), top + cell * (r + 0.5), { color: value > 0.65 * largest ? paper : ink, align: "center", size: 11 });
      }));
    }
    const { row, column } = pointed ?? {};
    if (row !== undefined) pen.frame(left, top + cell * row - 0.5, width, cell + 1, soft);
    if (column !== undefined) pen.frame(left + cell * column - 0.5, top, cell + 1, height, soft);
    if (row !== undefined && column !== undefined) pen.frame(left + cell * column - 0.5, top + cell * row - 0.5, cell + 1, cell + 1, ink, 2);
    // Labels stay in view. Of small cells every n-th has one, and what is pointed at.
    const every = Math.ceil(12 / cell);
    const [x, y] = [box.x, box.y];
    const from = new Set(chosen(state.from, rows));
    const to = new Set(chosen(state.to, columns));
    const label = (unit, isMarked) => ({ color: unit.special && !isMarked ? soft : ink, size: 12, weight: isMarked ? 600 : 400 });
    const isShown = (at, pointedAt, kept) => {
      if (at === pointedAt || kept.has(at)) return true;
      const isCovered = pointedAt !== undefined && Math.abs(at - pointedAt) * cell < 12;
      return at % every === 0 && !isCovered;
    };
    pen.rect(x, y, box.width, top - 2, paper);
    columns.forEach((unit, c) => {
      const at = left + cell * (c + 0.5);
      if (at < x + left || at > x + box.width || !isShown(c, column, to)) return;
      pen.text(fitted(unit.label, top - 14, 12), at, y + top - 6, { ...label(unit, c === column || to.has(c)), turned: true });
    });
    pen.rect(x, y, left - 2, box.height, paper);
    rows.forEach((unit, r) => {
      const at = top + cell * (r + 0.5);
      if (at < y + top || at > y + box.height || !isShown(r, row, from)) return;
      pen.text(fitted(unit.label, left - 12, 12), x + left - 6, at, { ...label(unit, r === row || from.has(r)), align: "right" });
    });
    pen.text("attends", x + left - 6, y + top - 20, { color: soft, align: "right", size: 11 });
    pen.text("↓", x + left - 6, y + top - 7, { color: soft, align: "right", size: 11 });
    pen.text("attended →", x + left - 6, y + 12, { color: soft, align: "right", size: 11 });
  },
  at(x, y, width, scrolled) {
    const { left, top, cell } = this.frame(width);
    const column = x < scrolled.x + left ? undefined : Math.floor((x - left) / cell);
    const row = y < scrolled.y + top ? undefined : Math.floor((y - top) / cell);
    if ((column ?? 0) >= scene.columns.length || (row ?? 0) >= scene.rows.length) return null;
    if (column === undefined && row === undefined) return null;
    return { ...(row !== undefined && { row }), ...(column !== undefined && { column }) };
  },
  move(key) {
    const { row = 0, column = 0 } = pointed ?? {};
    if (!pointed) return { row, column };
    const [down, right] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[key];
    const within = (at, count) => Math.max(0, Math.min(count - 1, at));
    return { row: within(row + down, scene.rows.length), column: within(column + right, scene.columns.length) };
  },
  place(hit, width) {
    const { left, top, cell } = this.frame(width);
    return { x: left + cell * (hit.column ?? 0), y: top + cell * (hit.row ?? 0) };
  },
};
