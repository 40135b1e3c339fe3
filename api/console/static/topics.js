// All topics, and the form that makes one.

import { get, path, post } from "./api.js";
import { dialog, field, h, say, select, table } from "./dom.js";
import { bytes, count, rate, whole } from "./format.js";
import { topicLink } from "./overview.js";

export async function page({ signal, reload }) {
  const listed = (await get(path("topics"), { signal })).data;
  const filter = h("input", { type: "search", autocomplete: "off" });
  const figures = new Map();
  const rows = table("Topics", [
    { title: "Topic", keep: true, cell: (row) => topicLink(row.topic_name) },
    { title: "Partitions", class: "num", cell: (row) => whole(row.partitions_count) },
    { title: "Records", class: "num", cell: (row) => told(row, (one) => whole(one.records)) },
    { title: "Stored", class: "num", cell: (row) => told(row, (one) => bytes(one.size_bytes)) },
    { title: "Files", class: "num", cell: (row) => told(row, (one) => whole(one.files)) },
    { title: "In", class: "num", cell: (row) => told(row, (one) => rate(one.records_in)) },
    { title: "Out", class: "num", cell: (row) => told(row, (one) => rate(one.records_out)) },
    { title: "", class: "tight", keep: true, cell: (row) => [
      h("a", { href: `#/messages/${encodeURIComponent(row.topic_name)}`, "aria-label": `Messages of ${row.topic_name}` }, "Messages"), " ",
      h("a", { href: `#/produce/${encodeURIComponent(row.topic_name)}`, "aria-label": `Produce to ${row.topic_name}` }, "Produce"),
    ] },
  ], { empty: "No topic that you may see has such a name.", rowKey: (row) => row.topic_name });

  function told(row, of) {
    const found = figures.get(row.topic_name);
    return found ? of(found) : "–";
  }
  function draw() {
    const wanted = filter.value.trim().toLowerCase();
    rows.update(listed.filter((row) => row.topic_name.toLowerCase().includes(wanted)));
  }
  filter.addEventListener("input", draw);
  draw();
  const make = h("button", { class: "primary", type: "button", onclick: () => create(reload) }, "Create topic");
  return {
    title: "Topics",
    actions: make,
    body: [h("section", { class: "card" },
      h("div", { class: "head" }, h("h2", null, count(listed.length, "topic")), h("div", null, field("Filter by name", filter))), rows.node)],
    update(sample) {
      sample.topics.forEach((one) => figures.set(one.name, one));
      draw();
    },
  };
}

function create(reload) {
  const name = h("input", { required: true, maxlength: "249", pattern: "[A-Za-z0-9._\\-]+", autocomplete: "off", spellcheck: "false" });
  const partitions = h("input", { type: "number", min: "1", max: "10000", value: "1", required: true });
  const policy = select([["delete", "delete: by age and size"], ["compact", "compact: last record of each key"], ["compact,delete", "both"]], "delete");
  const days = h("input", { type: "number", min: "0", step: "any", placeholder: "7" });
  const form = h("div", { class: "form two" },
    field("Name", name, "Letters, digits, . _ -"),
    field("Partitions", partitions, "Can be raised later, never lowered"),
    field("Cleanup policy", policy),
    field("Retention in days", days, "Empty: 7. Other configs can be set afterwards."));
  dialog("Create topic", form, {
    confirm: "Create",
    async action() {
      const configs = [{ name: "cleanup.policy", value: policy.value }];
      if (days.value !== "") configs.push({ name: "retention.ms", value: String(Math.round(Number(days.value) * 86_400_000)) });
      await post(path("topics"), { topic_name: name.value, partitions_count: Number(partitions.value), configs });
      say(`Topic ${name.value} was created`);
      await reload();
    },
  });
}
