// Texts ranked for a query: by a model that reads both, or by an index.
const ranked = (rows) =>
  make("ol", { class: "ranks" }, ...rows.map(({ text, score, note }) => {
    const line = make("i", {});
    line.style.width = `${100 * Math.max(0, Math.min(score, 1))}%`;
    return make("li", {}, make("span", { class: "text", dir: "auto" }, text), note ? make("small", { dir: "auto" }, note) : "",
      make("span", { class: "score" }, make("span", { class: "bar", "aria-hidden": "true" }, line), figure(score)));
  }));

const reranking = {
  id: "rerank", name: "rank", route: "/rerank", verb: "Rank",
  says: "Texts in the order in which they fit a query. One text a line.",
  fields: [
    { name: "query", label: "query", example: "How does snow become ice?" },
    { name: "texts", label: "texts", rows: 5, example: "The weight of new snow presses the old snow into ice.\nThe bakery opens at six.\nSnow fell on the village all night." },
  ],
  lacks: ({ query, texts }) => (!query.trim() ? "Write a query first." : linesOf(texts).length ? "" : "Write texts, one a line."),
  body: ({ query, texts }, { name }) => ({ model: name, query, texts: linesOf(texts) }),
  show: (answer, { texts }) => {
    const lines = linesOf(texts);
    return [ranked(answer.map(({ index, score }) => ({ text: lines[index], score })))];
  },
};

const searching = {
  id: "search", name: "search", route: "/search", verb: "Search", of: "index",
  says: "The texts of an index that are nearest to a query.",
  among: ({ indexes }) => indexes ?? [],
  fields: [
    { name: "query", label: "query", example: "the food was cold" },
    { name: "count", label: "results", number: { min: 1, max: 100, value: 10 }, example: "10" },
  ],
  body: ({ query, count }, { name }) => ({ index: name, query, top_k: Math.max(1, Math.min(Math.round(Number(count)) || 10, 100)) }),
  show: ({ found }) => {
    if (!found.length) return [make("p", { class: "note" }, "Nothing was found.")];
    const told = (fields) => Object.entries(fields ?? {}).map(([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`).join(" · ");
    return [ranked(found.map(({ text, score, fields }) => ({ text, score, note: told(fields) })))];
  },
};
