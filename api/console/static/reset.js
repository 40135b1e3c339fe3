// Moving a group: first what it would do, then the same again for real.

import { path, post } from "./api.js";
import { busy, field, h, outcome, select, table } from "./dom.js";
import { count, whole } from "./format.js";

const WAYS = [
  ["to_earliest", "to the earliest record", null],
  ["to_latest", "to the end", null],
  ["to_offset", "to an offset", "Offset"],
  ["shift_by", "by a number of records", "Records; -100 is back by 100"],
  ["to_datetime", "to a time", "RFC 3339, such as 2026-01-31T08:00:00Z"],
  ["by_duration", "back by a duration", "ISO 8601, such as PT1H"],
  ["to_current", "to where it is", null],
];

export function resetCard(group) {
  const way = select(WAYS.map(([name, text]) => [name, text]), "to_earliest");
  const value = h("input", { autocomplete: "off", spellcheck: "false" });
  const valueField = field("Value", value, "–");
  const topic = select([["", "all its topics"]], "");
  const preview = h("button", { type: "submit" }, "Preview");
  const execute = h("button", { type: "button", class: "primary", disabled: true }, "Execute");
  const result = outcome();
  const plan = table("Plan of the reset", [
    { title: "Topic", cell: (row) => row.topic_name },
    { title: "Partition", class: "num", cell: (row) => String(row.partition_id) },
    { title: "Now", class: "num", cell: (row) => (row.current_offset === null ? "–" : whole(row.current_offset)) },
    { title: "Then", class: "num", cell: (row) => whole(row.new_offset) },
    { title: "Moves by", class: "num", cell: (row) => (row.current_offset === null ? "–" : signed(row.new_offset - row.current_offset)) },
  ], { empty: "A preview shows here what would happen. It changes nothing." });
  let previewed = null;

  function arrange() {
    const hint = WAYS.find(([name]) => name === way.value)[2];
    valueField.hidden = hint === null;
    valueField.querySelector(".hint").textContent = hint ?? "";
    value.required = hint !== null;
    forget();
  }
  function forget() {
    previewed = null;
    execute.disabled = true;
  }
  function asked() {
    const needs = WAYS.find(([name]) => name === way.value)[2] !== null;
    const number = way.value === "to_offset" || way.value === "shift_by";
    const where = topic.value === "" ? { all_topics: true } : { topics: [topic.value] };
    return { [way.value]: needs ? (number ? Number(value.value) : value.value.trim()) : true, ...where };
  }
  way.addEventListener("change", arrange);
  value.addEventListener("input", forget);
  topic.addEventListener("change", forget);
  arrange();

  const form = h("form", { class: "form" }, field("Move", way), valueField, field("Topic", topic), h("div", { class: "actions" }, preview, execute));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    busy(preview, result, async () => {
      forget();
      const body = asked();
      const answer = await post(`${path("consumer-groups", group, "offsets")}:reset`, { ...body, dry_run: true });
      plan.update(answer.plan);
      previewed = answer.plan.length ? body : null;
      execute.disabled = previewed === null;
      if (answer.message) result.done(answer.message);
      else result.done(`Preview: ${count(answer.plan.length, "partition")} would move. Nothing has changed.`);
    });
  });
  execute.addEventListener("click", () => busy(execute, result, async () => {
    const answer = await post(`${path("consumer-groups", group, "offsets")}:reset`, { ...previewed, dry_run: false });
    plan.update(answer.plan);
    result.done(`Done: ${count(answer.plan.length, "partition")} moved.`);
  }).then(forget));

  const known = new Set();
  return {
    node: h("section", { class: "card" }, h("h2", null, "Reset offsets"),
      h("p", { class: "note" }, "Only while the group has no members. Look at the preview first."), form, result.node, plan.node),
    topics(names) {
      for (const name of names.filter((one) => !known.has(one))) {
        known.add(name);
        topic.append(h("option", { value: name }, name));
      }
    },
  };
}

function signed(number) {
  return number > 0 ? `+${whole(number)}` : whole(number);
}
