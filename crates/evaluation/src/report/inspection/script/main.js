// Controls and the order of things.
const chips = byId("chips");
let chipCount = -1;
const fillControls = () => {
  for (const button of document.querySelectorAll("[data-view]")) button.setAttribute("aria-pressed", button.dataset.view === state.view);
  const neuronButton = document.querySelector('[data-view="neurons"]');
  if (neuronButton) neuronButton.disabled = !hasNeurons(layer());
  byId("map").value = state.map;
  const places = map().layers.map((of) => String(of.layer));
  const select = byId("layer");
  if ([...select.options].map((option) => option.text).join() !== places.join()) {
    select.replaceChildren(...places.map((text, at) => make("option", { value: at }, text)));
  }
  select.value = state.layer;
  const count = layer().heads.length;
  byId("head-tools").hidden = count < 2 || state.view === "overview";
  if (count !== chipCount) {
    chipCount = count;
    chips.replaceChildren(...layer().heads.map((_, head) => make("button", { type: "button", "data-head": head }, make("i", {}), String(head))));
  }
  const isOne = state.heads.length === 1;
  for (const chip of chips.children) {
    const head = Number(chip.dataset.head);
    const isChosen = state.heads.includes(head);
    chip.setAttribute("aria-pressed", isChosen);
    chip.firstChild.style.background = isChosen ? (isOne ? colors().more : headColor(head)) : "transparent";
  }
  for (const key of ["words", "plain"]) byId(key).checked = state[key];
  byId("words").disabled = state.view === "neurons";
  if (byId("parts")) byId("parts").value = state.parts;
  byId("let-go").hidden = !state.from.length && !state.to.length;
  byId("says").textContent = view().says;
};

// Changes what is shown. Parts that are not yet unpacked are, first.
async function change(next) {
  const before = { ...state };
  Object.assign(state, next);
  if (state.map !== before.map) Object.assign(state, { layer: Math.min(state.layer, map().layers.length - 1), from: [], to: [] });
  state.heads = state.heads.filter((head) => head < layer().heads.length);
  if (!state.heads.length) state.heads = [0];
  if (state.view === "neurons" && !layer().heads[state.heads[0]].neurons) {
    const other = layer().heads.findIndex((head) => head.neurons);
    if (other < 0) state.view = "lines";
    else state.heads = [other];
  }
  if (state.view === "neurons" && state.heads.length > 1) state.heads = [state.heads[0]];
  writeFragment();
  await update();
}
let asked = 0;
async function update() {
  const mine = ++asked;
  const waits = [];
  if (!bytesOf(state.map, state.layer)) waits.push(load(state.map, state.layer));
  if (state.view === "neurons" && !bytesOf(state.map, state.layer, "neurons")) waits.push(load(state.map, state.layer, "neurons"));
  if (waits.length) await Promise.all(waits);
  // Another choice may have been made meanwhile.
  if (mine !== asked) return;
  const isOther = scene === null || sceneKey.split(",").slice(0, 4).join() !== [state.map, state.words && state.view !== "neurons", state.plain, state.parts].join();
  setScene();
  if (isOther || view() !== update.view) pointed = null;
  fillControls();
  if (isOther || view() !== update.view || state.zoom !== update.zoom) lay();
  [update.view, update.zoom] = [view(), state.zoom];
  fillHeads();
  tell();
  redraw();
  // Not within this frame: it asks for the layout.
  setTimeout(followHeads, 60);
}

const listenControls = () => {
  for (const button of document.querySelectorAll("[data-view]")) button.addEventListener("click", () => change({ view: button.dataset.view, zoom: 0 }));
  byId("map").replaceChildren(...data.maps.map((of, at) => make("option", { value: at }, of.title)));
  byId("map").addEventListener("change", (event) => change({ map: Number(event.target.value) }));
  byId("layer").addEventListener("change", (event) => change({ layer: Number(event.target.value) }));
  chips.addEventListener("click", (event) => {
    const chip = event.target.closest("[data-head]");
    if (!chip) return;
    const head = Number(chip.dataset.head);
    if (!byId("several").checked && !event.shiftKey && !event.ctrlKey && !event.metaKey) return change({ heads: [head] });
    const rest = state.heads.filter((other) => other !== head);
    change({ heads: rest.length === state.heads.length ? [...rest, head].sort((a, b) => a - b) : rest.length ? rest : [head] });
  });
  byId("all-heads").addEventListener("click", () => change({ heads: layer().heads.map((_, head) => head) }));
  for (const key of ["words", "plain"]) byId(key).addEventListener("change", (event) => change({ [key]: event.target.checked }));
  byId("parts")?.addEventListener("change", (event) => change({ parts: event.target.value }));
  byId("let-go").addEventListener("click", () => change({ from: [], to: [] }));
  byId("larger").addEventListener("click", () => change({ zoom: Math.min(12, state.zoom + 1) }));
  byId("smaller").addEventListener("click", () => change({ zoom: Math.max(0, state.zoom - 1) }));
  byId("save").addEventListener("click", save);
};

const begin = async () => {
  sharpest();
  readFragment();
  fillAnswer();
  if (data.maps.length) {
    listenControls();
    listen();
    listenHeads();
    await update();
  }
  listenExplanations();
  fillExplanations();
  fillAlignment();
  addEventListener("hashchange", () => {
    readFragment();
    fillExplanations();
    if (data.maps.length) update();
  });
  await new Promise((then) => setTimeout(then, 30));
  await fillLens();
  // The other layers, so that a choice need not wait.
  for (let at = 0; at < data.maps.length; at++) {
    for (let place = 0; place < data.maps[at].layers.length; place++) {
      await load(at, place);
      await new Promise((then) => setTimeout(then));
    }
  }
  if (state.view === "overview") redraw();
  document.documentElement.dataset.ready = "";
};
begin().catch((error) => {
  byId("broken").hidden = false;
  byId("broken").textContent = `This page cannot be shown by this browser: ${error.message}. It needs one of 2023 or later.`;
  throw error;
});
