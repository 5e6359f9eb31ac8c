// Shares from 0 to 1 as bars.
const figure = (value) => (Number.isFinite(value) ? value.toFixed(3) : "–");
const bar = (value) => {
  const line = make("i", {});
  line.style.width = `${100 * Math.max(0, Math.min(value || 0, 1))}%`;
  return make("td", { class: "bar", "aria-hidden": "true" }, line);
};
// Rows of `{ text, value }`; the one that is chosen is bold.
const bars = (caption, rows) =>
  make("table", { class: "choices" },
    caption ? make("caption", {}, caption) : "",
    make("tbody", {}, ...rows.map(({ text, value, chosen }) =>
      make("tr", { class: chosen ? "chosen" : null },
        make("td", {}, make("bdi", {}, text)), bar(value), make("td", { class: "figure" }, figure(value))))));

// Lines of a field that have something on them.
const linesOf = (text) => text.split("\n").map((line) => line.trim()).filter(Boolean);
