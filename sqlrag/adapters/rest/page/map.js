/** The map: passages, or documents, of similar meaning are close to each other; results are marked with their rank. */

import { get } from "./api.js";
import { plot } from "./plot.js";
import { count, element, titleOf } from "./text.js";
import { sentence } from "./words.js";

const $ = (id) => document.getElementById(id);
const STEPS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

let data = null;
let drawing = null;
let loading = false;
let rows = []; // the results that are marked
let picked = null; // the highlighted cluster
let focused = null; // the point with the ring

/** Listen; `open(node)` opens the passage of a point. */
export function listen(open) {
  const canvas = $("map-canvas");
  canvas.addEventListener("pointermove", ({ offsetX, offsetY }) => focus(drawing?.at(offsetX, offsetY) ?? null));
  canvas.addEventListener("pointerleave", () => focus(null));
  canvas.addEventListener("click", ({ offsetX, offsetY }) => {
    const index = drawing?.at(offsetX, offsetY) ?? null;
    if (index !== null) open(data.node_id[index]);
  });
  canvas.addEventListener("keydown", (event) => {
    if (!data?.x.length || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Enter" && focused !== null) open(data.node_id[focused]);
    else if (event.key in STEPS) focus(step(STEPS[event.key]));
    else return;
    event.preventDefault();
  });
  new ResizeObserver(() => draw()).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw());
}

/** Show or hide the map. */
export async function show(shown) {
  $("map").hidden = !shown;
  $("map-toggle").setAttribute("aria-expanded", shown);
  if (!shown || data || loading) return;
  loading = true;
  $("map-state").textContent = "Loading the map …";
  try {
    data = await get("map");
    drawing = plot($("map-canvas"), data);
    $("map-body").hidden = false;
    $("map-clusters").replaceChildren(...clusters());
    draw();
  } catch (error) {
    $("map-state").textContent = error.status === 404 ? error.detail : sentence(error);
  } finally {
    loading = false;
  }
}

/** Mark the results of a search. */
export function mark(results) {
  rows = results;
  draw();
}

function draw() {
  if (!data || $("map").hidden) return;
  const pins = pinsOf();
  drawing.draw({ pins, picked });
  drawing.show(focused);
  $("map-state").textContent = summary(pins);
}

/** Return the points of the results with their ranks; a document has the rank of its best passage. */
function pinsOf() {
  const byName = new Map(data.node_id.map((node, index) => [data.level === "document" ? docOf(index).doc_id : node, index]));
  const pins = new Map();
  rows.forEach((row, at) => {
    const index = byName.get(data.level === "document" ? row.doc_id : row.node_id);
    if (index !== undefined && !pins.has(index)) pins.set(index, at + 1);
  });
  return pins;
}

function summary(pins) {
  const one = data.level === "document" ? "document" : "passage";
  const drawn = data.x.length < data.points ? `${data.x.length.toLocaleString("en")} of ${count(data.points, one)}` : count(data.points, one);
  const marked = rows.length ? ` ${count(rows.length, "result")}, ${pins.size} marked.` : "";
  const missing = data.missing > 0 ? ` ${count(data.missing, one)} added after it was drawn; redraw it to see them.` : "";
  return `${drawn} in ${count(data.clusters.length, "cluster")}.${marked}${missing}`;
}

const docOf = (index) => data.documents[data.document[index]];

/** Focus a point, or none: it gets the ring and the text under the map. */
function focus(index) {
  if (index === focused || !data) return;
  focused = index;
  drawing.show(focused);
  $("map-canvas").classList.toggle("on-point", index !== null);
  $("map-point").textContent = index === null ? "" : named(index);
}

function named(index) {
  const { title, ...names } = docOf(index);
  const of = { ...names, metadata: { title } };
  const heading = titleOf({ heading_path: [data.heading[index]] });
  const rank = pinsOf().get(index);
  const cluster = data.clusters.find((one) => one.cluster === data.cluster[index])?.label;
  return [titleOf(of), heading === titleOf(of) ? "" : heading, cluster && `(${cluster})`, rank && `result ${rank}`].filter(Boolean).join(" · ");
}

/** Return the point in the direction of an arrow key, at first the best result, within the picked cluster. */
function step(direction) {
  const among = (index) => picked === null || data.cluster[index] === picked;
  if (focused !== null) return drawing.neighbour(focused, direction, among);
  const first = [...pinsOf().keys()].find(among) ?? data.cluster.findIndex((_, index) => among(index));
  return first < 0 ? null : first;
}

function clusters() {
  const items = data.clusters.map(({ cluster, label, points }) => {
    const swatch = element("span", { className: cluster >= 10 ? "swatch square" : "swatch", ariaHidden: "true" });
    swatch.style.background = `var(--cluster-${cluster % 10})`;
    const button = element("button", { type: "button", className: "plain" }, swatch, element("span", { dir: "auto" }, label), " ", element("small", {}, points.toLocaleString("en")));
    button.setAttribute("aria-pressed", "false");
    button.addEventListener("click", () => pick(cluster, button));
    return element("li", {}, button);
  });
  const others = data.cluster.filter((cluster) => cluster < 0).length;
  return others ? [...items, element("li", { className: "none" }, `in no cluster: ${others.toLocaleString("en")}`)] : items;
}

/** Highlight a cluster, or stop highlighting it. */
function pick(cluster, button) {
  picked = picked === cluster ? null : cluster;
  for (const one of $("map-clusters").querySelectorAll("button")) one.setAttribute("aria-pressed", one === button && picked !== null);
  focus(null);
  draw();
}
