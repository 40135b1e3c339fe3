// One record, by hand.

import { call, get, path } from "./api.js";
import { busy, field, h, newId, outcome, select, table } from "./dom.js";
import { clock, millis, spaced, toBase64, utf8, whole } from "./format.js";

const JSON_V2 = "application/vnd.kafka.json.v2+json";
const BINARY_V2 = "application/vnd.kafka.binary.v2+json";
const FORMS = [["json", "JSON"], ["string", "text"], ["binary", "base64"]];

export async function page({ params: { topic }, signal }) {
  const names = (await get(path("topics"), { signal })).data.map((one) => one.topic_name);
  const listId = newId("topics");
  const name = h("input", { value: topic ?? "", list: listId, required: true, autocomplete: "off", spellcheck: "false" });
  const partition = h("input", { type: "number", min: "0", placeholder: "by key, or in turn" });
  const acks = select([["", "topic's setting"], ["all", "all: committed to Delta"], ["1", "1: in the write-ahead log"], ["0", "0: none"]], "");
  const keyForm = select([["none", "none"], ...FORMS], "json");
  const key = h("input", { autocomplete: "off", spellcheck: "false" });
  const valueForm = select([...FORMS, ["tombstone", "tombstone (null)"]], "json");
  const value = h("textarea", { rows: "8", spellcheck: "false", value: '{"item": "lamp"}' });
  const headers = headerRows();
  const send = h("button", { class: "primary", type: "submit" }, "Send");
  const result = outcome();
  const sent = [];
  const log = table("Sent from here", [
    { title: "At", cell: (row) => clock(row.at) },
    { title: "Topic", cell: (row) => h("a", { href: `#/messages/${encodeURIComponent(row.topic)}` }, row.topic) },
    { title: "Partition", class: "num", cell: (row) => String(row.partition) },
    { title: "Offset", class: "num", cell: (row) => (row.offset < 0 ? "not told" : whole(row.offset)) },
    { title: "Took", class: "num", cell: (row) => millis(row.took) },
  ], { empty: "Nothing was sent yet." });

  keyForm.addEventListener("change", () => { key.disabled = keyForm.value === "none"; });
  valueForm.addEventListener("change", () => { value.disabled = valueForm.value === "tombstone"; });

  async function produce() {
    const { type, body } = bodyOf(keyForm.value, key.value, valueForm.value, value.value, headers.read(), partition.value);
    const begun = performance.now();
    const answer = await call("POST", `/topics/${encodeURIComponent(name.value)}`, { body, type, query: { acks: acks.value } });
    const [found] = answer.offsets;
    if (found.error_code) throw Object.assign(new Error("The record was refused."), { kafka: found.error });
    sent.unshift({ ...found, at: Date.now(), topic: name.value, took: performance.now() - begun });
    log.update(sent.slice(0, 20));
    result.done(found.offset < 0 ? "Sent; acks=0 tells no offset." : `Stored in partition ${found.partition} at offset ${whole(found.offset)}.`);
  }
  const form = h("form", { class: "card" },
    h("div", { class: "form" },
      field("Topic", name), field("Partition", partition), field("Acknowledgement", acks)),
    h("datalist", { id: listId }, names.map((one) => h("option", { value: one }))),
    h("div", { class: "form" }, field("Key is", keyForm), h("div", { class: "grow" }, field("Key", key, "c-7 is taken as the JSON string \"c-7\"; empty: null")), field("Value is", valueForm)),
    field("Value", value),
    headers.node, result.node, h("div", { class: "actions" }, send));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    busy(send, result, produce);
  });
  return { title: "Produce", body: [form, h("section", { class: "card" }, h("h2", null, "Sent from here"), log.node)] };
}

function headerRows() {
  const rows = h("div", null);
  const add = () => {
    const name = h("input", { autocomplete: "off" });
    const value = h("input", { autocomplete: "off" });
    const line = h("div", { class: "form" }, field("Header name", name), field("Header value", value),
      h("div", { class: "actions" }, h("button", { type: "button", class: "small", onclick: () => line.remove() }, "Remove header")));
    line.read = () => ({ name: name.value, value: toBase64(utf8(value.value)) });
    rows.append(line);
    name.focus();
  };
  const node = h("div", null, rows, h("button", { type: "button", class: "small", onclick: add }, "Add header"));
  return { node, read: () => [...rows.children].map((line) => line.read()) };
}

/** Text and base64 go as bytes. JSON goes as it was typed: its digits are not to pass through a number of ours. */
function bodyOf(keyForm, keyText, valueForm, valueText, headers, partition) {
  const hasKey = keyForm !== "none" && keyText !== "";
  const asJson = (!hasKey || keyForm === "json") && ["json", "tombstone"].includes(valueForm);
  const key = !hasKey ? "null" : encoded(keyForm, keyText, asJson, true);
  const value = valueForm === "tombstone" ? "null" : encoded(valueForm, valueText, asJson, false);
  const more = [headers.length ? `,"headers":${JSON.stringify(headers)}` : "", partition === "" ? "" : `,"partition":${Number(partition)}`];
  return { type: asJson ? JSON_V2 : BINARY_V2, body: `{"records":[{"key":${key},"value":${value}${more.join("")}}]}` };
}

function encoded(form, text, asJson, isKey) {
  if (form === "binary") return JSON.stringify(text.trim());
  if (form === "string") return JSON.stringify(toBase64(utf8(text)));
  let json = text;
  try {
    JSON.parse(text);
  } catch (error) {
    if (!isKey) throw Object.assign(new Error(`The value is no JSON: ${error.message}`), { kafka: "INVALID_RECORD" });
    json = JSON.stringify(text);
  }
  return asJson ? json : JSON.stringify(toBase64(utf8(isKey ? spaced(json, null) : json)));
}
