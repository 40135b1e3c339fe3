// Line charts in SVG, drawn anew with every sample. Colour never stands alone: keys carry the name and the number.

import { h, s } from "./dom.js";
import { clock } from "./format.js";

const LETTERS = ["a", "b", "c", "d"];
const HEIGHT = 152;
const LEFT = 58;
const RIGHT = 6;
const TOP = 6;
const BOTTOM = 18;
const GAP_MS = 5_000;
const LEAST_SPAN_MS = 60_000;

/** `series`: [{name, of(point)}]; `of` answers null where there is nothing to say. */
export function lineChart(title, series, { format, axis = format, binary = false }) {
  const keys = series.map((one, place) => {
    const value = h("b", null, "–");
    return { value, node: h("span", { class: LETTERS[place] }, h("i", null), `${one.name} `, value) };
  });
  const svg = s("svg", { role: "img", "aria-label": title });
  const heading = h("h2", null, title);
  const at = h("span", { class: "note" });
  const figure = h("figure", { class: "chart card" },
    h("figcaption", null, heading, at, h("div", { class: "keys" }, keys.map((one) => one.node))), svg);
  let points = [];
  let hovered = null;

  function draw() {
    const width = svg.clientWidth || 480;
    svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    const newest = points.at(-1)?.ms ?? Date.now();
    const oldest = Math.min(points[0]?.ms ?? newest, newest - LEAST_SPAN_MS);
    const values = series.map((one) => points.map(one.of));
    const highest = Math.max(0, ...values.flat().filter((value) => value !== null));
    const ticks = ticksTo(highest, binary);
    const top = ticks.at(-1);
    const x = (ms) => LEFT + ((ms - oldest) / (newest - oldest)) * (width - LEFT - RIGHT);
    const y = (value) => HEIGHT - BOTTOM - (value / top) * (HEIGHT - TOP - BOTTOM);
    const parts = ticks.map((tick) => [
      s("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(tick), y2: y(tick) }),
      s("text", { x: LEFT - 6, y: y(tick) + 4, "text-anchor": "end" }, axis(tick)),
    ]);
    for (const share of width > 420 ? [0, 0.5, 1] : [0, 1]) {
      const anchor = share === 0 ? "start" : share === 1 ? "end" : "middle";
      const ms = oldest + share * (newest - oldest);
      parts.push(s("text", { x: x(ms), y: HEIGHT - 4, "text-anchor": anchor }, clock(ms)));
    }
    series.forEach((_one, place) => parts.push(drawn(points, values[place], x, y, LETTERS[place], place === 0)));
    const shown = hovered === null ? points.length - 1 : nearest(points, oldest + ((hovered - LEFT) / (width - LEFT - RIGHT)) * (newest - oldest));
    if (hovered !== null && points[shown]) {
      parts.push(s("line", { class: "cross", x1: x(points[shown].ms), x2: x(points[shown].ms), y1: TOP, y2: HEIGHT - BOTTOM }));
    }
    at.textContent = hovered !== null && points[shown] ? `at ${clock(points[shown].ms)}` : "";
    series.forEach((_one, place) => {
      const value = values[place][shown];
      keys[place].value.textContent = value === null || value === undefined ? "–" : format(value);
    });
    svg.setAttribute("aria-label", `${title}: ${series.map((one, place) => `${one.name} ${keys[place].value.textContent}`).join(", ")}; highest ${format(highest)}`);
    svg.replaceChildren(...parts.flat(Infinity));
  }

  svg.addEventListener("pointermove", (event) => {
    hovered = event.clientX - svg.getBoundingClientRect().left;
    draw();
  });
  svg.addEventListener("pointerleave", () => {
    hovered = null;
    draw();
  });
  new ResizeObserver(() => draw()).observe(svg);
  return { node: figure, update(next) { points = next; draw(); } };
}

function drawn(points, values, x, y, letter, filled) {
  const runs = [];
  let before = null;
  points.forEach((point, place) => {
    if (values[place] === null || values[place] === undefined) {
      before = null;
      return;
    }
    if (before === null || point.ms - before > GAP_MS) runs.push([]);
    runs.at(-1).push([x(point.ms), y(values[place])]);
    before = point.ms;
  });
  return runs.map((run) => {
    const path = run.map(([left, height]) => `${left.toFixed(1)},${height.toFixed(1)}`).join(" ");
    if (run.length === 1) return s("circle", { class: `dot ${letter}`, cx: run[0][0], cy: run[0][1], r: 1.8 });
    const line = s("polyline", { class: `line ${letter}`, points: path });
    if (!filled) return line;
    const foot = y(0).toFixed(1);
    const area = `${run[0][0].toFixed(1)},${foot} ${path} ${run.at(-1)[0].toFixed(1)},${foot}`;
    return [s("polygon", { class: `area ${letter}`, points: area }), line];
  });
}

function nearest(points, ms) {
  let best = 0;
  points.forEach((point, place) => {
    if (Math.abs(point.ms - ms) < Math.abs(points[best].ms - ms)) best = place;
  });
  return best;
}

/** From 0 to just above the highest value, in three or four even steps of 1, 2 or 5. */
export function ticksTo(highest, binary) {
  if (highest <= 0) return [0, 1];
  const base = binary ? 1024 ** Math.floor(Math.log(highest) / Math.log(1024)) : 1;
  const rough = highest / base / 3;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough) * base;
  const ticks = [0];
  while (ticks.at(-1) < highest) ticks.push(ticks.length * step);
  return ticks;
}
