// Neuron view: what one token's scores are made of, feature by feature.
const neurons = {
  says: "A score is the product of the query of one token (marked) and the key of another, summed over the features of the head and divided by its scale, plus what positions add; the softmax of the scores is the shares. Bars up are positive, down negative. It shows how a share comes about; a feature has no meaning of its own.",
  row: () => 26 + 2 * state.zoom,
  top: 78,
  frame(width) {
    const inner = Math.max(540, Math.min(width, 1000));
    const label = inner * 0.14;
    const digits = 52;
    const has = this.head().neurons.positions ? 3 : 2;
    const strip = (inner - 2 * label - digits * has - 24) / 2;
    return { label, digits, strip, key: label + 8, keys: 2 * label + 8, product: 2 * label + strip + 16, score: 2 * label + 2 * strip + 20, inner };
  },
  head: () => layer().heads[state.heads[0]],
  size(width) { return { width: Math.max(width, this.frame(width).inner), height: this.top + this.row() * Math.max(scene.rows.length, scene.columns.length) + 6 }; },
  query() {
    const rows = chosen(state.from, scene.rows);
    return rows.length ? rows[0] : 0;
  },
  // Where the parts of the head are among the bytes of its layer.
  parts() {
    const queries = data[map().rows].texts.length;
    const keys = data[map().columns].texts.length;
    let at = 0;
    for (let head = 0; head < state.heads[0]; head++) {
      const of = layer().heads[head].neurons;
      if (of) at += (queries + keys) * of.width + (of.positions ? queries * keys : 0);
    }
    const { neurons: of } = this.head();
    const bytes = bytesOf(state.map, state.layer, "neurons");
    const numbers = (from, count, step) => Float32Array.from(new Int8Array(bytes.buffer, from, count), (value) => value * step);
    const position = at + (queries + keys) * of.width;
    return {
      query: (token) => numbers(at + token * of.width, of.width, of.queries),
      key: (token) => numbers(at + (queries + token) * of.width, of.width, of.keys),
      added: (query, key) => (of.positions ? of.positions[0] + bytes[position + query * keys + key] * of.positions[1] : 0),
      width: of.width, scale: of.scale,
    };
  },
  score(parts, query, key) {
    const [q, k] = [parts.query(query), parts.key(key)];
    const product = q.map((value, at) => value * k[at]);
    return { product, score: product.reduce((sum, value) => sum + value, 0) / parts.scale };
  },
  bars(pen, values, x, y, width, height, largest) {
    const { more, less, line } = colors();
    const each = width / values.length;
    pen.rect(x, y + height / 2 - 0.25, width, 0.5, line);
    values.forEach((value, at) => {
      const tall = Math.min(1, Math.abs(value) / largest) * (height / 2 - 1);
      pen.rect(x + at * each, value > 0 ? y + height / 2 - tall : y + height / 2, Math.max(0.8, each - (each > 3 ? 1 : 0)), tall, value > 0 ? more : less);
    });
  },
  draw(pen, box) {
    const { paper, ink, soft, line, more } = colors();
    const { rows, columns, heads } = scene;
    const place = this.frame(box.view);
    const height = this.row();
    const first = Math.max(0, Math.floor((box.y - this.top) / height) - 1);
    const last = Math.ceil((box.y + box.height - this.top) / height) + 1;
    const query = this.query();
    const parts = this.parts();
    const token = rows[query].from;
    const q = parts.query(token);
    const count = Math.min(last, columns.length);
    const all = [];
    for (let at = first; at < count; at++) all[at] = { ...this.score(parts, token, columns[at].from), key: parts.key(columns[at].from) };
    const most = (lists) => lists.reduce((far, list) => list.reduce((most, value) => Math.max(most, Math.abs(value)), far), 1e-9);
    const [ofKeys, ofProducts] = [most(all.filter(Boolean).map(({ key }) => key)), most(all.filter(Boolean).map(({ product }) => product))];
    for (let at = first; at < last; at++) {
      const y = this.top + height * at;
      if (at < rows.length) {
        if (at === query) pen.frame(1, y + 2, place.label - 2, height - 4, ink, 1.6);
        else if (pointed?.row === at) pen.frame(1, y + 2, place.label - 2, height - 4, soft);
        pen.text(fitted(rows[at].label, place.label - 10), place.label - 6, y + height / 2, { color: rows[at].special ? soft : ink, align: "right", weight: at === query ? 600 : 400 });
      }
      if (at >= columns.length) continue;
      const { product, score, key } = all[at];
      const value = heads[0].matrix[at * rows.length + query];
      if (pointed?.column === at) pen.rect(place.key, y, place.inner - place.key, height, line, 0.5);
      pen.rect(place.key, y + 2, place.label - 2, height - 4, more, 0.45 * Math.min(1, value));
      pen.text(fitted(columns[at].label, place.label - 10), place.key + 6, y + height / 2, { color: columns[at].special ? soft : ink });
      this.bars(pen, key, place.keys, y + 2, place.strip, height - 4, ofKeys);
      this.bars(pen, product, place.product, y + 2, place.strip, height - 4, ofProducts);
      const shown = [score.toFixed(2), ...(this.head().neurons.positions ? [parts.added(token, columns[at].from).toFixed(2)] : []), value.toFixed(3)];
      shown.forEach((text, column) => pen.text(text, place.score + place.digits * (column + 1) - 6, y + height / 2, { color: ink, align: "right", size: 12 }));
    }
    pen.rect(0, box.y, Math.max(box.width, place.inner), this.top - 4, paper);
    const title = (text, x, align = "left") => pen.text(text, x, box.y + 10, { color: soft, align, size: 12 });
    title("token", place.label - 6, "right");
    title("to", place.key + 6);
    const isWide = place.strip > 150;
    title(isWide ? "query above, keys below" : "keys", place.keys);
    title(isWide ? "query × key" : "× query", place.product);
    const names = ["score", ...(this.head().neurons.positions ? ["posit."] : []), "share"];
    names.forEach((text, column) => title(text, place.score + place.digits * (column + 1) - 6, "right"));
    pen.text(fitted(rows[query].label, place.label - 10), place.key + 6, box.y + 46, { color: ink, weight: 600 });
    this.bars(pen, q, place.keys, box.y + 24, place.strip, 44, most([q]));
    pen.rect(0, box.y + this.top - 4, place.inner, 1, line);
  },
  at(x, y, width) {
    const { label } = this.frame(width);
    const at = Math.floor((y - this.top) / this.row());
    if (at < 0) return null;
    if (x < label) return at < scene.rows.length ? { row: at } : null;
    return at < scene.columns.length ? { row: this.query(), column: at } : null;
  },
  move(key) {
    const { row = this.query(), column } = pointed ?? {};
    if (key === "ArrowLeft") return { row };
    if (key === "ArrowRight") return { row: this.query(), column: column ?? 0 };
    const by = key === "ArrowDown" ? 1 : -1;
    if (column === undefined) return { row: Math.max(0, Math.min(scene.rows.length - 1, row + by)) };
    return { row: this.query(), column: Math.max(0, Math.min(scene.columns.length - 1, column + by)) };
  },
  place: (hit) => ({ x: 0, y: neurons.top + neurons.row() * (hit.column ?? hit.row) }),
};
