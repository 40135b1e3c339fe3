// The frame around the pages: who is signed in, which page the address names, and the stream that feeds it.

import { get, token } from "./api.js";
import { h, problem, say } from "./dom.js";
import { Live } from "./live.js";
import * as overview from "./overview.js";

/** Patterns by their first part. Everything but the first view is loaded when it is asked for. */
const ROUTES = [
  { path: [], load: async () => overview },
  { path: ["topics"], load: () => import("./topics.js") },
  { path: ["topics", ":topic"], load: () => import("./topic.js") },
  { path: ["messages"], load: () => import("./messages.js") },
  { path: ["messages", ":topic"], load: () => import("./messages.js") },
  { path: ["produce"], load: () => import("./produce.js") },
  { path: ["produce", ":topic"], load: () => import("./produce.js") },
  { path: ["groups"], load: () => import("./groups.js") },
  { path: ["groups", ":group"], load: () => import("./group.js") },
  { path: ["jobs"], load: () => import("./jobs.js") },
  { path: ["jobs", ":job"], load: () => import("./jobs.js") },
  { path: ["tokens"], load: () => import("./tokens.js") },
];

const main = document.getElementById("main");
const nav = document.getElementById("nav");
const menu = document.getElementById("menu");
const state = document.getElementById("live");
let session = null;
let leaving = null;
let first = true;

const live = new Live((kind, text) => {
  state.hidden = false;
  state.className = `state ${kind}`;
  // Said once: a screen reader need not hear every second that all is well.
  if (state.textContent !== text) state.textContent = text;
});

function routeOf(hash) {
  const parts = hash.replace(/^#\/?/, "").split("/").filter(Boolean).map(decoded);
  for (const route of ROUTES) {
    if (route.path.length !== parts.length) continue;
    const params = {};
    const fits = route.path.every((part, place) => {
      if (!part.startsWith(":")) return part === parts[place];
      params[part.slice(1)] = parts[place];
      return true;
    });
    if (fits) return { route, params, area: parts[0] ?? "" };
  }
  return null;
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

async function show() {
  leaving?.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  closeMenu();
  if (session === null && !(await signedIn())) return;
  if (signal.aborted) return;
  const found = routeOf(location.hash);
  for (const link of nav.querySelectorAll("a")) {
    const area = link.getAttribute("href").replace(/^#\/?/, "");
    if (found && area === found.area) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (!found) {
    put("Not found", [heading("Not found"), h("p", null, "There is no such page. ", h("a", { href: "#/" }, "Overview"))]);
    return;
  }
  try {
    const module = await found.route.load();
    const page = await module.page({ params: found.params, session, signal, reload: show });
    if (signal.aborted) return;
    put(page.title, [heading(page.title, page.crumb, page.actions), ...page.body]);
    live.watch(page.watch ?? {}, (sample, points) => {
      if (!signal.aborted) page.update?.(sample, points);
    });
  } catch (error) {
    if (signal.aborted || error.name === "AbortError" || error.status === 401) return;
    put("Refused", [heading("This cannot be shown"), problem(error)]);
    if (!error.kafka) throw error;
  }
}

function heading(title, crumb, actions) {
  const node = h("h1", { tabindex: "-1" }, title);
  const left = h("div", null, crumb ? h("p", { class: "crumb" }, crumb) : null, node);
  return h("div", { class: "head" }, left, actions ?? null);
}

function put(title, nodes) {
  document.title = `${title} · Sluice`;
  main.replaceChildren(...nodes);
  // After a change of page the keyboard goes on at its heading.
  if (!first) main.querySelector("h1")?.focus();
  first = false;
  scrollTo(0, 0);
}

// --- who -----------------------------------------------------------------------------------------

async function signedIn() {
  try {
    session = await get("/console/session");
  } catch (error) {
    if (error.status !== 401) put("No answer", [heading("The service cannot be asked"), problem(error), again()]);
    return false;
  }
  const { name, admin, tokens_in_use: asks, cluster_id: cluster, version } = session;
  document.getElementById("who").textContent = asks ? `${name}${admin ? " (admin)" : ""}` : "no tokens: everybody may do everything";
  document.getElementById("about").textContent = `Sluice ${version}, cluster ${cluster}`;
  document.getElementById("signout").hidden = !asks;
  return true;
}

function again() {
  return h("button", { type: "button", onclick: show }, "Try again");
}

async function askForToken(refusal) {
  live.stop();
  session = null;
  state.hidden = true;
  document.getElementById("who").textContent = "";
  document.getElementById("signout").hidden = true;
  const { signin } = await import("./signin.js");
  const had = token.get() !== null;
  token.forget();
  const page = signin(had ? refusal : null, () => { first = false; return show(); });
  document.title = "Sign in · Sluice";
  main.replaceChildren(page);
  main.querySelector("input")?.focus();
}

addEventListener("sluice-signed-out", (event) => askForToken(event.detail));
document.getElementById("signout").addEventListener("click", () => {
  token.forget();
  leaving?.abort();
  say("Signed out");
  askForToken(null);
});

// --- keys and the menu of small screens ----------------------------------------------------------

function closeMenu() {
  nav.classList.remove("open");
  menu.setAttribute("aria-expanded", "false");
}

menu.addEventListener("click", () => {
  const open = nav.classList.toggle("open");
  menu.setAttribute("aria-expanded", String(open));
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && nav.classList.contains("open")) {
    closeMenu();
    menu.focus();
  }
});
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address names the page
  main.focus();
});
addEventListener("hashchange", show);
show();
