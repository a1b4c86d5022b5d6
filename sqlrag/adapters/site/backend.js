/** Answers the requests of the search page as `sqlrag serve` does, from the published file. */

import { open } from "./sqlrag.js";

const status = document.createElement("p");
status.id = "loading";
status.setAttribute("role", "status");
document.querySelector("main").prepend(status);

document.getElementById("map-toggle").hidden = true; // it is not published

const loading = new Map(); // what is not told yet
const told = new Map();

/** Tell what is loading, once a frame: files arrive in thousands of parts. */
function tell({ file, have, bytes }) {
  if (!loading.size) requestAnimationFrame(show);
  loading.set(file, { have, bytes });
}

function show() {
  for (const [file, one] of loading) told.set(file, one);
  loading.clear();
  const open_ = [...told].filter(([, one]) => one.have < one.bytes);
  const megabytes = (number) => (number / 1e6).toFixed(1);
  status.textContent = open_.map(([name, one]) => `Loading ${name}: ${megabytes(one.have)} of ${megabytes(one.bytes)} MB`).join(", ");
  status.hidden = !open_.length;
}

if ("serviceWorker" in navigator) void navigator.serviceWorker.register(new URL("../sw.js", import.meta.url)).catch(() => {});

// The model takes nothing from the first words.
let loadModel;
const opening = open(new URL("..", import.meta.url), { onProgress: tell, model: new Promise((resolve) => (loadModel = resolve)) });
opening.then(async (store) => {
  if (!store.site.model) return;
  if (!new URLSearchParams(location.search).get("q")?.trim()) loadModel();
  await store.ready;
  dispatchEvent(new Event("sqlrag-model")); // what was answered by words is asked again
}, () => {});

const MODES = { hybrid_query: "hybrid", vector_query: "vector", lexical_query: "lexical" };

const routes = {
  async get_embedding_metadata(store) {
    const { documents, embedding_model: model, database } = store.site;
    return { source_documents: { total_documents: documents }, chunks: { total_chunks: database.chunks }, embedding: { model } };
  },
  async facets(store, _, query) {
    const { title: name, collections, tags } = store.site;
    if (query.get("metadata_fields")) return { metadata_fields: await (await fetch(new URL("../metadata.json", import.meta.url))).json() };
    return { name, databases: [], chat_model: null, collections, tags, row_sources: [] };
  },
  passage: async (store, _, query) => {
    const { mime, body_start, ...place } = await store.passage(query.get("node_id"));
    return { ...place, body_start: store.site.markdown.includes(mime) ? body_start : null, original: false };
  },
  get_source_documents: async (store, { chunk_ids: ids }) => ({ documents: await store.documentsOf(ids) }),
  highlight: async (store, { query_text: text, texts, ...options }) => ({ spans: await store.highlight(text, texts, options) }),
  snippets: async (store, { query_text: text, node_ids: ids, ...options }) => ({ snippets: await store.snippets(text, ids, options) }),
};

/** Search; while the model is loading, a hybrid search is answered by words. */
async function search(store, name, { query_text: text, context, ...options }) {
  const mode = MODES[name];
  const waits = mode === "hybrid" && store.site.words && !store.canEmbed && store.site.model && (await Promise.race([store.ready, null])) === null;
  if (!waits && mode !== "lexical") {
    loadModel();
    return store.search(text, { mode, ...options });
  }
  const found = await store.search(text, { mode: "lexical", ...options }).finally(loadModel);
  if (!waits) return found;
  return { ...found, notices: ["The model is loading; meanwhile the answer is by words alone.", ...found.notices] };
}

/** Answer a request, as `fetch` does. */
export async function respond(url, options = {}) {
  const name = new URL(url).pathname.split("/").at(-1);
  const body = options.body ? JSON.parse(options.body) : {};
  try {
    const store = await opening;
    if (name in MODES) return Response.json(await search(store, name, body));
    if (!(name in routes)) return Response.json({ title: "This site has none", detail: "It is not part of what was published." }, { status: 404 });
    return Response.json(await routes[name](store, body, new URL(url).searchParams));
  } catch ({ status: code = 500, title, message, detail = message }) {
    return Response.json({ title, detail }, { status: code });
  } finally {
    options.signal?.throwIfAborted();
  }
}
