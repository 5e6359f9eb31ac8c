// Model view: all layers and heads, small.
const SMALL = 48;
const overview = {
  says: "Each square is one head's matrix, shrunk by keeping the largest share of each spot and as dark as its own largest share allows: shapes can be compared, strengths cannot; the table has those. Press one to look at it.",
  left: 58,
  top: 24,
  frame(width) {
    const heads = Math.max(...map().layers.map((of) => of.heads.length));
    const cell = Math.max(18, Math.min(96, (Math.min(width, 860) - this.left) / heads)) * 1.25 ** state.zoom;
    return { heads, cell };
  },
  size(width) {
    const { heads, cell } = this.frame(width);
    return { width: Math.max(width, this.left + heads * cell), height: this.top + map().layers.length * cell + 4 };
  },
  // Small pictures by what they show. They are made layer by layer, between other work.
  images: new Map(),
  key: "",
  image(place, head) {
    const color = colors().more;
    const key = [state.map, state.words, state.plain, state.parts, color].join();
    if (key !== this.key) {
      this.images.clear();
      [this.units, this.key] = [unitsNow(), key];
      this.until = 0;
    }
    const name = `${place}.${head}`;
    const known = this.images.get(name);
    if (known) return known;
    if (performance.now() > this.until || !bytesOf(state.map, place)) {
      this.isWaiting = true;
      return null;
    }
    const [rows, columns] = this.units;
    const values = between(state.map, place, head, rows, columns);
    const [high, wide] = [Math.min(rows.length, SMALL), Math.min(columns.length, SMALL)];
    const small = new Float32Array(high * wide);
    let largest = 0;
    for (let c = 0; c < columns.length; c++) {
      const into = Math.floor((c * wide) / columns.length) * high;
      for (let r = 0; r < rows.length; r++) {
        const value = values[c * rows.length + r];
        const at = into + Math.floor((r * high) / rows.length);
        if (value > small[at]) small[at] = value;
        if (value > largest) largest = value;
      }
    }
    spare.push(values);
    const image = imageOf(small, high, wide, largest, color);
    this.images.set(name, image);
    return image;
  },
  draw(pen, box) {
    const { ink, soft, line } = colors();
    const { cell } = this.frame(box.view);
    this.until = performance.now() + (box.isWhole ? 10000 : 20);
    this.isWaiting = false;
    map().layers.forEach((of, place) => {
      const y = this.top + place * cell;
      if (y + cell < box.y || y > box.y + box.height) return;
      pen.text(`layer ${of.layer}`, this.left - 8, y + cell / 2, { color: soft, align: "right", size: 12 });
      of.heads.forEach((_, head) => {
        const x = this.left + head * cell;
        const image = this.image(place, head);
        if (image) pen.image(image, x + 2, y + 2, cell - 4, cell - 4);
        const isPointed = pointed?.layer === place && pointed.head === head;
        const isChosen = state.layer === place && state.heads.includes(head);
        pen.frame(x + 1.5, y + 1.5, cell - 3, cell - 3, isPointed || isChosen ? ink : line, isPointed || isChosen ? 2 : 1);
      });
    });
    const { heads } = this.frame(box.view);
    for (let head = 0; head < heads; head++) {
      pen.text(String(head), this.left + (head + 0.5) * cell, 12, { color: soft, align: "center", size: 12 });
    }
    if (this.isWaiting) redraw();
  },
  at(x, y, width) {
    const { cell } = this.frame(width);
    const place = Math.floor((y - this.top) / cell);
    const head = Math.floor((x - this.left) / cell);
    return map().layers[place]?.heads[head] ? { layer: place, head } : null;
  },
  move(key) {
    const { layer: place, head } = pointed ?? { layer: state.layer, head: state.heads[0] };
    if (!pointed) return { layer: place, head };
    const [down, right] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[key];
    return map().layers[place + down]?.heads[head + right] || map().layers[place]?.heads[head + right] === undefined && down
      ? { layer: Math.max(0, Math.min(map().layers.length - 1, place + down)), head }
      : { layer: place, head: Math.max(0, Math.min(map().layers[place].heads.length - 1, head + right)) };
  },
  place(hit, width) {
    const { cell } = this.frame(width);
    return { x: this.left + cell * hit.head, y: this.top + cell * hit.layer };
  },
};
