/** The arithmetic of a search that is no SQL, as `sqlrag.ranking` has it: words of ASCII, the code of a vector, and the fusion of the legs. */

const WORD = /[A-Za-z](?:\+\+|#)|\.net\b|\w+/gi;
const NAME = /\.net\b|\w+/gi;
const COMPOUND = /\.|[A-Za-z0-9]_|_[A-Za-z0-9]|[a-z]{2}[A-Z][a-z]|[A-Z]{2}[a-z]{2}/;

export const isAscii = (text) => /^[\0-\x7f]*$/.test(text);

/** Return what `fts_main_documents.plain_words` gives for a text of ASCII alone. */
export const asciiWords = (text) => [...text.matchAll(WORD)].map(([word]) => word.toLowerCase());

/** Return what `fts_main_documents.compound_parts` gives for a text of ASCII alone. */
export function asciiParts(text) {
  const names = [...text.matchAll(NAME)].map(([name]) => name).filter((name) => COMPOUND.test(name));
  const split = names.map((name) => name.replace(/([a-z0-9])([A-Z])/g, "$1_$2").replace(/([A-Z]+)([A-Z][a-z]{2})/g, "$1_$2"));
  return split.flatMap((name) => name.match(/[^_.]+/g) ?? []).map((word) => word.toLowerCase());
}

/** Return the code of a question's vector: its signs, and two bits of weight for each dimension, in words of 128 bits. */
export function queryCode(vector) {
  const values = Array.from(vector);
  const sizes = values.map(Math.abs);
  const sorted = [...sizes].sort((a, b) => a - b);
  const [one, two, three] = [20, 60, 85].map((percent) => sorted[Math.floor((sizes.length * percent) / 100)]);
  return {
    signs: packed(values.map((value) => value >= 0)),
    low: packed(sizes.map((size) => size >= one && (size < two || size >= three))),
    high: packed(sizes.map((size) => size >= two)),
  };
}

function packed(flags) {
  const words = [];
  for (let from = 0; from < flags.length; from += 128) {
    const bits = flags.slice(from, from + 128).map((flag) => (flag ? "1" : "0")).join("");
    words.push(BigInt.asIntN(128, BigInt(`0b${bits.padEnd(128, "0")}`)));
  }
  return words;
}

/** Return Lucene's inverse document frequency. */
export const idf = (df, chunks) => Math.log(1 + (chunks - df + 0.5) / (df + 0.5));

const SAMPLE = 300; // chunks that hold a word, of which the trust is found
const billionths = (value) => BigInt(Math.round(value * 1e9));
const rounded = (value) => (Math.sign(value) * Math.round(Math.abs(value) * 1e9)) / 1e9;

/** Return which share of the chunks that hold one of the terms is a sample: one in so many. */
export const sampledNth = (terms, chunks) => Math.max(1, Math.ceil(Math.min(terms.reduce((sum, { df }) => sum + df, 0), chunks) / SAMPLE));

/** Return how far the cosines of a question are to be believed, .01 to 1, of a sample `{vector_score, lexical_score}`; see `Trust.of` of Python. */
export function trustOf(sample, terms, chunks) {
  const pairs = sample.filter((one) => one.vector_score !== null).map((one) => [billionths(one.vector_score), billionths(one.lexical_score)]);
  const sum = (value) => pairs.reduce((total, pair) => total + value(pair), 0n);
  const [n, x, y] = [BigInt(pairs.length), sum(([a]) => a), sum(([, b]) => b)];
  const spread = n * sum(([, b]) => b * b) - y * y;
  if (n < 30n || !spread) return 1;
  const width = n * sum(([a]) => a * a) - x * x;
  const shared = n * sum(([a, b]) => a * b) - x * y;
  const rho = width ? rounded(Number(shared) / (Math.sqrt(Number(width)) * Math.sqrt(Number(spread)))) : 0;
  const weight = (some) => some.reduce((total, { df }) => total + Math.round(1e9 * idf(df, chunks)), 0);
  const least = 2 * weight(terms.filter(({ df }) => df)) < weight(terms) ? 0.5 : 0.01;
  return Math.min(1, Math.max(least, rho / 0.3));
}

const inOrder = (a, b) => b.score - a.score || compared(a.doc_id, b.doc_id) || a.chunk_index - b.chunk_index;

/** Compare texts by their code points, as DuckDB does; JavaScript would by units of UTF-16. */
function compared(a, b) {
  if (a === b) return 0;
  const [one, other] = [[...a], [...b]];
  const place = one.findIndex((character, at) => character !== other[at]);
  if (place < 0) return -1; // a is the beginning of b
  return place < other.length && one[place].codePointAt() < other[place].codePointAt() ? -1 : 1;
}

/**
 * Return the candidates of both legs, best first, as `fuse_legs` of Python does. A leg is a list of `{rid, doc_id, chunk_index, node_id, score}`, best
 * first; `exact` a Map of rid to `{vector_score, lexical_score}` of every candidate, which "adaptive" and "convex" need.
 */
export function fuse(vectorLeg, lexicalLeg, fusion, exact, trust) {
  const candidates = new Map();
  const ranked = (leg, name) =>
    leg.forEach(({ score, ...hit }, place) => candidates.set(hit.rid, { vector_score: null, vector_rank: null, lexical_score: null, lexical_rank: null, ...hit, ...candidates.get(hit.rid), [`${name}_score`]: score, [`${name}_rank`]: place + 1 }));
  ranked(lexicalLeg, "lexical");
  ranked(vectorLeg, "vector");
  const hits = [...candidates.values()];
  if (fusion === "rrf" || fusion === "weighted") {
    const [ofVectors, ofWords] = [vectorLeg, lexicalLeg].map(scaled);
    for (const hit of hits) {
      const { vector_rank: vector, lexical_rank: lexical } = hit;
      const ranks = (vector ? 1 / (60 + vector) : 0) + (lexical ? 1 / (60 + lexical) : 0);
      hit.score = rounded(fusion === "rrf" ? ranks : 0.5 * ofVectors(vector, hit.vector_score) + 0.5 * ofWords(lexical, hit.lexical_score));
    }
    return hits.sort(inOrder);
  }
  const isAdaptive = fusion === "adaptive";
  const gap = gapOf(lexicalLeg);
  const [vectorShare, lexicalShare] = isAdaptive ? [0.75 * trust, 0.5 * gap] : [0.75, 0.25];
  for (const hit of hits) Object.assign(hit, exact.get(hit.rid));
  const cosine = ({ vector_score: score }) => (score === null ? 0 : Math.max(0, score + 1));
  const best = (value) => Math.max(...hits.map(value)) || 1;
  const [nearest, most] = [best(cosine), best((hit) => hit.lexical_score)];
  for (const hit of hits) hit.score = rounded(vectorShare * (cosine(hit) / nearest) + lexicalShare * (hit.lexical_score / most));
  if (isAdaptive) lift(hits, (hit) => (hit.vector_rank === 1 && trust >= 0.5) || (hit.lexical_rank === 1 && gap >= 0.25));
  return hits.sort(inOrder);
}

/** Return the function that scales the scores of a leg to 0..1 over its own hits. */
function scaled(leg) {
  const [high, low] = [leg[0]?.score, leg.at(-1)?.score];
  return (rank, score) => (rank === null ? 0 : high > low ? (score - low) / (high - low) : 1);
}

/** Return how far the best BM25 is above the tenth; 1 for fewer than ten. */
const gapOf = (leg) => (leg.length < 10 || leg[0].score <= 0 ? 1 : Math.max(0.05, (leg[0].score - leg[9].score) / leg[0].score));

/** Let the firsts of the legs be among the first five: a billionth above as many others as needed. */
function lift(hits, leads) {
  const firsts = hits.filter(leads);
  const others = hits.filter((hit) => !leads(hit)).map(({ score }) => score).sort((a, b) => b - a);
  const last = others[5 - firsts.length];
  if (last !== undefined) for (const hit of firsts) hit.score = Math.max(hit.score, rounded(last + 1e-9));
}
