// A panel asks one kind of model. It has an `id`, a `name`, the `route`, what it `says`, `fields`, and
//   among(info)            what can be asked: models, or indexes [the models that have the route]
//   lacks(values, asked)   what is missing before the service can be asked [a text in the first field]
//   body(values, asked)    the request
//   show(answer, values)   elements for the answer
//   stream(events, values, found)   or what it does with an answer that comes in parts
//   isLive                 whether it asks while someone types
// A field has a `name`, a `label`, an `example` (or a function of what is asked), and `rows`, or `number` with its limits.
const PAUSE = 250; // milliseconds without a key

const fieldOf = (panel, field) => {
  const id = `${panel.id}-${field.name}`;
  const shared = { id, name: field.name, spellcheck: "false", autocomplete: "off" };
  const control = field.rows
    ? make("textarea", { ...shared, rows: field.rows, dir: "auto" })
    : make("input", field.number ? { ...shared, type: "number", ...field.number } : { ...shared, type: "text", dir: "auto" });
  return make("div", { class: field.number ? "field small" : "field" }, make("label", { for: id }, field.label), control);
};

// The request as a command, for those who want to ask from a program.
const commandOf = (route, body) => {
  const quoted = (text) => `'${text.replace(/'/g, "'\\''")}'`;
  const withKey = key ? " -H 'authorization: Bearer KEY'" : "";
  const address = new URL(route.replace(/^\//, ""), location.href);
  address.hash = "";
  return `curl ${address} -H 'content-type: application/json'${withKey} -d ${quoted(JSON.stringify(body))}`;
};

const build = (panel, things, onChoice) => {
  const chooser = make("select", { id: `${panel.id}-asked` }, ...things.map(({ name }, at) => make("option", { value: at }, name)));
  const choice = make("div", { class: "field small", hidden: things.length < 2 }, make("label", { for: chooser.id }, panel.of ?? "model"), chooser);
  const send = make("button", { type: "submit", class: "main" }, panel.isLive ? "Ask again" : panel.verb ?? "Ask");
  const stop = make("button", { type: "button", hidden: true }, "Stop");
  const status = make("output", { class: "status" });
  const found = make("div", { class: "found", "aria-live": panel.stream ? "off" : "polite" });
  const command = make("code", {});
  const asRequest = make("details", {}, make("summary", {}, "The same as a request"), make("pre", {}, command));
  const rest = panel.extra?.(() => things[chooser.value], () => form) ?? [];
  const form = make("form", {}, choice, ...panel.fields.map((field) => fieldOf(panel, field)),
    make("div", { class: "tools" }, send, stop, ...rest, make("span", { class: "soft keys" }, "Ctrl+Enter asks"), status));
  const section = make("section", { id: panel.id, "aria-label": panel.name }, make("p", { class: "note" }, panel.says), form, found, asRequest);

  const asked = () => things[chooser.value];
  const read = () => Object.fromEntries(panel.fields.map(({ name }) => [name, form.elements[name].value]));
  const say = (text, isWrong = false) => {
    status.textContent = text;
    status.classList.toggle("wrong", isWrong);
  };
  // The request under way. A later one ends it, so an older answer never replaces a newer one.
  let current = null;
  let timer;
  const rests = (state) => {
    section.dataset.state = state;
    found.removeAttribute("aria-busy");
    stop.hidden = true;
  };
  const ask = async () => {
    clearTimeout(timer);
    current?.abort();
    const mine = (current = new AbortController());
    const values = read();
    const lack = panel.lacks?.(values, asked()) ?? (values[panel.fields[0].name].trim() ? "" : "Write a text first.");
    if (lack) {
      found.replaceChildren();
      say(lack);
      return rests("lacking");
    }
    const body = panel.body(values, asked());
    command.textContent = commandOf(panel.route, body);
    section.dataset.state = "asked";
    found.setAttribute("aria-busy", "true");
    say(panel.isLive ? status.textContent : "…");
    stop.hidden = !panel.stream;
    const begin = performance.now();
    try {
      const response = await call(panel.route, body, mine.signal);
      if (panel.stream) {
        found.replaceChildren();
        say(await panel.stream(eventsOf(response), values, found, () => mine === current && !mine.signal.aborted));
      } else {
        const answer = await response.json();
        if (mine !== current) return;
        found.replaceChildren(...panel.show(answer, values, asked()));
        const tokens = Number(response.headers.get("x-compute-tokens"));
        const cut = response.headers.has("x-cloze-truncated") ? `; cut to the model's ${asked().max_input_length} tokens` : "";
        const time = `${Math.max(1, Math.round(performance.now() - begin))} ms`;
        say(tokens ? `${tokens} tokens, ${time}${cut}` : time);
      }
      if (mine === current) rests("answered");
    } catch (error) {
      if (mine !== current) return;
      if (error.name === "AbortError") {
        say("stopped");
        return rests("stopped");
      }
      if (!(error instanceof Refused)) console.error(error);
      if (!panel.stream) found.replaceChildren();
      say(error.message, true);
      rests("failed");
    }
  };

  // Examples that depend on the model are replaced with it, as long as nobody has changed them.
  const examples = {};
  const fill = () => {
    for (const { name, example } of panel.fields) {
      const control = form.elements[name];
      const text = typeof example === "function" ? example(asked()) : example ?? "";
      if (control.value === (examples[name] ?? "")) control.value = text;
      examples[name] = text;
    }
  };
  fill();
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    ask();
  });
  form.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      ask();
    }
  });
  if (panel.isLive) {
    form.addEventListener("input", (event) => {
      if (event.isComposing || event.target === chooser) return;
      clearTimeout(timer);
      timer = setTimeout(ask, PAUSE);
    });
    form.addEventListener("compositionend", () => {
      clearTimeout(timer);
      timer = setTimeout(ask, PAUSE);
    });
  }
  stop.addEventListener("click", () => current?.abort());
  chooser.addEventListener("change", () => {
    fill();
    onChoice();
    if (panel.isLive) ask();
  });
  return {
    panel, section, ask, asked,
    choose: (name) => {
      const at = things.findIndex((thing) => thing.name === name);
      if (at >= 0 && chooser.value !== String(at)) {
        chooser.value = at;
        fill();
        if (section.dataset.state) ask();
      }
    },
    // The first time that it is seen.
    begin: () => {
      if (panel.isLive && !section.dataset.state) ask();
    },
    end: () => {
      clearTimeout(timer);
      current?.abort();
    },
  };
};
