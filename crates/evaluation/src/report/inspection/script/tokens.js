// A token as it can be shown: one line, nothing invisible.
const CONTROLS = /[\u0000-\u001f\u007f-\u009f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
const visible = (text) => {
  const shown = text.replace(/\n/g, "↵").replace(/\t/g, "⇥").replace(CONTROLS, (c) => `⟨${c.charCodeAt(0).toString(16)}⟩`);
  return shown.trim() === "" ? "␣".repeat(Math.max(1, Math.min(shown.length, 8))) : shown;
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
