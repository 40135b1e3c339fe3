// Calls of the service. The token lives in this tab's session storage and in one header, nowhere else.

const KEY = "sluice.token";
export const CLUSTER = "/v3/clusters/-";

export const token = {
  get: () => sessionStorage.getItem(KEY),
  set: (text) => sessionStorage.setItem(KEY, text),
  forget: () => sessionStorage.removeItem(KEY),
};

export class ApiError extends Error {
  constructor(status, body) {
    super(body.message ?? `the service answered ${status}`);
    this.status = status;
    this.kafka = body.error ?? `HTTP_${status}`;
    this.retriable = body.retriable === true;
    this.details = body.details ?? {};
  }
}

export class Unreachable extends Error {
  constructor() {
    super("The service does not answer.");
    this.kafka = "NETWORK_EXCEPTION";
    this.retriable = true;
  }
}

export function authorization() {
  const text = token.get();
  return text ? { Authorization: `Bearer ${text}` } : {};
}

export async function refusalOf(response) {
  let body = {};
  try {
    body = await response.json();
  } catch {
    // No JSON: not our service. The status has to do.
  }
  return new ApiError(response.status, body);
}

/** `query` leaves out what is null; parts of a path are escaped with `path`. */
export async function call(method, url, { query = {}, body, type = "application/json", signal } = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const address = given.length ? `${url}?${new URLSearchParams(given)}` : url;
  const headers = authorization();
  if (body !== undefined) headers["Content-Type"] = type;
  let response;
  try {
    response = await fetch(address, {
      method, headers, signal, cache: "no-store", body: body === undefined ? undefined : typeof body === "string" ? body : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Unreachable();
  }
  if (!response.ok) {
    const refusal = await refusalOf(response);
    if (response.status === 401) dispatchEvent(new CustomEvent("sluice-signed-out", { detail: refusal }));
    throw refusal;
  }
  return response.status === 204 ? null : response.json();
}

export function path(...parts) {
  return [CLUSTER, ...parts.map((part) => encodeURIComponent(part))].join("/");
}

export const get = (url, options) => call("GET", url, options);
export const post = (url, body, options) => call("POST", url, { ...options, body });
export const del = (url) => call("DELETE", url);
