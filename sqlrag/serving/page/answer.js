/** A streamed answer with its citations, which lead to the sources. */

import { element } from "./text.js";

const $ = (id) => document.getElementById(id);
// What stands in brackets and is nothing but numbers of sources, as sqlrag.answer reads them.
const CITATION = /[[【](?:source\s*)?[\^#]?\d+(?:(?:\s*[,;–-]\s*|\s+(?:and|to)\s+|\s*,\s*and\s+)(?:source\s*)?[\^#]?\d+)*(?:†[^\]】]*)?[\]】]/giu;
const CODE = /(```[\s\S]*?(?:```|$)|`[^`\n]*`)/;

/** Show an empty answer. */
export function begin() {
  $("answer").hidden = false;
  $("answer-text").textContent = "";
  $("answer-sources").replaceChildren();
  $("answer-notices").replaceChildren();
  $("answer-state").textContent = "Looking for sources …";
}

export function state(words) {
  $("answer-state").textContent = words;
}

/** Show the text so far; numbers of sources become links. */
export function write(text, sources, hrefOf) {
  const byNumber = new Map(sources.map((source) => [`${source.number}`, source]));
  const nodes = text.split(CODE).flatMap((part, index) => (index % 2 ? [part] : cited(part, byNumber, hrefOf)));
  $("answer-text").replaceChildren(...nodes);
}

function cited(text, byNumber, hrefOf) {
  const nodes = [];
  let done = 0;
  for (const found of text.matchAll(CITATION)) {
    nodes.push(text.slice(done, found.index));
    for (const part of found[0].replace(/†.*/, (rest) => rest.at(-1)).split(/(\d+)/)) {
      const source = byNumber.get(part);
      nodes.push(source ? link(source, part, hrefOf) : part);
    }
    done = found.index + found[0].length;
  }
  return [...nodes, text.slice(done)];
}

function link(source, text, hrefOf) {
  const made = element("a", { href: hrefOf(source.node_id), className: "cite" }, text);
  made.setAttribute("aria-label", `Source ${source.number}: ${source.file || source.doc_id}`);
  made.dataset.node = source.node_id;
  return made;
}

/** List the sources; those in `citations` are marked as cited. */
export function list(sources, citations, hrefOf) {
  const items = sources.map((source) => {
    const name = source.heading_path.at(-1) ?? source.file ?? source.node_id;
    const open = element("a", { href: hrefOf(source.node_id), dir: "auto" }, name);
    open.dataset.node = source.node_id;
    const where = [source.file || source.doc_id, source.page === null ? "" : `page ${source.page}`];
    const mark = citations?.includes(source.number) ? element("span", { className: "badge" }, "cited") : null;
    const item = element("li", { value: source.number }, open, " ", mark, element("span", { className: "place" }, where.filter(Boolean).join(", ")));
    return item;
  });
  $("answer-sources").replaceChildren(...items);
}

export function notices(texts) {
  $("answer-notices").replaceChildren(...texts.map((text) => element("li", {}, text)));
}
