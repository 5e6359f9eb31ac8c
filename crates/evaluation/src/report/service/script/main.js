// Which panel is open. It is in the address's fragment, with what it asks.
const PANELS = [masks, classes, entities, answers, sentences, reranking, searching, translation, writing, choosing, tokens];
let built = [];
let shown = null;

const writeFragment = () => {
  const kept = new URLSearchParams({ panel: shown.panel.id, model: shown.asked().name });
  history.replaceState(null, "", `#${kept}`);
};
const open = (one) => {
  shown = one;
  byId("open").replaceChildren(one.section);
  for (const button of byId("panels").children) button.setAttribute("aria-pressed", button.dataset.panel === one.panel.id);
  one.begin();
};
const readFragment = () => {
  const asked = new URLSearchParams(location.hash.slice(1));
  const one = built.find(({ panel }) => panel.id === asked.get("panel")) ?? shown ?? built[0];
  if (!one) return;
  one.choose(asked.get("model"));
  open(one);
};

const fill = (info) => {
  built.forEach((one) => one.end());
  shown = null;
  const having = (panel) => panel.among?.(info) ?? info.models.filter(({ routes }) => routes.includes(panel.route));
  built = PANELS.map((panel) => [panel, having(panel)]).filter(([, things]) => things.length).map(([panel, things]) => build(panel, things, writeFragment));
  byId("panels").replaceChildren(...built.map((one) => {
    const button = make("button", { type: "button", "data-panel": one.panel.id }, one.panel.name);
    button.addEventListener("click", () => {
      open(one);
      writeFragment();
    });
    return button;
  }));
  const { models } = info;
  byId("about").replaceChildren(`cloze ${info.version} · `, ...models.flatMap(({ name, task }, at) => [at ? ", " : "", make("b", {}, name), ` (${task})`]));
  readFragment();
};

const load = async () => {
  byId("broken").hidden = true;
  try {
    fill(await (await call("/info")).json());
    byId("key").hidden = true;
  } catch (error) {
    if (!(error instanceof Refused)) console.error(error);
    byId("broken").textContent = error.message;
    byId("broken").hidden = false;
  }
  document.documentElement.dataset.ready = "";
};
byId("key").addEventListener("submit", (event) => {
  event.preventDefault();
  key = byId("key").elements.key.value.trim();
  load();
});
addEventListener("hashchange", readFragment);
load();
