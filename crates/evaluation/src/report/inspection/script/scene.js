// The shares of what is chosen, between units. A matrix is a Float32Array by column: `m[column * rows + row]`.
const unpacked = new Map();
const bytesOf = (at, place, kind = "shares") => unpacked.get(`${kind}-${at}-${place}`);
const load = async (at, place, kind = "shares") => {
  const id = `${kind}-${at}-${place}`;
  if (!unpacked.has(id)) unpacked.set(id, await unpack(id));
};

// Adds a head's shares between units, times a weight, to a matrix: summed over the pieces of what is attended to, a mean over the
// pieces of what attends.
const addBetween = (matrix, at, place, head, rows, columns, weight = 1) => {
  const { rows: rowSide, columns: columnSide, layers } = data.maps[at];
  const queries = data[rowSide].texts.length;
  const keys = data[columnSide].texts.length;
  const bytes = bytesOf(at, place);
  const step = layers[place].heads[head].step * weight;
  const base = head * queries * keys;
  const n = rows.length;
  const isWhole = n === queries;
  for (let c = 0; c < columns.length; c++) {
    const into = c * n;
    for (let key = columns[c].from; key < columns[c].to; key++) {
      const from = base + key * queries;
      if (isWhole) for (let r = 0; r < n; r++) matrix[into + r] += bytes[from + r] * step;
      else {
        for (let r = 0; r < n; r++) {
          const unit = rows[r];
          let sum = 0;
          for (let query = unit.from; query < unit.to; query++) sum += bytes[from + query];
          matrix[into + r] += (sum * step) / (unit.to - unit.from);
        }
      }
    }
  }
  return matrix;
};
// Matrices that are no longer shown are used again: new ones of megabytes are slow.
let spare = [];
const empty = (length) => {
  if (spare.length && spare[0].length !== length) spare = [];
  return spare.pop()?.fill(0) ?? new Float32Array(length);
};
const between = (at, place, head, rows, columns) => addBetween(empty(rows.length * columns.length), at, place, head, rows, columns);
const largestOf = (matrix) => {
  let largest = 0;
  for (let i = 0; i < matrix.length; i++) if (matrix[i] > largest) largest = matrix[i];
  return largest;
};

// A head of the scene. Its matrix is made when a picture needs it.
class SceneHead {
  constructor(head, rows, columns) {
    Object.assign(this, { head, map: state.map, layer: state.layer, rows, columns });
  }
  get matrix() {
    return (this.made ??= between(this.map, this.layer, this.head, this.rows, this.columns));
  }
  get largest() {
    return (this.most ??= largestOf(this.matrix));
  }
}

// What is chosen: its units and heads, and the mean over the heads.
class Scene {
  constructor(parts) {
    Object.assign(this, parts);
  }
  get mean() {
    if (this.made) return this.made;
    const { heads, rows, columns } = this;
    if (heads.length === 1) return (this.made = heads[0].matrix);
    this.made = empty(rows.length * columns.length);
    for (const { head } of heads) addBetween(this.made, state.map, this.layer, head, rows, columns, 1 / heads.length);
    return this.made;
  }
  get largest() {
    return (this.most ??= largestOf(this.mean));
  }
}
let scene = null;
let sceneKey = "";
const unitsNow = () => {
  const [first, second] = state.parts ? state.parts.split("-").map(Number) : [null, null];
  // Neurons are those of tokens.
  const words = state.words && state.view !== "neurons";
  const { rows, columns } = map();
  return [
    unitsOf(data[rows], { words, plain: state.plain, part: rows === "source" ? first : null }),
    unitsOf(data[columns], { words, plain: state.plain, part: columns === "source" ? second : null }),
  ];
};
const setScene = () => {
  const units = [state.map, state.words && state.view !== "neurons", state.plain, state.parts].join();
  const key = [units, state.layer, state.heads.join(".")].join();
  if (key === sceneKey) return;
  sceneKey = key;
  const [rows, columns] = scene && scene.units === units ? [scene.rows, scene.columns] : unitsNow();
  const known = new Map((scene && scene.units === units && scene.layer === state.layer ? scene.heads : []).map((of) => [of.head, of]));
  const heads = state.heads.map((head) => known.get(head) ?? new SceneHead(head, rows, columns));
  for (const old of scene ? [...scene.heads, ...(scene.heads.length > 1 ? [scene] : [])] : []) {
    if (old.made && !heads.includes(old) && spare.length < 20) spare.push(old.made);
  }
  scene = new Scene({ units, layer: state.layer, rows, columns, heads, image: null });
};

// Units of chosen tokens.
const chosen = (tokens, units) => {
  const found = [];
  units.forEach((unit, at) => {
    if (tokens.some((token) => token >= unit.from && token < unit.to)) found.push(at);
  });
  return found;
};
const sumOf = (matrix, rows, columns) => {
  let sum = 0;
  for (const c of columns) for (const r of rows) sum += matrix[c * scene.rows.length + r];
  return sum;
};

// What the pointer or the cursor is at: { row, column }, either may be missing; { layer, head } of the overview.
let pointed = null;
