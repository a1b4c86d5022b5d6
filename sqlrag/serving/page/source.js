/** The panel with a whole document, scrolled to the passages that were found in it. */

import { element, marked, toUnits } from "./text.js";

const PART = 4000;
const FRAMES = 10;
const $ = (id) => document.getElementById(id);

/** Show that a document is on its way. */
export function waiting(title) {
  $("source").hidden = false;
  $("source-title").textContent = title;
  $("source-place").textContent = "";
  $("source-text").replaceChildren();
  $("source-state").textContent = "Loading the document …";
  $("passage").hidden = true;
}

/** Show why there is no document. */
export function failed(words) {
  $("source-state").textContent = words;
}

/** Show a document. `passages` are spans of its text, `terms` the words within them, both in characters. */
export function show(source, passages, terms, page) {
  const title = source.metadata.title || source.file_name || source.doc_id;
  $("source-title").textContent = title;
  $("source-place").textContent = [source.doc_id, page === null ? "" : `page ${page}`].filter(Boolean).join(", ");
  $("source-state").textContent = passages.length ? "" : "The place of this passage in the document is not known.";
  $("source-text").replaceChildren(...whole(source.text, passages, terms));
  passage(0);
}

/** Return the text in parts of some lines each, so that the browser lays out those in view alone. */
function whole(text, passages, terms) {
  const borders = toUnits(text, passages);
  const words = toUnits(text, terms);
  const nodes = [];
  for (let start = 0; start < text.length; ) {
    const end = partEnd(text, start + PART, borders);
    nodes.push(element("div", { className: "part" }, ...part(text, start, end, borders, words)));
    start = end;
  }
  return nodes;
}

/** Return the end of the line that a place is in, or of one behind it that does not end inside a passage. */
function partEnd(text, place, borders) {
  for (;;) {
    const found = text.indexOf("\n", place);
    if (found < 0) return text.length;
    const inside = borders.find(([start, end]) => start <= found && found + 1 < end);
    if (!inside) return found + 1;
    place = inside[1] - 1;
  }
}

function part(text, first, last, borders, words) {
  const nodes = [];
  let done = first;
  for (const [start, end] of borders.filter(([from, to]) => from >= first && to <= last)) {
    nodes.push(text.slice(done, start));
    const inside = words.filter(([from, to]) => from >= start && to <= end);
    nodes.push(element("mark", { className: "passage" }, ...marked(text, inside, start, end)));
    done = end;
  }
  return [...nodes, text.slice(done, last)];
}

/** Scroll to a passage, and let the button lead to the next one. */
function passage(number) {
  const found = [...$("source-text").querySelectorAll(".passage")];
  const button = $("passage");
  button.hidden = found.length === 0;
  if (!found.length) {
    $("source-text").scrollTop = 0;
    return;
  }
  align(found[number], FRAMES);
  const next = (number + 1) % found.length;
  button.textContent = found.length === 1 ? "Show the passage" : `Passage ${next + 1} of ${found.length}`;
  button.onclick = () => passage(next);
}

/** Scroll to a mark, and again for some frames: parts that come into view take up other room than was thought. */
function align(mark, frames) {
  // It scrolls the page as well, under whose header the chosen result would hide.
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
