// The answer, and how each method explains it.
const fillAnswer = () => {
  const { answer } = data;
  if (!answer || !byId("choices")) return;
  const rows = answer.choices.map(({ name, score, probability }) => {
    const isExplained = name === answer.explained;
    const bar = make("i", {});
    bar.style.width = `${100 * (probability ?? 0)}%`;
    return make("tr", { class: isExplained ? "chosen" : undefined },
      make("td", {}, make("bdi", {}, brief(visible(name), 60)), isExplained && data.explanations.length ? make("small", {}, " explained") : "", name === answer.against ? make("small", {}, " against") : ""),
      make("td", { class: "bar" }, probability === null ? "" : bar),
      make("td", { class: "figure" }, probability === null ? "" : `${(100 * probability).toFixed(1)} %`),
      make("td", { class: "figure" }, `score ${digits(score, 4)}`));
  });
  const where = [];
  if (answer.place) {
    const [side, at] = answer.place;
    const text = data[side]?.texts[at];
    where.push(" at ", make("bdi", {}, text === undefined ? "the next token" : brief(visible(text), 60)), ` (token ${at} of what is ${side === "source" ? "read" : "written"})`);
  }
  byId("choices").replaceChildren(make("p", { class: "note" }, answer.kind, ...where), make("div", { class: "scroll" }, make("table", { class: "choices" }, make("tbody", {}, ...rows))));
};

// Sums of the pieces of a unit.
const sums = (values, units) => units.map((unit) => values.slice(unit.from, unit.to).reduce((sum, value) => sum + (value ?? 0), 0));
const texts = (explanation) => ["source", "target"].filter((side) => data[side] && explanation[side].length).map((side) => {
  const all = unitsOf(data[side], { words: state.by === "words", plain: false, part: null });
  const units = all.filter((unit) => unit.from < explanation[side].length);
  return { side, units, values: sums(explanation[side], units) };
});
const fillExplanations = () => {
  if (!byId("explanations")) return;
  byId("said-tokens").setAttribute("aria-pressed", state.by === "tokens");
  byId("said-words").setAttribute("aria-pressed", state.by === "words");
  const cards = data.explanations.map((explanation) => {
    const parts = texts(explanation);
    // Special tokens are told, but do not set the scale: some methods give them nearly everything.
    const usual = parts.flatMap(({ units, values }) => values.filter((_, at) => !units[at].special).map(Math.abs));
    const largest = Math.max(...usual, 1e-12);
    const show = ({ side, units, values }) => make("p", { class: "said", dir: "auto" },
      ...(parts.length > 1 ? [make("small", {}, side === "source" ? "read: " : "written before: ")] : []),
      ...units.flatMap((unit, at) => {
        const value = values[at];
        const strength = Math.min(1, Math.abs(value) / largest);
        const mark = make("bdi", { class: value < 0 ? "less" : "more", title: `${unit.text.slice(0, 200)}: ${explanation.signed ? signed(value) : value.toPrecision(3)}` }, brief(unit.text, 60));
        if (unit.special) mark.classList.add("special");
        mark.style.setProperty("--strength", (strength ** 0.8).toFixed(3));
        return [mark, " "];
      }));
    const completeness = [];
    if (explanation.completeness) {
      const { score, baseline, sum, points, converged } = explanation.completeness;
      const gap = Math.abs(score - baseline - sum);
      completeness.push(make("p", { class: "note small" },
        `F(text) ${digits(score, 4)} − F(baseline) ${digits(baseline, 4)} = ${digits(score - baseline, 4)}; the numbers' sum ${digits(sum, 4)}, gap ${digits(gap, 2)}, ${points} points`,
        converged ? "" : make("strong", {}, ": not converged")));
    }
    return make("article", {}, make("h4", {}, explanation.name), ...parts.map(show), make("p", { class: "note small" }, explanation.note), ...completeness);
  });
  byId("explanations").replaceChildren(...cards);
  fillNumbers();
};
// The same as a table, once it is opened.
const fillNumbers = () => {
  const into = byId("numbers");
  if (!into.closest("details").open) return into.replaceChildren();
  const rows = [];
  for (const side of ["source", "target"]) {
    if (!data[side]) continue;
    const length = Math.max(0, ...data.explanations.map((explanation) => explanation[side].length));
    const units = unitsOf(data[side], { words: state.by === "words", plain: false, part: null }).filter((unit) => unit.from < length);
    const columns = data.explanations.map((explanation) => sums(explanation[side], units));
    units.forEach((unit, at) => rows.push(make("tr", {}, make("td", {}, named(unit)), ...columns.map((values, column) => make("td", {}, data.explanations[column][side].length ? (data.explanations[column].signed ? signed(values[at]) : values[at].toPrecision(3)) : "")))));
  }
  const header = make("tr", {}, make("th", {}, state.by === "words" ? "word" : "token"), ...data.explanations.map(({ name }) => make("th", {}, name)));
  into.replaceChildren(make("table", { class: "numbers" }, make("thead", {}, header), make("tbody", {}, ...rows)));
};
const listenExplanations = () => {
  if (!byId("explanations")) return;
  const by = (by) => () => {
    state.by = by;
    writeFragment();
    fillExplanations();
  };
  byId("said-tokens").addEventListener("click", by("tokens"));
  byId("said-words").addEventListener("click", by("words"));
  byId("numbers").closest("details").addEventListener("toggle", fillNumbers);
  addEventListener("beforeprint", () => {
    byId("numbers").closest("details").open = data.source.texts.length <= 128;
    fillNumbers();
  });
};
