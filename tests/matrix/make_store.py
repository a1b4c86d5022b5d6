"""Makes a store with every feature, and writes down what its queries give, for ``open_store.py`` under other DuckDBs.

Usage: ``python make_store.py FOLDER`` makes the files; ``python make_store.py FOLDER --upsert`` writes to the store
that is there already, and takes the answers afresh. Run it with the newest DuckDB.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlrag.types import TextKind, Vectors

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402

import sqlrag  # noqa: E402
from sqlrag.embedders.hashing import HashingEmbedder  # noqa: E402
from sqlrag.engines.duckdb.check import check_names  # noqa: E402
from sqlrag.engines.duckdb.schema import (  # noqa: E402
    VIEWS,
    for_dimensions,
    read_sql,
)
from sqlrag.types import Chunk, Document  # noqa: E402
from tests.support.stores import check_views, make_small_store  # noqa: E402

DIMENSIONS = 256
QUESTION = "How do I filter by tag?"
VECTOR = f"(SELECT embedding FROM query_embeddings WHERE query_text = '{QUESTION}')"
OPTIONS = (
    """collection := ['default'], tags_any := ['search', 'sql', 'python'], metadata := '{"mime": "text/markdown"}'"""
)

TERMS = ", ".join(
    f"(SELECT list({column} ORDER BY term) FROM query_terms('filter tag'))" for column in ("termid", "df")
)

WORDS = "(SELECT [w0, w1] FROM documents WHERE rid = 40)"

# At least one call of every macro; a test makes sure of that.
CALLS = [
    f"FROM lexical_query('{QUESTION}')",
    f"FROM lexical_query('{QUESTION}', k := 3, k1 := 2, b := 0.5, heading_weight := 0, conjunctive := true)",
    f"FROM lexical_query('{QUESTION}', {OPTIONS})",
    "FROM lexical_query('naïve E1042 C++ read_csv')",
    f"FROM lexical_search({TERMS}, k := 4, at_least := 2)",
    f"SELECT node_id, score FROM vector_query({VECTOR})",
    f"SELECT node_id, score FROM vector_query({VECTOR}, k := 3, pool := 20, {OPTIONS})",
    f"SELECT node_id, score FROM exact_vector_query({VECTOR}, {OPTIONS})",
    *(
        f"SELECT * EXCLUDE text FROM hybrid_query('{QUESTION}', {VECTOR}, fusion := '{fusion}')"
        for fusion in ("adaptive", "rrf", "weighted", "convex")
    ),
    f"SELECT node_id, score FROM hybrid_query('{QUESTION}', {VECTOR}, k := 5, pool := 7, {OPTIONS})",
    "SELECT node_id, score FROM more_like('guides/filters.md#1', k := 4)",
    f"FROM bm25_contributions({TERMS}) ORDER BY rid, termid",
    f"FROM score_floor({TERMS}, k := 5)",
    f"FROM pruned_search({TERMS}, [CAST(0 AS INTEGER)], [CAST(1 AS INTEGER)], 0.01, k := 3)",
    f"FROM pruned_search({TERMS}, [], [], 0, k := 3)",
    f"FROM clause_search({TERMS}, [1, 2], [2], [' by ', ' tag '], k := 3)",
    "SELECT node_id, holds_phrases(text, heading_path, [' the store ']) FROM documents ORDER BY node_id",
    "SELECT fts_main_documents.heading_text(heading_path, 0, metadata_, tags) FROM documents ORDER BY node_id",
    f"FROM pair_scores({TERMS}, {VECTOR}, [0, 1, 40])",
    f"FROM bm25_scores({TERMS}, text_weight := 2) ORDER BY rid",
    f"SELECT node_id, score FROM vector_search({VECTOR}, {WORDS}, {WORDS}, {WORDS}, pool := 20)",
    "SELECT node_id, sign_words(embedding) FROM documents ORDER BY node_id",
    "SELECT node_id, fts_main_documents.match_bm25(node_id, 'filter tag', fields := 'text') FROM chunks",
    "FROM source_documents_of(['guides/filters.md#1', 'field-guide.pdf#0'])",
    f"FROM query_words('{QUESTION}')",
    "FROM query_terms('relational filtering zebras')",
    "SELECT fts_main_documents.tokenize('HTTPServer read_csv C++ .NET naïve 東京都 Ёлка E1042 2.13')",
    "SELECT node_id, given_vector(embedding) = embedding FROM documents ORDER BY node_id",
    "SELECT node_id, vector_length(embedding) FROM documents ORDER BY node_id",
    "SELECT pack_words([true, false, true]), fts_main_documents.composed('Ünï')",
    "SELECT fts_main_documents.run_characters('東京 ภาษา')",
    "SELECT visible('<b>a</b>', NULL), visible('<b>a</b>', 'a')",
    "SELECT fts_main_documents.plain_words('read_csv 東京都')",
    "SELECT fts_main_documents.fold('Ünï'), fts_main_documents.porter_stem('relational')",
    "SELECT fts_main_documents.russian_stem('руководителей'), fts_main_documents.greek_stem('ανθρωπων')",
    "SELECT fts_main_documents.arabic_stem('والكتابات'), fts_main_documents.hindi_stem('लड़कियों')",
    "SELECT fts_main_documents.script_stem('книги', 'porter'), fts_main_documents.term_of('ones', 'porter')",
    "SELECT fts_main_documents.own_terms()",
    "SELECT fts_main_documents.run_pairs('東京都 ภาษา'), fts_main_documents.compound_parts('a_b')",
    "SELECT fts_main_documents.fields_of('text')",
    """SELECT metadata_matches('{"a": 1}', '{"a": 1.0}'), public_metadata('{"_node_type": 1, "a": 2}')""",
    """SELECT passes_filters('c', ['t'], '{}', ['c'], ['t'], ['t'], '{"a": null}')""",
    """SELECT conditions_of('{"$or": [{"a": {"$gte": 1, "$not": {"$in": [2]}}}, {"$and": [{"b": 1}, {"b": 2}]}]}')""",
    """SELECT condition_holds('[1, 2.0]', '$all', '[2, 1]', ['2', '1']), json_value_key('2.0')""",
    """SELECT passes(1, 'c', ['t'], '01', ['c'], ['t'], NULL)""",
    """SELECT bit_count(passing_chunks('{"audience": {"$in": ["analysts", "engineers"]}}'))""",
    """FROM lexical_query('filter', k := 50, metadata := '{"title": {"$text_match_insensitive": "FILTER"}}')""",
    f"""FROM exact_vector_search({VECTOR}, passing := passing_chunks('{{"title": {{"$exists": true}}}}'))""",
]


class SignEmbedder(HashingEmbedder):
    """Vectors of 1/16 and -1/16, of which every sum is exact: DuckDB's versions add floats in different orders."""

    def embed(self, texts: Sequence[str], *, kind: TextKind) -> Vectors:
        return np.where(super().embed(texts, kind=kind) > 0, np.float32(1 / 16), np.float32(-1 / 16))


EMBEDDER = SignEmbedder(f"hashing-{DIMENSIONS}")


def make_store(path: Path) -> None:
    sqlrag.prepare_embeddings(
        ROOT / "data" / "handbook",
        path,
        embedder=EMBEDDER,
        progress="off",
        overwrite=True,
    )
    with sqlrag.Store(path, read_only=False, embedder=EMBEDDER) as store:
        store.embed_query(QUESTION)


def write_again(path: Path) -> None:
    """Replace one document, add another and one without chunks."""
    texts = {"faq.md": "Is the duck a filter? The tag says so.", "added.md": "A tag to filter by: naïve C++ ducks"}
    documents = [Document(doc_id, text, checksum=doc_id, metadata={"a": 1}) for doc_id, text in texts.items()]
    chunks = [Chunk(doc_id, 0, text, tags=("sql",), i_end=len(text)) for doc_id, text in texts.items()]
    with sqlrag.Store(path, read_only=False) as store:
        vectors = EMBEDDER.embed(list(texts.values()), kind="document")
        store.upsert([*documents, Document("none.md", " ")], chunks, vectors)


def statements() -> list[str]:
    examples = sorted((ROOT / "sql" / "examples").glob("*.sql"))
    return [
        *(f"FROM {view}" for view in VIEWS),
        "FROM fts_main_documents.stats",
        *CALLS,
        *(file.read_text(encoding="utf-8") for file in examples),
        *(for_dimensions(read_sql(f"checks/{name}"), DIMENSIONS) for name in check_names()),
        "SELECT table_name, column_name, comment FROM duckdb_columns() WHERE NOT internal ORDER BY ALL",
        "SELECT function_name, comment FROM duckdb_functions() WHERE NOT internal ORDER BY ALL",
    ]


def main(folder: Path, again: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "store.duckdb"
    write_again(path) if again else make_store(path)
    (folder / "small.duckdb").unlink(missing_ok=True)
    make_small_store(folder / "small.duckdb")
    with sqlrag.Store(path) as store:
        answers = [(sql, store.cursor().execute(sql).fetchall()) for sql in statements()]
    expected = {"answers": answers, "check_views": check_views(8)}
    (folder / "expected.json").write_text(json.dumps(expected, default=str, ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), "--upsert" in sys.argv[2:])
