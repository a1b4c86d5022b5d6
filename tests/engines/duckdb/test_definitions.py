"""A stranger's file: what its views, macros and tables can do, and how they are told from those of this package."""

from __future__ import annotations

import re
import shutil
import sys

import duckdb
import pytest
from typer.testing import CliRunner

import sqlrag
from sqlrag import Settings, Store, Stores, check, cli, compact, convert, lexical_query, repair, upgrade
from sqlrag.engines.duckdb import definitions, schema
from sqlrag.engines.duckdb.database import Database
from sqlrag.errors import InputError, NotAStoreError, StoreError
from tests.support.helpers import build

READS_A_FILE = "(SELECT content FROM read_text('{secret}'))"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = build(
        tmp_path_factory.mktemp("whole"), a_md="---\ntags: [x]\n---\n# A\n\ncommon word, see [B](b.md)\n", b_md="b"
    )
    assert check(path) == []
    return path


@pytest.fixture
def kb(whole, tmp_path):
    (tmp_path / "secret.txt").write_text("my private key")
    return shutil.copy(whole, tmp_path / "kb.duckdb")


def change(path, *statements):
    secret = path.with_name("secret.txt")
    with duckdb.connect(str(path)) as con:
        for statement in statements:
            con.execute(
                statement.replace("{file}", READS_A_FILE.format(secret=secret)).replace("{secret}", str(secret))
            )


# What a stranger put into a file, the object that is named, and the kind of thing that repair says about it.
CODE = {
    "a macro that reads a file": (
        "CREATE OR REPLACE MACRO public_metadata(metadata) AS json_object('x', {file})",
        "main.public_metadata has another definition",
    ),
    "a macro that lets everything pass": (
        """CREATE OR REPLACE MACRO passes(rid, chunk_collection, chunk_tags, passing, collection, tags_any, tags_all)
        AS true""",
        "main.passes has another definition",
    ),
    "a sign in a macro": (
        "CREATE OR REPLACE MACRO score_floor(totals, k, k1 := 1.2, b := 0.75) AS TABLE SELECT 1.0 AS least",
        "main.score_floor has another definition",
    ),
    "a table macro": (
        "CREATE OR REPLACE MACRO lexical_query(query_text, k := 5) AS TABLE SELECT content FROM read_text('{secret}')",
        "main.lexical_query has another definition",
    ),
    "an overload": (
        "CREATE OR REPLACE MACRO vector_length() AS 5, (a) AS 6",
        "main.vector_length has another definition",
    ),
    "a macro of both kinds": (
        "CREATE MACRO public_metadata(metadata) AS TABLE SELECT 1",
        "main.public_metadata is a macro and a table macro, not a macro",
    ),
    "a macro of the index": (
        "CREATE OR REPLACE MACRO fts_main_documents.fold(word) AS {file}",
        "fts_main_documents.fold has another definition",
    ),
    "a view": (
        "CREATE OR REPLACE VIEW index_status AS SELECT content AS name FROM read_text('{secret}')",
        "main.index_status has another definition",
    ),
    "a table for a view": (
        "DROP VIEW chunks; CREATE TABLE chunks AS SELECT 1 AS node_id",
        "main.chunks is a table, not a view",
    ),
    "a view for a table of the index": (
        """DROP TABLE fts_main_documents.stopwords;
        CREATE VIEW fts_main_documents.stopwords AS SELECT content AS word FROM read_text('{secret}')""",
        "fts_main_documents.stopwords is a view, not a table",
    ),
    "a view for the links": (
        "DROP TABLE document_links; CREATE VIEW document_links AS SELECT 1 AS doc_id",
        "main.document_links is a view, not a table",
    ),
    "a function of DuckDB": ("CREATE MACRO starts_with(a, b) AS true", "main.starts_with hides what DuckDB itself has"),
    "a sign of DuckDB": ('CREATE MACRO "->>"(a, b) AS {file}', "main.->> hides what DuckDB itself has"),
    "a table function of DuckDB": (
        "CREATE MACRO duckdb_functions() AS TABLE SELECT 'x' AS function_name, 'main' AS schema_name",
        "main.duckdb_functions hides what DuckDB itself has",
    ),
    "the function that lists views, and the join of names": (
        "CREATE MACRO duckdb_views() AS TABLE SELECT 'x' AS view_name; CREATE MACRO \"||\"(a, b) AS a",
        "main.duckdb_views hides what DuckDB itself has",
    ),
    "a function of DuckDB beside the index": (
        "CREATE MACRO fts_main_documents.starts_with(a, b) AS true",
        "fts_main_documents.starts_with hides what DuckDB itself has",
    ),
    "a type of DuckDB": ("CREATE TYPE json AS VARCHAR", "main.json hides what DuckDB itself has"),
}


@pytest.mark.rest
@pytest.mark.parametrize("case", CODE)
def test_fault_S6_code_of_others_is_named_refused_and_repaired(kb, case):
    statement, words = CODE[case]
    change(kb, statement)
    if "duckdb_" in words and duckdb.__version__.startswith("1.3."):
        # This DuckDB itself cannot list the tables of such a file: it is refused in every way.
        for use in (check, repair, Store):
            with pytest.raises(NotAStoreError, match="Binder Error"):
                use(kb)
        return
    found = {problem.check: problem for problem in check(kb)}["changed_objects"]
    assert any(words in example for example in found.examples)
    uses = (
        lambda: Store(kb),
        lambda: Store(kb, read_only=False),
        lambda: Stores([kb]),
        lambda: lexical_query("common", kb),
        lambda: compact(kb),
        lambda: convert(kb, kb.with_suffix(".ragmd")),
        lambda: sqlrag.add_documents({"c.md": b"c"}, kb),
    )
    # Each opens the file in one way, so that one case shows for all how it is refused.
    for use in uses if case == "a view" else uses[:1]:
        with pytest.raises(NotAStoreError) as refused:
            use()
        assert words.split()[0] in str(refused.value)
        assert f"sqlrag repair {kb}" in str(refused.value)
        assert "trust=True, --trust" in str(refused.value)
    assert not kb.with_suffix(".ragmd").exists()
    repaired = repair(kb)
    assert repaired.left == ()
    assert any(words.split()[0] in line for line in repaired.done)
    assert check(kb) == []
    assert [row["node_id"] for row in lexical_query("common", kb, tags_any=["x"])] == ["a.md#0"]
    assert len(lexical_query("b", kb)) == 2  # the links are there, too


def test_fault_S6_trusted_or_not_a_file_reads_no_other(kb):
    change(kb, CODE["a macro that reads a file"][0])
    for opened in (Store(kb, trust=True), Store(kb, settings=Settings(trust=True)), Stores([kb], trust=True)):
        with opened as store, pytest.raises((duckdb.PermissionException, StoreError), match=r"secret\.txt"):
            store.lexical_query("common")


@pytest.mark.parametrize(
    "statement",
    [
        "FROM read_text('{secret}')",
        "FROM '{secret}'",
        "FROM read_csv('{secret}')",
        "FROM glob('*')",
        "FROM read_text('http://127.0.0.1:9/x')",
        "COPY documents TO '{secret}.csv'",
        "ATTACH '{secret}.duckdb' AS other",
        "EXPORT DATABASE '{secret}.folder'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
    ],
)
@pytest.mark.parametrize("read_only", [True, False])
def test_fault_S6_an_open_file_is_confined_to_itself(kb, statement, read_only):
    secret = str(kb.with_name("secret.txt"))
    with Store(kb, read_only=read_only) as store, pytest.raises(duckdb.Error):
        store.cursor().execute(statement.replace("{secret}", secret)).fetchall()
    assert sorted(path.name for path in kb.parent.iterdir()) == ["kb.duckdb", "secret.txt"]


@pytest.mark.rest
def test_fault_S6_what_sqlrag_itself_needs_still_works(kb):
    with Store(kb, read_only=False, threads=1, memory_limit="80MB") as store:
        con = store.cursor()
        con.execute(
            "CREATE TABLE mine AS SELECT i, hash(i) AS h, repeat(hash(i)::VARCHAR, 4) AS t FROM range(400000) r(i)"
        )
        assert con.execute("SELECT count(*) FROM (FROM mine ORDER BY h, t LIMIT 300000)").fetchone() == (
            300000,
        )  # spilled
        con.execute("CHECKPOINT")
    assert compact(kb).bytes_after
    assert check(kb) == []


class TestADuckDBOfTheProgram:
    """Its settings are those of the database, and stay the program's."""

    def test_a_database_that_the_program_opened_stays_as_it_is(self, kb):
        with duckdb.connect(str(kb)) as own:
            assert len(lexical_query("common", kb)) == 1
            own.execute(f"COPY documents TO '{kb}.parquet'")
        with duckdb.connect(str(kb), read_only=True) as own:
            assert len(lexical_query("common", kb)) == 1
            assert own.execute(f"FROM '{kb}.parquet'").fetchall()

    def test_an_open_file_of_python_is_no_database(self, kb):
        with kb.open("rb"), Store(kb) as store, pytest.raises(duckdb.PermissionException):
            store.cursor().execute("FROM glob('*')")

    def test_it_joins_an_open_store(self, kb):
        with Store(kb) as store, duckdb.connect(str(kb), read_only=True) as own:
            assert own.execute("SELECT count(*) FROM documents").fetchone() == (2,)
            with pytest.raises(duckdb.PermissionException):
                own.execute(f"COPY documents TO '{kb}.parquet'")
            assert len(store.lexical_query("common")) == 1

    def test_definitions_are_compared_there_as_well(self, kb):
        change(kb, CODE["a view"][0])
        with duckdb.connect(str(kb)), pytest.raises(NotAStoreError, match="index_status has another definition"):
            lexical_query("common", kb)


@pytest.mark.rest
def test_fault_S6_views_macros_and_tables_of_ones_own_are_welcome(kb):
    change(
        kb,
        "CREATE VIEW long_chunks AS FROM chunks WHERE length(text) > 5",
        "CREATE MACRO shout(word) AS upper(word) || '!'",
        "CREATE MACRO top(n := 3) AS TABLE FROM chunks LIMIT n",
        "CREATE SCHEMA mine; CREATE MACRO mine.lower(word) AS upper(word); CREATE TABLE mine.documents (i INTEGER)",
        "CREATE TYPE mood AS ENUM ('good', 'bad')",
        "ALTER TABLE source_documents ADD COLUMN reviewed BOOLEAN DEFAULT false",
        "CREATE INDEX by_collection ON documents (collection)",
    )
    assert check(kb) == []
    with Store(kb) as store:
        assert store.cursor().execute("SELECT shout('a'), mood FROM (SELECT 'good'::mood AS mood)").fetchone() == (
            "A!",
            "good",
        )
    assert repair(kb).done == ()
    compact(kb)
    assert check(kb) == []


def test_fault_S6_a_rule_in_a_table_is_named(kb):
    with duckdb.connect(str(kb)) as con:
        sql = con.execute("SELECT sql FROM duckdb_tables() WHERE table_name = 'ingest_failures'").fetchone()[0]
        con.execute("CREATE TABLE copy AS FROM ingest_failures; DROP TABLE ingest_failures")
        con.execute(sql.rpartition(")")[0] + ", CHECK (length(reason) < 10))")
        con.execute("DROP TABLE copy")
    problem = {one.check: one for one in check(kb)}["changed_objects"]
    assert problem.examples == ("main.ingest_failures has other columns or rules",)


@pytest.mark.parametrize("table", ["documents", "embedding_metadata"])
def test_fault_S12_a_view_for_a_table_is_no_file_of_another_program(kb, table):
    change(kb, f"ALTER TABLE {table} RENAME TO kept; CREATE VIEW {table} AS FROM kept")
    for use in (lambda: Store(kb), lambda: Store(kb, trust=True), lambda: check(kb), lambda: repair(kb)):
        with pytest.raises(NotAStoreError, match=f"{table} is a view, not a table. Get another copy"):
            use()


SLOW = "(SELECT count(*)::VARCHAR FROM range(20000000000))"


@pytest.mark.parametrize("elsewhere", ["TABLE elsewhere.embedding_metadata", "TABLE elsewhere.documents"])
@pytest.mark.parametrize("ours", ["documents", "embedding_metadata"])
def test_fault_S6_no_view_runs_at_opening(kb, elsewhere, ours):
    change(
        kb,
        f"CREATE SCHEMA elsewhere; CREATE {elsewhere} AS FROM main.{elsewhere.rpartition('.')[2]}",
        f"ALTER TABLE {ours} RENAME TO kept",
        f"CREATE VIEW {ours} AS SELECT * REPLACE ({SLOW} AS {'value' if ours != 'documents' else 'text'}) FROM kept",
    )
    for use in (Store, check, repair, upgrade, compact):
        with pytest.raises(NotAStoreError, match=f"{ours} is a view, not a table. Get another copy"):
            use(kb)


def test_fault_S6_no_generated_column_runs_at_opening(kb):
    change(
        kb,
        "ALTER TABLE embedding_metadata RENAME TO kept",
        "CREATE TABLE embedding_metadata (key VARCHAR, stored VARCHAR, value VARCHAR AS (stored || repeat('x', 3)))",
        "INSERT INTO embedding_metadata (key, stored) SELECT key, value FROM kept",
    )
    for use in (Store, check, repair, upgrade, compact):
        with pytest.raises(NotAStoreError, match="a column of embedding_metadata is computed when it is read"):
            use(kb)


def test_fault_S12_sources_that_are_lost_are_not_repaired(kb):
    change(
        kb,
        "DROP TABLE source_documents; CREATE VIEW source_documents AS FROM read_text('{secret}')",
    )
    with pytest.raises(NotAStoreError, match=r"main\.source_documents is a view, not a table"):
        sqlrag.get_source_documents(["a.md#0"], kb)
    assert "changed_objects" in [problem.check for problem in check(kb)]
    with pytest.raises(StoreError, match="the rows of the table are lost"):
        repair(kb)


def run(*arguments, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["sqlrag", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code


def test_fault_S12_info_of_another_index_status_is_an_error(kb, monkeypatch, capsys):
    change(kb, "CREATE OR REPLACE VIEW index_status AS SELECT 1 AS other")
    result = CliRunner().invoke(cli.app, ["info", str(kb)])
    assert result.exit_code == 1
    assert "main.index_status has another definition" in result.output
    assert "not expected" not in result.output
    monkeypatch.delenv("SQLRAG_TRUST", raising=False)
    for words in (
        ["--trust", "lexical-query", "common", "--db", kb],
        ["lexical-query", "common", "--db", kb, "--trust"],
    ):
        monkeypatch.setenv("SQLRAG_TRUST", "0")
        assert run(*words, monkeypatch=monkeypatch) == 0
        assert "a.md#0" in capsys.readouterr().out


def test_the_setting_of_the_environment(kb, monkeypatch):
    change(kb, CODE["a macro that lets everything pass"][0])
    monkeypatch.setenv("SQLRAG_TRUST", "1")
    assert len(lexical_query("common", kb)) == 1
    with pytest.raises(NotAStoreError):
        Store(kb, trust=False)
    monkeypatch.setenv("SQLRAG_TRUST", "perhaps")
    with pytest.raises(InputError, match="SQLRAG_TRUST must be 1 or 0, not 'perhaps'"):
        lexical_query("common", kb)


def test_a_trusted_store_does_not_open_the_file_for_others(kb):
    change(kb, CODE["a macro that lets everything pass"][0])
    with Store(kb, trust=True) as store:
        assert len(store.lexical_query("common")) == 1
        with pytest.raises(NotAStoreError, match=r"main\.passes"):
            lexical_query("common", kb)


def test_a_change_after_the_file_was_opened_is_noticed(kb):
    assert len(lexical_query("common", kb)) == 1
    change(kb, CODE["a macro that lets everything pass"][0])
    with pytest.raises(NotAStoreError, match=r"main\.passes"):
        lexical_query("common", kb)


@pytest.mark.slow
@pytest.mark.parametrize("dimensions", [1, 128, 129, 384, 1024])
def test_the_digests_are_those_of_the_sql_files(tmp_path, dimensions):
    """After a change of an object in sql/: python tests/support/refresh_digests.py."""
    path = tmp_path / "new.duckdb"
    with duckdb.connect(str(path), config={"storage_compatibility_version": schema.STORAGE_VERSION}) as con:
        schema.create_objects(con, dimensions)
        assert definitions.changes(con) == []  # as printed from memory
    with duckdb.connect(str(path)) as con:
        assert definitions.changes(con) == []  # and from the file
        found = set(definitions.definitions(con))
    assert found == set(definitions.known())
    assert found == {name.lower() for name in schema.wanted_objects()}


# Small changes of an object: all of them are other code, and were not all told from ours.
OTHER_CODE = {
    "what holds for all": (
        "vector_search",
        "tags_any, tags_all)\n        ORDER",
        "tags_any, tags_all) IS NOT NULL\n        ORDER",
    ),
    "one order of two": ("vector_search", "ORDER BY score DESC NULLS LAST", "ORDER BY score NULLS LAST"),
    "another word": ("vector_search", "d.w1, CAST(signs AS HUGEINT[])[2]", "d.w1, CAST(signs AS HUGEINT[])[1]"),
    "a word twice": ("vector_search", "xor(d.w1,", "xor(d.w0,"),
    "a word less": ("vector_search", re.compile(r"\n[^\n]*d\.w1.*?(?=\n)"), ""),
    "more in each line of a word": ("vector_search", re.compile(r"(\+ bit_count.xor.d.w\d)"), r"+ 0 \1"),
    "more in each query of a word": ("near_duplicates", re.compile(r"WHERE word <= 3"), "WHERE true"),
    "no defaults": ("vector_search", "k := 10, pool := 750", "k, pool"),
    "a default": ("vector_search", "pool := 750", "pool := 7500"),
    "a default text": (
        "hybrid_query",
        re.compile("^(?!--)(.*)fusion := 'adaptive'", re.MULTILINE),
        r"\1fusion := 'convex'",
    ),
    "arguments in another order": ("vector_search", "signs, low, high,", "signs, high, low,"),
    "one default more": ("passes", "tags_any, tags_all)", "tags_any, tags_all := NULL)"),
    "brackets": (
        "passes",
        "(collection IS NULL OR list_contains(collection, chunk_collection))\n    AND",
        "collection IS NULL OR list_contains(collection, chunk_collection)\n    AND",
    ),
    "another operator": ("near_duplicates", "same_text OR product", "same_text AND product"),
    "a number": ("near_duplicates", "product >= 0.95", "product >= 0.94"),
    "another number": ("near_duplicates", "least(1, product)", "least(2, product)"),
}


@pytest.mark.parametrize("case", OTHER_CODE)
@pytest.mark.parametrize("dimensions", [129, 384])
def test_fault_S6_each_token_of_a_definition_counts(case, dimensions):
    name, old, new = OTHER_CODE[case]
    sql = schema.for_dimensions(schema.read_sql(f"{'views' if name in schema.VIEWS else 'macros'}/{name}"), dimensions)
    changed = old.sub(new, sql) if isinstance(old, re.Pattern) else sql.replace(old, new, 1)
    assert changed != sql
    with duckdb.connect() as con:
        schema.create_objects(con, dimensions)
        con.execute(sql)
        assert definitions.changes(con) == []
        con.execute(changed)
        assert [(change.name, change.reason) for change in definitions.changes(con)] == [
            (f"main.{name}", "has another definition")
        ]


@pytest.mark.parametrize(
    ("ours", "other"),
    [
        ("SELECT true", 'SELECT "true"'),
        ("SELECT 1.0", 'SELECT "1.0"'),
        ("SELECT 1", "SELECT 1.0"),
        ("SELECT 9223372036854775807", "SELECT 9223372036854775808"),
        ("SELECT COALESCE(a, b)", 'SELECT "coalesce"(a, b)'),
        ("SELECT (TRY(a))", 'SELECT "try"(a)'),
        ("SELECT NULL", 'SELECT "null"'),
        ("SELECT 'x'", "SELECT 'main.x'"),
        ("SELECT 'a , b'", "SELECT 'a CROSS JOIN b'"),
        ("SELECT 't'", "SELECT CAST('t' AS BOOLEAN)"),
        ("SELECT a, b", 'SELECT "a, b"'),
        ("SELECT ((a OR b) AND c)", "SELECT (a OR (b AND c))"),
        ("SELECT ((a - b) - c)", "SELECT (a - (b - c))"),
        ("SELECT a[1]", "SELECT a[2]"),
        ("SELECT list_value(1)", "SELECT list_value(2)"),
        ("SELECT s.passes(a)", "SELECT passes(a)"),
        ("FROM a AS x INNER JOIN (b INNER JOIN c ON d) ON e", "FROM a AS x INNER JOIN b INNER JOIN c ON d ON e"),
        ("((SELECT 1) UNION ALL (SELECT 2))", "((SELECT 1) UNION (SELECT 2))"),
    ],
)
def test_fault_S6_other_code_is_not_the_same_in_the_one_way_to_print_it(ours, other):
    assert definitions._tokens(ours, 384) != definitions._tokens(other, 384)


@pytest.mark.slow
def test_fault_S6_a_word_that_a_table_has_twice_or_not(tmp_path):
    for statement in ("DROP COLUMN w1", "ADD COLUMN w3 HUGEINT CHECK (w3 IS NULL)"):
        with duckdb.connect() as con:
            schema.create_objects(con, 384)
            con.execute(
                "DROP INDEX IF EXISTS by_rid; CREATE TABLE other AS FROM documents; ALTER TABLE documents RENAME TO old"
            )
            sql = schema.for_dimensions(schema.read_sql("schema"), 384)
            sql = re.search(r"CREATE TABLE documents \(.*?\n\);", sql, re.DOTALL)[0]
            if statement.startswith("DROP"):
                con.execute(sql.replace("    w1 HUGEINT NOT NULL,\n", ""))
            else:
                con.execute(sql.replace("    w1 HUGEINT", "    w3 HUGEINT CHECK (w3 IS NULL),\n    w1 HUGEINT"))
            assert "main.documents has other columns or rules" in map(str, definitions.changes(con))


@pytest.mark.slow
@pytest.mark.parametrize("case", ["a macro that reads a file", "a table macro", "a view", "a function of DuckDB"])
def test_a_duckdb_that_is_newer_than_the_tested_ones(kb, monkeypatch, case):
    monkeypatch.setattr(definitions, "_TESTED", (1, 0))
    assert check(kb) == []
    # It prints this macro otherwise, without another name or text.
    change(kb, "CREATE OR REPLACE MACRO vector_length(vector) AS abs(list_sum(vector))")
    change(kb, CODE[case][0])
    with pytest.raises(NotAStoreError, match=CODE[case][1].split()[0]) as refused:
        Store(kb)
    assert "vector_length" not in str(refused.value)


@pytest.mark.alone
def test_opening_a_file_again_costs_nothing_more(kb, monkeypatch):
    Database.open(kb).close()
    monkeypatch.setattr("sqlrag.engines.duckdb.database.changes", None)  # not asked again
    Database.open(kb).close()
