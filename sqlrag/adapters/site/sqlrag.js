/** Searches a site that `sqlrag publish` has written, in workers of this page: words as soon as the file is there, vectors when the model is. */

import { fetched, Problem, start, tagOf } from "./rpc.js";

export { Problem };

const MODES = ["hybrid", "vector", "lexical"];

const OPTIONS = ["top_k", "per_document", "fusion", "exact", "collection", "tags_any", "tags_all", "metadata"];

/**
 * Open a published site.
 *
 * `url` is its folder, the one that this script is in unless given; `onProgress({file, have, bytes})` gets the bytes that have arrived. The model
 * is loaded in the background unless `model` is false; where that is a promise, once it is settled.
 */
export async function open(url = new URL("..", import.meta.url), { onProgress = () => {}, model = true } = {}) {
  if (typeof WebAssembly === "undefined") throw new Problem(426, "This browser cannot search here", "It has no WebAssembly, or it is switched off.");
  const root = new URL(url, globalThis.document?.baseURI ?? import.meta.url);
  const absolute = (path) => new URL(path, root).href;
  const database = start(new URL("database.js", import.meta.url), onProgress);
  const response = await fetch(absolute("site.json"), { cache: "no-cache" }).catch(() => null);
  if (!response?.ok) throw new Problem(424, "A part of this site is missing or damaged", `${absolute("site.json")} cannot be read. Publish the site again.`);
  const site = await response.json();
  if (site.format !== 1) throw new Problem(424, "This site was published by another version", `Its format is ${site.format}, this script reads 1. Publish it again.`);
  const file = { ...site.database, url: absolute(site.database.url), wasm: absolute(site.database.wasm) };
  const begun = compiled(file, onProgress).then(
    (module) => database.call("begin", module),
    (error) => database.call("check").then(() => Promise.reject(error)),
  );
  const tagged = file.ranges ? tagOf(file) : Promise.resolve(null);
  const content = tagged.then((tag) => (tag === null ? fetched(file.url, file.bytes, onProgress) : null));
  await Promise.all([begun, content]);
  await database.call("open", file, (await content)?.buffer ?? null, await tagged);
  const store = new Store(site, database);
  if (model && site.model) store.load({ ...site.model, url: absolute(site.model.url), tokenizer: absolute(site.model.tokenizer), wasm: absolute(site.model.wasm) }, model, onProgress);
  return store;
}

/** Compile DuckDB while it arrives, and while its worker starts. */
async function compiled({ wasm: url, integrity }, told) {
  try {
    const response = await fetch(url, { integrity });
    const bytes = Number(response.headers.get("Content-Length"));
    let have = 0;
    const transform = (part, controller) => {
      have += part.length;
      told({ file: "DuckDB", have, bytes });
      controller.enqueue(part);
    };
    return await WebAssembly.compileStreaming(new Response(response.body.pipeThrough(new TransformStream({ transform })), response));
  } catch (error) {
    throw new Problem(424, "The database engine cannot be started", `${url}: ${error.message}. Publish the site again.`);
  }
}

class Store {
  #database;
  #model = null;
  #vectors = new Map();

  constructor(site, database) {
    this.site = site;
    this.#database = database;
    /** Settles when questions can be embedded: `true`, or why they cannot, as text. */
    this.ready = Promise.resolve(site.without ?? "The model was not loaded.");
    this.canEmbed = false;
  }

  load(model, when, told) {
    const loading = Promise.resolve(when).then(() => {
      this.#model = start(new URL("model.js", import.meta.url), told);
      return this.#model.call("load", model);
    });
    this.ready = loading.then(
      () => (this.canEmbed = true),
      (error) => `${error.title}: ${error.detail}`,
    );
  }

  /** Return the vector of a question, of unit norm. */
  async embed(text) {
    const told = await this.ready;
    if (told !== true) throw new Problem(424, "Vectors cannot be searched here", told);
    if (!this.#vectors.has(text)) this.#vectors.set(text, await this.#model.call("embed", this.site.model.query_prefix + text));
    return this.#vectors.get(text);
  }

  /** Search; see the types. A hybrid search waits for the model, and answers by words alone, with a notice, where there is none. */
  async search(text, { mode = "hybrid", vector = null, ...options } = {}) {
    if (!text.trim()) throw new Problem(422, "The question is blank", "Type a question or some words.");
    if (!MODES.includes(mode)) throw new Problem(422, "There is no such mode", `It is one of ${MODES.join(", ")}.`);
    const unknown = Object.keys(options).find((name) => !OPTIONS.includes(name));
    if (unknown) throw new Problem(422, `A published site has no option ${unknown}`, `It has mode, vector, ${OPTIONS.join(", ")}.`);
    if (!this.site.words && mode !== "vector") mode = "vector";
    if (mode === "lexical") return this.#database.call("search", text, mode, null, options);
    const given = vector ?? (await this.embed(text).catch((error) => error));
    if (!(given instanceof Error)) return this.#database.call("search", text, mode, given, options);
    if (mode === "vector") throw given;
    const found = await this.#database.call("search", text, "lexical", null, options);
    return { ...found, notices: [`The answer is by words alone. ${given.detail}`, ...found.notices] };
  }

  /** Return the document of an id, with its whole text. */
  async read(id) {
    return (await this.#database.call("read", [id]))[0];
  }

  /** Return the documents of chunks, each once. */
  documentsOf = (ids) => this.#database.call("read", ids, true);

  passage = (id) => this.#database.call("passage", id);

  highlight = (text, texts, { syntax = false } = {}) => this.#database.call("highlight", text, texts, syntax);

  snippets = (text, ids, { syntax = false } = {}) => this.#database.call("snippets", text, ids, syntax);

  /** Take the score of a chunk apart, to the last term. */
  async explain(text, id, { vector = null, ...options } = {}) {
    const given = vector ?? (await this.embed(text).catch(() => null));
    return this.#database.call("explain", text, id, given, options);
  }

  /** End the workers. */
  close() {
    this.#database.end();
    this.#model?.end();
  }
}
