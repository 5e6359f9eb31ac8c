// Which of several endings a text has.
const choosing = {
  id: "choose", name: "choose", route: "/choose", verb: "Choose",
  says: "Which of several choices fits a text. One choice a line.",
  fields: [
    { name: "text", label: "text", rows: 2, example: "The sailor saw the storm coming and" },
    { name: "choices", label: "choices", rows: 4, example: "took down the sails.\nbaked a loaf of bread.\nread the newspaper." },
  ],
  lacks: ({ text, choices }) => (!text.trim() ? "Write a text first." : linesOf(choices).length > 1 ? "" : "Write two choices or more, one a line."),
  body: ({ text, choices }, { name }) => ({ model: name, inputs: { text, choices: linesOf(choices) } }),
  show: ({ choice, scores }, { choices }) => [bars("", linesOf(choices).map((text, at) => ({ text, value: scores[at], chosen: at === choice })))],
};
