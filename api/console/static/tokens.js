// Access tokens: list, create, revoke. A new token's text is shown once and kept nowhere.

import { del, get, path, post } from "./api.js";
import { badge, dialog, field, h, say, table } from "./dom.js";
import { time } from "./format.js";

export async function page({ session, signal, reload }) {
  const listed = (await get(path("tokens"), { signal })).data;
  const rows = table("Access tokens", [
    { title: "Name", class: "value", cell: (row) => row.name },
    { title: "Id", cell: (row) => h("code", null, row.token_id) },
    { title: "Grants", class: "break", cell: (row) => (row.grants.length ? row.grants.map((grant) => [h("code", null, grant), h("br")]) : h("span", { class: "null" }, "none")) },
    { title: "Created", class: "tight", cell: (row) => time(row.created_ms) },
    { title: "Expires", class: "tight", cell: (row) => (row.expires_ms === null ? "never" : time(row.expires_ms)) },
    { title: "State", cell: (row) => [row.expired ? badge("expired", "warn") : badge("valid", "good"), row.token_id === session.token_id ? badge("yours") : ""] },
    { title: "", class: "tight", cell: (row) => h("button", { type: "button", class: "small danger", "aria-label": `Revoke ${row.name}`, onclick: () => revoke(row, reload) }, "Revoke") },
  ], { empty: "There are no tokens: everybody who can reach the service may do everything. The first token must grant admin." });
  rows.update(listed);
  return {
    title: "Access tokens",
    actions: h("button", { class: "primary", type: "button", onclick: () => create(listed.length === 0, reload) }, "Create token"),
    body: [h("section", { class: "card" }, rows.node)],
  };
}

function create(isFirst, reload) {
  const name = h("input", { required: true, maxlength: "200", autocomplete: "off" });
  const grants = h("textarea", { rows: "4", spellcheck: "false", value: isFirst ? "admin" : "" });
  const days = h("input", { type: "number", min: "1", placeholder: "never" });
  const form = h("div", { class: "form two" },
    field("Name", name, "What it is for"),
    field("Expires in days", days, "Empty: when it is revoked"),
    h("div", { class: "whole" }, field("Grants, one in a line", grants, "admin, or produce|consume|admin:topic|group:PATTERN, such as consume:topic:orders*")));
  dialog("Create token", form, {
    confirm: "Create",
    async action() {
      const wanted = grants.value.split("\n").map((line) => line.trim()).filter(Boolean);
      const expires = days.value === "" ? null : Number(days.value) * 86_400_000;
      const made = await post(path("tokens"), { name: name.value, grants: wanted, expires_in_ms: expires });
      reveal(made);
      await reload();
    },
  });
}

function reveal(made) {
  const text = h("p", { class: "secret mono" }, made.token);
  const copy = h("button", { type: "button", onclick: async () => { await navigator.clipboard.writeText(made.token); say("Copied"); } }, "Copy");
  dialog(`Token ${made.name}`, [h("p", null, "It is shown this once. Keep it where secrets are kept."), text, copy], { cancel: "Close" });
}

function revoke(row, reload) {
  const text = h("p", null, "Whoever uses ", h("b", null, row.name), " is refused from the next request on.");
  dialog("Revoke token", text, {
    confirm: "Revoke",
    danger: true,
    async action() {
      await del(path("tokens", row.token_id));
      say(`Token ${row.name} was revoked`);
      await reload();
    },
  });
}
