// One consumer group: how far behind it is, who reads what, and the form that moves it.

import { del, get, path } from "./api.js";
import { lineChart } from "./charts.js";
import { dialog, empty, h, say, table } from "./dom.js";
import { count, seconds, short, time, whole } from "./format.js";
import { statusBadge, tiles, topicLink } from "./overview.js";
import { resetCard } from "./reset.js";

const MATRIX_COLUMNS = 128;

export async function page({ params: { group }, signal }) {
  await get(path("consumer-groups", group), { signal });
  const figures = tiles(["State", "Status", "Members", "Lag in records", "Lag in time", "Generation"]);
  const charts = [
    lineChart("Lag in records", [{ name: "lag", of: (point) => point.group?.lag ?? null }], { format: whole, axis: short }),
    lineChart("Lag in time", [{ name: "oldest record not read", of: (point) => point.group?.lag_seconds ?? null }], { format: seconds, axis: seconds }),
  ];
  const lags = table("Lag by partition", [
    { title: "Topic", keep: true, cell: (row) => topicLink(row.topic) },
    { title: "Partition", class: "num", cell: (row) => String(row.partition) },
    { title: "Committed", class: "num", cell: (row) => whole(row.current_offset) },
    { title: "End", class: "num", cell: (row) => whole(row.log_end_offset) },
    { title: "Lag", class: "num", cell: (row) => whole(row.lag) },
    { title: "Behind", class: "num", cell: (row) => seconds(row.lag_seconds) },
    { title: "Status", cell: (row) => statusBadge(row.status) },
    { title: "Read by", class: "break", cell: (row) => row.member ?? h("span", { class: "null" }, "nobody") },
  ], { empty: "Nothing was committed in a topic that you may see.", rowKey: (row) => `${row.topic}:${row.partition}` });
  const members = table("Members", [
    { title: "Member", class: "break", cell: (row) => h("code", null, row.member_id) },
    { title: "Client", cell: (row) => row.client_id },
    { title: "Host", cell: (row) => row.host },
    { title: "Instance", cell: (row) => row.instance_id ?? "–" },
    { title: "Partitions", class: "num", cell: (row) => whole(row.partitions.length) },
  ], { empty: "The group has no members now.", rowKey: (row) => row.member_id });
  const matrix = h("div", null);
  let drawn = "";
  const reset = resetCard(group);

  function update(sample, points) {
    const one = sample.group;
    if (!one) return;
    figures.set("State", one.state);
    figures.set("Status", statusBadge(one.status));
    figures.set("Members", whole(one.members));
    figures.set("Lag in records", whole(one.lag));
    figures.set("Lag in time", seconds(one.lag_seconds), "age of the oldest record not read");
    figures.set("Generation", whole(one.generation ?? 0), one.assignor || "no assignor");
    charts.forEach((chart) => chart.update(points));
    lags.update(one.lags ?? []);
    members.update(one.member_list ?? []);
    const state = JSON.stringify([one.member_list, one.lags?.map((lag) => [lag.topic, lag.partition])]);
    if (state !== drawn) {
      drawn = state;
      matrix.replaceChildren(assignment(one.member_list ?? [], one.lags ?? []));
    }
    reset.topics([...new Set((one.lags ?? []).map((lag) => lag.topic))]);
  }
  return {
    title: group,
    crumb: h("a", { href: "#/groups" }, "Consumer groups"),
    watch: { group },
    actions: h("button", { type: "button", class: "danger", onclick: () => remove(group) }, "Delete group"),
    body: [
      figures.node,
      h("div", { class: "cards" }, charts.map((chart) => chart.node)),
      h("section", { class: "card" }, h("h2", null, "Lag by partition"), lags.node),
      h("section", { class: "card" }, h("h2", null, "Assignment"), matrix),
      h("section", { class: "card" }, h("h2", null, "Members"), members.node),
      reset.node,
    ],
    update,
  };
}

/** Members down, partitions across. */
function assignment(members, lags) {
  const owned = members.flatMap((member) => member.partitions);
  const all = new Map([...owned, ...lags.map((lag) => [lag.topic, lag.partition])].map((one) => [one.join("\n"), one]));
  const columns = [...all.values()].sort((one, other) => one[0].localeCompare(other[0]) || one[1] - other[1]);
  if (!members.length) return empty("No members, so nobody reads anything.");
  if (!columns.length) return empty("No partitions are assigned.");
  const shown = columns.slice(0, MATRIX_COLUMNS);
  const topics = [...new Set(shown.map(([topic]) => topic))];
  const head = [
    h("tr", null, h("th", { scope: "col", rowspan: "2" }, "Member"), topics.map((topic) => h("th", { scope: "colgroup", class: "topic", colspan: String(shown.filter(([one]) => one === topic).length) }, topic))),
    h("tr", null, shown.map(([topic, number]) => h("th", { scope: "col" }, h("span", { class: "unseen" }, `${topic} `), String(number)))),
  ];
  const rows = members.map((member) => {
    const mine = new Set(member.partitions.map((one) => one.join("\n")));
    return h("tr", null, h("th", { scope: "row", title: member.member_id }, `${member.client_id || "member"} …${member.member_id.slice(-6)}`),
      shown.map((one) => (mine.has(one.join("\n")) ? h("td", { class: "own" }, "●", h("span", { class: "unseen" }, " reads it")) : h("td", null))));
  });
  const more = columns.length > shown.length ? h("p", { class: "note" }, `${count(columns.length - shown.length, "more partition")} not drawn.`) : null;
  return h("div", null,
    h("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": "Assignment" },
      h("table", { class: "matrix" }, h("caption", { class: "unseen" }, "Which member reads which partition"), h("thead", null, head), h("tbody", null, rows))),
    more);
}

function remove(group) {
  const text = h("p", null, "The committed offsets of ", h("b", null, group), " will be deleted: its next member begins where its reset policy says.");
  dialog("Delete group", text, {
    confirm: "Delete",
    danger: true,
    async action() {
      await del(path("consumer-groups", group));
      say(`Group ${group} was deleted at ${time(Date.now())}`);
      location.hash = "#/groups";
    },
  });
}
