/** The list of results: the place of each, its text with marked words, and its rank and score in each leg. */

import { columns } from "./row.js";
import { element, marked, titlesOf, toUnits } from "./text.js";

const FURTHER = 5;
const LEGS = [
  ["vector", "Meaning", "cosine", 3],
  ["lexical", "Words", "BM25", 2],
];

/**
 * Return the items of the list. `snippets` has the text to show of each, with its marks; `hrefOf(id)` returns the address of a source; `further`
 * has the ids of the passages that are not shown, by document; `tables` the columns of rows, as `{row, types}`, by document; `words` the spans
 * of the words in what `headings` returns.
 */
export function items(rows, snippets, mode, hrefOf, further, tables, words) {
  // Without the model, as on a site while it loads, a hybrid search is one by words.
  const asked = mode === "hybrid" && rows.every((row) => row.vector_score === null) ? "words" : mode;
  const legs = LEGS.filter(([leg]) => asked === "hybrid" || leg === (asked === "words" ? "lexical" : "vector"));
  const best = Math.max(...rows.map((row) => row.lexical_score ?? 0), Number.MIN_VALUE);
  const last = new Map(rows.map((row, index) => [row.doc_id, index]));
  return rows.map((row, index) => {
    const others = last.get(row.doc_id) === index ? (further[row.doc_id] ?? []) : [];
    return item(row, snippets[index], index + 1, legs, best, hrefOf, others, tables.get(row.doc_id), words);
  });
}

/** Return the titles and the other headings of a result. */
const headings = (row) => [...new Set([...titlesOf(row), ...row.heading_path])];

/** Return the texts above the results, in which words can be marked. */
export const headingsOf = (rows) => [...new Set(rows.flatMap(headings))];

/** A title or heading with its words marked, in its own direction. */
const isolated = (text, words, properties = {}) => element("bdi", properties, ...marked(text, toUnits(text, words.get(text) ?? [])));

function item(row, snippet, rank, legs, best, hrefOf, others, table, words) {
  const titles = titlesOf(row);
  const parts = titles.flatMap((title, at) => [at ? " › " : "", isolated(title, words)]);
  const link = element("a", { href: hrefOf(row.node_id), className: "open" }, ...parts);
  link.dataset.node = row.node_id;
  return element(
    "li",
    {},
    element(
      "article",
      {},
      element("h3", {}, element("span", { className: "rank", ariaHidden: "true" }, `${rank}`), link),
      element("p", { className: "place" }, ...place(row, titles, words)),
      element("p", { className: "excerpt", dir: "auto" }, ...excerpt(snippet)),
      table ? columns(table.row, table.types) : null,
      around(row),
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

/** The id of the document, the headings that are not in the title, and the page. */
function place(row, titles, words) {
  const parts = titles.includes(row.doc_id) ? [] : [element("bdi", { className: "path" }, row.doc_id)];
  for (const heading of row.heading_path.filter((one) => !titles.includes(one))) {
    parts.push(isolated(heading, words, { className: "crumb" }));
  }
  if (row.page !== null) parts.push(element("span", { className: "page" }, `page ${row.page}`));
  return parts;
}

/** The part of the text that fits the question best, with its words marked. */
function excerpt({ text, spans }) {
  return marked(text, toUnits(text, spans));
}

/** What is around a passage, folded, with the passage marked; null where there is nothing more. */
function around({ text, context, context_shown, context_start, i_start }) {
  if (context === null || i_start === null || context.length === text.length) return null;
  const seen = context_shown ?? context; // soft hyphens fill the places of markup, so that spans fit
  const [[start, end]] = toUnits(context, [[i_start - context_start, i_start - context_start + [...text].length]]);
  const read = (part) => part.replace(/\u00ad+/g, "").replace(/\n\s*\n/g, "\n\n");
  const parts = [seen.slice(0, start), seen.slice(start, end), seen.slice(end)].map(read);
  const passage = element("mark", { className: "passage" }, parts[1]);
  const words = element("p", { className: "around", dir: "auto" }, parts[0], passage, parts[2]);
  return element("details", { className: "context" }, element("summary", {}, "More around it"), words);
}

function measure(row, [leg, name, unit, decimals], best) {
  const score = row[`${leg}_score`];
  const rank = row[`${leg}_rank`];
  // 0 is the BM25 of a passage without the words.
  if (score === null || (leg === "lexical" && rank === null && score === 0)) {
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
