/** The list of results: the place of each, its text with marked words, and its rank and score in each leg. */

import { element, excerpt, marked, titleOf, toUnits } from "./text.js";

const EXCERPT = 380;
const FURTHER = 5;
const LEGS = [
  ["vector", "Meaning", "cosine", 3],
  ["lexical", "Words", "BM25", 2],
];

/**
 * Return the items of the list. `spans` has the marks of each text; `hrefOf(id)` returns the address of a source; `further`
 * has the ids of the passages that are not shown, by document.
 */
export function items(rows, spans, mode, hrefOf, further) {
  const legs = LEGS.filter(([leg]) => mode === "hybrid" || leg === (mode === "words" ? "lexical" : "vector"));
  const best = Math.max(...rows.map((row) => row.lexical_score ?? 0), Number.MIN_VALUE);
  const last = new Map(rows.map((row, index) => [row.doc_id, index]));
  return rows.map((row, index) => {
    const others = last.get(row.doc_id) === index ? (further[row.doc_id] ?? []) : [];
    return item(row, spans[index] ?? [], index + 1, legs, best, hrefOf, others);
  });
}

function item(row, spans, rank, legs, best, hrefOf, others) {
  const title = titleOf(row);
  const link = element("a", { href: hrefOf(row.node_id), className: "open", dir: "auto" }, title);
  link.dataset.node = row.node_id;
  return element(
    "li",
    {},
    element(
      "article",
      {},
      element("h3", {}, element("span", { className: "rank", ariaHidden: "true" }, `${rank}`), link),
      element("p", { className: "place" }, ...place(row, title)),
      element("p", { className: "excerpt", dir: "auto" }, ...shortened(row, spans)),
      element("dl", { className: "legs" }, ...legs.map((leg) => measure(row, leg, best)), fused(row)),
      others.length ? more(others, hrefOf) : null,
    ),
  );
}

/** Links to the next passages of the same document. */
function more(others, hrefOf) {
  const links = others.slice(0, FURTHER).map((id) => {
    const link = element("a", { href: hrefOf(id), className: "also" }, id.slice(id.lastIndexOf("#")));
    link.dataset.node = id;
    return link;
  });
  const spaced = links.flatMap((link) => [" ", link]);
  return element("p", { className: "further" }, "Also in this document:", ...spaced, others.length > FURTHER ? " …" : "");
}

/** Document, all headings but the last, and page; the document only if it is not the title. */
function place(row, title) {
  const parts = row.doc_id === title ? [] : [element("span", { className: "path", dir: "auto" }, row.doc_id)];
  for (const heading of row.heading_path.slice(0, -1)) {
    parts.push(element("span", { className: "crumb", dir: "auto" }, heading));
  }
  if (row.page !== null) parts.push(element("span", { className: "page" }, `page ${row.page}`));
  return parts;
}

function shortened(row, spans) {
  const text = row.shown ?? row.text; // soft hyphens fill the places of markup, so that spans fit
  const skipped = headingEnd(text, row.heading_path);
  const units = toUnits(text, spans).filter(([start]) => start >= skipped);
  const shown = text.slice(skipped);
  const moved = units.map(([start, end]) => [start - skipped, end - skipped]);
  const [from, to] = excerpt(shown, moved, EXCERPT);
  const kept = moved.filter(([start, end]) => end > from && start < to);
  const squeezed = marked(shown, kept, from, to).map(visible);
  return [shown.slice(0, from).trim() ? "… " : "", ...squeezed, shown.slice(to).trim() ? " …" : ""];
}

/** Return text without soft hyphens and blank lines, also within a mark. */
function visible(part) {
  if (typeof part === "string") return part.replace(/\u00ad+/g, "").replace(/\n\s*\n/g, "\n");
  part.textContent = part.textContent.replace(/\u00ad+/g, "");
  return part;
}

/** Return where a text begins after the headings that are shown as title and path. */
function headingEnd(text, path) {
  let done = 0;
  for (const line of text.split("\n")) {
    const plain = line.replace(/\u00ad/g, "").replace(/^\s*#+/, "").trim();
    if (plain && !path.includes(plain)) break;
    done += line.length + 1;
  }
  return done < text.length ? done : 0;
}

function measure(row, [leg, name, unit, decimals], best) {
  const score = row[`${leg}_score`];
  const rank = row[`${leg}_rank`];
  if (score === null) {
    return element("div", { className: `leg ${leg}` }, element("dt", {}, name), element("dd", {}, "not found"));
  }
  const fill = element("span", { className: "fill" });
  fill.style.width = `${Math.round(100 * Math.min(1, Math.max(0, leg === "vector" ? score : score / best)))}%`;
  return element(
    "div",
    { className: `leg ${leg}` },
    element("dt", {}, name),
    element(
      "dd",
      {},
      element("span", { className: "bar", ariaHidden: "true" }, fill),
      element("span", { className: "figure" }, rank === null ? "" : `#${rank} `, `${unit} ${score.toFixed(decimals)}`),
    ),
  );
}

function fused(row) {
  if (["vector", "bm25"].includes(row.score_type)) return null;
  const figure = `${row.score_type.toUpperCase()} ${row.score.toFixed(4)}`;
  return element("div", { className: "leg fused" }, element("dt", {}, "Together"), element("dd", {}, figure));
}
