// A text as the pieces that a model reads, with their ids.
const tokens = {
  id: "tokenize", name: "tokens", route: "/tokenize", isLive: true,
  says: "The pieces that a model reads, each with its id.",
  fields: [{ name: "text", label: "text", rows: 3, example: "Tokenizers split unfamiliar words into pieces." }],
  body: ({ text }, { name }) => ({ model: name, inputs: text }),
  show: ([pieces]) => {
    // What would not be seen is shown as a sign.
    const seen = (text) => text.replace(/\n/g, "↵").replace(/\t/g, "⇥").replace(/ /g, "␣");
    const piece = ({ id, text, special, start, stop }) =>
      make("li", { class: special ? "special" : null, title: special ? "special" : `bytes ${start} to ${stop}` }, make("bdi", {}, seen(text)), make("small", {}, String(id)));
    return [make("p", {}, `${pieces.length} tokens, special ones included.`), make("ol", { class: "pieces" }, ...pieces.map(piece))];
  },
};
