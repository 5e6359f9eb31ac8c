// Masks filled while someone types.
const masks = {
  id: "fill", name: "fill masks", route: "/fill-mask", isLive: true,
  says: "The most likely pieces for each mask, while you type.",
  fields: [{ name: "text", label: "text", rows: 3, example: ({ mask_token: mask }) => `The people of the United ${mask} have a great ${mask}.` }],
  extra: (asked, form) => {
    const insert = make("button", { type: "button" }, "Insert a mask");
    insert.addEventListener("click", () => {
      const { text } = form().elements;
      text.setRangeText(asked().mask_token, text.selectionStart, text.selectionEnd, "end");
      text.focus();
      text.dispatchEvent(new Event("input", { bubbles: true }));
    });
    return [insert];
  },
  lacks: ({ text }, { mask_token: mask }) => (text.includes(mask) ? "" : `Put ${mask} where a word is missing.`),
  body: ({ text }, { name }) => ({ model: name, inputs: text, parameters: { top_k: 8 } }),
  show: (answer, { text }, { mask_token: mask }) => {
    // One mask has its candidates at once, several have a list each.
    const all = Array.isArray(answer[0]) ? answer : [answer];
    const parts = text.split(mask);
    const filled = parts.flatMap((part, at) => (at < all.length ? [part, make("mark", {}, all[at][0].token_str.trim())] : [part]));
    const tables = all.map((candidates, at) =>
      bars(all.length > 1 ? `mask ${at + 1}` : "", candidates.map(({ token_str: token, score }, place) => ({ text: token.trim() || token, value: score, chosen: place === 0 }))));
    return [make("p", { class: "text", dir: "auto" }, ...filled), make("div", { class: "columns" }, ...tables)];
  },
};
