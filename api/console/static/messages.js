// The message browser: a form that says which records, and a table of them that opens.

import { get, path } from "./api.js";
import { badge, busy, empty, field, h, newId, outcome, say, select } from "./dom.js";
import { bytes, count, moment, reveal, spaced, time, whole } from "./format.js";
import { Browser, Tail } from "./reading.js";

const MOST_SHOWN = 500;
const WAYS = [["end", "From the end"], ["offset", "From an offset"], ["time", "From a time"], ["key", "Of a key"]];

export async function page({ params: { topic }, signal }) {
  const topics = (await get(path("topics"), { signal })).data;
  const names = topics.map((one) => one.topic_name);
  const chosenTopic = select([["", "choose a topic"], ...new Set(topic ? [topic, ...names].sort() : names)], topic ?? "");
  chosenTopic.addEventListener("change", () => { location.hash = `#/messages/${encodeURIComponent(chosenTopic.value)}`; });
  const choose = field("Topic", chosenTopic);
  if (!topic) {
    const text = names.length ? "Choose a topic to look at its records." : "There is no topic that you may see.";
    return { title: "Messages", body: [h("section", { class: "card" }, h("div", { class: "form" }, choose), empty(text))] };
  }
  const browser = new Browser(topic, signal);
  const partitions = await browser.partitions();
  return browse(topic, browser, partitions.length, choose, signal);
}

function browse(topic, browser, partitionCount, choose, signal) {
  const partition = select([["", "all"], ...Array(partitionCount).keys()], partitionCount === 1 ? 0 : "");
  const way = select(WAYS, "end");
  const offset = h("input", { type: "number", min: "0", value: "0", required: true });
  const since = h("input", { type: "datetime-local", step: "1", required: true });
  const key = h("input", { autocomplete: "off", spellcheck: "false" });
  const keyFormat = select([["json", "JSON"], ["string", "text"], ["binary", "base64"]], "json");
  const most = select([20, 50, 100, 500], 50);
  const fields = {
    offset: [field("Offset", offset)],
    time: [field("Time (UTC)", since)],
    key: [field("Key", key, "c-7 is taken as the JSON string \"c-7\""), field("Key is", keyFormat)],
  };
  const extra = Object.values(fields).flat();
  const find = h("button", { class: "primary", type: "submit" }, "Show");
  const tailing = h("button", { type: "button", "aria-pressed": "false" }, "Live tail");
  const form = h("form", { class: "form" }, choose, field("Partition", partition), field("Start", way), extra,
    field("Records", most), h("div", { class: "actions" }, find, tailing));
  const result = outcome();
  const note = h("p", { class: "note", role: "status" });
  const older = h("button", { type: "button" }, "Older");
  const newer = h("button", { type: "button" }, "Newer");
  const list = recordTable();
  let tail = null;

  function arrange() {
    extra.forEach((one) => { one.hidden = !(fields[way.value] ?? []).includes(one); });
    offset.disabled = way.value !== "offset";
    since.disabled = way.value !== "time";
  }
  way.addEventListener("change", arrange);
  arrange();

  function asked(further) {
    const number = Number(most.value);
    if (way.value === "offset") return browser.fromOffset(partition.value, number, Number(offset.value));
    if (way.value === "time") return browser.fromTime(partition.value, number, Date.parse(`${since.value}Z`));
    if (way.value === "key") return browser.ofKey(partition.value, number, keyText(key.value, keyFormat.value), keyFormat.value, further);
    return browser.fromEnd(partition.value, number);
  }
  function shown(found, { add = false } = {}) {
    if (add) list.append(found.records);
    else list.show(found.records);
    const byKey = way.value === "key";
    older.hidden = byKey ? browser.before === null : ![...browser.windows.values()].some((one) => one.from > one.start);
    newer.hidden = byKey;
    older.textContent = byKey ? "Look further back" : "Older";
    note.textContent = byKey
      ? `${count(found.records.length, "record")} found in partition ${found.partition}; ${whole(found.scanned)} looked at${browser.before === null ? ", to the start of the log" : ""}.`
      : `${count(found.records.length, "record")}, newest first.`;
  }
  const run = (button, work) => busy(button, result, work);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    stopTail();
    run(find, async () => shown(await asked(false)));
  });
  older.addEventListener("click", () => run(older, async () => {
    if (way.value === "key") shown(await asked(true), { add: true });
    else shown(await browser.turn(false, Number(most.value)));
  }));
  newer.addEventListener("click", () => run(newer, async () => shown(await browser.turn(true, Number(most.value)))));

  function stopTail() {
    tail = null;
    tailing.setAttribute("aria-pressed", "false");
  }
  tailing.addEventListener("click", () => run(tailing, async () => {
    if (tail) {
      stopTail();
      note.textContent = "The live tail is stopped.";
      return;
    }
    let seen = 0;
    const begun = new Tail(browser, partition.value, (records) => {
      seen += records.length;
      list.prepend(records);
      note.textContent = `Live: ${count(seen, "new record")}, newest first.`;
    });
    await begun.start();
    list.show([]);
    older.hidden = newer.hidden = true;
    tail = begun;
    tailing.setAttribute("aria-pressed", "true");
    note.textContent = "Live: waiting for new records.";
  }));
  signal.addEventListener("abort", stopTail);

  run(find, async () => shown(await asked(false)));
  return {
    title: "Messages",
    watch: { topic },
    actions: h("div", { class: "actions" },
      h("a", { class: "button", href: `#/topics/${encodeURIComponent(topic)}` }, "Topic"),
      h("a", { class: "button", href: `#/produce/${encodeURIComponent(topic)}` }, "Produce")),
    body: [
      h("section", { class: "card" }, form),
      h("section", { class: "card" }, h("div", { class: "head" }, note, h("div", { class: "actions" }, older, newer)), result.node, list.node),
    ],
    update(sample) {
      tail?.wake(sample.topic?.list ?? []).catch((error) => { if (error.name !== "AbortError") result.fail(error); });
    },
  };
}

function keyText(text, format) {
  if (format !== "json") return text;
  try {
    JSON.parse(text);
    return text;
  } catch {
    return JSON.stringify(text);
  }
}

// --- the table -----------------------------------------------------------------------------------

function recordTable() {
  const body = h("tbody");
  const columns = [["", "tight"], ["Partition", "num"], ["Offset", "num"], ["Time (UTC)", "tight"], ["Key", ""], ["Value", ""]];
  const head = h("tr", null, columns.map(([title, name]) => (title ? h("th", { scope: "col", class: name }, title) : h("td", { class: name }))));
  const scroll = h("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": "Records" },
    h("table", null, h("caption", { class: "unseen" }, "Records"), h("thead", null, head), body));
  const nothing = empty("No records here.");
  const look = () => { scroll.hidden = !body.children.length; nothing.hidden = !scroll.hidden; };
  look();
  return {
    node: h("div", null, scroll, nothing),
    show(records) { body.replaceChildren(...records.flatMap(row)); look(); },
    append(records) { body.append(...records.flatMap(row)); look(); },
    prepend(records) {
      body.prepend(...records.flatMap(row));
      while (body.children.length > 2 * MOST_SHOWN) body.lastElementChild.remove();
      look();
    },
  };
}

/** Two rows: the record in one line, and what opens below it. */
function row(record) {
  const key = reveal(record.key);
  const value = reveal(record.value);
  const [day, hour] = moment(record.timestamp);
  const id = newId("record");
  const more = h("tr", { class: "detail", id, hidden: true });
  const open = h("button", { type: "button", class: "plain", "aria-expanded": "false", "aria-controls": id, "aria-label": `Record ${record.partition}:${record.offset}` }, "▸");
  open.addEventListener("click", () => {
    if (!more.children.length) more.append(h("td", { colspan: "6" }, h("div", { class: "within" }, detail(record, key, value))));
    more.hidden = !more.hidden;
    open.setAttribute("aria-expanded", String(!more.hidden));
    open.textContent = more.hidden ? "▸" : "▾";
  });
  const line = h("tr", null,
    h("td", { class: "tight" }, open),
    h("td", { class: "num" }, String(record.partition)),
    h("td", { class: "num" }, whole(record.offset)),
    h("td", { class: "tight" }, h("span", { class: "date" }, `${day} `), hour),
    h("td", { class: "preview key" }, preview(key)),
    h("td", { class: "preview" }, record.value === null ? badge("tombstone", "warn") : preview(value)));
  return [line, more];
}

function preview(shown) {
  if (shown.kind === "null") return h("span", { class: "null" }, "null");
  if (shown.kind === "bytes") return h("span", { class: "null" }, `${bytes(shown.size)} of bytes`);
  return shown.text.slice(0, 300);
}

function detail(record, key, value) {
  const copy = h("button", { type: "button", class: "small", onclick: async () => { await navigator.clipboard.writeText(value.text); say("Copied"); } }, "Copy value");
  const facts = h("dl", { class: "facts" },
    h("dt", null, "Time"), h("dd", null, `${time(record.timestamp)} (${record.timestamp})`),
    h("dt", null, "Key"), h("dd", null, key.kind === "null" ? h("span", { class: "null" }, "null") : [h("code", null, key.text), ` ${key.kind}, ${bytes(key.size)}`]),
    h("dt", null, "Value"), h("dd", null, record.value === null ? "null: a tombstone, compaction deletes the key" : `${value.kind}, ${bytes(value.size)}`),
    record.headers.map((one) => {
      const text = reveal(one.value);
      return [h("dt", null, "Header"), h("dd", null, h("code", null, one.name), " = ", text.kind === "null" ? h("span", { class: "null" }, "null") : h("code", null, text.text))];
    }));
  if (record.value === null) return facts;
  return [facts, h("pre", { tabindex: "0", role: "region", "aria-label": "Value" }, value.kind === "json" ? spaced(value.text, "  ") : value.text), h("p", { class: "actions" }, copy)];
}
