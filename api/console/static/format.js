// Figures, times and bytes as people read them.

const WHOLE = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const SHORT = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 3, notation: "compact" });
const SMALL = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 3 });

export const whole = (value) => WHOLE.format(value);
export const short = (value) => (Math.abs(value) < 1000 ? SMALL.format(value) : SHORT.format(value));

export function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let place = 0;
  let left = value;
  while (Math.abs(left) >= 1000 && place < units.length - 1) {
    left /= 1024;
    place += 1;
  }
  return `${SMALL.format(left)} ${units[place]}`;
}

export const rate = (value) => `${short(value)}/s`;
export const byteRate = (value) => `${bytes(value)}/s`;
export const millis = (value) => (value === null || value === undefined ? "–" : `${short(value)} ms`);

export function seconds(value) {
  if (value < 60) return `${SMALL.format(value)} s`;
  if (value < 3600) return `${Math.floor(value / 60)} min ${Math.round(value % 60)} s`;
  if (value < 86400) return `${Math.floor(value / 3600)} h ${Math.round((value % 3600) / 60)} min`;
  return `${SMALL.format(value / 86400)} d`;
}

/** [day, time of day], in UTC as everything here. */
export function moment(ms) {
  const date = new Date(ms);
  return Number.isNaN(date.getTime()) ? ["", `${ms} ms`] : date.toISOString().replace("Z", "").split("T");
}

export const time = (ms) => `${moment(ms).join(" ").trim()} UTC`;

export const clock = (ms) => new Date(ms).toISOString().slice(11, 19);
export const count = (number, one, many = `${one}s`) => `${whole(number)} ${number === 1 ? one : many}`;

// --- bytes of records ----------------------------------------------------------------------------

export function fromBase64(text) {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

export function toBase64(data) {
  let text = "";
  for (let at = 0; at < data.length; at += 0x8000) text += String.fromCharCode(...data.subarray(at, at + 0x8000));
  return btoa(text);
}

export const utf8 = (text) => new TextEncoder().encode(text);

/** What bytes are: {kind: null | json | text | bytes, text, size}. Text is shown as it was stored, digit for digit. */
export function reveal(base64) {
  if (base64 === null) return { kind: "null", text: "null", size: 0 };
  const data = fromBase64(base64);
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(data);
  } catch {
    return { kind: "bytes", text: hex(data), size: data.length };
  }
  try {
    JSON.parse(text);
    return { kind: "json", text, size: data.length };
  } catch {
    // eslint-disable-next-line no-control-regex
    const odd = /[\u0000-\u0008\u000e-\u001f\u007f]/.test(text);
    return odd ? { kind: "bytes", text: hex(data), size: data.length } : { kind: "text", text, size: data.length };
  }
}

function hex(data) {
  const lines = [];
  for (let at = 0; at < Math.min(data.length, 4096); at += 16) {
    const row = data.subarray(at, at + 16);
    const codes = [...row].map((one) => one.toString(16).padStart(2, "0")).join(" ");
    const letters = [...row].map((one) => (one > 31 && one < 127 ? String.fromCharCode(one) : ".")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${codes.padEnd(47)}  ${letters}`);
  }
  if (data.length > 4096) lines.push(`… ${whole(data.length - 4096)} more bytes`);
  return lines.join("\n");
}

const TOKEN = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g;

/** JSON with other spacing. JSON.parse would lose digits of large numbers and repeated members; tokens keep them. */
export function spaced(text, indent) {
  if (indent === null) return (text.match(TOKEN) ?? []).join("");
  const tokens = text.match(TOKEN) ?? [];
  let out = "";
  let depth = 0;
  tokens.forEach((token, at) => {
    const line = () => `\n${indent.repeat(depth)}`;
    if (token === "{" || token === "[") {
      depth += 1;
      out += token + (tokens[at + 1] === (token === "{" ? "}" : "]") ? "" : line());
    } else if (token === "}" || token === "]") {
      depth -= 1;
      out += (["{", "["].includes(tokens[at - 1]) ? "" : line()) + token;
    } else if (token === ",") out += token + line();
    else out += token === ":" ? ": " : token;
  });
  return out;
}
