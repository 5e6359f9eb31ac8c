// Source and translation beside one another, line by line.
const translation = {
  id: "translate", name: "translate", route: "/translate", verb: "Translate",
  says: "Translations, line by line.",
  fields: [{ name: "texts", label: "source", rows: 4, example: "Good morning.\nWhere is the station?\nThank you very much." }],
  body: ({ texts }, { name }) => ({ model: name, inputs: linesOf(texts) }),
  show: (answer, { texts }) => [
    make("table", { class: "translated" },
      make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "source"), make("th", { scope: "col" }, "translation"))),
      make("tbody", {}, ...linesOf(texts).map((line, at) =>
        make("tr", {}, make("td", { dir: "auto" }, line), make("td", { dir: "auto" }, answer[at].translation_text))))),
  ],
};
