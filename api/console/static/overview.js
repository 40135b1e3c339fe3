// The first view: is the service well, and what goes through it.

import { badge, h, table } from "./dom.js";
import { lineChart } from "./charts.js";
import { byteRate, bytes, count, millis, rate, seconds, short, whole } from "./format.js";

export function topicLink(name) {
  return h("a", { href: `#/topics/${encodeURIComponent(name)}` }, name);
}

export function groupLink(name) {
  return h("a", { href: `#/groups/${encodeURIComponent(name)}` }, name);
}

export function statusBadge(status) {
  return badge(status, { OK: "good", WARN: "warn", ERR: "bad", STOP: "bad", STALL: "bad" }[status]);
}

export function tiles(names) {
  const values = new Map(names.map((name) => [name, h("dd", null, "–")]));
  const node = h("dl", { class: "tiles" }, names.map((name) => h("div", { class: "tile" }, h("dt", null, name), values.get(name))));
  const set = (name, value, small) => values.get(name).replaceChildren(value, ...(small ? [h("small", null, small)] : []));
  return { node, set };
}

export function throughput(of) {
  return [
    lineChart("Records", [
      { name: "in", of: (point) => of(point)?.records_in ?? null },
      { name: "out", of: (point) => of(point)?.records_out ?? null },
    ], { format: rate, axis: short }),
    lineChart("Bytes", [
      { name: "in", of: (point) => of(point)?.bytes_in ?? null },
      { name: "out", of: (point) => of(point)?.bytes_out ?? null },
    ], { format: byteRate, axis: bytes, binary: true }),
  ];
}

export async function page({ session }) {
  const figures = tiles(["Records in", "Records out", "Ack p99", "Stored", "Delta versions", "Errors"]);
  const charts = [
    ...throughput((point) => point.total),
    lineChart("Ack latency", [
      { name: "p50", of: (point) => point.service.ack_p50_ms },
      { name: "p99", of: (point) => point.service.ack_p99_ms },
    ], { format: millis, axis: millis }),
    lineChart("Delta versions", [{ name: "committed", of: (point) => point.total.versions }], { format: rate, axis: short }),
    lineChart("Storage", [{ name: "live files", of: (point) => point.total.size_bytes }], { format: bytes, binary: true }),
    lineChart("Requests", [
      { name: "all", of: (point) => point.service.requests },
      { name: "errors", of: (point) => point.service.errors },
    ], { format: rate, axis: short }),
  ];
  const topics = table("Busiest topics", [
    { title: "Topic", keep: true, cell: (row) => topicLink(row.name) },
    { title: "In", class: "num", cell: (row) => rate(row.records_in) },
    { title: "Out", class: "num", cell: (row) => rate(row.records_out) },
    { title: "Records", class: "num", cell: (row) => whole(row.records) },
    { title: "Stored", class: "num", cell: (row) => bytes(row.size_bytes) },
  ], { empty: "There is no topic that you may see.", rowKey: (row) => row.name });
  const groups = table("Groups that lag most", [
    { title: "Group", keep: true, cell: (row) => groupLink(row.name) },
    { title: "Status", cell: (row) => statusBadge(row.status) },
    { title: "Members", class: "num", cell: (row) => whole(row.members) },
    { title: "Lag", class: "num", cell: (row) => whole(row.lag) },
    { title: "Behind", class: "num", cell: (row) => seconds(row.lag_seconds) },
  ], { empty: "There is no consumer group that you may see.", rowKey: (row) => row.name });
  const trouble = h("div", { hidden: true });

  function update(sample, points) {
    const { total, service } = sample;
    figures.set("Records in", rate(total.records_in), byteRate(total.bytes_in));
    figures.set("Records out", rate(total.records_out), byteRate(total.bytes_out));
    const ack = points.findLast((point) => point.service.ack_p99_ms !== null)?.service;
    figures.set("Ack p99", millis(ack?.ack_p99_ms), ack ? `p50 ${millis(ack.ack_p50_ms)}, last seen` : "nothing produced lately");
    const partly = total.known < total.partitions ? `${whole(total.known)} of ${count(total.partitions, "partition")} looked at` : `${count(total.files, "file")}, ${whole(total.small_files)} below 1 MiB`;
    figures.set("Stored", bytes(total.size_bytes), partly);
    figures.set("Delta versions", rate(total.versions), `write-ahead log ${short(service.wal_fill * 100)} % full`);
    figures.set("Errors", rate(service.errors), `of ${rate(service.requests)} requests`);
    charts.forEach((chart) => chart.update(points));
    topics.update(sample.topics.slice(0, 8));
    groups.update(sample.groups.slice(0, 8));
    trouble.hidden = !sample.groups_problem;
    trouble.replaceChildren(h("p", { class: "alert warn" }, `Groups cannot be shown: ${sample.groups_problem}`));
  }

  const scope = session.admin ? null : h("p", { class: "note" }, "Throughput, storage and versions count the topics that this token may see; latency and requests are the service's.");
  return {
    title: "Overview",
    body: [
      scope, trouble, figures.node,
      h("div", { class: "cards" }, charts.map((chart) => chart.node)),
      h("div", { class: "cards" },
        h("section", { class: "card" }, h("h2", null, "Busiest topics"), topics.node),
        h("section", { class: "card" }, h("h2", null, "Groups that lag most"), groups.node)),
    ].filter(Boolean),
    update,
  };
}
