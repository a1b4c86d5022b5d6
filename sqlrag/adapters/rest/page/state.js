/** The state of the page, stored in its address, so that a search can be linked and Back works. */

export const MODES = ["hybrid", "meaning", "words"];
export const STEP = 10;
const MOST = 100;

/** The operators of the conditions on metadata fields, in words. */
export const OPERATORS = new Map([
  ["$eq", "is"],
  ["$ne", "is not"],
  ["$gte", "at least"],
  ["$lte", "at most"],
  ["$contains", "has"],
  ["$text_match_insensitive", "contains"],
]);

/** Read the address. */
export function read(search = location.search) {
  const params = new URLSearchParams(search);
  const count = Number.parseInt(params.get("k"), 10);
  return {
    query: params.get("q") ?? "",
    mode: MODES.includes(params.get("mode")) ? params.get("mode") : "hybrid",
    collections: params.getAll("collection"),
    tags: params.getAll("tag"),
    all: params.get("match") === "all",
    metadata: params.getAll("filter").map(condition).filter(Boolean),
    count: count >= 1 && count <= MOST ? count : STEP,
    source: params.get("source"),
    at: params.get("source") === null ? null : params.get("at"),
    view: params.get("view") === "map" ? "map" : null,
  };
}

/** Read a condition on a metadata field, ["price", "$gte", 20]; null where it is none. */
function condition(written) {
  try {
    const [field, operator, value, ...rest] = JSON.parse(written);
    const valid = typeof field === "string" && OPERATORS.has(operator) && ["string", "number", "boolean"].includes(typeof value) && !rest.length;
    return valid ? [field, operator, value] : null;
  } catch {
    return null;
  }
}

/** Return the address of a state. */
export function address(state) {
  const params = new URLSearchParams();
  if (state.query.trim()) params.set("q", state.query);
  if (state.mode !== "hybrid") params.set("mode", state.mode);
  for (const name of state.collections) params.append("collection", name);
  for (const tag of state.tags) params.append("tag", tag);
  if (state.all) params.set("match", "all");
  for (const one of state.metadata) params.append("filter", JSON.stringify(one));
  if (state.count !== STEP) params.set("k", state.count);
  if (state.view) params.set("view", state.view);
  if (state.source !== null) params.set("source", state.source);
  if (state.source !== null && state.at) params.set("at", state.at);
  return params.size ? `?${params}` : "./";
}

/** Write spans for an address, "12-340.560-700": the passages of a citation are not always whole chunks. */
export const written = (spans) => spans.map(([start, end]) => `${start}-${end}`).join(".");

/** Return the spans in an address, sorted and limited to the length of the text. */
export function spansAt(at, length) {
  const spans = [...(at ?? "").matchAll(/(\d+)-(\d+)/g)].map(([, start, end]) => [Number(start), Math.min(Number(end), length)]);
  return spans.filter(([start, end]) => start < end).sort(([a], [b]) => a - b);
}

/** Return the next number of results, or null at the maximum. */
export const more = (count) => (count < MOST ? Math.min(MOST, count + STEP) : null);

/** The filters as arguments of the server. */
export function filters(state) {
  return {
    ...(state.collections.length && { collection: state.collections }),
    ...(state.tags.length && { [state.all ? "tags_all" : "tags_any"]: state.tags }),
    ...(state.metadata.length && { metadata: { $and: state.metadata.map(([field, operator, value]) => ({ [field]: { [operator]: value } })) } }),
  };
}
