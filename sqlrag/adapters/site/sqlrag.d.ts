/** A failure, with a status as of HTTP. */
export class Problem extends Error {
  status: number;
  title: string;
  detail: string;
}

export interface SearchOptions {
  /** "hybrid" unless given. */
  mode?: "hybrid" | "vector" | "lexical";
  /** How many results, 1 or more; 10 unless given. */
  top_k?: number;
  /** At most so many chunks of a document; 0: all. */
  per_document?: number;
  fusion?: "adaptive" | "rrf" | "weighted" | "convex";
  /** Compare with every vector. */
  exact?: boolean;
  collection?: string | string[];
  tags_any?: string[];
  tags_all?: string[];
  /** A filter, as Python has it: `{year: {$gte: 2024}}`. */
  metadata?: Record<string, unknown>;
  /** The question's vector, instead of the model's. */
  vector?: ArrayLike<number>;
}

export interface Result {
  node_id: string;
  doc_id: string;
  chunk_index: number;
  text: string;
  shown: string | null;
  heading_path: string[];
  page: number | null;
  collection: string;
  tags: string[];
  metadata: Record<string, unknown>;
  i_start: number | null;
  i_end: number | null;
  checksum: string;
  created_at: string;
  score: number;
  score_type: string;
  vector_score: number | null;
  vector_rank: number | null;
  lexical_score: number | null;
  lexical_rank: number | null;
}

export interface Results {
  results: Result[];
  /** Chunks that `per_document` left out, by document. */
  further: Record<string, string[]>;
  notices: string[];
  /** In seconds. */
  timings: { total: number };
}

export interface SourceDocument {
  doc_id: string;
  file_name: string;
  text: string;
  metadata: Record<string, unknown>;
}

export interface Explanation {
  node_id: string;
  /** Its place among the first 200, from 1. */
  rank: number | null;
  score: number | null;
  cosine: number | null;
  bm25: number;
  terms: { term: string; df: number; tf: number; heading_tf: number; contribution: number }[];
}

export interface Store {
  /** What site.json says. */
  readonly site: Record<string, unknown>;
  /** Settles with true when questions can be embedded, else with the reason. */
  readonly ready: Promise<true | string>;
  readonly canEmbed: boolean;
  search(text: string, options?: SearchOptions): Promise<Results>;
  read(docId: string): Promise<SourceDocument>;
  explain(text: string, nodeId: string, options?: SearchOptions): Promise<Explanation>;
  /** `[start, end]` in characters, of the question's words in each text; `syntax` reads quotes and stars. */
  highlight(text: string, texts: string[], options?: { syntax?: boolean }): Promise<[number, number][][]>;
  /** The part of each chunk that holds most of the question. */
  snippets(text: string, nodeIds: string[], options?: { syntax?: boolean }): Promise<{ text: string; spans: [number, number][] }[]>;
  embed(text: string): Promise<Float32Array>;
  close(): void;
}

export interface OpenOptions {
  /** Called while files arrive. */
  onProgress?: (told: { file: string; have: number; bytes: number }) => void;
  /** false: do not load the model; searches are by words. A promise: load it then. */
  model?: boolean | Promise<unknown>;
}

/** Open a published site: the folder with site.json, the one of this script unless given. */
export function open(url?: string | URL, options?: OpenOptions): Promise<Store>;
