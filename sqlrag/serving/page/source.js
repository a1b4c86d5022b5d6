/** The panel with a whole document, scrolled to the passages that were found in it. */

import { element, marked, toUnits } from "./text.js";

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

function whole(text, passages, terms) {
  const borders = toUnits(text, passages);
  const words = toUnits(text, terms);
  const nodes = [];
  let done = 0;
  for (const [start, end] of borders) {
    nodes.push(text.slice(done, start));
    const inside = words.filter(([from, to]) => from >= start && to <= end);
    nodes.push(element("mark", { className: "passage" }, ...marked(text, inside, start, end)));
    done = end;
  }
  return [...nodes, text.slice(done)];
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
  const area = $("source-text");
  area.scrollTop += found[number].getBoundingClientRect().top - area.getBoundingClientRect().top - area.clientHeight / 6;
  const next = (number + 1) % found.length;
  button.textContent = found.length === 1 ? "Show the passage" : `Passage ${next + 1} of ${found.length}`;
  button.onclick = () => passage(next);
}
