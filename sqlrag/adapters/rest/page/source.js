/** The panel with a whole document, scrolled to the found passages. */

import * as markdown from "./markdown.js";
import { columns } from "./row.js";
import { element, marked, titleOf, toUnits } from "./text.js";

const PART = 4000;
const LONGEST = 16000; // a longer part is cut within a line, since a browser lays out whole lines
const FRAMES = 10;
const MOST_RENDERED = 500_000; // characters: a longer document is shown as it is written
const $ = (id) => document.getElementById(id);

let asWritten = false; // whether Markdown is shown as its text

/** Listen; `original(docId)` fetches the original of a document. */
export function listen(original) {
  $("original").addEventListener("click", ({ currentTarget }) => original(currentTarget.dataset.document));
}

/** Show that a document is loading. */
export function waiting(title) {
  $("source").hidden = false;
  $("source-title").textContent = title;
  $("source-place").textContent = "";
  $("source-text").replaceChildren();
  $("source-row").replaceChildren();
  $("source-state").textContent = "Loading the document …";
  for (const id of ["passage", "written", "original"]) $(id).hidden = true;
}

/** Show why the document could not be loaded. */
export function failed(words) {
  $("source-state").textContent = words;
}

/**
 * Show a document. `passages` are spans of its text, `terms` the words within them, both in characters; `place` is the answer of `passage`;
 * `types` are those of the columns of the row that it is of; `hrefOf(id)` returns the address of a source.
 */
export function show(source, passages, terms, place, types, hrefOf) {
  const { page } = place;
  const title = titleOf(source);
  $("source-title").textContent = title;
  $("source-place").textContent = [source.doc_id === title ? "" : source.doc_id, page === null ? "" : `page ${page}`].filter(Boolean).join(", ");
  $("source-state").textContent = passages.length ? "" : "The place of this passage in the document is unknown.";
  $("source-row").replaceChildren(...[columns(source.row, types)].filter(Boolean));
  $("original").hidden = !place.original;
  $("original").dataset.document = source.doc_id;
  const [borders, words] = [toUnits(source.text, passages), toUnits(source.text, terms)];
  const leads = (place.links ?? []).map(({ url, node_id: node }) => ({ url, node, href: hrefOf(node) }));
  const isMarkdown = place.body_start !== null && source.text.length <= MOST_RENDERED;
  const draw = () => {
    const [start] = toUnits(source.text, [[place.body_start, 0]])[0];
    const nodes = isMarkdown && !asWritten ? markdown.whole(source.text, start, borders, words, leads) : whole(source.text, borders, words);
    $("source-text").replaceChildren(...nodes);
    $("written").setAttribute("aria-pressed", asWritten);
    passage(0, passages.length);
  };
  $("written").hidden = !isMarkdown;
  $("written").onclick = () => {
    asWritten = !asWritten;
    draw();
  };
  draw();
}

/** Return the text in parts of some lines, so that the browser lays out only visible parts. */
function whole(text, borders, words) {
  const nodes = [];
  for (let start = 0; start < text.length; ) {
    const end = partEnd(text, start, borders);
    nodes.push(element("div", { className: "part" }, ...part(text, start, end, borders, words)));
    start = end;
  }
  return nodes;
}

/** Return the first line end after some units that is in no passage; else a blank, else any place. */
function partEnd(text, from, borders) {
  const latest = from + LONGEST;
  for (let place = from + PART; place < latest; ) {
    const found = text.indexOf("\n", place);
    if (found < 0 || found >= latest) break;
    const inside = borders.find(([start, end]) => start <= found && found + 1 < end);
    if (!inside) return found + 1;
    place = inside[1] - 1;
  }
  if (text.length <= latest) return text.length;
  const before = borders.find(([start, end]) => start < latest && latest < end)?.[0] ?? 0;
  if (before > from) return before;
  const blank = text.slice(latest - 200, latest).search(/\s\S*$/);
  if (blank >= 0) return latest - 200 + blank + 1;
  return /[\udc00-\udfff]/.test(text[latest]) ? latest - 1 : latest;
}

function part(text, first, last, borders, words) {
  const nodes = [];
  let done = first;
  for (const [number, [from, to]] of borders.entries()) {
    const [start, end] = [Math.max(from, done), Math.min(to, last)];
    if (start >= end) continue;
    nodes.push(text.slice(done, start));
    const mark = element("mark", { className: "passage" }, ...marked(text, words, start, end));
    mark.dataset.number = number;
    nodes.push(mark);
    done = end;
  }
  return [...nodes, text.slice(done, last)];
}

/** Scroll to a passage, and set the button to the next one. */
function passage(number, passages) {
  const button = $("passage");
  const mark = $("source-text").querySelector(`.passage[data-number="${number}"]`);
  button.hidden = mark === null;
  if (!mark) {
    $("source-text").scrollTop = 0;
    return;
  }
  align(mark, FRAMES);
  const next = (number + 1) % passages;
  button.textContent = passages === 1 ? "Show the passage" : `Passage ${next + 1} of ${passages}`;
  button.onclick = () => passage(next, passages);
}

/** Scroll to a mark, and repeat for some frames: parts get their real height only when they are visible. */
function align(mark, frames) {
  // scrollIntoView also scrolls the page, which would move the chosen result below the header.
  const { scrollX, scrollY } = window;
  mark.scrollIntoView({ block: "start" });
  window.scrollTo(scrollX, scrollY);
  const top = mark.getBoundingClientRect().top;
  requestAnimationFrame(() =>
    requestAnimationFrame(() => {
      const moved = Math.abs(mark.getBoundingClientRect().top - top) > 1;
      if (mark.isConnected && frames > 0 && (moved || frames === FRAMES)) align(mark, frames - 1);
    }),
  );
}
