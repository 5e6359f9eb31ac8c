// Text as it is written.
const within = (text, least, most, otherwise) => {
  const value = text.trim() === "" ? NaN : Number(text);
  return Number.isFinite(value) ? Math.max(least, Math.min(value, most)) : otherwise;
};
const writing = {
  id: "write", name: "write", route: "/generate", verb: "Write",
  says: "A language model continues a text, and you see it write.",
  fields: [
    { name: "text", label: "text to continue", rows: 3, example: "The people of the United States" },
    { name: "count", label: "tokens, at most", number: { min: 1, max: 8192 }, example: "200" },
    { name: "temperature", label: "temperature", number: { min: 0, max: 10, step: 0.1 }, example: "0.8" },
  ],
  body: ({ text, count, temperature }, { name }) => ({
    model: name, inputs: text, stream: true,
    parameters: { max_new_tokens: Math.round(within(count, 1, 8192, 200)), temperature: within(temperature, 0, 10, 0.8) },
  }),
  stream: async (events, { text }, found, isCurrent) => {
    const written = make("span", {});
    found.replaceChildren(make("p", { class: "text written", dir: "auto" }, make("span", { class: "soft" }, text), written));
    const begin = performance.now();
    let reason = "";
    for await (const event of events) {
      if (!isCurrent()) return "";
      if (event.error !== undefined) throw new Refused(event.error.message ?? String(event.error));
      written.append(event.text);
      reason = event.finish_reason ?? reason;
    }
    const letters = Array.from(written.textContent).length;
    const end = reason === "stop" ? "the text has ended" : reason === "length" ? "the limit of tokens was reached" : "the service ended the text";
    return `${letters} characters, ${((performance.now() - begin) / 1000).toFixed(1)} s; ${end}`;
  },
};
