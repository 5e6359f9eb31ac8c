"use strict";
// The map: points on a canvas, without an element for each of them. Texts come in as data and go out as `textContent`.
(() => {
  const byId = (id) => document.getElementById(id);
  // {"points": [x, y, …], "texts": […], "classes": ["name", …], "of": [class of each point, …], "pictures": [PNG in
  // base64, …] or none}; y grows upwards.
  const { points, texts, classes, of, pictures } = JSON.parse(byId("data").textContent);
  const n = texts.length;
  const canvas = byId("map");
  const context = canvas.getContext("2d");
  const tip = byId("tip");
  const search = byId("search");

  // Colours that are told apart on light and dark paper.
  const PALETTE = ["#2f7ed8", "#d9534f", "#2e9e5b", "#9467bd", "#d98c1f", "#17a2b8", "#c2529b", "#8c6d46", "#7d8fa3", "#97a11d"];
  const color = (number) =>
    number < PALETTE.length ? PALETTE[number] : `hsl(${Math.round((number * 137.508 + 20) % 360)} 65% ${number % 2 ? 42 : 64}%)`;
  const isShown = (classes.length ? classes : [""]).map(() => true);
  const classOf = (i) => (of.length ? of[i] : 0);

  // Points by class, so that a colour is set once.
  const members = isShown.map(() => []);
  for (let i = 0; i < n; i++) members[classOf(i)].push(i);

  let lowered = null;
  let matches = null;
  let hovered = -1;
  let picked = -1;

  // Where a point is in the canvas: left + scale · x, top − scale · y.
  let scale = 1, left = 0, top = 0, whole = 1;
  const x = (i) => left + scale * points[2 * i];
  const y = (i) => top - scale * points[2 * i + 1];

  const fit = () => {
    const { clientWidth: width, clientHeight: height } = canvas;
    let [low, high, bottom, roof] = [Infinity, -Infinity, Infinity, -Infinity];
    for (let i = 0; i < n; i++) {
      low = Math.min(low, points[2 * i]);
      high = Math.max(high, points[2 * i]);
      bottom = Math.min(bottom, points[2 * i + 1]);
      roof = Math.max(roof, points[2 * i + 1]);
    }
    const room = 24;
    scale = Math.min((width - 2 * room) / Math.max(high - low, 1), (height - 2 * room) / Math.max(roof - bottom, 1));
    scale = whole = Math.max(scale, 1e-6);
    left = width / 2 - (scale * (low + high)) / 2;
    top = height / 2 + (scale * (bottom + roof)) / 2;
    redraw();
  };

  let isWaiting = false;
  const redraw = () => {
    if (isWaiting) return;
    isWaiting = true;
    requestAnimationFrame(draw);
  };

  const radius = () => {
    const base = n > 20000 ? 1.4 : n > 2000 ? 2.2 : 3.4;
    return base * Math.min(3, Math.max(1, Math.sqrt(scale / whole)));
  };

  // A circle if there are few points, else a square, which is much faster.
  const mark = (i, size) => {
    if (n > 5000) context.fillRect(x(i) - size, y(i) - size, 2 * size, 2 * size);
    else {
      context.beginPath();
      context.arc(x(i), y(i), size, 0, 2 * Math.PI);
      context.fill();
    }
  };

  const ring = (i, size, style) => {
    context.strokeStyle = style;
    context.lineWidth = 2;
    context.beginPath();
    context.arc(x(i), y(i), size, 0, 2 * Math.PI);
    context.stroke();
  };

  function draw() {
    isWaiting = false;
    const ratio = window.devicePixelRatio || 1;
    const { clientWidth: width, clientHeight: height } = canvas;
    const [across, down] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (canvas.width !== across || canvas.height !== down) [canvas.width, canvas.height] = [across, down];
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    const size = radius();
    const isInView = (i) => x(i) > -size && x(i) < width + size && y(i) > -size && y(i) < height + size;
    // What matches lies above what does not.
    for (const isMatch of matches ? [0, 1] : [1]) {
      context.globalAlpha = !matches ? 0.75 : isMatch ? 1 : 0.12;
      members.forEach((all, number) => {
        if (!isShown[number]) return;
        context.fillStyle = color(number);
        for (const i of all) {
          if ((!matches || matches[i] === isMatch) && isInView(i)) mark(i, matches && isMatch ? 1.5 * size : size);
        }
      });
    }
    context.globalAlpha = 1;
    const ink = getComputedStyle(canvas).color;
    for (const i of [picked, hovered]) if (i >= 0 && isShown[classOf(i)]) ring(i, size + 3, ink);
  }

  // The shown point nearest to a place in the canvas, within a few pixels, or −1.
  const nearest = (atX, atY) => {
    let [best, least] = [-1, (radius() + 8) ** 2];
    for (let i = 0; i < n; i++) {
      const square = (x(i) - atX) ** 2 + (y(i) - atY) ** 2;
      if (square < least && isShown[classOf(i)]) [best, least] = [i, square];
    }
    return best;
  };

  const name = (i) => (classes.length ? classes[classOf(i)] : "");
  const write = (element, i) => {
    const [label, text] = [document.createElement("strong"), document.createElement("span")];
    label.textContent = name(i);
    text.textContent = texts[i];
    const picture = pictures && pictures[i] && document.createElement("img");
    if (picture) picture.src = `data:image/png;base64,${pictures[i]}`;
    element.replaceChildren(...(picture ? [picture] : []), ...(classes.length ? [label, text] : [text]));
  };

  const hover = (atX, atY) => {
    const found = nearest(atX, atY);
    if (found !== hovered) {
      hovered = found;
      tip.hidden = found < 0;
      if (found >= 0) write(tip, found);
      redraw();
    }
    if (found >= 0) {
      const { clientWidth: width, clientHeight: height } = canvas;
      tip.style.left = `${Math.max(0, Math.min(atX + 14, width - tip.offsetWidth - 4))}px`;
      const below = atY + 18;
      tip.style.top = `${below + tip.offsetHeight > height ? Math.max(0, atY - tip.offsetHeight - 10) : below}px`;
    }
  };
  const leave = () => {
    if (hovered >= 0) redraw();
    hovered = -1;
    tip.hidden = true;
  };
  const pick = (i) => {
    picked = i;
    byId("picked").hidden = i < 0;
    if (i >= 0) write(byId("picked"), i);
    redraw();
  };

  const zoom = (factor, atX, atY) => {
    const next = Math.min(Math.max(scale * factor, whole / 4), whole * 4000);
    left = atX - ((atX - left) * next) / scale;
    top = atY - ((atY - top) * next) / scale;
    scale = next;
    redraw();
  };
  const zoomCentre = (factor) => zoom(factor, canvas.clientWidth / 2, canvas.clientHeight / 2);
  const pan = (byX, byY) => {
    left += byX;
    top += byY;
    redraw();
  };

  // One pointer drags, two zoom; a press without a way picks a point.
  const pointers = new Map();
  let moved = 0;
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    if (!pointers.size) moved = 0;
    pointers.set(event.pointerId, place(event));
  });
  canvas.addEventListener("pointermove", (event) => {
    const now = place(event);
    const before = pointers.get(event.pointerId);
    if (!before) return hover(...now);
    const [byX, byY] = [now[0] - before[0], now[1] - before[1]];
    moved += Math.abs(byX) + Math.abs(byY);
    pointers.set(event.pointerId, now);
    if (moved > 4) leave();
    const other = [...pointers].find(([id]) => id !== event.pointerId)?.[1];
    if (!other) return pan(byX, byY);
    const far = (a) => Math.hypot(a[0] - other[0], a[1] - other[1]);
    pan(byX / 2, byY / 2);
    zoom(far(now) / Math.max(far(before), 1), (now[0] + other[0]) / 2, (now[1] + other[1]) / 2);
  });
  const release = (event) => {
    const isPress = pointers.delete(event.pointerId) && event.type === "pointerup" && moved <= 4;
    if (isPress && !pointers.size) pick(nearest(...place(event)));
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", leave);
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const lines = event.deltaMode === 1 ? 16 : 1;
    zoom(Math.exp(-event.deltaY * lines * 0.0016), ...place(event));
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const step = 60;
    const does = {
      ArrowLeft: () => pan(step, 0), ArrowRight: () => pan(-step, 0), ArrowUp: () => pan(0, step), ArrowDown: () => pan(0, -step),
      "+": () => zoomCentre(1.4), "=": () => zoomCentre(1.4), "-": () => zoomCentre(1 / 1.4), 0: fit,
    }[event.key];
    if (!does || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    does();
  });
  byId("nearer").addEventListener("click", () => zoomCentre(1.4));
  byId("farther").addEventListener("click", () => zoomCentre(1 / 1.4));
  byId("whole").addEventListener("click", fit);

  const count = () => {
    let found = 0;
    if (matches) for (let i = 0; i < n; i++) found += matches[i] && isShown[classOf(i)] ? 1 : 0;
    byId("found").textContent = matches ? `${found} found` : "";
  };
  const look = () => {
    const wanted = search.value.trim().toLowerCase();
    lowered ??= texts.map((text) => text.toLowerCase());
    matches = wanted ? Uint8Array.from(lowered, (text) => (text.includes(wanted) ? 1 : 0)) : null;
    count();
    redraw();
  };
  search.addEventListener("input", look);

  // The legend: a button for each class.
  const buttons = classes.map((label, number) => {
    const button = document.createElement("button");
    const [swatch, text, size] = ["i", "span", "small"].map((tag) => document.createElement(tag));
    swatch.style.background = color(number);
    text.textContent = label;
    size.textContent = members[number].length;
    button.type = "button";
    button.append(swatch, text, size);
    button.addEventListener("click", () => show(number, !isShown[number]));
    byId("classes").append(button);
    return button;
  });
  const show = (number, is) => {
    isShown[number] = is;
    buttons[number].setAttribute("aria-pressed", is);
    leave();
    count();
    redraw();
  };
  buttons.forEach((_, number) => show(number, true));
  byId("legend").hidden = !classes.length;
  byId("all").addEventListener("click", () => buttons.forEach((_, number) => show(number, true)));
  byId("none").addEventListener("click", () => buttons.forEach((_, number) => show(number, false)));

  // A browser may fill in what was looked for before.
  if (search.value) look();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  // As long as the whole map is shown, it keeps to the canvas; else what is in the middle stays there.
  let [lastWidth, lastHeight] = [0, 0];
  new ResizeObserver(() => {
    const { clientWidth: width, clientHeight: height } = canvas;
    if (!lastWidth || scale === whole) fit();
    else pan((width - lastWidth) / 2, (height - lastHeight) / 2);
    [lastWidth, lastHeight] = [width, height];
  }).observe(canvas);
})();
