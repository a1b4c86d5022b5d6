/** The choice of collections and tags. */

import { count, element } from "./text.js";

const $ = (id) => document.getElementById(id);

/** Offer the names in the file: `collections` and `tags` as lists of `{name, chunks}`. */
export function offer(collections, tags) {
  fill($("collections"), "collection", collections, collections.length > 1);
  fill($("tags"), "tag", tags, tags.length > 0);
}

function fill(filter, name, offered, shown) {
  filter.hidden = !shown;
  const choices = offered.map(({ name: value, chunks }) =>
    element(
      "label",
      { className: "choice" },
      element("input", { type: "checkbox", name, value }),
      element("span", { dir: "auto" }, value),
      element("small", {}, count(chunks, "chunk")),
    ),
  );
  filter.querySelector(".choices").replaceChildren(...choices);
}

/** Tick the choices of a state; names that are not in the file are added, so that they can be unticked. */
export function tick(state) {
  choose($("collections"), "collection", state.collections, "all");
  choose($("tags"), "tag", state.tags, "any");
  document.querySelector("[name=all]").checked = state.all;
  $("clear").hidden = !state.collections.length && !state.tags.length;
}

function choose(filter, name, chosen, none) {
  const list = filter.querySelector(".choices");
  const known = new Set([...list.querySelectorAll("input")].map((input) => input.value));
  for (const value of chosen.filter((one) => !known.has(one))) {
    const input = element("input", { type: "checkbox", name, value });
    list.append(element("label", { className: "choice" }, input, element("span", { dir: "auto" }, value)));
  }
  for (const input of list.querySelectorAll("input")) input.checked = chosen.includes(input.value);
  filter.hidden &&= chosen.length === 0;
  filter.querySelector("summary b").textContent =
    chosen.length === 0 ? none : chosen.length === 1 ? chosen[0] : `${chosen.length} chosen`;
}

/** Return the ticked choices. */
export function ticked() {
  const values = (name) => [...document.querySelectorAll(`[name=${name}]:checked`)].map((input) => input.value);
  return { collections: values("collection"), tags: values("tag"), all: document.querySelector("[name=all]").checked };
}

/** Close the lists; return whether one was open. */
export function close(except = null) {
  const open = [...document.querySelectorAll("details.filter[open]")].filter((filter) => filter !== except);
  for (const filter of open) {
    if (filter.contains(document.activeElement)) filter.querySelector("summary").focus();
    filter.open = false;
  }
  return open.length > 0;
}
