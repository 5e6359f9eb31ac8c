// A token as it can be shown: one line, nothing invisible.
// What joins letters or emoji stays, as long as there is something to join.
const CONTROLS = /[\u0000-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069\ufeff]/g;
const INVISIBLE = /^[\s\u00ad\u115f\u1160\u180e\u200b-\u200f\u2060-\u2064\u3164\u{e0000}-\u{e0fff}\ufe00-\ufe0f]*$/u;
const code = (c) => `⟨${c.codePointAt(0).toString(16)}⟩`;
const visible = (text) => {
  const shown = text.replace(/\n/g, "↵").replace(/\t/g, "⇥").replace(CONTROLS, code);
  if (!INVISIBLE.test(shown)) return shown;
  if (shown.trim() === "") return "␣".repeat(Math.max(1, Math.min(shown.length, 8)));
  return Array.from(shown).slice(0, 8).map(code).join("");
};
// Its beginning: text of 10,000 letters is not measured again and again.
const brief = (text, most = 40) => {
  const letters = Array.from(text.slice(0, 4 * most));
  return letters.length > most || text.length > 4 * most ? letters.slice(0, most - 1).join("") + "…" : text;
};
// A piece within a word: without the marks of pieces, unless nothing else is in it.
const bare = (text, isFirst) => {
  const shown = isFirst ? text.replace(/^[▁Ġ]+/, "") : text.replace(/^##/, "");
  return shown || text;
};

// What rows and columns are: tokens, or words with all their pieces. Each is a range of tokens.
const unitsOf = (tokens, { words, plain, part }) => {
  const units = [];
  tokens.texts.forEach((text, i) => {
    const special = tokens.special[i] === 1;
    if (special ? plain : part !== null && tokens.parts[i] !== part) return;
    const last = units[units.length - 1];
    const word = special ? null : tokens.words[i];
    if (words && word !== null && last && last.word === word && last.part === tokens.parts[i] && last.to === i) {
      last.to = i + 1;
      last.pieces.push(text);
    } else units.push({ from: i, to: i + 1, word, special, part: tokens.parts[i], pieces: [text] });
  });
  for (const unit of units) {
    const whole = words && unit.word !== null ? unit.pieces.map((text, at) => bare(text, at === 0)).join("") : unit.pieces[0];
    unit.text = visible(whole);
    unit.label = brief(unit.text);
  }
  return units;
};

// A unit as an element, kept apart from the direction of the text around it.
const named = (unit) => make("bdi", { class: unit.special ? "token special" : "token" }, brief(unit.text, 60));
