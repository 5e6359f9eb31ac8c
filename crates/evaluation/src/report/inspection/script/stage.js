// The stage: a box that scrolls, and a canvas as large as the box, on which the part in view is drawn.
const views = { lines, matrix, overview, neurons };
// Where all tokens are hidden.
const nothing = {
  says: "No token is left to show.",
  size: (width) => ({ width, height: 60 }),
  draw: (pen) => pen.text("No token is left to show.", 16, 30, { color: colors().soft }),
  at: () => null,
  move: () => null,
  place: () => ({ x: 0, y: 0 }),
};
const view = () => (scene && !(scene.rows.length && scene.columns.length) ? nothing : views[state.view]);
const stage = byId("stage");
const canvas = byId("canvas");
const context = canvas?.getContext("2d");

let isWaiting = false;
function redraw() {
  if (isWaiting || !scene) return;
  isWaiting = true;
  requestAnimationFrame(() => {
    isWaiting = false;
    draw();
  });
}

let isFirst = true;
function draw() {
  const [width, height] = [stage.clientWidth, stage.clientHeight];
  // A canvas has at most 32,767 points in height.
  const ratio = Math.min(window.devicePixelRatio || 1, 30000 / height);
  const [across, down] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== across || canvas.height !== down) [canvas.width, canvas.height] = [across, down];
  const [x, y] = [stage.scrollLeft, stage.scrollTop];
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.globalAlpha = 1;
  context.clearRect(0, 0, width, height);
  context.translate(-x, -y);
  view().draw(canvasPen(context), { x, y, width, height, view: width });
  if (isFirst) {
    isFirst = false;
    performance.mark("first picture");
  }
}

// The size of the picture, and of the box if the picture is smaller.
const lay = (most = Math.max(320, innerHeight * 0.72)) => {
  const { width } = { width: stage.clientWidth };
  const size = view().size(width);
  stage.style.height = `${Math.min(size.height, most) + 2}px`;
  byId("sizer").style.width = `${size.width > width + 1 ? size.width : width}px`;
  byId("sizer").style.height = `${size.height}px`;
  [canvas.style.width, canvas.style.height] = [`${stage.clientWidth}px`, `${stage.clientHeight}px`];
};

// What the pointer or the cursor is at, in words.
const readout = byId("readout");
const say = (...parts) => readout.replaceChildren(...parts);
const top5 = (count, value, units) => {
  const order = Array.from({ length: count }, (_, at) => at).sort((a, b) => value(b) - value(a)).slice(0, 5);
  return order.filter((at) => value(at) > 0).flatMap((at, place) => [place ? ", " : "", named(units[at]), ` ${share(value(at))}`]);
};
const together = (rows, units) => rows.slice(0, 4).flatMap((row, at) => [at ? " + " : "", named(units[row])]).concat(rows.length > 4 ? [` + ${rows.length - 4} more`] : []);
const tell = () => {
  const { row, column, layer: place, head } = pointed ?? {};
  delete readout.dataset.share;
  readout.dataset.row = row ?? "";
  readout.dataset.column = column ?? "";
  if (place !== undefined) {
    const of = map().layers[place].heads[head];
    return say(`layer ${map().layers[place].layer}, head ${head}: entropy ${number(of.entropy)} bits${of.distance === null ? "" : `, distance ${number(of.distance, 1)} tokens`}, special tokens ${number(of.special)}`);
  }
  const { rows, columns, heads } = scene;
  const from = chosen(state.from, rows);
  const to = chosen(state.to, columns);
  if (row === undefined && column === undefined && !from.length && !to.length) {
    return say(make("span", { class: "soft" }, `layer ${layer().layer}, ${heads.length > 1 ? `heads ${state.heads.join(", ")}` : `head ${state.heads[0]}`}`));
  }
  const { mean } = scene;
  if (row !== undefined && column !== undefined) {
    const value = mean[column * rows.length + row];
    readout.dataset.share = value;
    const each = heads.length > 1 ? ` · by head ${heads.slice(0, 12).map(({ head, matrix }) => `${head}: ${share(matrix[column * rows.length + row])}`).join(", ")}` : "";
    return say(named(rows[row]), " → ", named(columns[column]), make("strong", {}, ` ${share(value)}`), heads.length > 1 ? ` (mean of ${heads.length} heads)` : "", each);
  }
  if (column !== undefined && from.length) {
    const value = sumOf(mean, from, [column]);
    if (from.length === 1) readout.dataset.row = from[0];
    readout.dataset.share = value;
    return say(...together(from, rows), " → ", named(columns[column]), make("strong", {}, ` ${share(value)}`), from.length > 1 ? " (sum)" : "");
  }
  if (row !== undefined && to.length && !from.length) {
    const value = sumOf(mean, [row], to);
    if (to.length === 1) readout.dataset.column = to[0];
    readout.dataset.share = value;
    return say(named(rows[row]), " → ", ...together(to, columns), make("strong", {}, ` ${share(value)}`), to.length > 1 ? " (sum)" : "");
  }
  if (row !== undefined) return say(named(rows[row]), " attends to: ", ...top5(columns.length, (at) => mean[at * rows.length + row], columns));
  if (column !== undefined) return say(named(columns[column]), " is attended to by: ", ...top5(rows.length, (at) => mean[column * rows.length + at], rows));
  if (from.length) return say(...together(from, rows), from.length > 1 ? " attend to, in sum: " : " attends to: ", ...top5(columns.length, (at) => sumOf(mean, from, [at]), columns));
  return say(...together(to, columns), " get from: ", ...top5(rows.length, (at) => sumOf(mean, [at], to), rows));
};

const isSame = (a, b) => a?.row === b?.row && a?.column === b?.column && a?.layer === b?.layer && a?.head === b?.head;
const point = (hit) => {
  if (isSame(hit, pointed)) return;
  pointed = hit;
  tell();
  redraw();
};
// A click or Enter: keeps tokens, or looks at a head.
const keep = (hit) => {
  if (!hit) return;
  if (hit.layer !== undefined) return change({ layer: hit.layer, heads: [hit.head], view: "lines" });
  const toggled = (tokens, unit) => {
    const rest = tokens.filter((token) => token < unit.from || token >= unit.to);
    return rest.length < tokens.length ? rest : [...tokens, unit.from];
  };
  const from = hit.row === undefined ? undefined : scene.rows[hit.row];
  const to = hit.column === undefined ? undefined : scene.columns[hit.column];
  if (state.view === "neurons") return hit.column === undefined && change({ from: [from.from] });
  // A share of the matrix has two tokens: both are kept, or let go of if both were.
  const isKept = (tokens, unit) => tokens.some((token) => token >= unit.from && token < unit.to);
  const isOff = from && to && isKept(state.from, from) !== isKept(state.to, to);
  const next = {};
  if (from && !(isOff && isKept(state.from, from))) next.from = toggled(state.from, from);
  if (to && !(isOff && isKept(state.to, to))) next.to = toggled(state.to, to);
  change(next);
};

const placeOf = (event) => {
  const box = stage.getBoundingClientRect();
  const scrolled = { x: stage.scrollLeft, y: stage.scrollTop };
  return view().at(event.clientX - box.left - stage.clientLeft + scrolled.x, event.clientY - box.top - stage.clientTop + scrolled.y, stage.clientWidth, scrolled);
};
const listen = () => {
  canvas.addEventListener("pointermove", (event) => {
    if (event.pointerType !== "touch") point(placeOf(event));
  });
  canvas.addEventListener("pointerleave", (event) => {
    if (event.pointerType !== "touch") point(null);
  });
  canvas.addEventListener("click", (event) => {
    const hit = placeOf(event);
    // A tap also reads what it is at.
    point(hit);
    keep(hit);
  });
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key.startsWith("Arrow")) {
      point(view().move(event.key));
      if (!pointed) return;
      // What is pointed at stays in view.
      const place = view().place(pointed, stage.clientWidth);
      const [x, y] = [place.x - stage.scrollLeft, place.y - stage.scrollTop];
      if (y < 90) stage.scrollTop += y - 90;
      if (y > stage.clientHeight - 60) stage.scrollTop += y - stage.clientHeight + 60;
      if (x < 110) stage.scrollLeft += x - 110;
      if (x > stage.clientWidth - 40) stage.scrollLeft += x - stage.clientWidth + 40;
    } else if (event.key === "Enter" || event.key === " ") keep(pointed);
    else if (event.key === "Escape") change({ from: [], to: [] });
    else return;
    event.preventDefault();
  });
  stage.addEventListener("scroll", redraw, { passive: true });
  let last = 0;
  new ResizeObserver(() => {
    if (stage.clientWidth === last) return;
    last = stage.clientWidth;
    if (!scene) return;
    lay();
    redraw();
  }).observe(stage);
  for (const media of [darkness, print]) media.addEventListener("change", () => update());
  // Paper shows all of a picture, as far as a canvas can.
  addEventListener("beforeprint", () => {
    isPrinting = true;
    if (!scene) return;
    lay(15000);
    draw();
  });
  addEventListener("afterprint", () => {
    isPrinting = false;
    update();
  });
};

const save = () => {
  const pen = svgPen();
  const width = stage.clientWidth;
  const size = view().size(width);
  view().draw(pen, { x: 0, y: 0, width: size.width, height: size.height, view: width, isWhole: true });
  const title = `${document.title}: ${state.view}, layer ${layer().layer}, head ${state.heads.join(", ")}`;
  const address = URL.createObjectURL(new Blob([pen.whole(size.width, size.height, title)], { type: "image/svg+xml" }));
  const link = make("a", { href: address, download: `attention-${map().name}-${layer().layer}-${state.heads.join(".")}-${state.view}.svg` });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
};
