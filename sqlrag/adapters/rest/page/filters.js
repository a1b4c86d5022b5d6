/** The choice of collections and tags, and conditions on metadata fields. */

import { OPERATORS } from "./state.js";
import { count, element } from "./text.js";

const $ = (id) => document.getElementById(id);

// By the kind of a field, as facets tells it.
const OF_KIND = {
  string: ["$eq", "$ne", "$text_match_insensitive", "$gte", "$lte"],
  number: ["$gte", "$lte", "$eq", "$ne"],
  boolean: ["$eq"],
  array: ["$contains"],
};

let fields = []; // as facets tells them, once they are asked for

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
  $("clear").hidden = !state.collections.length && !state.tags.length && !state.metadata.length;
  $("conditions").hidden = !state.metadata.length;
  $("conditions").replaceChildren(...state.metadata.map((one, at) => element("li", {}, chip(one, at))));
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

const inWords = ([field, operator, value]) => `${field} ${OPERATORS.get(operator)} ${value}`;

/** A condition as a button that removes it. */
function chip(one, at) {
  const sign = element("span", { ariaHidden: "true" }, " ×");
  const button = element("button", { type: "button", className: "chip", ariaLabel: `Remove the filter ${inWords(one)}` }, element("bdi", {}, inWords(one)), sign);
  button.dataset.condition = at;
  return button;
}

/** Offer the metadata fields that `ask()` returns when the list is first opened, and call `add` with each new condition. */
export function listen(ask, add) {
  const list = $("metadata");
  list.addEventListener("toggle", async () => {
    if (!list.open || fields.length) return;
    $("metadata-state").textContent = "Loading the fields …";
    try {
      fields = await ask();
      $("metadata-state").textContent = fields.length ? "" : "The documents have no metadata to filter by.";
    } catch (error) {
      $("metadata-state").textContent = `The fields could not be loaded. ${error.message}`;
    }
    $("condition").hidden = !fields.length;
    $("condition-field").replaceChildren(...fields.map(({ name, chunks }) => element("option", { value: name }, `${name} (${count(chunks, "chunk")})`)));
    describe();
    if (fields.length && list.open) $("condition-field").focus();
  });
  $("condition-field").addEventListener("change", describe);
  $("condition-value").addEventListener("input", ({ target }) => target.setCustomValidity(""));
  $("condition-value").addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault(); // it would send the form of the question
    complete(add);
  });
  $("condition-add").addEventListener("click", () => complete(add));
}

/** Forget the fields: the file has changed. */
export function forget() {
  fields = [];
  $("metadata").open = false;
}

const chosenField = () => fields.find(({ name }) => name === $("condition-field").value);

/** Offer the operators and values of the chosen field. */
function describe() {
  const field = chosenField();
  if (!field) return;
  const { kind, least, greatest, values } = field;
  $("condition-operator").replaceChildren(...OF_KIND[kind].map((sign) => element("option", { value: sign }, OPERATORS.get(sign))));
  $("condition-values").replaceChildren(...values.map(({ value, chunks }) => element("option", { value: `${value}` }, count(chunks, "chunk"))));
  const example = kind === "number" ? `${least} to ${greatest}` : values.length ? `such as ${values[0].value}` : "";
  Object.assign($("condition-value"), { value: "", placeholder: example, inputMode: kind === "number" ? "decimal" : "text" });
}

/** Add the condition that is chosen, or say what is missing. */
function complete(add) {
  const input = $("condition-value");
  const field = chosenField();
  const value = valueOf(field, input.value.trim());
  if (value === null) {
    input.setCustomValidity({ number: "Enter a number.", boolean: "Enter true or false." }[field.kind] ?? "Enter a value.");
    input.reportValidity();
    return;
  }
  $("metadata").open = false;
  $("metadata").querySelector("summary").focus();
  input.value = "";
  add([field.name, $("condition-operator").value, value]);
}

/** Return what is meant by a written value, null where it is none. */
function valueOf({ kind, values }, written) {
  if (written === "") return null;
  const known = values.find(({ value }) => `${value}` === written);
  if (known && ["string", "number", "boolean"].includes(typeof known.value)) return known.value;
  if (kind === "number") return Number.isFinite(Number(written)) ? Number(written) : null;
  return kind === "boolean" ? null : written;
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
