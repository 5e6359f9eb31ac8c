// A text with its entities coloured. A label has the same colour as long as the page is open.
const COLORS = 6;
const known = [];
const colorOf = (label) => {
  if (!known.includes(label)) known.push(label);
  return `color-${known.indexOf(label) % COLORS}`;
};
// Offsets of the service count characters of Unicode, not JavaScript's units.
const charactersOf = (text) => {
  const all = Array.from(text);
  return (start, end) => all.slice(start, end).join("");
};
const entities = {
  id: "tag", name: "tag", route: "/tag", isLive: true,
  says: "Names and other entities in a text.",
  fields: [{ name: "text", label: "text", rows: 3, example: "Ada Lovelace met Charles Babbage in London, long before Siemens opened its office there." }],
  body: ({ text }, { name }) => ({ model: name, inputs: text }),
  show: (answer, { text }) => {
    const between = charactersOf(text);
    const shown = [];
    let at = 0;
    for (const { entity_group: label, start, end } of answer) {
      if (start < at) continue;
      shown.push(between(at, start), make("mark", { class: colorOf(label) }, between(start, end), make("small", {}, label)));
      at = end;
    }
    shown.push(between(at));
    const note = answer.length ? "" : make("p", { class: "note" }, "No entities were found.");
    return [make("p", { class: "text tagged", dir: "auto" }, ...shown), note];
  },
};
