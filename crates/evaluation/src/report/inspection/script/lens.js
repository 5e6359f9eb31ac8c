// What each layer would answer: a row for each position, a column for each layer.
const fillLens = async () => {
  if (!byId("lens-table")) return;
  const lens = JSON.parse(new TextDecoder().decode(await unpack("lens-data")));
  const tokens = data[lens.side];
  const title = (number) => (number === 0 ? "embeddings" : `after layer ${number - 1}`);
  const header = make("tr", {}, make("th", {}, "token"), ...lens.layers.map((number) => make("th", {}, title(number))));
  const body = make("tbody", {});
  byId("lens-table").replaceChildren(make("table", { class: "lens" }, make("thead", {}, header), body));
  const positions = lens.cells[0]?.length ?? 0;
  const cell = (place, at) => {
    const [rank, piece, probability] = lens.cells[place][at];
    const text = piece === undefined ? "" : visible(lens.pieces[piece]);
    const td = make("td", { tabindex: -1, "data-place": place, "data-at": at, class: rank === 1 ? "agrees" : undefined },
      make("bdi", {}, brief(text, 14)), make("small", {}, probability === undefined ? "" : `${(probability / 100).toFixed(0)} %`, make("span", {}, rank === 1 ? "  1st" : `  #${rank}`)));
    td.style.setProperty("--strength", ((probability ?? 0) / 10000).toFixed(3));
    return td;
  };
  for (let from = 0; from < positions; from += 32) {
    for (let at = from; at < Math.min(from + 32, positions); at++) {
      const text = tokens?.texts[at] ?? "";
      body.append(make("tr", {}, make("th", {}, make("small", {}, `${at} `), make("bdi", {}, brief(visible(text), 16))), ...lens.layers.map((_, place) => cell(place, at))));
    }
    await new Promise((then) => setTimeout(then));
  }
  const tell = (event) => {
    const td = event.target.closest("td[data-at]");
    if (!td) return;
    const [rank, ...best] = lens.cells[td.dataset.place][td.dataset.at];
    const parts = [];
    for (let i = 0; i < best.length; i += 2) parts.push(i ? ", " : "", make("bdi", { class: "token" }, brief(visible(lens.pieces[best[i]]), 40)), ` ${(best[i + 1] / 10000).toFixed(4)}`);
    byId("lens-readout").replaceChildren(make("bdi", { class: "token" }, brief(visible(tokens?.texts[td.dataset.at] ?? ""), 40)), `, ${title(lens.layers[td.dataset.place])}: `, ...parts, ` · the model's answer has rank ${rank}`);
  };
  const table = byId("lens-table");
  table.addEventListener("pointerover", tell);
  table.addEventListener("focusin", tell);
  table.addEventListener("click", (event) => event.target.closest("td[data-at]")?.focus());
  table.addEventListener("keydown", (event) => {
    if (!event.key.startsWith("Arrow")) return;
    const td = document.activeElement.closest("td[data-at]");
    const [place, at] = td ? [Number(td.dataset.place), Number(td.dataset.at)] : [0, -1];
    const [down, right] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    const next = table.querySelector(`td[data-place="${place + (td ? right : 0)}"][data-at="${at + (td ? down : 1)}"]`);
    if (!next) return;
    event.preventDefault();
    next.focus();
  });
  byId("lens-readout").replaceChildren(make("span", { class: "soft" }, "Point at a cell to read its best pieces."));
};
