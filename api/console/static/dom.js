// Elements are made here and nowhere else: text is always a text node, so that nothing a record says becomes markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "value") node.value = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export function h(tag, props, ...children) {
  return fill(document.createElement(tag), props, children);
}

export function s(tag, props, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

export function say(text) {
  document.getElementById("said").textContent = text;
}

let ids = 0;
export function newId(stem) {
  ids += 1;
  return `${stem}-${ids}`;
}

// --- tables --------------------------------------------------------------------------------------

/** Columns are {title, class?, cell(row)}; the first one heads its row. `update` shows other rows. */
export function table(label, columns, { empty = "Nothing here.", rowKey = null } = {}) {
  const body = h("tbody");
  const head = h("tr", null, columns.map((one) => h("th", { scope: "col", class: one.class }, one.title || h("span", { class: "unseen" }, "Actions"))));
  const scroll = h("div", { class: "scroll", role: "region", "aria-label": label, tabindex: "0" },
    h("table", null, h("caption", { class: "unseen" }, label), h("thead", null, head), body));
  const nothing = h("p", { class: "empty" }, empty);
  const shown = new Map();
  const update = (rows) => {
    scroll.hidden = rows.length === 0;
    nothing.hidden = rows.length !== 0;
    // Rows that stay are kept: the focus does not get lost when figures change.
    const next = rows.map((row, index) => {
      const key = rowKey ? rowKey(row) : index;
      const cells = columns.map((one) => one.cell(row));
      const old = shown.get(key);
      if (old) {
        old.cells.forEach((cell, place) => {
          if (!columns[place].keep) cell.replaceChildren(...[cells[place]].flat());
        });
        return [key, old];
      }
      const made = columns.map((one, place) =>
        place === 0 ? h("th", { scope: "row", class: one.class }, cells[place]) : h("td", { class: one.class }, cells[place]));
      return [key, { cells: made, node: h("tr", null, made) }];
    });
    shown.clear();
    next.forEach(([key, row]) => shown.set(key, row));
    const nodes = next.map(([, row]) => row.node);
    if (nodes.length !== body.children.length || nodes.some((node, index) => node !== body.children[index])) {
      body.replaceChildren(...nodes);
    }
  };
  update([]);
  return { node: h("div", null, scroll, nothing), update };
}

// --- forms ---------------------------------------------------------------------------------------

export function field(label, control, hint) {
  const id = newId("field");
  control.id = id;
  const help = hint ? h("p", { class: "hint", id: `${id}-hint` }, hint) : null;
  if (help) control.setAttribute("aria-describedby", help.id);
  return h("div", { class: "field" }, h("label", { for: id }, label), control, help);
}

export function check(label, control) {
  const id = newId("check");
  control.id = id;
  return h("div", { class: "check" }, control, h("label", { for: id }, label));
}

export function select(options, chosen) {
  const made = options.map((one) => {
    const [value, text] = Array.isArray(one) ? one : [one, one];
    return h("option", { value, selected: String(value) === String(chosen) }, text);
  });
  return h("select", null, made);
}

/** A place for what went wrong, or right. */
export function outcome() {
  const node = h("div", { role: "alert", hidden: true });
  return {
    node,
    clear() { node.hidden = true; node.replaceChildren(); },
    fail(error) { node.hidden = false; node.className = ""; node.replaceChildren(problem(error)); },
    done(...text) { node.hidden = false; node.className = "done"; node.replaceChildren(...text); },
  };
}

/** Kafka's name of the error first: it is what the troubleshooting guide is sorted by. */
export function problem(error) {
  const name = error.kafka ?? "CLIENT_ERROR";
  const node = h("div", { class: "alert" }, h("code", null, name), ` ${error.message}`);
  if (error.retriable) node.append(h("span", { class: "note" }, " It may work when it is tried again."));
  return node;
}

export function empty(text) {
  return h("p", { class: "empty" }, text);
}

/** While it works the button is off; what goes wrong is shown. */
export async function busy(button, result, work) {
  result.clear();
  button.disabled = true;
  try {
    await work();
  } catch (error) {
    if (error.name !== "AbortError") result.fail(error);
  } finally {
    button.disabled = false;
  }
}

/** A dialog of the browser's own: it keeps the focus inside, Escape closes it, the focus goes back where it was. */
export function dialog(title, content, { confirm, danger = false, action, cancel = "Cancel" }) {
  const result = outcome();
  const heading = h("h2", { id: newId("title") }, title);
  const go = confirm ? h("button", { class: danger ? "danger" : "primary", type: "submit" }, confirm) : null;
  const leave = h("button", { type: "button", onclick: () => node.close() }, cancel);
  const form = h("form", { method: "dialog" }, heading, content, result.node, h("div", { class: "actions" }, go, leave));
  const node = h("dialog", { "aria-labelledby": heading.id }, form);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (!go) return node.close();
    return busy(go, result, async () => { await action(); node.close(); });
  });
  node.addEventListener("close", () => node.remove());
  document.body.append(node);
  node.showModal();
  return node;
}

export function badge(text, kind) {
  return h("span", { class: kind ? `badge ${kind}` : "badge" }, text);
}

/** Words in `backticks` as code. */
export function prose(text) {
  return text.split("`").map((part, place) => (place % 2 ? h("code", null, part) : part));
}
