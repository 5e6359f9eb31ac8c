// What is shown, which is also in the address's fragment. Tokens are kept by their numbers, so that they outlive merging.
const VIEWS = ["lines", "matrix", "overview", "neurons"];
const state = {
  view: "lines", map: 0, layer: 0, heads: [0], words: false, plain: false, parts: "", from: [], to: [], zoom: 0, by: "tokens",
};
const map = () => data.maps[state.map];
const layer = () => map().layers[state.layer];
const hasNeurons = (of) => of.heads.some((head) => head.neurons);

// The first picture: what is written to what is read, if anything is; the head that is sharpest without looking at special tokens.
const sharpest = () => {
  const across = data.maps.findIndex(({ name }) => name === "cross" || name === "align");
  state.map = Math.max(across, 0);
  let best = -Infinity;
  map()?.layers.forEach((of, place) => of.heads.forEach((head, number) => {
    const merit = -(head.entropy ?? 0) - 4 * (head.special ?? 0);
    if (merit > best) {
      best = merit;
      Object.assign(state, { layer: place, heads: [number] });
    }
  }));
};

const numbers = (text) => (text ? text.split(".").map(Number).filter((value) => Number.isInteger(value) && value >= 0) : []);
const readFragment = () => {
  const asked = new URLSearchParams(location.hash.slice(1));
  const at = data.maps.findIndex(({ name }) => name === asked.get("of"));
  if (at >= 0 && at !== state.map) Object.assign(state, { map: at, layer: 0, heads: [0] });
  if (data.maps.length) {
    const place = map().layers.findIndex((of) => String(of.layer) === asked.get("layer"));
    if (place >= 0) state.layer = place;
    const heads = numbers(asked.get("heads")).filter((head) => head < layer().heads.length);
    if (heads.length) state.heads = heads;
    else state.heads = state.heads.filter((head) => head < layer().heads.length);
    if (!state.heads.length) state.heads = [0];
    if (VIEWS.includes(asked.get("view"))) state.view = asked.get("view");
    if (state.view === "neurons" && !hasNeurons(layer())) state.view = "lines";
    const within = (key, side) => numbers(asked.get(key)).filter((token) => token < data[side].texts.length);
    state.from = within("from", map().rows);
    state.to = within("to", map().columns);
  }
  state.words = asked.has("words");
  state.plain = asked.has("plain");
  state.parts = /^[01]-[01]$/.test(asked.get("parts")) ? asked.get("parts") : "";
  state.zoom = Math.max(0, Math.min(Number(asked.get("zoom")) || 0, 12));
  state.by = asked.get("by") === "words" ? "words" : "tokens";
};
const writeFragment = () => {
  const kept = new URLSearchParams();
  if (data.maps.length) {
    kept.set("view", state.view);
    kept.set("of", map().name);
    kept.set("layer", layer().layer);
    kept.set("heads", state.heads.join("."));
    if (state.from.length) kept.set("from", state.from.join("."));
    if (state.to.length) kept.set("to", state.to.join("."));
  }
  for (const key of ["words", "plain"]) if (state[key]) kept.set(key, "");
  if (state.parts) kept.set("parts", state.parts);
  if (state.zoom) kept.set("zoom", state.zoom);
  if (state.by === "words") kept.set("by", "words");
  const text = `#${kept}`.replace(/=(?=&|$)/g, "");
  if (text === location.hash) return;
  // A page in a file may not be allowed to change its history.
  try { history.replaceState(null, "", text); } catch { location.replace(text); }
};
