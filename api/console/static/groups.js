// All consumer groups, those that lag most first.

import { field, h, table } from "./dom.js";
import { count, seconds, whole } from "./format.js";
import { groupLink, statusBadge } from "./overview.js";

export async function page() {
  const filter = h("input", { type: "search", autocomplete: "off" });
  const heading = h("h2", null, "Groups");
  const rows = table("Consumer groups", [
    { title: "Group", keep: true, cell: (row) => groupLink(row.name) },
    { title: "Status", cell: (row) => statusBadge(row.status) },
    { title: "State", cell: (row) => row.state },
    { title: "Members", class: "num", cell: (row) => whole(row.members) },
    { title: "Lag in records", class: "num", cell: (row) => whole(row.lag) },
    { title: "Lag in time", class: "num", cell: (row) => seconds(row.lag_seconds) },
  ], { empty: "There is no consumer group of such a name that you may see.", rowKey: (row) => row.name });
  const trouble = h("p", { class: "alert warn", hidden: true });
  let groups = [];
  const draw = () => {
    const wanted = filter.value.trim().toLowerCase();
    rows.update(groups.filter((row) => row.name.toLowerCase().includes(wanted)));
  };
  filter.addEventListener("input", draw);
  return {
    title: "Consumer groups",
    body: [trouble, h("section", { class: "card" }, h("div", { class: "head" }, heading, h("div", null, field("Filter by name", filter))), rows.node)],
    update(sample) {
      groups = sample.groups;
      heading.textContent = groups.length >= 200 ? "The 200 groups that lag most" : count(groups.length, "group");
      trouble.hidden = !sample.groups_problem;
      trouble.textContent = `Groups cannot be shown: ${sample.groups_problem}`;
      draw();
    },
  };
}
