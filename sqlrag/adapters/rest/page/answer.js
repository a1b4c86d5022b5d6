/** A streamed answer whose citations link to the sources. */

import { rendered } from "./markdown.js";
import { written } from "./state.js";
import { count, element, textNodes, titleOf } from "./text.js";

const $ = (id) => document.getElementById(id);
// Brackets that contain only numbers of sources, as sqlrag.answer parses them.
const CITATION = /[[【](?:source\s*)?[\^#]?\d+(?:(?:\s*[,;–-]\s*|\s+(?:and|to)\s+|\s*,\s*and\s+)(?:source\s*)?[\^#]?\d+)*(?:†[^\]】]*)?[\]】]/giu;

/** Show an empty answer. */
export function begin() {
  $("answer").hidden = false;
  $("answer-text").textContent = "";
  $("answer-sources").replaceChildren();
  $("answer-notices").replaceChildren();
  $("answer-state").textContent = "Searching for sources …";
}

export function state(words) {
  $("answer-state").textContent = words;
}

/** Show the text so far, which is Markdown; numbers of sources become links, but for those in code. */
export function write(text, sources, hrefOf) {
  const byNumber = new Map(sources.map((source) => [`${source.number}`, source]));
  const answer = rendered(text);
  for (const node of textNodes(answer)) {
    if (!node.parentElement?.closest("a, code")) node.replaceWith(...cited(node.data, byNumber, hrefOf));
  }
  $("answer-text").replaceChildren(answer);
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
  const made = element("a", { href: hrefTo(source, hrefOf), className: "cite" }, text);
  made.setAttribute("aria-label", `Source ${source.number}: ${source.file || source.doc_id}`);
  made.dataset.node = source.node_id;
  return made;
}

const hrefTo = (source, hrefOf) => hrefOf(source.node_id, written(source.spans));

/** List the sources; once the citations are known, the other sources are folded. */
export function list(sources, citations, hrefOf) {
  const isCited = (source) => citations === null || citations.includes(source.number);
  const [cited, others] = [sources.filter(isCited), sources.filter((source) => !isCited(source))];
  const numbered = (some, label) => {
    const made = element("ol", {}, ...some.map((source) => item(source, hrefOf)));
    made.setAttribute("aria-label", label);
    return made;
  };
  const folded = `${count(others.length, "source")} that the answer does not cite`;
  $("answer-sources").replaceChildren(
    ...(cited.length ? [numbered(cited, citations === null ? "Sources of the answer" : "Sources that the answer cites")] : []),
    ...(others.length ? [element("details", {}, element("summary", {}, folded), numbered(others, folded))] : []),
  );
}

function item(source, hrefOf) {
  const name = titleOf(source);
  const open = element("a", { href: hrefTo(source, hrefOf), dir: "auto" }, name);
  open.dataset.node = source.node_id;
  const file = source.file || source.doc_id;
  const where = [file === name ? "" : file, source.page === null ? "" : `page ${source.page}`].filter(Boolean).join(", ");
  return element("li", { value: source.number }, open, where ? element("span", { className: "place" }, where) : null);
}

export function notices(texts) {
  $("answer-notices").replaceChildren(...texts.map((text) => element("li", {}, text)));
}
