// The one place where a token is typed in.

import { call, token } from "./api.js";
import { busy, field, h, outcome, problem } from "./dom.js";

export function signin(refusal, onDone) {
  const input = h("input", { type: "password", autocomplete: "off", spellcheck: "false", required: true });
  const result = outcome();
  if (refusal) result.node.replaceChildren(problem(refusal));
  result.node.hidden = !refusal;
  const button = h("button", { class: "primary", type: "submit" }, "Sign in");
  const form = h("form", { class: "card" },
    h("h1", null, "Sign in"),
    h("p", { class: "note" }, "This service asks for an access token. The console keeps it in this tab until the tab is closed, and shows what its grants allow."),
    field("Access token", input, "sluice tokens create prints one: sluice_…"),
    result.node,
    h("div", { class: "actions" }, button));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    busy(button, result, async () => {
      token.set(input.value.trim());
      // Not `get`: that would show this page again.
      const answer = await fetch("/console/session", { headers: { Authorization: `Bearer ${token.get()}` } }).catch(() => null);
      if (answer?.status === 401) {
        token.forget();
        const body = await answer.json();
        throw Object.assign(new Error(body.message), { kafka: body.error });
      }
      if (!answer) await call("GET", "/console/session");
      await onDone();
    });
  });
  return h("div", { class: "signin" }, form);
}
