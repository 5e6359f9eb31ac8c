// The table of heads, sortable.
let sorting = { by: "layer", isDown: false };
const COLUMNS = ["layer", "head", "entropy", "distance", "special"];
let tableKey = "";
let chosenRows = [];
const fillHeads = () => {
  const key = `${state.map} ${sorting.by} ${sorting.isDown}`;
  const table = byId("heads");
  if (key !== tableKey) {
    tableKey = key;
    const rows = map().layers.flatMap((of, place) => of.heads.map((head, at) => ({ place, layer: of.layer, head: at, entropy: head.entropy, distance: head.distance, special: head.special })));
    const hasDistance = rows.some(({ distance }) => distance !== null);
    const columns = COLUMNS.filter((name) => name !== "distance" || hasDistance);
    const sign = sorting.isDown ? -1 : 1;
    rows.sort((a, b) => sign * ((a[sorting.by] ?? 0) - (b[sorting.by] ?? 0)) || a.layer - b.layer || a.head - b.head);
    const header = columns.map((name) => {
      const isBy = sorting.by === name;
      const sort = () => {
        sorting = { by: name, isDown: isBy ? !sorting.isDown : false };
        fillHeads();
        byId("heads").querySelector(`[data-sort=${name}]`).focus();
      };
      return make("th", { "aria-sort": isBy ? (sorting.isDown ? "descending" : "ascending") : undefined },
        make("button", { type: "button", "data-sort": name, onclick: sort }, name, make("i", {}, isBy ? (sorting.isDown ? "↓" : "↑") : "")));
    });
    const body = rows.map((of) => {
      const cells = columns.map((name) => {
        if (name === "layer" || name === "head") return make("td", {}, String(of[name]));
        return make("td", {}, number(of[name], name === "distance" ? 1 : 2));
      });
      return make("tr", { tabindex: 0, "data-place": of.place, "data-head": of.head }, ...cells);
    });
    table.replaceChildren(make("table", {}, make("thead", {}, make("tr", {}, ...header)), make("tbody", {}, ...body)));
  }
  for (const row of chosenRows) row.classList.remove("chosen");
  chosenRows = state.heads.map((head) => table.querySelector(`tr[data-place="${state.layer}"][data-head="${head}"]`));
  for (const row of chosenRows) row.classList.add("chosen");
};
// The table's box scrolls to what is chosen, the page does not.
const followHeads = () => {
  const [table, row] = [byId("heads"), chosenRows[0]];
  const { offsetTop, offsetHeight } = row;
  if (offsetTop < table.scrollTop + 30 || offsetTop + offsetHeight > table.scrollTop + table.clientHeight) table.scrollTop = offsetTop - table.clientHeight / 2;
};
const listenHeads = () => {
  const choose = (event) => {
    const row = event.target.closest("tr[data-head]");
    if (row) change({ layer: Number(row.dataset.place), heads: [Number(row.dataset.head)], ...(state.view === "overview" && { view: "lines" }) });
    return row;
  };
  byId("heads").addEventListener("click", choose);
  byId("heads").addEventListener("keydown", (event) => {
    if ((event.key === "Enter" || event.key === " ") && !event.target.closest("button") && choose(event)) event.preventDefault();
    const row = event.target.closest("tr[data-head]");
    const next = { ArrowDown: row?.nextElementSibling, ArrowUp: row?.previousElementSibling }[event.key];
    if (next) {
      event.preventDefault();
      next.focus();
    }
  });
};
