"""Finds the SQL files, fits them to a model's dimensions and applies them to a new file."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlrag.errors import StoreError

if TYPE_CHECKING:
    import duckdb

SCHEMA_VERSION = "6"

STORAGE_VERSION = "v1.2.0"

# CREATE MACRO binds names at once, so each macro comes after those that it calls.
MACROS = (
    "visible",
    "fold",
    "composed",
    "compound_parts",
    "run_pairs",
    "run_characters",
    "plain_words",
    "heading_text",
    "tokenize",
    "own_terms",
    "porter_stem",
    "russian_stem",
    "arabic_stem",
    "hindi_stem",
    "greek_stem",
    "script_stem",
    "term_of",
    "query_words",
    "query_terms",
    "bm25_contributions",
    "bm25_scores",
    "json_value_key",
    "conditions_of",
    "condition_holds",
    "metadata_matches",
    "passes_filters",
    "passing_chunks",
    "passes",
    "public_metadata",
    "lexical_search",
    "score_floor",
    "pruned_search",
    "holds_phrases",
    "clause_search",
    "lexical_query",
    "pack_words",
    "sign_words",
    "vector_length",
    "given_vector",
    "vector_search",
    "vector_query",
    "exact_vector_search",
    "exact_vector_query",
    "pair_scores",
    "hybrid_query",
    "fields_of",
    "match_bm25",
    "more_like",
    "source_documents_of",
)

VIEWS = (
    "chunks",
    "sources",
    "corpus_stats",
    "chunk_lengths",
    "index_status",
    "ingest_runs",
    "ingest_stages",
    "ingest_summary",
    "chunk_length_summary",
    "document_coverage",
    "document_freshness",
    "vocabulary",
    "headings",
    "near_duplicates",
    "links",
    "link_degrees",
    "ragmd_documents",
    "ragmd_chunks",
    "topics",
    "map_status",
)

_DIMENSIONS = 384

_CREATED = re.compile(r"^CREATE (?:OR REPLACE )?(?:TABLE|VIEW|MACRO) ([a-z0-9_.]+)", re.MULTILINE)

_WORD = re.compile(r"\bw(\d+)(?![0-9A-Za-z])")


@cache
def sql_folder() -> Path:
    """Return the folder of the SQL files: inside an installed package, else beside the package in a checkout."""
    package = Path(__file__).resolve().parents[2]
    for folder in (package / "sql", package.parent / "sql"):
        if (folder / "schema.sql").is_file():
            return folder
    raise StoreError(package, f"The SQL files of sqlrag are missing beside {package}. Reinstall sqlrag-duckdb.")


@cache
def read_sql(name: str) -> str:
    """Return the text of ``sql/{name}.sql``."""
    return (sql_folder() / f"{name}.sql").read_text(encoding="utf-8")


def for_dimensions(sql: str, dimensions: int) -> str:
    """Fit SQL that is written for 384 dimensions to another number.

    ``FLOAT[384]`` and ``DOUBLE[384]`` get the number, and a line that names ``w0`` is repeated for every 128 dimensions
    in place of the lines of w0 to w2.
    """
    lines = []
    for line in sql.splitlines():
        word = _WORD.search(line)
        if word is None or line.lstrip().startswith("--"):
            lines.append(line)
        elif word[1] == "0":
            lines += [_WORD.sub(f"w{i}", line).replace("[1]", f"[{i + 1}]") for i in range(code_words(dimensions))]
    return re.sub(rf"\b(FLOAT|DOUBLE)\[{_DIMENSIONS}\]", rf"\1[{int(dimensions)}]", "\n".join(lines))


def code_words(dimensions: int) -> int:
    """Return how many 128-bit words the signs of a vector fill."""
    return -(-dimensions // 128)


def run_script(con: duckdb.DuckDBPyConnection, name: str, **parameters: Any) -> None:
    """Run each statement of a SQL file with the parameters that it names.

    With the parameter ``dimensions`` it is fitted to that number first.
    """
    sql = read_sql(name)
    if "dimensions" in parameters:
        sql = for_dimensions(sql, parameters["dimensions"])
    for statement in con.extract_statements(sql):
        named = {key: parameters[key] for key in statement.named_parameters}
        con.execute(statement, named) if named else con.execute(statement)


def create_objects(con: duckdb.DuckDBPyConnection, dimensions: int) -> None:
    """Create every table, macro and view of a store in an empty database, with their comments; all of it or nothing."""
    con.execute("BEGIN")
    con.execute(for_dimensions(read_sql("schema"), dimensions))
    con.execute(read_sql("lexical_index"))
    create_code(con, dimensions)
    con.execute("COMMIT")


def create_code(con: duckdb.DuckDBPyConnection, dimensions: int) -> None:
    """Create, or replace, every macro and view with their comments, inside the caller's transaction."""
    for name in MACROS:
        con.execute(for_dimensions(read_sql(f"macros/{name}"), dimensions))
    for name in VIEWS:
        con.execute(for_dimensions(read_sql(f"views/{name}"), dimensions))
    con.execute(for_dimensions(read_sql("comments"), dimensions))


def object_names(con: duckdb.DuckDBPyConnection) -> set[str]:
    """Return the names of every table, view and macro of the connection's database, with their schemas."""
    return {row[0] for row in con.execute(read_sql("objects")).fetchall()}


@cache
def wanted_objects() -> frozenset[str]:
    """Return what :func:`object_names` gives for a new store, by what the SQL files create."""
    files = ("schema", "lexical_index", *(f"macros/{name}" for name in MACROS), *(f"views/{name}" for name in VIEWS))
    made = (name for file in files for name in _CREATED.findall(read_sql(file)))
    return frozenset(name if "." in name else f"main.{name}" for name in made)
