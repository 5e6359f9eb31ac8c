// The shares of what is chosen, between units. A matrix is a Float32Array by column: `m[column * rows + row]`.
const unpacked = new Map();
const bytesOf = (at, place, kind = "shares") => unpacked.get(`${kind}-${at}-${place}`);
const load = async (at, place, kind = "shares") => {
  const id = `${kind}-${at}-${place}`;
  if (!unpacked.has(id)) unpacked.set(id, await unpack(id));
};

// Shares between units: summed over the pieces of what is attended to, a mean over the pieces of what attends.
const between = (at, place, head, rows, columns) => {
  const { rows: rowSide, columns: columnSide, layers } = data.maps[at];
  const queries = data[rowSide].texts.length;
  const keys = data[columnSide].texts.length;
  const bytes = bytesOf(at, place);
  const { step } = layers[place].heads[head];
  const matrix = new Float32Array(rows.length * columns.length);
  const base = head * queries * keys;
  const isWhole = rows.length === queries;
  for (let c = 0; c < columns.length; c++) {
    const into = c * rows.length;
    for (let key = columns[c].from; key < columns[c].to; key++) {
      const from = base + key * queries;
      if (isWhole) for (let r = 0; r < rows.length; r++) matrix[into + r] += bytes[from + r] * step;
      else {
        for (let r = 0; r < rows.length; r++) {
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
  const heads = state.heads.map((head) => known.get(head) ?? { head, matrix: between(state.map, state.layer, head, rows, columns) });
  let mean = heads[0].matrix;
  if (heads.length > 1) {
    mean = new Float32Array(mean.length);
    for (const { matrix } of heads) for (let i = 0; i < mean.length; i++) mean[i] += matrix[i];
    for (let i = 0; i < mean.length; i++) mean[i] /= heads.length;
  }
  let largest = 0;
  for (let i = 0; i < mean.length; i++) if (mean[i] > largest) largest = mean[i];
  scene = { units, layer: state.layer, rows, columns, heads, mean, largest, image: null };
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
