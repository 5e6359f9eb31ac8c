// The classes of a text, or of a pair of texts.
const classes = {
  id: "classify", name: "classify", route: "/predict", isLive: true,
  says: "What a classifier says about a text.",
  fields: [
    { name: "text", label: "text", rows: 3, example: "The service was slow, but the food was not bad at all." },
    { name: "pair", label: "second text, for models of pairs" },
  ],
  body: ({ text, pair }, { name }) => ({ model: name, inputs: pair.trim() ? [text, pair] : text }),
  show: (answer) => [bars("", answer.map(({ label, score }, place) => ({ text: label, value: score, chosen: place === 0 })))],
};
