// Maintenance: what the jobs did, run by run, and what the service does by itself.

import { get, path } from "./api.js";
import { badge, empty, h, prose, table } from "./dom.js";
import { bytes, seconds, time, whole } from "./format.js";

const KINDS = { done: "good", "nothing to do": "", failed: "bad", stopped: "warn" };

export async function page({ params: { job }, signal }) {
  return job ? runsPage(job, signal) : listPage(signal);
}

function outcomeBadge(report) {
  return badge(report.outcome, KINDS[report.outcome]);
}

async function listPage(signal) {
  const found = await get(path("jobs"), { signal });
  const jobs = table("Jobs", [
    { title: "Job", cell: (row) => h("a", { href: `#/jobs/${encodeURIComponent(row.job)}` }, row.job) },
    { title: "Schedule (UTC)", cell: (row) => (row.schedule ? h("code", null, row.schedule) : h("span", { class: "null" }, "none")) },
    { title: "Last run", cell: (row) => (row.last ? time(row.last.started_ms) : h("span", { class: "null" }, "never")) },
    { title: "Outcome", cell: (row) => [row.last ? outcomeBadge(row.last) : "", row.running ? badge("running, or killed", "warn") : ""] },
    { title: "Steps", class: "num", cell: (row) => (row.last ? `${whole(row.last.done)} of ${whole(row.last.planned)}` : "–") },
    { title: "Took", class: "num", cell: (row) => (row.last ? seconds(row.last.seconds) : "–") },
    { title: "Freed", class: "num", cell: (row) => (row.last ? bytes(row.last.bytes) : "–") },
  ]);
  jobs.update(found.data);
  const own = table("What the service does by itself", [
    { title: "Counter", cell: (row) => h("code", null, row.name) },
    { title: "Since the start", class: "num", cell: (row) => whole(row.count) },
    { title: "Meaning", class: "break", cell: (row) => prose(row.doc) },
  ]);
  own.update(found.service);
  return {
    title: "Jobs",
    body: [
      h("section", { class: "card" }, h("h2", null, "Last runs"), jobs.node,
        h("p", { class: "note" }, "Jobs run beside the service: ", h("code", null, "sluice jobs schedule"), " runs them in time, ", h("code", null, "sluice jobs run NAME --dry-run"), " prints a plan and changes nothing.")),
      h("section", { class: "card" }, h("h2", null, "What the service does by itself"), own.node),
    ],
  };
}

async function runsPage(job, signal) {
  const runs = (await get(path("jobs", job, "runs"), { signal })).data;
  return {
    title: `Job ${job}`,
    crumb: h("a", { href: "#/jobs" }, "Jobs"),
    body: runs.length ? runs.map((run, place) => card(run, place === 0)) : [h("section", { class: "card" }, empty("This job has not run yet."))],
  };
}

function card(run, open) {
  const facts = [
    ["Plan", `${whole(run.planned)} steps: ${whole(run.done)} done, ${whole(run.refused)} came too late`],
    ["Records", whole(run.records)],
    ["Freed", bytes(run.bytes)],
    ["Files", `${whole(run.files_removed)} removed, ${whole(run.files_added)} added`],
    ["Mode", run.mode],
    ...Object.entries(run.facts ?? {}).map(([name, value]) => [name, typeof value === "object" ? JSON.stringify(value) : String(value)]),
  ];
  const head = h("summary", null, `${time(run.started_ms)}, ${seconds(run.seconds)} `, outcomeBadge(run));
  return h("section", { class: "card" }, h("details", { open }, head,
    run.error ? h("p", { class: "alert" }, h("code", null, "FAILED"), ` ${run.error}`) : null,
    h("dl", { class: "facts" }, facts.map(([name, value]) => [h("dt", null, name), h("dd", null, value)])),
    (run.notes ?? []).length ? h("ul", { class: "note" }, run.notes.map((note) => h("li", null, note))) : null,
    rowsOf(run)));
}

function rowsOf(run) {
  const rows = run.rows ?? [];
  if (!rows.length) return null;
  const names = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  const shown = table(`Report of run ${run.run_id}`, names.map((name) => ({ title: name, class: "break", cell: (row) => (row[name] === undefined ? "" : typeof row[name] === "object" ? JSON.stringify(row[name]) : String(row[name])) })));
  shown.update(rows);
  return shown.node;
}
