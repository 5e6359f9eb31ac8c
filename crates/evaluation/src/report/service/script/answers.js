// The answer to a question, marked in its text.
const answers = {
  id: "answer", name: "answer", route: "/answer",
  says: "The part of a text that answers a question.",
  fields: [
    { name: "question", label: "question", example: "Where do glaciers begin?" },
    { name: "context", label: "text", rows: 6, example: "Glaciers begin in high valleys, where more snow falls in winter than melts in summer. The weight of new snow presses the old snow into ice, and the ice flows slowly downhill." },
  ],
  lacks: ({ question, context }) => (!question.trim() ? "Write a question first." : context.trim() ? "" : "Write a text that has the answer."),
  body: ({ question, context }, { name }) => ({ model: name, inputs: { question, context } }),
  show: ({ answer, score, start, end }, { context }) => {
    const between = charactersOf(context);
    const isFound = answer !== null && answer !== "" && Number.isInteger(start);
    if (!isFound) return [make("p", { class: "note" }, "The text has no answer."), make("p", { class: "text", dir: "auto" }, context)];
    return [
      make("p", { class: "text", dir: "auto" }, between(0, start), make("mark", {}, between(start, end)), between(end)),
      bars("", [{ text: "score", value: score }]),
    ];
  },
};
