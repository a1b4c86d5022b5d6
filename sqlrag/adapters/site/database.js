/** A worker that searches the published file: each leg of a search is a macro of the file, called in DuckDB. */

import * as duckdb from "../assets/duckdb/duckdb-browser-blocking.js";
import { asciiParts, asciiWords, fuse, idf, isAscii, queryCode, sampledNth, trustOf } from "./ranking.js";
import { answer, Problem, tagOf } from "./rpc.js";
import { checkDates, matches } from "./metadata.js";
import { marks, part } from "./snippets.js";

const DEEPER = 200; // candidates of each leg where only some results of a document are wanted
const POOL = { adaptive: 100 };
const CANDIDATES = 50;
const FUSIONS = ["adaptive", "rrf", "weighted", "convex"];
const FILTERS = ["collection", "tags_any", "tags_all"];

// Of DuckDB, which else reads a file of another server as a whole.
const RANGES = { reliableHeadRequests: true, allowFullHTTPReads: false, forceFullHTTPReads: false };

let database = null;
let connection = null;
let opened = null;
let state = null; // of the file, where it is read in ranges

// Of the file, which does not change.
let chunks, dimensions, stops, stemmer, weight;

/** Refuse a browser that cannot run DuckDB. */
async function check() {
  const { wasmExceptions } = await duckdb.getPlatformFeatures();
  if (!wasmExceptions) throw new Problem(426, "This browser is too old", "It needs WebAssembly with exceptions.");
}

/** Start DuckDB, of a module that is compiled; its file is not needed yet. */
async function begin(module) {
  await check(); // which DuckDB chooses by
  const bundle = { mainModule: "", mainWorker: "" };
  database = await duckdb.createDuckDB({ mvp: bundle, eh: bundle }, new duckdb.VoidLogger(), duckdb.BROWSER_RUNTIME);
  // DuckDB's own would compile it here.
  database.instantiateWasm = (imports, use) => {
    globalThis.DUCKDB_RUNTIME = duckdb.BROWSER_RUNTIME;
    WebAssembly.instantiate(module, imports).then((instance) => use(instance, module));
    return [];
  };
  await Promise.race([failure(), database.instantiate()]).catch((error) => {
    throw new Problem(424, "The database engine cannot be started", `${error.message}. Publish the site again.`);
  });
}

/**
 * Open `{url, bytes, chunks, dimensions, stop_words, stemmer, heading_weight}`; the address is absolute. `content` is the file, null where it is
 * read in ranges; then `tag` tells it from a later one.
 */
function open(file, content, tag) {
  opened = file;
  state = tag;
  ({ chunks, dimensions, stemmer } = file);
  weight = `heading_weight := CAST(${file.heading_weight} AS DOUBLE)`;
  stops = new Set(file.stop_words);
  if (content) database.registerFileBuffer("kb.duckdb", new Uint8Array(content));
  else database.registerFileURL("kb.duckdb", file.url, duckdb.DuckDBDataProtocol.HTTP, true);
  try {
    database.open({ path: "kb.duckdb", accessMode: duckdb.DuckDBAccessMode.READ_ONLY, filesystem: RANGES });
    connection = database.connect();
    for (const name of ["autoinstall_known_extensions", "autoload_known_extensions"]) connection.query(`SET ${name} = false`);
    select("SELECT rid FROM documents ORDER BY rid LIMIT 1"); // a damaged file is found out now
  } catch (error) {
    throw new Problem(424, "The published file cannot be read", `${file.url}: ${error.message}`);
  }
}

/** A file that is published anew while it is read in ranges would be read as a mixture of both. */
async function unchanged() {
  if (state !== null && (await tagOf(opened)) !== state) throw new Problem(409, "This site was published anew", "Load the page again.");
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

const VECTOR = "getvariable('question')";

function useVector(vector) {
  const values = Float32Array.from(vector ?? []);
  const length = Math.hypot(...values);
  if (values.length !== dimensions || !Number.isFinite(length) || !length) throw new Problem(422, "The vector cannot be used", `It has to have ${dimensions} finite numbers that are not all 0.`);
  connection.query(`SET VARIABLE question = CAST('[${values.join(", ")}]' AS FLOAT[${dimensions}])`);
  return values;
}

/** How many candidates of the sign codes get exact cosines, as Python's default_pool has it. */
const codesPool = (k) => Math.round(Math.max(750, 6 * k, 0.75 * chunks ** 0.6) * Math.max(1, 384 / dimensions));

const leg = (call) => select(`SELECT rid, node_id, doc_id, chunk_index, score FROM ${call} ORDER BY score DESC, doc_id, chunk_index`);

/** Return the chunks nearest to a vector, best first. The macro that makes the code of the vector takes longer to plan than to run. */
function nearest(vector, k, exact, filters) {
  const values = useVector(vector);
  if (exact) return leg(macro("exact_vector_search", [VECTOR], { k, ...filters }));
  const { signs, low, high } = queryCode(values);
  return leg(macro("vector_search", [VECTOR, ...[signs, low, high].map((words) => `'[${words.join(", ")}]'`)], { k, pool: Math.max(k, codesPool(k)), ...filters }));
}

const lists = (wanted) => [wanted.map(({ termid }) => termid), wanted.map(({ df }) => df)].map((list) => `CAST(${literal(list)} AS INTEGER[])`);

/** Return the chunks that hold one of the terms, by BM25, best first. */
function holding(wanted, options) {
  const found = wanted.filter(({ df }) => df);
  return found.length ? leg(macro("lexical_search", [...lists(found), weight], options)) : [];
}

let described = null; // the metadata of every chunk, once there is a filter

/** Return a bit for each rid, as the macro passing_chunks does: 1 where the metadata of the chunk meet a filter. */
function passing(wanted, collection) {
  described ??= select("SELECT rid, doc_id, node_id, collection, CAST(metadata_ AS VARCHAR) AS metadata FROM documents ORDER BY rid").map((row) => ({ ...row, metadata: JSON.parse(row.metadata) }));
  checkDates(collection ? described.filter((chunk) => collection.includes(chunk.collection)) : described, wanted);
  const bits = Array(described.at(-1).rid + 1).fill("0");
  for (const chunk of described) if (matches(chunk, wanted)) bits[chunk.rid] = "1";
  return bits.join("");
}

/** Fuse both legs; "adaptive" and "convex" do so by the exact scores of every candidate. */
function hybrid(text, vector, { k, pool, fusion, exact, filters }) {
  const wanted = terms(text);
  const depth = Math.max(pool ?? POOL[fusion] ?? CANDIDATES, k);
  const [vectorLeg, lexicalLeg] = [nearest(vector, depth, exact, filters), holding(wanted, { k: depth, ...filters })];
  if (!(fusion === "adaptive" || fusion === "convex")) return fuse(vectorLeg, lexicalLeg, fusion);
  const rids = [...new Set([...vectorLeg, ...lexicalLeg].map(({ rid }) => rid))];
  const found = wanted.filter(({ df }) => df);
  const options = { nth: fusion === "adaptive" ? sampledNth(found, chunks) : undefined };
  const scores = select(`SELECT rid, vector_score, lexical_score, sampled FROM ${macro("pair_scores", [...lists(found), VECTOR, literal(rids), weight], options)} ORDER BY rid`);
  const scoreOf = new Map(scores.map(({ rid, sampled, ...both }) => [rid, both]));
  return fuse(vectorLeg, lexicalLeg, fusion, scoreOf, trustOf(scores.filter(({ sampled }) => sampled), wanted, chunks));
}

/** Say which words of a question no chunk holds. */
function unknownWords(text, hits) {
  const words = [...new Set(kept(plainWords(parse(text).rest)))];
  const known = new Map(lookUp(termsOf(words)).map(({ term, df }) => [term, df > 0]));
  const unknown = words.filter((word) => !known.get(termOf.get(word)));
  if (hits.length && hits.every((hit) => hit.lexical_rank === null)) return ["No chunk holds any of the words; the order is by the vectors."];
  if (!unknown.length) return [];
  return [unknown.length === words.length ? "No chunk holds any of the words." : `No chunk holds ${unknown.map((word) => `"${word}"`).join(", ")}.`];
}

/** Say that no chunk passes the filters, and which of their names none has. */
function unmetFilters(filters, options) {
  const asked = ["collection", "tags_any", "tags_all", "metadata"].filter((name) => options[name] !== undefined && options[name] !== null);
  const values = ["passing", ...asked.filter((name) => name !== "metadata")].filter((name) => filters[name] !== undefined && filters[name] !== null);
  const given = (name) => (values.includes(name) ? literal(filters[name]) : "NULL");
  const where = `passes(d.rid, d.collection, d.tags, ${["passing", "collection", "tags_any", "tags_all"].map(given).join(", ")})`;
  if (!asked.length || select(`SELECT 1 AS one FROM documents AS d WHERE ${where} LIMIT 1`).length) return [];
  const missing = [];
  for (const [what, names, column] of [["collection", filters.collection, "collection"], ["tag", [...(filters.tags_any ?? []), ...(filters.tags_all ?? [])], "unnest(tags)"]]) {
    const known = new Set(names?.length ? select(`SELECT DISTINCT ${column} AS name FROM documents ORDER BY name`).map(({ name }) => name) : []);
    missing.push(...(names ?? []).filter((name) => !known.has(name)).map((name) => ` No chunk has the ${what} '${name}'.`));
  }
  return [`No chunk passes the filters: ${JSON.stringify(Object.fromEntries(asked.map((name) => [name, options[name]])))}.${missing.join("")}`];
}

/**
 * Search by mode "lexical", "vector" or "hybrid"; the last two need the question's `vector`. Return rows as `sqlrag serve` does, and the ids
 * that `per_document` left out, by document.
 */
function search(text, mode, vector, options) {
  const began = performance.now();
  const { top_k: k = 10, per_document: most = 0, fusion = "adaptive", exact = false } = options;
  for (const [name, value, least] of [["top_k", k, 1], ["per_document", most ?? 0, 0]])
    if (!Number.isInteger(value) || value < least) throw new Problem(422, `${name} cannot be ${value}`, `It is a whole number of ${least} or more.`);
  const filters = Object.fromEntries(FILTERS.map((name) => [name, typeof options[name] === "string" ? [options[name]] : options[name]]));
  if (options.metadata) filters.passing = passing(options.metadata, filters.collection);
  const deep = most ? Math.max(k, DEEPER) : k;
  let hits;
  if (mode === "hybrid") {
    if (!FUSIONS.includes(fusion)) throw new Problem(422, "There is no such fusion", `It is one of ${FUSIONS.join(", ")}.`);
    hits = hybrid(text, vector, { k: deep, pool: most ? DEEPER : undefined, fusion, exact, filters });
  } else {
    const [found, name] = mode === "lexical" ? [byWords(text, { k: deep, ...filters }), "lexical"] : [nearest(vector, deep, exact, filters), "vector"];
    const none = { vector_score: null, vector_rank: null, lexical_score: null, lexical_rank: null };
    hits = found.map((hit, place) => ({ ...hit, ...none, [`${name}_score`]: hit.score, [`${name}_rank`]: place + 1 }));
  }
  const [kept, further] = ofEachDocument(hits, most);
  const shown = kept.slice(0, k);
  const type = { lexical: "bm25", vector: "vector", hybrid: fusion }[mode];
  const rows = chunkRows(shown.map((hit) => hit.rid));
  const results = shown.map(({ rid, ...hit }) => ({ ...rows.get(rid), ...hit, score_type: type, source_doc: null, context: null, context_start: null, context_end: null }));
  const documents = new Set(results.map((row) => row.doc_id));
  const others = {};
  for (const hit of further.filter((one) => documents.has(one.doc_id))) (others[hit.doc_id] ??= []).push(hit.node_id);
  const notices = mode === "vector" ? [] : unknownWords(text, hits);
  if (!results.length) notices.push(...unmetFilters(filters, options));
  return { results, further: others, notices, timings: { total: (performance.now() - began) / 1000 } };
}

// Quotes and stars as sqlrag.ranking.terms has them.
const PHRASE = /(?<![^\s([{,;:])"([^"]+)"(?![^\s)\]},.;:!?])/g;
const PREFIX = /(?<![^\s([{,;:])([^\s*"()[\]{}]{2,})\*(?![^\s)\]},.;:!?])/g;
// A run without blanks is cut into pairs or threes: as a term it is exact.
const RUN = /^[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}]+$/u;

/** Take a question apart: its plain words as text, the words of each phrase, and beginnings of words, folded. */
function parse(text) {
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

const callOf = (name, text) => select(`SELECT fts_main_documents.${name}(${literal(text)}) AS words`)[0].words;

// The macros have regular expressions that take longer to compile than all else of a search.
const plainWords = (text) => (isAscii(text) ? asciiWords(text) : callOf("plain_words", text));
const tokenize = (text) => (isAscii(text) ? [...asciiWords(text), ...asciiParts(text)] : callOf("tokenize", text));

const termOf = new Map(); // by folded word, of the words that were asked for

/** Find the terms of folded words: those of the words of the file, or else by rule, as query_terms.sql does. */
function learn(folded) {
  const unknown = () => [...new Set(folded)].filter((word) => !termOf.has(word)).map(literal).join(", ");
  const remember = (sql) => select(sql).forEach(({ word, term }) => termOf.set(word, term));
  if (unknown()) remember(`SELECT word, term FROM fts_main_documents.words WHERE word IN (${unknown()}) ORDER BY word`);
  if (unknown()) remember(`SELECT word, fts_main_documents.term_of(word, ${literal(stemmer)}) AS term FROM (SELECT unnest([${unknown()}]) AS word) ORDER BY word`);
}

/** Return the terms of folded words, in the order of their letters. */
function termsOf(folded) {
  learn(folded);
  return [...new Set(folded.map((word) => termOf.get(word)))].sort();
}

/** Return `{term, termid, df}` of terms; of those that no chunk holds, df is 0. */
function lookUp(wanted) {
  const rows = wanted.length ? select(`SELECT term, termid, df FROM fts_main_documents.dict WHERE term IN (${wanted.map(literal).join(", ")}) ORDER BY term`) : [];
  const found = new Map(rows.map((row) => [row.term, row]));
  return wanted.map((term) => found.get(term) ?? { term, termid: null, df: 0 });
}

const kept = (words) => words.filter((word) => !stops.has(word));

/** Search for words; quotes and stars ask for phrases and beginnings. */
function byWords(text, options) {
  const { rest, phrases, prefixes } = parse(text);
  if (!phrases.length && !prefixes.length) return holding(terms(text), options);
  const quoted = termsOf(phrases.flat());
  const wanted = [...new Set([...termsOf(kept(tokenize(rest))), ...quoted])].sort();
  const found = lookUp(wanted).filter(({ df }) => df).map((one) => ({ ...one, clause: wanted.indexOf(one.term) }));
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
  if (!found.length || !required.every((clause) => clauses.includes(clause))) return [];
  const holds = phrases.filter((phrase) => phrase.length > 1 || !RUN.test(phrase[0])).map((phrase) => ` ${phrase.join(" ")} `);
  return leg(macro("clause_search", [...lists(found), ...[clauses, required, holds].map(literal), weight], options));
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

let asked = { text: null, terms: [] };

/** Return the terms of a question, without stop words where there are others; those of the last one are kept, for its results ask for them again. */
function terms(text) {
  if (asked.text !== text) {
    const words = [...new Set(tokenize(text))];
    const counted = kept(words);
    asked = { text, terms: lookUp(termsOf(counted.length ? counted : words)) };
  }
  return asked.terms;
}

/** Return the term and weight of each word of texts that counts for the question; with `syntax`, quotes and stars are read. */
function weights(text, words, syntax) {
  if (!words.length) return new Map();
  const { rest, phrases, prefixes } = syntax ? parse(text) : { rest: text, phrases: [], prefixes: [] };
  const wanted = terms(`${rest} ${phrases.flat().join(" ")}`);
  const weightOf = new Map(wanted.map(({ term, df }) => [term, idf(df, chunks)]));
  for (const prefix of prefixes) weightOf.set(`${prefix}*`, Math.max(1, ...weightOf.values()));
  const folded = new Map(words.map((word) => [word, word.toLowerCase()]));
  const others = words.filter((word) => !isAscii(word));
  if (others.length) select(`SELECT word, fts_main_documents.fold(fts_main_documents.composed(word)) AS folded FROM (SELECT unnest(${literal(others)}) AS word) ORDER BY word`).forEach((row) => folded.set(row.word, row.folded));
  learn([...folded.values()]);
  const found = new Map();
  for (const [word, plain] of folded) {
    const prefix = prefixes.find((one) => plain.startsWith(one));
    const term = prefix ? `${prefix}*` : termOf.get(plain);
    if (weightOf.has(term)) found.set(word, { term, weight: weightOf.get(term) });
  }
  return found;
}

/** Return where texts hold the words of a question: `[start, end]` in characters. */
const highlight = (text, texts, syntax) => marks(texts, (words) => weights(text, words, syntax)).map((found) => found.map(({ start, end }) => [start, end]));

/** Return the part of each chunk that holds most of the question, and the words of the question in it. */
function snippets(text, ids, syntax) {
  const rows = select(`SELECT node_id, visible(text, CASE WHEN length(shown) > length(text) THEN ltrim(substr(shown, length(text) + 1), chr(10)) || chr(10) || substr(shown, 1, length(text)) ELSE shown END) AS text, heading_path FROM documents WHERE node_id IN (${ids.map(literal).join(", ")}) ORDER BY node_id`);
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
  const parts = wanted.length ? select(`
    SELECT d.term, d.df, p.tf, p.heading_tf, c.contribution / 1e9 AS contribution FROM bm25_contributions(${lists(wanted).join(", ")}, ${weight}) AS c
    JOIN fts_main_documents.dict AS d ON d.termid = c.termid
    JOIN fts_main_documents.postings AS p ON p.termid = c.termid AND p.rid = c.rid
    WHERE c.rid = ${chunk.rid} ORDER BY d.term`) : [];
  const { results } = search(text, vector ? "hybrid" : "lexical", vector, { ...options, top_k: DEEPER });
  const place = results.findIndex((row) => row.node_id === id);
  const [exact] = vector ? select(`SELECT vector_score FROM pair_scores(${lists(wanted).join(", ")}, ${VECTOR}, [${chunk.rid}], ${weight})`) : [];
  const bm25 = parts.reduce((sum, one) => sum + Math.round(one.contribution * 1e9), 0) / 1e9;
  return { node_id: id, rank: place < 0 ? null : place + 1, score: results[place]?.score ?? null, cosine: exact?.vector_score ?? null, bm25, terms: parts };
}

answer({ check, begin, open, search, read, passage, highlight, snippets, explain }, unchanged);
