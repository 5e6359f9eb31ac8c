// How long the picture takes to follow the pointer and a choice, each the median in milliseconds, with the wait for the
// next frame.
(async () => {
  const canvas = document.getElementById("canvas");
  const frame = () => new Promise((then) => requestAnimationFrame(() => then()));
  const median = (all) => all.sort((a, b) => a - b)[all.length >> 1];
  const time = async (act) => {
    await frame();
    const begin = performance.now();
    act();
    await frame();
    return performance.now() - begin;
  };
  const box = canvas.getBoundingClientRect();
  const hover = (part) => () => canvas.dispatchEvent(new PointerEvent("pointermove", {
    clientX: box.left + box.width * 0.1 * (1 + (part % 5)), clientY: box.top + box.height * (0.15 + 0.07 * part),
  }));
  const press = (query) => document.querySelector(query).click();
  const found = {};
  const several = async (name, acts) => {
    const all = [];
    for (const act of acts) all.push(await time(act));
    found[name] = median(all);
  };
  const turns = [...Array(11).keys()];
  for (const view of ["lines", "matrix"]) {
    press(`[data-view=${view}]`);
    await several(`hover over ${view}`, turns.map(hover));
    const chips = [...document.querySelectorAll("#chips button")];
    if (chips.length > 1) await several(`a head in ${view}`, turns.map((turn) => () => chips[turn % chips.length].click()));
    const layer = document.getElementById("layer");
    await several(`a layer in ${view}`, turns.map((turn) => () => {
      layer.value = turn % layer.options.length;
      layer.dispatchEvent(new Event("change"));
    }));
    await several(`words in ${view}`, turns.map(() => () => press("#words")));
    if (document.getElementById("words").checked) press("#words");
    if (chips.length > 1) {
      press("#all-heads");
      await several(`hover over all heads' ${view}`, turns.map(hover));
      await several(`a layer of all heads in ${view}`, turns.map((turn) => () => {
        layer.value = turn % layer.options.length;
        layer.dispatchEvent(new Event("change"));
      }));
      chips[0].click();
    }
  }
  return found;
})()
