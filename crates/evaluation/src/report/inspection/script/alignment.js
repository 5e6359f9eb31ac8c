// Words that belong together.
const wordsOf = (side) => {
  const words = new Map();
  for (const unit of unitsOf(data[side], { words: true, plain: true, part: null })) {
    if (unit.word === null) continue;
    const known = words.get(unit.word);
    if (known) known.text += unit.text;
    else words.set(unit.word, { ...unit });
  }
  return words;
};
const fillAlignment = () => {
  const { alignment } = data;
  if (!alignment || !data.target) return;
  const [source, target] = [wordsOf("source"), wordsOf("target")];
  const most = Math.max(...alignment.entropies, 1e-9);
  const rows = [...target].map(([word, unit]) => {
    const theirs = alignment.pairs.filter(([, to]) => to === word).map(([from]) => source.get(from)).filter(Boolean);
    const entropy = alignment.entropies[word];
    const bar = make("i", {});
    bar.style.width = `${(100 * (entropy ?? 0)) / most}%`;
    return make("tr", {}, make("td", {}, make("small", {}, `${word} `), named(unit)),
      make("td", {}, ...(theirs.length ? theirs.flatMap((of, at) => [at ? ", " : "", make("small", {}, `${of.word} `), named(of)]) : ["–"])),
      make("td", { class: "bar" }, bar), make("td", { class: "figure" }, entropy === undefined ? "" : number(entropy)));
  });
  const header = make("tr", {}, ...["written", "read", "entropy in bits", ""].map((text) => make("th", {}, text)));
  byId("aligned").replaceChildren(make("table", { class: "aligned" }, make("thead", {}, header), make("tbody", {}, ...rows)));
  byId("pharaoh").textContent = alignment.pairs.map(([from, to]) => `${from}-${to}`).join(" ");
};
