"""Searches where DuckDB has no json functions, as in a browser: only a filter on metadata, or a phrase, needs them."""

import re

import duckdb
import pytest

from sqlrag import InputError, attach_sql
from sqlrag.engines.duckdb.schema import sql_folder
from tests.support.helpers import build
from tests.support.stores import BREAD, make_small_store

VECTOR = str(list(BREAD))
FILTER = """metadata := '{"lang": "en"}'"""


@pytest.fixture(scope="module")
def con(tmp_path_factory):
    """Return a connection in which each json function that the macros name cannot be called."""
    path = tmp_path_factory.mktemp("json") / "small.duckdb"
    make_small_store(path)
    text = "".join(file.read_text("utf-8") for file in (sql_folder() / "macros").glob("*.sql"))
    with duckdb.connect(str(path)) as con:
        for name in sorted({*re.findall(r"\b(?:to_json|json_(?!value_key)\w+)(?=\()", text)}):
            con.execute(f"CREATE MACRO {name}() AS 'no json'")  # hides it: no call with an argument fits
        yield con


@pytest.mark.parametrize(
    "search",
    [
        "lexical_query('duck pond', tags_any := ['water'], collection := ['default'])",
        f"vector_query({VECTOR}, tags_all := ['water'])",
        f"exact_vector_query({VECTOR})",
        *(f"hybrid_query('duck bread', {VECTOR}, fusion := '{name}')" for name in ("adaptive", "rrf", "convex")),
        "more_like('a.md#1')",
        "clause_search([1], [1], [0], [0], [])",
        "source_documents_of(['a.md#0'])",
    ],
)
def test_a_search_needs_no_json(con, search):
    assert con.execute(f"FROM {search}").fetchall()


@pytest.mark.parametrize(
    "search",
    [
        f"lexical_query('duck pond', {FILTER})",
        f"exact_vector_query({VECTOR}, {FILTER})",
        "clause_search([1], [1], [0], [0], [' duck pond '])",
    ],
)
def test_a_filter_and_a_phrase_do(con, search):
    with pytest.raises(duckdb.BinderException, match="json"):
        con.execute(f"FROM {search}").fetchall()


def test_the_place_of_a_filter_in_that_text_is_no_name(tmp_path):
    path = build(tmp_path, a_md="# Ducks\n\nA pond.")
    with pytest.raises(InputError, match=r"cannot be attached as 'my\$wanted'"):
        attach_sql(path, "my$wanted")
    with duckdb.connect() as session:
        session.execute(attach_sql(path, "FLOAT[384]"))
        assert session.execute("FROM \"FLOAT[384]_lexical_query\"('pond')").fetchall()
