/** The map: passages, or documents, of like meaning lie near each other, in clusters; results are marked with their rank. */

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
let picked = null; // the cluster that stands out
let looked = null; // the point that is looked at

/** Listen; `open(node)` opens the passage of a point. */
export function listen(open) {
  const canvas = $("map-canvas");
  canvas.addEventListener("pointermove", ({ offsetX, offsetY }) => look(drawing?.at(offsetX, offsetY) ?? null));
  canvas.addEventListener("pointerleave", () => look(null));
  canvas.addEventListener("click", ({ offsetX, offsetY }) => {
    const index = drawing?.at(offsetX, offsetY) ?? null;
    if (index !== null) open(data.node_id[index]);
  });
  canvas.addEventListener("keydown", (event) => {
    if (!data?.x.length || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Enter" && looked !== null) open(data.node_id[looked]);
    else if (event.key in STEPS) look(step(STEPS[event.key]));
    else return;
    event.preventDefault();
  });
  new ResizeObserver(() => draw()).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw());
}

/** Show the map, or hide it. */
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
  drawing.show(looked);
  $("map-state").textContent = told(pins);
}

/** Return the points of the results with their ranks; a document has that of its best passage. */
function pinsOf() {
  const byName = new Map(data.node_id.map((node, index) => [data.level === "document" ? docOf(index).doc_id : node, index]));
  const pins = new Map();
  rows.forEach((row, at) => {
    const index = byName.get(data.level === "document" ? row.doc_id : row.node_id);
    if (index !== undefined && !pins.has(index)) pins.set(index, at + 1);
  });
  return pins;
}

function told(pins) {
  const one = data.level === "document" ? "document" : "passage";
  const drawn = data.x.length < data.points ? `${data.x.length.toLocaleString("en")} of ${count(data.points, one)}` : count(data.points, one);
  const marked = rows.length ? ` ${count(rows.length, "result")}, ${pins.size} marked.` : "";
  const missing = data.missing > 0 ? ` ${count(data.missing, one)} came after it was drawn; draw it again to see them.` : "";
  return `${drawn} in ${count(data.clusters.length, "cluster")}.${marked}${missing}`;
}

const docOf = (index) => data.documents[data.document[index]];

/** Look at a point, or at none: the ring and the words under the map tell which. */
function look(index) {
  if (index === looked || !data) return;
  looked = index;
  drawing.show(looked);
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

/** Return the point that an arrow leads to, first the best result, within the cluster that is picked. */
function step(direction) {
  const among = (index) => picked === null || data.cluster[index] === picked;
  if (looked !== null) return drawing.beside(looked, direction, among);
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

/** Let a cluster stand out, or, where it does already, none. */
function pick(cluster, button) {
  picked = picked === cluster ? null : cluster;
  for (const one of $("map-clusters").querySelectorAll("button")) one.setAttribute("aria-pressed", one === button && picked !== null);
  look(null);
  draw();
}
