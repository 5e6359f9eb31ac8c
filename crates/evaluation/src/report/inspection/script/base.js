const data = JSON.parse(byId("data").textContent);

// The bytes of a packed part of the page.
const unpack = async (id) => {
  const letters = atob(byId(id).textContent);
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
};

// Colours for light and for dark paper, those of the charts.
const LIGHT = {
  paper: "#ffffff", ink: "#1c2024", soft: "#5a6067", line: "#d9dde2", panel: "#f5f6f8", more: "#2862be", less: "#b35c00",
  heads: ["#2862be", "#c5362e", "#1a7a48", "#8250b8", "#9a5f00", "#0a7683", "#b4307c", "#7a5230", "#4f5b68", "#66740a"],
};
const DARK = {
  paper: "#15181c", ink: "#e6e8eb", soft: "#a2aab3", line: "#343a42", panel: "#1d2126", more: "#6ea0f5", less: "#ebaa3c",
  heads: ["#6ea0f5", "#f4776d", "#46be7d", "#b892e8", "#ebaa3c", "#3fc1cf", "#ef7fc0", "#c99a6b", "#a3afbc", "#b9c63a"],
};
const darkness = matchMedia("(prefers-color-scheme: dark)");
const print = matchMedia("print");
let isPrinting = false;
const colors = () => (darkness.matches && !print.matches && !isPrinting ? DARK : LIGHT);
const headColor = (head) => {
  const { heads } = colors();
  return heads[head % heads.length];
};

// Numbers that are not finite come as null.
const digits = (value, most) => (value === null ? "–" : String(Number(value.toPrecision(most))));
const share = (value) => value.toFixed(3);
const signed = (value) => (value < 0 ? "−" : "+") + Math.abs(value).toPrecision(3);
const number = (value, digits = 2) => (value === null ? "–" : value.toFixed(digits));
