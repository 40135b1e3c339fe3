// A partition's log as a strip: one block for each file, or stretch of files, as wide as its bytes.

import { get, path } from "./api.js";
import { field, h, newId, problem, select, table } from "./dom.js";
import { bytes, count, time, whole } from "./format.js";

const STRIPS = 8;
const KINDS = [
  ["merged", "merged", "merged: 1 MiB and more"],
  ["small", "small-file", "small: merging has still to do them"],
  ["cleaned", "cleaned", "cleaned: compacted by key"],
  ["mixed", "mixed", "several kinds"],
];
const FILL = Object.fromEntries(KINDS.map(([kind, name]) => [kind, name]));

export function pictures(topic, partitions, signal) {
  const body = h("div", null);
  const pages = Math.ceil(partitions / STRIPS);
  const chosen = select([...Array(pages).keys()].map((page) => [page, `${page * STRIPS} to ${Math.min(partitions, (page + 1) * STRIPS) - 1}`]), 0);
  let resting = false;
  let wanted = false;

  /** One look in two seconds, however fast versions come; what comes meanwhile is looked at afterwards. */
  async function refresh() {
    wanted = resting;
    if (resting) return;
    resting = true;
    try {
      const first = Number(chosen.value) * STRIPS;
      const numbers = [...Array(Math.min(STRIPS, partitions - first)).keys()].map((one) => first + one);
      const opened = new Set([...body.querySelectorAll("details[open]")].map((one) => one.dataset.partition));
      const found = await Promise.all(numbers.map((number) => get(path("topics", topic, "partitions", number, "layout"), { signal })));
      body.replaceChildren(...found.map((one) => strip(one, opened)));
    } catch (error) {
      if (error.name !== "AbortError") body.replaceChildren(problem(error));
    } finally {
      setTimeout(() => {
        resting = false;
        if (wanted && !signal.aborted) refresh();
      }, 2_000);
    }
  }
  chosen.addEventListener("change", () => { resting = false; refresh(); });
  refresh();
  const legend = h("ul", { class: "legend" },
    KINDS.map(([, name, text]) => h("li", null, swatch(name, null), text)),
    h("li", null, swatch("merged", "soon"), "about to expire"),
    h("li", null, swatch("merged", "due"), "expires with the next check"));
  const head = h("div", { class: "head" }, h("h2", null, "The log as a picture"), pages > 1 ? h("div", null, field("Partitions", chosen)) : null);
  return { node: h("section", { class: "card" }, head, legend, body), refresh };
}

function swatch(name, expiry) {
  return h("span", { class: `block ${name} ${expiry ?? ""}`, "aria-hidden": "true" });
}

function strip(layout, opened) {
  const { partition_id: number, blocks, segments } = layout;
  const label = newId("strip");
  const facts = `${count(blocks.reduce((sum, one) => sum + one.files, 0), "file")}, ${bytes(blocks.reduce((sum, one) => sum + one.size_bytes, 0))}, ${count(layout.segments_count, "segment")}`;
  const heading = h("h3", { id: label }, `Partition ${number} `, h("span", { class: "note" }, facts));
  if (blocks.length === 0) return h("div", { class: "picture" }, heading, h("p", { class: "empty" }, "No files: nothing was committed, or everything has expired."));
  return h("div", { class: "picture" }, heading, draw(layout, label), detailsOf(layout, segments, opened));
}

function draw({ blocks, segments, log_start_offset: start, high_watermark: end }, label) {
  const total = blocks.reduce((sum, one) => sum + one.size_bytes, 0);
  const begins = new Set(segments.map((segment) => blocks.findIndex((block) => block.end_offset > segment.base_offset)));
  const drawn = blocks.map((block, place) => {
    const text = `${block.kind}, offsets ${whole(block.base_offset)} to ${whole(block.end_offset - 1)}, ${count(block.records, "record")}, ${count(block.files, "file")}, ${bytes(block.size_bytes)}${block.expiry === "none" ? "" : `, expiry ${block.expiry}`}`;
    const node = h("div", { class: `block ${FILL[block.kind]} ${block.expiry} ${begins.has(place) ? "begins" : ""}`, title: text });
    // Every block can be seen: a part of the width is shared evenly, the rest by bytes.
    node.style.flexGrow = String(250 / blocks.length + 750 * (block.size_bytes / total));
    return node;
  });
  return h("div", null,
    h("div", { class: "strip", role: "img", "aria-labelledby": label }, drawn),
    h("div", { class: "ends" }, h("span", null, `log start ${whole(start)}`), h("span", null, `high watermark ${whole(end)}`)));
}

function detailsOf(layout, segments, opened) {
  const rows = table(`Segments of partition ${layout.partition_id}`, [
    { title: "From offset", class: "num", cell: (row) => whole(row.base_offset) },
    { title: "To", class: "num", cell: (row) => whole(Math.max(row.base_offset, row.end_offset - 1)) },
    { title: "Size", class: "num", cell: (row) => bytes(row.size_bytes) },
    { title: "Newest record", cell: (row) => (row.newest_ms === null ? "–" : time(row.newest_ms)) },
    { title: "State", cell: (row) => (row.active ? "active" : "closed") },
    { title: "Expiry", class: "break", cell: (row) => (row.expiry === "none" ? "none yet" : `${row.expiry}: ${row.why}`) },
  ]);
  rows.update(segments);
  const key = String(layout.partition_id);
  const made = h("details", { open: opened.has(key) }, h("summary", null, `Segments of partition ${key}`), rows.node);
  made.dataset.partition = key;
  return made;
}
