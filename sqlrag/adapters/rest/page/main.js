/** The search page: the address has the state, every change goes through `go`. */

import * as answer from "./answer.js";
import { askForKeyBy, blob, events, get, post } from "./api.js";
import * as filters from "./filters.js";
import { askForKey } from "./key.js";
import { listen } from "./keyboard.js";
import * as map from "./map.js";
import { headingsOf, items } from "./results.js";
import { typesOf } from "./row.js";
import * as source from "./source.js";
import { address, filters as asFilters, more, read, spansAt, STEP } from "./state.js";
import { count, element, toUnits } from "./text.js";
import * as upload from "./upload.js";
import { sentence, showProblem } from "./words.js";

const $ = (id) => document.getElementById(id);
const ROUTES = { hybrid: "hybrid_query", meaning: "vector_query", words: "lexical_query" };
const NAME = document.querySelector("h1").textContent;
const PER_DOCUMENT = 2; // of ten results, so that they show several documents
const narrow = matchMedia("(max-width: 63.99rem)");

let state = read();
let shown = null; // the search whose results are on the page
let searching = Promise.resolve();
let rows = [];
let helping = false; // whether the help is also shown with results
let opened = null; // the node and place of the open document
let opener = null; // the element that opened it
let controllers = { search: null, source: null, answer: null }; // they abort running requests

/** Abort the last request of a kind and return the signal of the next one: old responses never replace newer ones. */
function next(kind) {
  controllers[kind]?.abort();
  controllers[kind] = new AbortController();
  return controllers[kind].signal;
}

/** Go to another state and add it to the history. */
function go(change, { replace = false } = {}) {
  state = { ...state, ...change };
  history[replace ? "replaceState" : "pushState"](null, "", address(state));
  render();
}

const hrefOf = (node, at = null) => address({ ...state, source: node, at });
const placeOf = ({ source: node, at }) => (node === null ? null : `${node} ${at ?? ""}`);
const searchOf = (one) => address({ ...one, source: null, view: null });

function render() {
  $("query").value = state.query;
  document.querySelector(`[name=mode][value=${state.mode}]`).checked = true;
  filters.tick(state);
  document.title = `${state.query.trim() || "Search"} – ${NAME}`;
  void map.show(state.view === "map");
  const wanted = searchOf(state);
  if (wanted !== shown) searching = search(wanted);
  // After the search, since its results contain the link of the passage.
  void searching.then(() => wanted === searchOf(state) && showSource());
}

/** Open or close the panel. */
function showSource() {
  if (placeOf(state) === opened) return;
  if (state.source === null) closeSource();
  else void openSource(state);
}

/** Show or hide the help; without results it is always shown. */
function help(shownNow = $("intro").hidden) {
  helping = shownNow;
  showHelp();
  if (helping) $("intro").focus();
}

function showHelp() {
  const there = helping || !state.query.trim();
  $("intro").hidden = !there;
  $("help").setAttribute("aria-expanded", there);
}

// Searching.

async function search(wanted) {
  shown = wanted;
  const asked = state;
  const signal = next("search");
  endAnswer();
  $("problem").replaceChildren();
  if (!asked.query.trim()) {
    show(asked, { results: [], notices: [], timings: {} }, []);
    return;
  }
  showHelp();
  $("results").hidden = false;
  $("results").setAttribute("aria-busy", "true");
  $("status").textContent = "Searching …";
  try {
    const most = PER_DOCUMENT * Math.ceil(asked.count / STEP); // more results are more of each document, too
    const body = { query_text: asked.query, top_k: asked.count, per_document: most, context: "neighbours", ...asFilters(asked) };
    const found = await post(ROUTES[asked.mode], body, signal);
    const titles = headingsOf(found.results);
    const [parts, columns, spans] = found.results.length
      ? await Promise.all([snippets(asked, found, signal), tables(found, signal), marks(asked, titles, found.notices, signal)])
      : [[]];
    show(asked, found, parts, columns, new Map(spans?.map((own, at) => [titles[at], own])));
  } catch (error) {
    if (error.name === "AbortError") return;
    shown = null;
    show(asked, { results: [], notices: [], timings: {} }, []);
    $("status").textContent = "";
    $("results").hidden = true;
    showProblem($("problem"), error, render);
  } finally {
    if (!signal.aborted) $("results").removeAttribute("aria-busy");
  }
}

/** Return the part of each result that fits the question best, with its marks; if that fails, the beginnings. */
async function snippets(asked, { results, notices }, signal) {
  try {
    const body = { query_text: asked.query, node_ids: results.map((row) => row.node_id), syntax: asked.mode === "words" };
    return (await post("snippets", body, signal)).snippets;
  } catch (error) {
    if (error.name === "AbortError") throw error;
    notices.push(`The beginnings are shown, without marks: ${sentence(error)}`);
    return results.map((row) => ({ text: (row.shown ?? row.text).replace(/\u00ad/g, "").slice(0, 280), spans: [] }));
  }
}

/** Return the columns of the rows among the results, by document; if that fails, the results are shown without. */
async function tables({ results, notices }, signal) {
  const rows_ = results.filter((row) => "row_key" in row);
  if (!rows_.length) return new Map();
  try {
    const wanted = [post("get_source_documents", { chunk_ids: rows_.map((row) => row.node_id) }, signal), offered()];
    const [{ documents }, { row_sources: sources }] = await Promise.all(wanted);
    const types = typesOf(sources);
    const collections = new Map(rows_.map((row) => [row.doc_id, row.collection]));
    return new Map(documents.map(({ doc_id: id, row }) => [id, { row, types: types.get(collections.get(id)) }]));
  } catch (error) {
    if (error.name === "AbortError") throw error;
    notices.push(`The columns are not shown: ${sentence(error)}`);
    return new Map();
  }
}

/** Return the spans of the question's words in texts; if that fails, the texts are shown without marks. */
async function marks(asked, texts, notices, signal) {
  try {
    return (await post("highlight", { query_text: asked.query, texts, syntax: asked.mode === "words" }, signal)).spans;
  } catch (error) {
    if (error.name === "AbortError") throw error;
    notices.push(`The words are not marked: ${sentence(error)}`);
    return [];
  }
}

function show(asked, found, parts, columns = new Map(), words = new Map()) {
  rows = found.results;
  map.mark(rows);
  const blank = !asked.query.trim();
  $("results").hidden = blank;
  showHelp();
  $("list").replaceChildren(...items(rows, parts, asked.mode, hrefOf, found.further ?? {}, columns, words));
  $("notices").replaceChildren(...found.notices.map((notice) => element("li", {}, notice)));
  $("status").textContent = blank ? "" : rows.length ? `${count(rows.length, "result")} for “${asked.query.trim()}”` : nothing(asked);
  $("timings").textContent = times(found.timings);
  $("more").hidden = rows.length < asked.count || more(asked.count) === null;
  $("ask").hidden = !canAnswer || rows.length === 0;
}

function nothing(asked) {
  const filtered = asked.collections.length || asked.tags.length || asked.metadata.length;
  const hint = filtered ? "Choose fewer filters" : asked.mode === "words" ? "Try other words, or search by meaning" : "Try other words";
  return `Nothing was found. ${hint}.`;
}

function times(timings) {
  const { total, ...stages } = timings;
  if (total === undefined) return "";
  const ms = (seconds) => `${(1000 * seconds).toFixed(seconds < 0.01 ? 1 : 0)} ms`;
  const parts = Object.entries(stages).map(([stage, seconds]) => `${stage} ${ms(seconds)}`);
  return `Found in ${ms(total)}${parts.length ? ` (${parts.join(", ")})` : ""}`;
}

// Sources.

async function openSource(asked) {
  opened = placeOf(asked);
  const node = asked.source;
  const signal = next("source");
  layout(true);
  source.waiting(node.replace(/#\d+$/, ""));
  for (const link of document.querySelectorAll("[data-node]")) {
    if (link.dataset.node === node) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
  $("source-title").focus({ preventScroll: true });
  try {
    const wanted = [post("get_source_documents", { chunk_ids: [node] }, signal), get(`passage?${new URLSearchParams({ node_id: node })}`, signal)];
    const [{ documents: [document_] }, place] = await Promise.all(wanted);
    const length = document_.text.length; // in units, so at least the number of characters
    const named = spansAt(asked.at, length);
    const spans = named.length ? named : place.spans;
    const texts = toUnits(document_.text, spans).map(([start, end]) => document_.text.slice(start, end));
    const found = asked.query.trim() && texts.length ? await marks(asked, texts, [], signal) : [];
    const terms = found.flatMap((part, at) => part.map(([start, end]) => [start + spans[at][0], end + spans[at][0]]));
    const types = document_.row ? typesOf((await offered()).row_sources).get(document_.doc_id.split("/", 1)[0]) : undefined;
    source.show(document_, spans, terms, place, types, hrefOf);
  } catch (error) {
    if (error.name !== "AbortError") source.failed(sentence(error));
  }
}

function closeSource() {
  next("source");
  const inside = $("source").contains(document.activeElement) || document.activeElement === document.body;
  opened = null;
  layout(false);
  const current = document.querySelector("[data-node][aria-current]");
  for (const link of document.querySelectorAll("[data-node]")) link.removeAttribute("aria-current");
  if (inside) (opener?.isConnected ? opener : (current ?? $("query"))).focus();
  opener = null;
}

/** Go to a passage; one that is already open is scrolled to its top. */
function openAt(node, at) {
  const again = opened === placeOf({ source: node, at });
  if (again) opened = null;
  go({ source: node, at }, { replace: again });
}

/** Put the panel next to the results, or over them on narrow screens. */
function layout(open) {
  const halves = () => document.body.classList.contains("reading") && !narrow.matches;
  const before = halves() ? $("app").scrollTop : scrollY;
  document.body.classList.toggle("reading", open);
  $("source").hidden = !open;
  // The list stays where it is, whichever scrolls it.
  if (halves()) $("app").scrollTop = before;
  else if (!open) scrollTo(scrollX, before);
  $("app").inert = open && narrow.matches;
}

// Answers.

let canAnswer = false;

function endAnswer() {
  next("answer");
  $("answer").hidden = true;
  $("stop").hidden = true;
}

async function ask() {
  const asked = state;
  const signal = next("answer");
  const mode = { hybrid: "hybrid", meaning: "vector", words: "lexical" }[asked.mode];
  let text = "";
  let sources = [];
  answer.begin();
  $("stop").hidden = false;
  $("answer").scrollIntoView({ block: "nearest" });
  try {
    const body = { question: asked.query, stream: true, plan: { mode, ...asFilters(asked) } };
    for await (const { type, data } of events("answer", body, signal)) {
      if (signal.aborted) return;
      if (type === "sources") {
        sources = data.sources;
        answer.list(sources, null, hrefOf);
        answer.notices(data.notices);
        answer.state("The model is writing …");
      } else if (type === "text") {
        text += data.text;
        answer.write(text, sources, hrefOf);
      } else if (type === "error") {
        answer.state(`${text ? "The answer is not complete" : "There is no answer"}: ${data.error ?? data.detail}`);
      } else if (type === "done") {
        finish(data.answer);
        return;
      }
    }
    answer.state("The answer is not complete: the connection ended.");
  } catch (error) {
    if (error.name === "AbortError") {
      if (controllers.answer?.signal === signal) answer.state("Stopped.");
    } else {
      answer.state(`${text ? "The answer is not complete." : "There is no answer."} ${sentence(error)}`);
    }
  } finally {
    if (controllers.answer?.signal === signal) $("stop").hidden = true;
  }
}

function finish(done) {
  answer.write(done.text, done.sources, hrefOf);
  answer.list(done.sources, done.citations, hrefOf);
  answer.notices(done.notices);
  if (done.error) answer.state(`${done.text ? "The answer is not complete" : "There is no answer"}: ${done.error}`);
  else answer.state(done.text ? `By ${done.model}, from ${count(done.sources.length, "source")}. Check it against them.` : "There is no answer.");
}

// What the file is.

let choices = null; // what can be chosen from, or the request for it

/** Return the answer of `facets`, which is asked for once. */
function offered() {
  choices ??= get("facets").catch((error) => {
    choices = null;
    throw error;
  });
  return choices;
}

/** Offer the other files of the server, which are beside this one: `names` is empty where there is one alone. */
function files(names) {
  const [, here] = new URL(".", document.baseURI).pathname.match(/\/([^/]+)\/$/) ?? [];
  $("files").hidden = names.length < 2;
  $("files").querySelector("select").replaceChildren(...names.map((name) => element("option", { selected: name === here }, name)));
}

async function describe() {
  try {
    const [facts, choice] = await Promise.all([get("get_embedding_metadata"), offered()]);
    const { total_documents: documents } = facts.source_documents;
    const { total_chunks: chunks } = facts.chunks;
    canAnswer = Boolean(choice.chat_model);
    const isTitle = choice.name === document.querySelector("h1").textContent; // as of what is published
    $("corpus").textContent = `${isTitle ? "" : `${choice.name} · `}${count(documents, "document")} · ${count(chunks, "chunk")}`;
    filters.offer(choice.collections, choice.tags);
    upload.offer(choice.write, choice.collections);
    files(choice.databases);
    filters.tick(state);
    $("ask").hidden = !canAnswer || rows.length === 0;
  } catch (error) {
    if (!$("problem").hasChildNodes()) showProblem($("problem"), error, () => { $("problem").replaceChildren(); void describe(); render(); });
  }
}

// Listening.

$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  const query = $("query").value;
  shown = null; // repeat the search even for the same question
  go({ query, count: STEP, source: null, at: null }, { replace: query === state.query });
});
$("form").addEventListener("change", (event) => {
  if (event.target === $("query") || $("metadata").contains(event.target)) return;
  const mode = new FormData($("form")).get("mode");
  go({ ...filters.ticked(), mode, query: $("query").value, count: STEP, source: null });
});
$("clear").addEventListener("click", () => {
  go({ collections: [], tags: [], all: false, metadata: [], count: STEP, source: null });
  $("query").focus();
});
$("conditions").addEventListener("click", ({ target }) => {
  const chip = target.closest("[data-condition]");
  if (!chip) return;
  const at = Number(chip.dataset.condition);
  go({ metadata: state.metadata.filter((_, place) => place !== at), query: $("query").value, count: STEP, source: null });
  ($("conditions").querySelectorAll("button")[at] ?? $("query")).focus();
});
$("more").addEventListener("click", () => go({ count: more(state.count) }));
$("ask").addEventListener("click", () => void ask());
$("stop").addEventListener("click", () => controllers.answer?.abort());
$("close").addEventListener("click", () => go({ source: null }));
$("map-toggle").addEventListener("click", () => go({ view: state.view ? null : "map" }));
$("help").addEventListener("click", () => help());
$("files").addEventListener("change", ({ target }) => {
  location.assign(`../${target.value}/${address({ ...read(""), query: state.query, mode: state.mode }).replace("./", "")}`);
});
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-node]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey || event.button) return;
  event.preventDefault();
  opener = link;
  const { source: node, at } = read(link.search);
  openAt(node, at);
});
window.addEventListener("popstate", () => {
  state = read();
  render();
});
narrow.addEventListener("change", () => layout(opened !== null));
window.addEventListener("sqlrag-model", () => {
  shown = null; // repeat what was answered without the model
  render();
});

/** Save the original of a document, as it was sent. */
async function save(docId) {
  try {
    const url = URL.createObjectURL(await blob(`originals/${docId.split("/").map(encodeURIComponent).join("/")}`));
    element("a", { href: url, download: docId.replace(/^.*[/:]/s, "") }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000); // some browsers read it after the click only
  } catch (error) {
    source.failed(sentence(error));
  }
}

/** Show the file as it is after a change. */
function changed() {
  choices = null;
  filters.forget();
  shown = null;
  void describe();
  render();
}

askForKeyBy(askForKey);
source.listen((docId) => void save(docId));
upload.listen(changed);
filters.listen(
  async () => (await get("facets?metadata_fields=true")).metadata_fields,
  (one) => go({ metadata: [...state.metadata, one], query: $("query").value, count: STEP, source: null }),
);
listen(() => go({ source: null }), help);
map.listen((node) => {
  opener = $("map-canvas");
  openAt(node, null);
});
void describe();
render();
if (!state.query) $("query").focus();
