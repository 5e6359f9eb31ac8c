// Head view: what attends on the left, what is attended to on the right, a line for each share.
const BINS = 16;
const lines = {
  says: "Each line is a share of a token's attention: the stronger the line, the larger the share. It shows where a head reads from; not what it reads there, nor whether the answer depends on it.",
  row: () => (Math.max(scene.rows.length, scene.columns.length) > 60 ? 19 : 23) + 2 * state.zoom,
  top: 30,
  frame(width) {
    const inner = Math.min(width, 760);
    const label = Math.min(190, inner * 0.28);
    const bars = Math.min(scene.heads.length, 16) * (scene.heads.length > 1 ? 7 : 0);
    return { left: label, right: inner - label - bars - 44, bars, label, inner };
  },
  size(width) {
    return { width, height: this.top + this.row() * Math.max(scene.rows.length, scene.columns.length) + 8 };
  },
  y(at) { return this.top + this.row() * (at + 0.5); },
  // The rows whose lines are drawn; none: all of them.
  active() {
    const rows = chosen(state.from, scene.rows);
    const columns = chosen(state.to, scene.columns);
    if (pointed && pointed.row !== undefined && !rows.length) return { rows: [pointed.row], columns: null };
    if (pointed && pointed.column !== undefined && !rows.length && !columns.length) return { rows: null, columns: [pointed.column] };
    return { rows: rows.length ? rows : null, columns: !rows.length && columns.length ? columns : null };
  },
  draw(pen, box) {
    const { paper, ink, soft, line, more } = colors();
    const { rows, columns, heads } = scene;
    const { left, right, bars, label } = this.frame(box.width);
    const n = rows.length;
    const height = this.row();
    const first = Math.max(0, Math.floor((box.y - this.top) / height) - 1);
    const last = Math.ceil((box.y + box.height - this.top) / height) + 1;
    const active = this.active();
    const isAll = !active.rows && !active.columns;
    // Lines, in steps of strength so that each colour is set once.
    const rowsDrawn = active.rows ?? rows.map((_, r) => r);
    const columnsDrawn = active.columns ?? columns.map((_, c) => c);
    let strongest = 0;
    for (const { largest } of isAll ? heads : []) strongest = Math.max(strongest, largest);
    if (!isAll) {
      for (const { matrix } of heads) {
        for (const c of columnsDrawn) for (const r of rowsDrawn) if (matrix[c * n + r] > strongest) strongest = matrix[c * n + r];
      }
    }
    // Of very many lines the faint ones are left out, and those of which neither end is in view.
    const many = rowsDrawn.length * columnsDrawn.length * heads.length;
    const least = Math.max(1e-9, strongest * (many > 60000 ? 0.12 : many > 3000 ? 0.05 : 0.015));
    const rowsNear = rowsDrawn.filter((r) => r >= first && r < last);
    heads.forEach(({ head, matrix }, place) => {
      // Lines of several heads lie beside each other.
      const aside = ((place + 0.5) / heads.length - 0.5) * Math.min(height - 8, 2.2 * (heads.length - 1));
      const bins = Array.from({ length: BINS }, () => []);
      for (const c of columnsDrawn) {
        for (const r of c >= first && c < last ? rowsDrawn : rowsNear) {
          const value = matrix[c * n + r];
          if (value < least) continue;
          bins[Math.min(BINS - 1, Math.floor((value / strongest) * BINS))].push(left + 6, this.y(r) + aside, right - 6, this.y(c) + aside);
        }
      }
      bins.forEach((points, at) => {
        const strength = (at + 0.7) / BINS;
        if (points.length) pen.links(points, heads.length > 1 ? headColor(head) : more, 0.08 + 0.92 * strength ** 1.3, 0.6 + 2.8 * strength);
      });
    });
    // Labels, over the lines.
    const from = new Set(chosen(state.from, rows));
    const to = new Set(chosen(state.to, columns));
    const taken = active.rows ?? [];
    const given = active.columns ?? [];
    let most = 0;
    if (active.rows) for (let c = 0; c < columns.length; c++) most = Math.max(most, sumOf(scene.mean, taken, [c]));
    if (active.columns) for (let r = 0; r < n; r++) most = Math.max(most, sumOf(scene.mean, [r], given));
    for (let at = first; at < last; at++) {
      const y = this.y(at);
      const write = (unit, x, align, isChosen, isPointed, value) => {
        const color = unit.special ? soft : ink;
        const start = align === "right" ? x - label + 8 : x;
        if (value > 0) pen.rect(start, y - height / 2 + 1, label - 8, height - 2, more, 0.42 * (value / most));
        if (isChosen || isPointed) pen.frame(start + 0.5, y - height / 2 + 1.5, label - 9, height - 3, isChosen ? ink : soft, isChosen ? 1.6 : 1);
        pen.text(fitted(unit.label, (label - 20) * (isChosen ? 0.9 : 1)), align === "right" ? x - 6 : x + 6, y, { color, align, weight: isChosen ? 600 : 400 });
      };
      if (at >= 0 && at < n) {
        const value = active.columns ? sumOf(scene.mean, [at], given) : 0;
        write(rows[at], left, "right", from.has(at), pointed?.row === at || taken.includes(at), value);
      }
      if (at >= 0 && at < columns.length) {
        const value = active.rows ? sumOf(scene.mean, taken, [at]) : 0;
        const x = right + bars;
        write(columns[at], x, "left", to.has(at), pointed?.column === at || given.includes(at), value);
        if (active.rows && heads.length > 1) {
          heads.slice(0, 16).forEach(({ head, matrix }, place) => {
            const of = sumOf(matrix, taken, [at]);
            if (of > 0) pen.rect(right + 7 * place, y - height / 2 + 2, 6, height - 4, headColor(head), Math.min(1, of / strongest));
          });
        }
        if (value >= 0.01) pen.text(value.toFixed(2), x + label + 34, y, { color: soft, align: "right", size: 12 });
      }
    }
    // The titles stay in view.
    pen.rect(0, box.y, box.width, this.top - 6, paper);
    pen.text("attends", left - 6, box.y + 12, { color: soft, align: "right", size: 12 });
    pen.text(isAll ? "is attended to" : "is attended to: share", right + bars + 6, box.y + 12, { color: soft, size: 12 });
    pen.rect(0, box.y + this.top - 6, Math.min(box.width, right + bars + label + 40), 1, line);
  },
  at(x, y, width) {
    const { left, right, label, bars } = this.frame(width);
    const at = Math.floor((y - this.top) / this.row());
    if (at < 0) return null;
    if (x <= left + 6 && at < scene.rows.length) return { row: at };
    if (x >= right - 6 && x < right + bars + label + 44 && at < scene.columns.length) return { column: at };
    return null;
  },
  move(key) {
    const { row, column } = pointed ?? {};
    const isLeft = column === undefined;
    const count = isLeft ? scene.rows.length : scene.columns.length;
    const at = (isLeft ? row : column) ?? -1;
    if (key === "ArrowLeft" || key === "ArrowRight") {
      const place = Math.max(at, 0);
      return key === "ArrowLeft" ? { row: Math.min(place, scene.rows.length - 1) } : { column: Math.min(place, scene.columns.length - 1) };
    }
    const next = Math.max(0, Math.min(count - 1, at + (key === "ArrowDown" ? 1 : -1)));
    return isLeft ? { row: next } : { column: next };
  },
  place: (hit) => ({ x: 0, y: lines.y(hit.row ?? hit.column) }),
};
