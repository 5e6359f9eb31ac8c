// Source and translation one above the other, with lines between words that belong together.
const wordsOf = (text) => text.split(/\s+/).filter(Boolean);
const svgOf = (tag, attributes, ...children) => {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
};
const GAP = 36; // pixels between the two rows

const aligned = (source, target, pairs) => {
  const rowOf = (text) => {
    const words = wordsOf(text).map((word) => make("bdi", {}, word));
    return [words, make("p", { class: "row", dir: "auto" }, ...words.flatMap((word, at) => (at ? [" ", word] : [word])))];
  };
  const [[from, above], [to, below]] = [rowOf(source), rowOf(target)];
  const known = pairs.filter(([a, b]) => from[a] && to[b]);
  const lines = known.map(() => svgOf("line", {}));
  const picture = svgOf("svg", { height: GAP, "aria-hidden": "true" }, ...lines);
  const block = make("div", { class: "aligned" }, above, picture, below);
  // Places are known when the block is shown, and again when its letters change their size.
  new ResizeObserver(() => {
    const middle = (word) => word.offsetLeft + word.offsetWidth / 2;
    picture.setAttribute("width", Math.max(above.scrollWidth, below.scrollWidth));
    known.forEach(([a, b], at) => {
      const places = { x1: middle(from[a]), y1: 2, x2: middle(to[b]), y2: GAP - 2 };
      for (const [name, value] of Object.entries(places)) lines[at].setAttribute(name, value);
    });
  }).observe(block);
  // A word under the pointer shows what belongs to it.
  const point = (isOf) => known.forEach((pair, at) => {
    const isPointed = isOf(pair);
    lines[at].classList.toggle("pointed", isPointed);
    if (isPointed) [from[pair[0]], to[pair[1]]].forEach((word) => word.classList.add("pointed"));
  });
  const clear = () => [...from, ...to, ...lines].forEach((one) => one.classList.remove("pointed"));
  [[from, 0], [to, 1]].forEach(([words, side]) => words.forEach((word, at) => {
    word.addEventListener("pointerenter", () => {
      clear();
      point((pair) => pair[side] === at);
    });
    word.addEventListener("pointerleave", clear);
  }));
  return make("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "A line and its translation" }, block);
};

const translation = {
  id: "translate", name: "translate", route: "/translate", verb: "Translate",
  says: "Translations, line by line. Lines join words where the model looked while it wrote.",
  fields: [{ name: "texts", label: "source", rows: 4, example: "Good morning.\nWhere is the station?\nCan you help me?" }],
  body: ({ texts }, { name }) => ({ model: name, inputs: linesOf(texts), parameters: { alignment: true } }),
  show: (answer, { texts }) => linesOf(texts).map((line, at) => aligned(line, answer[at].translation_text, answer[at].alignment ?? [])),
};
