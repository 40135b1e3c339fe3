// One topic: what goes through it, its partitions, its log as a picture, its configs.

import { call, del, get, path, post } from "./api.js";
import { badge, dialog, field, h, problem, prose, say, table } from "./dom.js";
import { byteRate, bytes, count, rate, time, whole } from "./format.js";
import { throughput, tiles } from "./overview.js";
import { pictures } from "./picture.js";

export async function page({ params: { topic }, signal, reload }) {
  const [meta, partitions, configs] = await Promise.all([
    get(path("topics", topic), { signal }),
    get(path("topics", topic, "partitions"), { signal }),
    get(path("topics", topic, "configs"), { signal }),
  ]);
  const rows = partitions.data.map((one) => ({ ...one }));
  const figures = tiles(["Records in", "Records out", "Stored", "Records", "Files", "Delta versions"]);
  const charts = throughput((point) => point.topic);
  const list = table("Partitions", [
    { title: "Partition", cell: (row) => String(row.partition_id) },
    { title: "Log start", class: "num", cell: (row) => whole(row.log_start_offset) },
    { title: "High watermark", class: "num", cell: (row) => whole(row.high_watermark) },
    { title: "Log end", class: "num", cell: (row) => whole(row.log_end_offset) },
    { title: "Records", class: "num", cell: (row) => whole(row.high_watermark - row.log_start_offset) },
    { title: "Size", class: "num", cell: (row) => bytes(row.size_bytes) },
    { title: "Delta version", class: "num", cell: (row) => whole(row.version) },
    { title: "State", cell: (row) => (row.problem ? problem({ kafka: "PROBLEM", message: row.problem }) : badge("ok", "good")) },
  ], { rowKey: (row) => row.partition_id });
  list.update(rows);
  const log = pictures(topic, meta.partitions_count, signal);
  const name = encodeURIComponent(topic);

  function update(sample, points) {
    const one = sample.topic;
    if (!one) return;
    figures.set("Records in", rate(one.records_in), byteRate(one.bytes_in));
    figures.set("Records out", rate(one.records_out), byteRate(one.bytes_out));
    figures.set("Stored", bytes(one.size_bytes));
    figures.set("Records", whole(one.records), "between log start and high watermark");
    figures.set("Files", whole(one.files), `${whole(one.small_files)} below 1 MiB`);
    figures.set("Delta versions", rate(one.versions));
    charts.forEach((chart) => chart.update(points));
    let moved = false;
    for (const told of one.list) {
      const row = rows[told.partition];
      if (row && row.version !== told.version) moved = true;
      if (row) Object.assign(row, told);
    }
    list.update(rows);
    if (moved) log.refresh();
  }

  return {
    title: topic,
    crumb: h("a", { href: "#/topics" }, "Topics"),
    watch: { topic },
    actions: h("div", { class: "actions" },
      h("a", { class: "button", href: `#/messages/${name}` }, "Messages"),
      h("a", { class: "button", href: `#/produce/${name}` }, "Produce"),
      h("button", { type: "button", onclick: () => grow(topic, meta.partitions_count, reload) }, "Add partitions"),
      h("button", { type: "button", class: "danger", onclick: () => remove(topic) }, "Delete topic")),
    body: [
      h("p", { class: "note" }, `${count(meta.partitions_count, "partition")}, made ${time(meta.created_ms)}, id ${meta.topic_id}`),
      figures.node,
      h("div", { class: "cards" }, charts.map((chart) => chart.node)),
      h("section", { class: "card" }, h("h2", null, "Partitions"), list.node),
      log.node,
      configCard(topic, configs.data, reload),
    ],
    update,
  };
}

// --- configs -------------------------------------------------------------------------------------

function configCard(topic, entries, reload) {
  const rows = table("Configs", [
    { title: "Config", class: "break", cell: (row) => [h("code", null, row.name), " ", row.is_default ? "" : badge("set here"), h("span", { class: "doc" }, prose(row.doc))] },
    { title: "Value", class: "value", cell: (row) => (row.value ? h("span", { class: "mono" }, row.value) : h("span", { class: "null" }, row.value === null ? "server's setting" : "none")) },
    { title: "", class: "tight", cell: (row) => h("button", { type: "button", class: "small", "aria-label": `Edit ${row.name}`, onclick: () => edit(topic, row, reload) }, "Edit") },
  ]);
  const sorted = [...entries].sort((one, other) => Number(one.is_default) - Number(other.is_default) || one.name.localeCompare(other.name));
  rows.update(sorted);
  return h("section", { class: "card" }, h("h2", null, "Configs"), rows.node);
}

function edit(topic, entry, reload) {
  const input = h("input", { value: entry.value ?? "", required: true, autocomplete: "off", spellcheck: "false" });
  const url = path("topics", topic, "configs", entry.name);
  const back = h("button", { type: "button", disabled: entry.is_default, onclick: async () => { await del(url); box.close(); say(`${entry.name} is the default again`); await reload(); } }, "Back to the default");
  const box = dialog(entry.name, [h("p", { class: "note" }, prose(entry.doc)), field("Value", input), back], {
    confirm: "Set",
    async action() {
      await call("PUT", url, { body: { value: input.value } });
      say(`${entry.name} was set`);
      await reload();
    },
  });
}

// --- the topic itself ----------------------------------------------------------------------------

function grow(topic, now, reload) {
  const input = h("input", { type: "number", min: String(now + 1), value: String(now + 1), required: true });
  dialog("Add partitions", [field("Partitions", input, "Keys may go to other partitions than before.")], {
    confirm: "Add",
    async action() {
      await call("PATCH", path("topics", topic), { body: { partitions_count: Number(input.value) } });
      say(`${topic} has ${input.value} partitions`);
      await reload();
    },
  });
}

function remove(topic) {
  const input = h("input", { required: true, autocomplete: "off", spellcheck: "false" });
  const text = h("p", null, "All records of ", h("b", null, topic), " will be deleted. This cannot be undone.");
  dialog("Delete topic", [text, field("Type the name of the topic", input)], {
    confirm: "Delete",
    danger: true,
    async action() {
      if (input.value !== topic) throw Object.assign(new Error("The name is not that of the topic."), { kafka: "NOT_CONFIRMED" });
      await del(path("topics", topic));
      say(`Topic ${topic} was deleted`);
      location.hash = "#/topics";
    },
  });
}
