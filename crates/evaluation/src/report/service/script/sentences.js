// Sentences as a matrix of their similarities.
const MOST = 40;
const cosine = (a, b) => a.reduce((sum, value, at) => sum + value * b[at], 0);
const sentences = {
  id: "compare", name: "compare sentences", route: "/embed", verb: "Compare",
  says: `How similar sentences are: the cosines of their vectors. One sentence a line, at most ${MOST}.`,
  fields: [{ name: "texts", label: "sentences", rows: 6, example: "A storm at sea\nThe ship fought the waves\nShe baked a loaf of bread\nThe bakery opens at six\nSailors fear high winds" }],
  lacks: ({ texts }) => {
    const count = linesOf(texts).length;
    return count < 2 ? "Write two lines or more." : count > MOST ? `There are ${count} lines; ${MOST} can be compared.` : "";
  },
  body: ({ texts }, { name }) => ({ model: name, inputs: linesOf(texts) }),
  show: (vectors, { texts }) => {
    const lines = linesOf(texts);
    // The service scales vectors to length 1.
    const values = vectors.map((a) => vectors.map((b) => cosine(a, b)));
    let best = [0, 1];
    values.forEach((row, i) => row.forEach((value, j) => {
      if (i < j && value > values[best[0]][best[1]]) best = [i, j];
    }));
    const cell = (value, isSame) => {
      const td = make("td", { class: isSame ? "same" : null }, value.toFixed(2));
      td.style.setProperty("--strength", Math.max(0, Math.min(value, 1)));
      return td;
    };
    const table = make("table", { class: "matrix cosines" },
      make("thead", {}, make("tr", {}, make("td", {}), ...lines.map((text, at) => make("th", { scope: "col", title: text }, String(at + 1))))),
      make("tbody", {}, ...lines.map((text, i) => make("tr", {}, make("th", { scope: "row", title: text }, `${i + 1} `, make("bdi", {}, text)), ...values[i].map((value, j) => cell(value, i === j))))));
    return [
      make("p", {}, `Closest: ${best[0] + 1} and ${best[1] + 1}, ${values[best[0]][best[1]].toFixed(2)}.`),
      make("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Similarities" }, table),
    ];
  },
};
