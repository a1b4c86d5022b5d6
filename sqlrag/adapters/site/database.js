/** A worker that searches the published file: every search is a macro of the file, called in DuckDB. */

import * as duckdb from "../assets/duckdb/duckdb-browser-blocking.js";
import { answer, fetched, Problem, tell } from "./rpc.js";
import { marks, part } from "./snippets.js";

const DEEPER = 200; // candidates of each leg where only some results of a document are wanted
const POOL = { adaptive: 100 };
const CANDIDATES = 50;
const FILTERS = ["collection", "tags_any", "tags_all"];

let connection = null;
let chunks = 0;
let dimensions = 0;

/** Open `{url, bytes, wasm}`; addresses are absolute. */
async function open(file) {
  const { wasmExceptions } = await duckdb.getPlatformFeatures();
  if (!wasmExceptions) throw new Problem(426, "This browser is too old", "It needs WebAssembly with exceptions.");
  const bundle = { mainModule: file.wasm, mainWorker: "" };
  const database = await duckdb.createDuckDB({ mvp: bundle, eh: bundle }, new duckdb.VoidLogger(), duckdb.BROWSER_RUNTIME);
  const [content] = await Promise.all([
    fetched(file.url, file.bytes),
    Promise.race([failure(), database.instantiate(({ bytesLoaded, bytesTotal }) => tell({ file: "DuckDB", have: bytesLoaded, bytes: bytesTotal }))]).catch((error) => {
      throw new Problem(424, "The database engine cannot be started", `${file.wasm}: ${error.message}. Publish the site again.`);
    }),
  ]);
  database.registerFileBuffer("kb.duckdb", content);
  try {
    database.open({ path: "kb.duckdb", accessMode: duckdb.DuckDBAccessMode.READ_ONLY });
    connection = database.connect();
    for (const name of ["autoinstall_known_extensions", "autoload_known_extensions"]) connection.query(`SET ${name} = false`);
    // It makes the plan of a search take six times as long.
    connection.query("SET disabled_optimizers = 'cte_inlining'");
    const [facts] = select("SELECT count(*) AS chunks, (SELECT CAST(value AS INTEGER) FROM embedding_metadata WHERE key = 'embedding_dimensions') AS dimensions FROM documents");
    ({ chunks, dimensions } = facts);
    terms("warm"); // compiles the regular expressions of words
  } catch (error) {
    throw new Problem(424, "The published file cannot be read", `${file.url}: ${error.message}`);
  }
}

/** Reject with the next failure that nobody handles: DuckDB waits for ever where its file is missing or damaged. */
function failure() {
  return new Promise((_, reject) => {
    addEventListener("unhandledrejection", (event) => {
      event.preventDefault();
      reject(event.reason);
    }, { once: true });
  });
}

const select = (sql) => connection.query(sql).toArray().map((row) => plain(row.toJSON()));

/** Return a value of Arrow as one of JSON. */
function plain(value) {
  if (typeof value === "bigint") return Number(value);
  if (value === null || typeof value !== "object") return value;
  if (typeof value.toArray === "function") return Array.from(value, plain);
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, plain(one)]));
}

/** Return a value as a literal of SQL. */
function literal(value) {
  if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
  return typeof value === "number" ? `${value}` : `'${String(value).replaceAll("\0", "").replaceAll("'", "''")}'`;
}

/** Return a call of a macro; options that are undefined are left to its defaults. */
function macro(name, values, options = {}) {
  const named = Object.entries(options).filter(([, value]) => value !== undefined && value !== null);
  return `${name}(${[...values, ...named.map(([key, value]) => `${key} := ${literal(value)}`)].join(", ")})`;
}

const WEIGHT = "heading_weight := (SELECT CAST(value AS DOUBLE) FROM embedding_metadata WHERE key = 'header_weight')";
const VECTOR = "getvariable('question')";

const useVector = (vector) => connection.query(`SET VARIABLE question = CAST('[${Array.from(vector, Number).join(", ")}]' AS FLOAT[${dimensions}])`);

/** How many candidates of the sign codes get exact cosines, as Python's default_pool has it. */
const codesPool = (k) => Math.round(Math.max(750, 6 * k, 0.75 * chunks ** 0.6) * Math.max(1, 384 / dimensions));

/**
 * Search by mode "words", "meaning" or "hybrid"; the last two need the question's `vector`. Return rows as `sqlrag serve` does, and the ids
 * that `per_document` left out, by document.
 */
function search(text, mode, vector, options) {
  const began = performance.now();
  const { top_k: k = 10, per_document: most = 0, fusion = "adaptive", exact = false } = options;
  const filters = Object.fromEntries(FILTERS.map((name) => [name, typeof options[name] === "string" ? [options[name]] : options[name]]));
  const deep = most ? Math.max(k, DEEPER) : k;
  if (mode !== "words") useVector(vector);
  let found;
  if (mode === "words") {
    found = words(text, { k: deep, ...filters });
  } else if (mode === "meaning") {
    found = exact ? macro("exact_vector_query", [VECTOR], { k: deep, ...filters }) : macro("vector_query", [VECTOR], { k: deep, pool: codesPool(deep), ...filters });
  } else {
    const pool = most ? DEEPER : undefined;
    const codes = exact ? 2 ** 31 - 1 : codesPool(Math.max(pool ?? POOL[fusion] ?? CANDIDATES, k));
    found = macro("hybrid_query", [literal(text), VECTOR], { k: deep, pool, fusion, codes_pool: codes, ...filters });
  }
  const scores = mode === "hybrid" ? ", vector_score, vector_rank, lexical_score, lexical_rank" : "";
  const hits = select(`SELECT rid, node_id, doc_id, chunk_index, score${scores} FROM ${found} ORDER BY score DESC, doc_id, chunk_index`);
  hits.forEach((hit, place) => {
    const leg = { words: "lexical", meaning: "vector" }[mode];
    if (leg) Object.assign(hit, { vector_score: null, vector_rank: null, lexical_score: null, lexical_rank: null, [`${leg}_score`]: hit.score, [`${leg}_rank`]: place + 1 });
  });
  const [kept, further] = ofEachDocument(hits, most);
  const shown = kept.slice(0, k);
  const type = { words: "bm25", meaning: "vector", hybrid: fusion }[mode];
  const rows = chunkRows(shown.map((hit) => hit.rid));
  const results = shown.map(({ rid, ...hit }) => ({ ...rows.get(rid), ...hit, score_type: type, source_doc: null, context: null, context_start: null, context_end: null }));
  const documents = new Set(results.map((row) => row.doc_id));
  const others = {};
  for (const hit of further.filter((one) => documents.has(one.doc_id))) (others[hit.doc_id] ??= []).push(hit.node_id);
  const notices = mode === "hybrid" && hits.length && hits.every((hit) => hit.lexical_rank === null) ? ["No chunk holds any of the words; the order is by the vectors."] : [];
  return { results, further: others, notices, timings: { total: (performance.now() - began) / 1000 } };
}

// Quotes and stars as sqlrag.ranking.terms has them.
const PHRASE = /(?<![^\s([{,;:])"([^"]+)"(?![^\s)\]},.;:!?])/g;
const PREFIX = /(?<![^\s([{,;:])([^\s*"()[\]{}]{2,})\*(?![^\s)\]},.;:!?])/g;
// A run without blanks is cut into pairs or threes: as a term it is exact.
const RUN = /^[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}]+$/u;

/** Take a question apart: its plain words as text, the words of each phrase, and beginnings of words, folded. */
function parse(text) {
  const plainWords = (some) => select(`SELECT fts_main_documents.plain_words(${literal(some)}) AS words`)[0].words;
  const phrases = [...text.matchAll(PHRASE)].map(([, phrase]) => plainWords(phrase)).filter((phrase) => phrase.length);
  let rest = text.replaceAll(PHRASE, " ");
  const stars = [...new Set([...rest.matchAll(PREFIX)].map(([, word]) => word))];
  rest = rest.replaceAll(PREFIX, " ");
  const prefixes = new Set();
  for (const star of stars) {
    const found = plainWords(star);
    if (found.length === 1 && [...found[0]].length > 1) prefixes.add(found[0]);
    else rest += ` ${star}`;
  }
  return { rest, phrases, prefixes: [...prefixes] };
}

/** Return the terms of folded words. */
const termsOf = (folded) => folded.length ? select(`
  SELECT DISTINCT coalesce(f.term, fts_main_documents.term_of(w.word, m.value)) AS term
  FROM (SELECT unnest(${literal(folded)}) AS word) AS w JOIN embedding_metadata AS m ON m.key = 'stemmer'
  LEFT JOIN fts_main_documents.words AS f ON f.word = w.word ORDER BY term`).map(({ term }) => term) : [];

/** Return the call of the macro that searches for words; quotes and stars ask for phrases and beginnings. */
function words(text, options) {
  const { rest, phrases, prefixes } = parse(text);
  if (!phrases.length && !prefixes.length) return macro("lexical_query", [literal(text)], options);
  const [{ kept }] = select(`
    SELECT coalesce(list(q.word ORDER BY q.word) FILTER (q.word NOT IN (SELECT s.word FROM fts_main_documents.stopwords AS s)), []) AS kept
    FROM query_words(${literal(rest)}) AS q`);
  const quoted = termsOf(phrases.flat());
  const wanted = [...new Set([...termsOf(kept), ...quoted])].sort();
  const rows = wanted.length ? select(`SELECT term, termid, df FROM fts_main_documents.dict WHERE term IN (${wanted.map(literal).join(", ")}) ORDER BY term`) : [];
  const found = rows.map(({ term, termid, df }) => ({ termid, df, clause: wanted.indexOf(term) }));
  const longest = [...prefixes].sort((a, b) => b.length - a.length || (a < b ? -1 : 1));
  longest.forEach((prefix, place) => {
    const known = new Set(found.map(({ termid }) => termid));
    const begun = select(`SELECT termid FROM fts_main_documents.dict WHERE term IN (SELECT term FROM fts_main_documents.words WHERE starts_with(word, ${literal(prefix)})) ORDER BY term`);
    const added = begun.filter(({ termid }) => !known.has(termid)).map(({ termid }) => termid);
    if (!added.length) return;
    const [{ df }] = select(`SELECT count(DISTINCT rid) AS df FROM fts_main_documents.postings WHERE termid IN (${added.join(", ")})`);
    found.push(...added.map((termid) => ({ termid, df, clause: wanted.length + place })));
  });
  const clauses = found.map(({ clause }) => clause);
  const required = quoted.map((term) => wanted.indexOf(term));
  const holds = phrases.filter((phrase) => phrase.length > 1 || !RUN.test(phrase[0])).map((phrase) => ` ${phrase.join(" ")} `);
  const isReachable = found.length && required.every((clause) => clauses.includes(clause));
  const lists = [found.map(({ termid }) => termid), found.map(({ df }) => df), clauses, required, holds].map(literal);
  return macro("clause_search", [...lists, WEIGHT], { ...options, k: isReachable ? options.k : 0 });
}

function ofEachDocument(hits, most) {
  const taken = new Map();
  const [kept, further] = [[], []];
  for (const hit of hits) {
    taken.set(hit.doc_id, (taken.get(hit.doc_id) ?? 0) + 1);
    (most && taken.get(hit.doc_id) > most ? further : kept).push(hit);
  }
  return [kept, further];
}

/** Return the metadata of a chunk without the fields of llama-index. */
function publicMetadata(text) {
  const { _node_content: content, _node_type: type, ...metadata } = JSON.parse(text);
  return metadata;
}

function chunkRows(rids) {
  if (!rids.length) return new Map();
  const rows = select(`
    SELECT d.rid, d.node_id, d.text, CAST(d.metadata_ AS VARCHAR) AS metadata, d.doc_id, d.chunk_index, d.collection, d.heading_path, d.page, d.i_start,
           d.i_end, d.tags, d.shown, d.checksum, strftime(s.created_at, '%Y-%m-%dT%H:%M:%SZ') AS created_at
    FROM documents AS d LEFT JOIN source_documents AS s ON s.doc_id = d.doc_id
    WHERE d.rid IN (${rids.join(", ")}) ORDER BY d.rid`);
  return new Map(rows.map(({ rid, ...row }) => [rid, { ...row, metadata: publicMetadata(row.metadata) }]));
}

/** Return the whole documents of chunks, or of ids of documents, each once, in the order in which they are named. */
function read(ids, ofChunks = false) {
  const rows = select(
    ofChunks
      ? `SELECT s.doc_id, s.file_name, s.text, CAST(s.metadata_ AS VARCHAR) AS metadata, d.node_id AS key FROM documents AS d JOIN source_documents AS s ON s.doc_id = d.doc_id WHERE d.node_id IN (${ids.map(literal).join(", ")}) ORDER BY d.node_id`
      : `SELECT doc_id, file_name, text, CAST(metadata_ AS VARCHAR) AS metadata, doc_id AS key FROM source_documents WHERE doc_id IN (${ids.map(literal).join(", ")}) ORDER BY doc_id`,
  );
  const found = new Map(rows.map(({ key, ...row }) => [key, { ...row, file_path: row.file_name, metadata: JSON.parse(row.metadata) }]));
  const missing = ids.find((id) => !found.has(id));
  if (missing !== undefined) throw new Problem(404, "This is not in the file", `It holds no ${ofChunks ? "chunk" : "document"} ${missing}.`);
  return [...new Map(ids.map((id) => [found.get(id).doc_id, found.get(id)])).values()];
}

/** Return where a passage is, and what kind of text its document is. */
function passage(id) {
  const [found] = select(`SELECT d.i_start, d.i_end, d.page, s.mime, s.body_start FROM documents AS d
    LEFT JOIN source_documents AS s ON s.doc_id = d.doc_id WHERE d.node_id = ${literal(id)} ORDER BY d.node_id`);
  if (!found) throw new Problem(404, "This is not in the file", `It holds no chunk ${id}.`);
  const { i_start: start, i_end: end, page, mime, body_start } = found;
  return { node_id: id, spans: start === null ? [] : [[start, end]], page, mime, body_start };
}

/** Return what is in the file: its numbers, its collections and its tags, the largest first. */
function describe() {
  const names = (from, column) => select(`SELECT ${column} AS name, count(*) AS chunks FROM ${from} GROUP BY ALL ORDER BY chunks DESC, name LIMIT 500`);
  const [facts] = select("SELECT (SELECT count(*) FROM source_documents) AS documents, (SELECT value FROM embedding_metadata WHERE key = 'embedding_model') AS model");
  return { ...facts, chunks, collections: names("documents", "collection"), tags: names("(SELECT unnest(list_distinct(tags)) AS tag FROM documents)", "tag") };
}

let asked = { text: null, terms: [] };

/** Return the terms of a question; those of the last one are kept, for its results ask for them again. */
function terms(text) {
  if (asked.text !== text) asked = { text, terms: select(`SELECT term, termid, df FROM query_terms(${literal(text)}) ORDER BY term`) };
  return asked.terms;
}

/** Return the term and weight of each word of texts that counts for the question; with `syntax`, quotes and stars are read. */
function weights(text, words, syntax) {
  if (!words.length) return new Map();
  const { rest, phrases, prefixes } = syntax ? parse(text) : { rest: text, phrases: [], prefixes: [] };
  const wanted = terms(`${rest} ${phrases.flat().join(" ")}`);
  const begun = prefixes.map((prefix) => `WHEN starts_with(w.folded, ${literal(prefix)}) THEN ${literal(`${prefix}*`)} `).join("");
  const rows = select(`
    SELECT w.word, CASE ${begun || "WHEN false THEN NULL "}ELSE coalesce(f.term, fts_main_documents.term_of(w.folded, m.value)) END AS term
    FROM (SELECT word, fts_main_documents.fold(fts_main_documents.composed(word)) AS folded FROM (SELECT unnest(${literal(words)}) AS word)) AS w
    JOIN embedding_metadata AS m ON m.key = 'stemmer' LEFT JOIN fts_main_documents.words AS f ON f.word = w.folded ORDER BY w.word`);
  const idf = new Map(wanted.map(({ term, df }) => [term, Math.log(1 + (chunks - df + 0.5) / (df + 0.5))]));
  for (const prefix of prefixes) idf.set(`${prefix}*`, Math.max(1, ...idf.values()));
  return new Map(rows.filter(({ term }) => idf.has(term)).map(({ word, term }) => [word, { term, weight: idf.get(term) }]));
}

/** Return where texts hold the words of a question: `[start, end]` in characters. */
const highlight = (text, texts, syntax) => marks(texts, (words) => weights(text, words, syntax)).map((found) => found.map(({ start, end }) => [start, end]));

/** Return the part of each chunk that holds most of the question, and the words of the question in it. */
function snippets(text, ids, syntax) {
  const rows = select(`SELECT node_id, visible(text, shown) AS text, heading_path FROM documents WHERE node_id IN (${ids.map(literal).join(", ")}) ORDER BY node_id`);
  const found = new Map(rows.map((row) => [row.node_id, row]));
  const bodies = ids.map((id) => part.body(found.get(id)));
  const texts = marks(bodies, (words) => weights(text, words, syntax)).map((words, place) => part.best(bodies[place], words));
  const spans = highlight(text, texts, syntax);
  return texts.map((one, place) => ({ text: one, spans: spans[place] }));
}

/** Return what the terms of a question add to the BM25 of a chunk, its cosine if there is a vector, and its place among the results. */
function explain(text, id, vector, options) {
  const wanted = terms(text).filter(({ df }) => df > 0);
  const [chunk] = select(`SELECT rid FROM documents WHERE node_id = ${literal(id)} ORDER BY rid`);
  if (!chunk) throw new Problem(404, "This is not in the file", `It holds no chunk ${id}.`);
  const lists = [wanted.map(({ termid }) => termid), wanted.map(({ df }) => df)].map(literal);
  const parts = wanted.length ? select(`
    SELECT d.term, d.df, p.tf, p.heading_tf, c.contribution / 1e9 AS contribution FROM bm25_contributions(${lists.join(", ")}, ${WEIGHT}) AS c
    JOIN fts_main_documents.dict AS d ON d.termid = c.termid
    JOIN fts_main_documents.postings AS p ON p.termid = c.termid AND p.rid = c.rid
    WHERE c.rid = ${chunk.rid} ORDER BY d.term`) : [];
  const { results } = search(text, vector ? "hybrid" : "words", vector, { ...options, top_k: DEEPER });
  const place = results.findIndex((row) => row.node_id === id);
  const [exact] = vector ? select(`SELECT vector_score FROM pair_scores(${lists.join(", ")}, ${VECTOR}, [${chunk.rid}], ${WEIGHT})`) : [];
  const bm25 = parts.reduce((sum, one) => sum + Math.round(one.contribution * 1e9), 0) / 1e9;
  return { node_id: id, rank: place < 0 ? null : place + 1, score: results[place]?.score ?? null, cosine: exact?.vector_score ?? null, bm25, terms: parts };
}

answer({ open, search, read, passage, describe, highlight, snippets, explain });
