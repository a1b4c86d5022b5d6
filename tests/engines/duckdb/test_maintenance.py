"""compact, check, repair, upgrade and reembed: what they keep, what they mend, what they refuse."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import sys

import duckdb
import numpy as np
import pytest
from typer.testing import CliRunner

import sqlrag
from sqlrag import (
    Chunk,
    Document,
    Store,
    check,
    cli,
    compact,
    hybrid_query,
    reembed,
    repair,
    update_embeddings,
    upgrade,
)
from sqlrag.embedders.hashing import HashingEmbedder
from sqlrag.engines.duckdb import database, rewrite, schema
from sqlrag.engines.duckdb import upgrade as upgrade_module
from sqlrag.engines.duckdb.check import _STORAGE
from sqlrag.engines.duckdb.files import storage_version
from sqlrag.engines.duckdb.metadata import default_metadata
from sqlrag.engines.duckdb.upgrade import _migrate, migrations
from sqlrag.errors import (
    InputError,
    NotAStoreError,
    NotFoundError,
    ProviderError,
    SchemaVersionError,
    StoreError,
    StoreLockedError,
)
from tests.support.helpers import FIXTURES, HASHING, ROOT, Recorder, build, ids, python, timeless
from tests.support.stores import make_small_store

HANDBOOK = ROOT / "data" / "handbook"
SQLROOMS = FIXTURES / "sqlrooms.duckdb.gz"
HOLD = "import sys, duckdb\ncon = duckdb.connect(sys.argv[1])\nprint('held', flush=True)\nsys.stdin.read()"


@pytest.fixture
def small(tmp_path):
    make_small_store(tmp_path / "kb.duckdb")
    return tmp_path / "kb.duckdb"


@pytest.fixture(scope="module")
def handbook(tmp_path_factory):
    path = tmp_path_factory.mktemp("handbook") / "kb.duckdb"
    return sqlrag.prepare_embeddings(HANDBOOK, path, **HASHING).path


@pytest.fixture(autouse=True)
def _all_closed(tmp_path):
    yield
    assert database._handles == {}
    assert database._reserved == set()
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".")] == []


def execute(path, sql):
    with duckdb.connect(str(path)) as con:
        return con.execute(sql).fetchall()


def dump(path):
    """Return every row of every table, without order, and the definition of every object."""
    with duckdb.connect(str(path), read_only=True) as con:
        tables = con.execute(
            "SELECT schema_name || '.' || table_name FROM duckdb_tables() WHERE NOT internal ORDER BY ALL"
        ).fetchall()
        rows = {name: sorted(map(repr, con.execute(f"FROM {name}").fetchall())) for (name,) in tables}
        code = con.execute(
            "SELECT schema_name, table_name, sql, comment FROM duckdb_tables() WHERE NOT internal "
            "UNION ALL SELECT schema_name, view_name, sql, comment FROM duckdb_views() WHERE NOT internal "
            "UNION ALL SELECT schema_name, function_name, macro_definition, comment FROM duckdb_functions() "
            "WHERE NOT internal UNION ALL SELECT schema_name, index_name, sql, comment FROM duckdb_indexes() "
            "ORDER BY ALL"
        ).fetchall()
    return rows, code


def hold(path):
    process = subprocess.Popen([sys.executable, "-c", HOLD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"held\n"
    return process


class TestCompact:
    @pytest.mark.rest
    def test_case_D8_it_gives_the_space_back_and_changes_no_result(self, tmp_path):
        """The same documents written five times: the copy is no larger than a file in which they were written once."""
        root, options = tmp_path / "docs", {**HASHING, "embed_model_name": "hashing-256"}
        shutil.copytree(HANDBOOK, root)
        path = sqlrag.prepare_embeddings(root, tmp_path / "kb.duckdb", **options).path
        fresh = path.stat().st_size
        for n in range(5):
            for page in root.rglob("*.md"):
                page.write_text(page.read_text("utf-8") + f"\n\nEdition {n}.\n", "utf-8")
            sqlrag.update_embeddings(root, path, progress="off")
        questions = ["How do I filter by tag?", "edition", "StoreLockedError", "naïve C++"]
        before = [list(hybrid_query(question, path, top_k=20, fusion="convex")) for question in questions]
        rows = dump(path)
        done = compact(path)
        assert done.path == path
        assert (done.bytes_before, done.bytes_after) == (done.bytes_before, path.stat().st_size)
        assert done.bytes_after < done.bytes_before
        assert done.bytes_after <= fresh + 2 * 2**18  # the text has grown by a little: two blocks of 256 KiB
        assert [list(hybrid_query(question, path, top_k=20, fusion="convex")) for question in questions] == before
        assert dump(path) == rows
        assert check(path) == []
        postings = execute(path, "SELECT termid, rid FROM fts_main_documents.postings")
        assert postings == sorted(postings)
        assert re.match(r".*: [\d,]+ bytes before, [\d,]+ after$", str(done))

    @pytest.mark.rest
    def test_everything_of_the_callers_own_is_kept(self, small):
        execute(
            small,
            "CREATE TABLE notes (i INTEGER PRIMARY KEY, j VARCHAR DEFAULT 'x' CHECK (length(j) < 9)); "
            "INSERT INTO notes VALUES (2, 'two'), (1, 'one'); COMMENT ON TABLE notes IS 'Mine.'; "
            "CREATE SCHEMA own; CREATE TABLE own.t AS SELECT 7 AS seven; CREATE VIEW own.v AS FROM notes; "
            "CREATE MACRO plus(a, b := 5) AS a + b; CREATE INDEX by_document ON documents(doc_id); "
            "DELETE FROM fts_main_documents.stopwords; INSERT INTO fts_main_documents.stopwords VALUES ('duck'); "
            "ALTER TABLE documents ADD COLUMN rating INTEGER; UPDATE documents SET rating = rid",
        )
        rows = dump(small)
        compact(small)
        assert dump(small) == rows
        assert execute(small, "SELECT plus(1), seven, (SELECT count(*) FROM own.v) FROM own.t") == [(6, 7, 2)]
        with pytest.raises(duckdb.ConstraintException):
            execute(small, "INSERT INTO notes VALUES (1, 'twice')")
        assert check(small) == []
        with Store(small, read_only=False) as store:
            store.upsert([Document("n", "new")], [Chunk("n", 0, "new")], np.eye(8)[:1])
            assert ids(store.lexical_query("new")) == ["n#0"]

    @pytest.mark.rest
    def test_tables_of_every_kind_of_the_callers_own_are_kept(self, small):
        """Generated columns, sequences, types, indexes, a tree by foreign keys, and schemas named as databases are."""
        own = (
            "CREATE SCHEMA own; CREATE SEQUENCE own.s START 5; CREATE TYPE own.mood AS ENUM ('a', 'b'); "
            "CREATE TABLE own.g (i INTEGER DEFAULT nextval('own.s'), "
            "\"GENERATED 2\" INTEGER GENERATED ALWAYS AS (i * 2), m own.mood, d VARCHAR DEFAULT 'GENERATED', "
            "UNIQUE (i)); "
            "INSERT INTO own.g (m) VALUES ('a'), ('b'); CREATE UNIQUE INDEX by_mood ON own.g(lower(m::VARCHAR)); "
            # Each row has to be inserted after what it refers to, which has a greater key or a later name.
            "CREATE TABLE own.zoo (id INTEGER PRIMARY KEY, within INTEGER REFERENCES own.zoo(id)); "
            "INSERT INTO own.zoo VALUES (9, NULL); INSERT INTO own.zoo VALUES (5, 9), (6, 9); "
            "INSERT INTO own.zoo VALUES (1, 5); CREATE TABLE own.animals (zoo INTEGER REFERENCES own.zoo(id)); "
            "INSERT INTO own.animals VALUES (1); CREATE VIEW own.z AS SELECT 1 AS x; CREATE VIEW own.a AS FROM own.z; "
        )
        others = "".join(f"CREATE SCHEMA {n}; CREATE TABLE {n}.t AS SELECT 1 AS x; " for n in ("old", "new", "memory"))
        execute(small, own + others)
        rows = dump(small)
        compact(small)
        assert dump(small) == rows
        values = 'INSERT INTO own.g (m) VALUES (NULL) RETURNING i, "GENERATED 2", d'
        assert execute(small, values) == [(7, 14, "GENERATED")]
        report = reembed(small, **REEMBED)
        assert report.left_out == [
            "the view or macro own.a", "the view or macro own.z", "the index own.by_mood",
            "the rules, keys and defaults of the table own.animals", "the rules, keys and defaults of the table own.g",
            "the rules, keys and defaults of the table own.zoo", "the sequence own.s", "the type own.mood",
        ]  # fmt: skip
        assert execute(small, "SELECT i, m::VARCHAR FROM own.g ORDER BY i") == [(5, "a"), (6, "b"), (7, None)]
        assert execute(small, "SELECT count(*) FROM own.zoo, new.t, old.t, memory.t") == [(4,)]
        assert check(small) == []

    @pytest.mark.rest
    def test_a_log_that_was_left_is_taken_in(self, tmp_path, small):
        code = (
            "import os, sys, numpy as np, sqlrag\nstore = sqlrag.Store(sys.argv[1], read_only=False)\n"
            "store._database.checkpoint = lambda: None\n"
            "store.upsert([sqlrag.Document('w', 'walrus')], [sqlrag.Chunk('w', 0, 'walrus')], np.eye(8)[:1])\n"
            "os.kill(os.getpid(), 9)"
        )
        subprocess.run([sys.executable, "-c", code, small], env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False)
        log = small.with_name("kb.duckdb.wal")
        assert log.exists()
        assert [problem.check for problem in check(small)] == ["log_left_over"]
        compact(small)
        assert not log.exists()
        assert ids(sqlrag.lexical_query("walrus", small)) == ["w#0"]
        assert check(small) == []

    @pytest.mark.slow
    def test_a_file_of_a_newer_storage_format_becomes_one_that_all_open(self, tmp_path, small):
        newest = tmp_path / "newest.duckdb"
        with duckdb.connect() as con:
            con.execute(f"ATTACH '{small}' AS a (READ_ONLY); ATTACH '{newest}' AS b (STORAGE_VERSION 'latest')")
            con.execute("COPY FROM DATABASE a TO b")
        if storage_version(newest) <= _STORAGE:
            pytest.skip("this DuckDB has no newer format")
        assert [problem.check for problem in check(newest)] == ["storage_version"]
        compact(newest)
        assert check(newest) == []

    @pytest.mark.parametrize("work", [compact, repair, upgrade, check, lambda path: reembed(path, **REEMBED)])
    def test_what_is_no_store_is_refused(self, tmp_path, work):
        with pytest.raises(NotFoundError):
            work(tmp_path / "missing.duckdb")
        (tmp_path / "text.duckdb").write_text("x" * 5000)
        with pytest.raises(NotAStoreError):
            work(tmp_path / "text.duckdb")
        execute(tmp_path / "other.duckdb", "CREATE TABLE t (i INTEGER)")
        with pytest.raises(NotAStoreError):
            work(tmp_path / "other.duckdb")
        assert execute(tmp_path / "other.duckdb", "FROM t") == []

    @pytest.mark.parametrize("name", ["compact", "repair", "reembed", "upgrade"])
    def test_a_file_in_use_is_left_alone(self, small, name, monkeypatch):
        if name == "upgrade":
            small.write_bytes(gzip.decompress(SQLROOMS.read_bytes()))
        work = {
            "compact": compact,
            "repair": repair,
            "upgrade": upgrade,
            "reembed": lambda path, **options: reembed(path, **REEMBED, **options),
        }[name]
        content = small.read_bytes()
        with hold(small) as process:
            with pytest.raises(StoreLockedError, match=f"in use by process {process.pid}") as caught:
                work(small, wait_seconds=0.1)
            assert caught.value.pid == process.pid
            process.communicate(b"")
        with duckdb.connect(str(small), read_only=True), pytest.raises(StoreError, match="this process"):
            work(small, wait_seconds=0.1)
        if name != "upgrade":
            with Store(small), pytest.raises(StoreLockedError, match="in this process"):
                work(small)
        assert small.read_bytes() == content

    @pytest.mark.rest
    def test_other_processes_read_meanwhile_and_none_writes(self, small, monkeypatch):
        from sqlrag.engines.duckdb import rewrite

        read = "import sys, sqlrag\nprint(len(sqlrag.lexical_query('duck', sys.argv[1])))"
        write = (
            "import sys, sqlrag\ntry: sqlrag.Store(sys.argv[1], read_only=False, wait_seconds=0)\n"
            "except sqlrag.StoreLockedError as error: print(error.pid)"
        )
        seen = []

        def count(*arguments):
            if not seen:
                seen.append((python(read, small), python(write, small)))
                with pytest.raises(StoreLockedError, match="being rewritten by this process"):
                    Store(small, wait_seconds=0)
            return 4

        monkeypatch.setattr(rewrite, "count_rows", count)
        compact(small)
        assert seen == [("2\n", f"{os.getpid()}\n")]

    def test_a_copy_that_is_not_whole_is_thrown_away(self, small, monkeypatch):
        from sqlrag.engines.duckdb import rewrite

        counts = iter(range(100))
        monkeypatch.setattr(rewrite, "count_rows", lambda *_: next(counts))
        content = small.read_bytes()
        with pytest.raises(StoreError, match="not whole"):
            compact(small)
        assert small.read_bytes() == content


class TestCheck:
    def test_the_keys_of_the_check_are_those_of_a_new_file(self):
        named = set(re.findall(r"\('(\w+)'\)", schema.read_sql("checks/missing_metadata")))
        # Files of before there were servers lack the last two, and are sound.
        assert named == set(default_metadata(8)) - {"embedding_revision", "embedding_options"}

    def test_what_is_missing_is_named(self, small):
        execute(small, "DROP VIEW chunks; DROP MACRO TABLE more_like; DROP TABLE fts_main_documents.postings")
        (problem, *_) = check(small)
        assert (problem.check, problem.rows) == ("missing_objects", 3)
        assert problem.examples == ("fts_main_documents.postings", "main.chunks", "main.more_like")

    @pytest.mark.slow
    def test_a_writer_of_this_process_is_no_fault(self, small):
        with Store(small, read_only=False) as store:
            store.upsert([Document("n", "new")], [Chunk("n", 0, "new")], np.eye(8)[:1])
            assert check(small) == store.check() == []

    def test_a_new_file_is_in_the_storage_format(self, small):
        assert storage_version(small) == _STORAGE


class TestRepair:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("fault", "done"),
        [
            ("SELECT 1", []),
            ("DROP SCHEMA fts_main_documents CASCADE", ["created", "lexical"]),
            ("DROP TABLE fts_main_documents.words", ["created", "lexical"]),
            ("UPDATE documents SET w0 = 0 WHERE rid > 0", ["sign codes"]),
            ("DELETE FROM fts_main_documents.postings WHERE rid = 1", ["lexical"]),
            ("UPDATE fts_main_documents.dict SET df = 9", ["lexical"]),
            ("DELETE FROM fts_main_documents.docs WHERE rid = 2", ["lexical"]),
            ("UPDATE fts_main_documents.docs SET len = 99", ["lexical"]),
            ("DROP VIEW chunks; DROP MACRO sign_words; DROP TABLE ingest_log", ["created"]),
            ("DELETE FROM embedding_metadata WHERE key IN ('stemmer', 'total_chunks')", ["keys", "lexical", "counts"]),
            ("UPDATE embedding_metadata SET value = '7' WHERE key = 'total_chunks'", ["counts"]),
        ],
    )
    def test_what_can_be_rebuilt_is_as_it_was(self, small, fault, done):
        rows = dump(small)
        execute(small, f"BEGIN; {fault}; COMMIT")
        repaired = repair(small)
        assert len(repaired.done) == len(done), repaired.done
        assert all(word in sentence for word, sentence in zip(done, repaired.done, strict=True)), repaired.done
        assert (repaired.left, check(small)) == ((), [])
        now_rows, now_code = dump(small)
        for name in rows[0].keys() - {"main.embedding_metadata"}:
            if not name.endswith((".dict", ".postings")):  # terms may have other numbers
                assert now_rows[name] == rows[0][name], name
        assert now_code == rows[1]
        assert [list(hybrid_query("duck pond", small, query_vector=[1] * 8))] == [
            list(hybrid_query("duck pond", small, query_vector=[1] * 8))
        ]

    @pytest.mark.slow
    def test_the_list_of_stop_words_survives(self, small):
        execute(
            small,
            "DELETE FROM fts_main_documents.stopwords; INSERT INTO fts_main_documents.stopwords VALUES ('pond'); "
            "DROP TABLE fts_main_documents.postings",
        )
        repair(small)
        assert execute(small, "FROM fts_main_documents.stopwords") == [("pond",)]

    def test_what_cannot_be_rebuilt_is_told(self, small):
        execute(small, "UPDATE documents SET embedding = [0, 0, 0, 0, 0, 0, 0, 0], w0 = 5 WHERE rid = 0")
        repaired = repair(small)
        assert [problem.check for problem in repaired.left] == ["not_unit_vectors"]
        assert "not repaired: not_unit_vectors" in str(repaired)
        assert execute(small, "SELECT embedding FROM documents WHERE rid = 0") == [((0.0,) * 8,)]

    def test_all_of_it_or_nothing(self, small, monkeypatch):
        execute(small, "UPDATE documents SET w0 = 0; UPDATE fts_main_documents.dict SET df = 9")
        rows = dump(small)
        from sqlrag.engines.duckdb import check as check_module

        monkeypatch.setattr(check_module, "for_dimensions", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            repair(small)
        assert dump(small) == rows


def rewritten(path, meanwhile):
    """Rewrite a file as compact and the others do, with something that happens just before the end."""
    with rewrite.replacement(path, 2, None) as (con, _):
        schema.create_objects(con, 64)
        con.execute("USE memory; DETACH new")
        meanwhile()


class TestTwoRewriters:
    """Whoever finds another file in the place of the one that was rewritten leaves it alone."""

    @pytest.mark.rest
    @pytest.mark.parametrize(
        "other",
        [
            "sqlrag.compact(path); sqlrag.update_embeddings(root, path, progress='off')",
            f"sqlrag.prepare_embeddings(root, path, overwrite=True, **{HASHING})",
        ],
    )
    def test_the_second_to_finish_changes_nothing(self, tmp_path, other):
        path = build(tmp_path, a_md="alpha")
        root = tmp_path / "docs"
        (root / "new.md").write_text("zebra")
        code = f"import sys, sqlrag; root, path = sys.argv[1:3]; {other}"
        with pytest.raises(StoreLockedError, match="replaced by another process while it was rewritten"):
            rewritten(path, lambda: python(code, root, path))
        assert ids(sqlrag.lexical_query("zebra", path)) == ["new.md#0"]
        assert check(path) == []
        assert sorted(file.name for file in tmp_path.iterdir()) == ["docs", "kb.duckdb"]

    def test_nor_where_a_writer_has_the_new_file_open(self, tmp_path):
        path = build(tmp_path, a_md="alpha")
        log = path.with_name(path.name + ".wal")
        with pytest.raises(StoreLockedError, match="replaced by another process"):
            rewritten(path, lambda: log.write_bytes(b"of somebody"))
        log.unlink()
        assert ids(sqlrag.lexical_query("alpha", path)) == ["a.md#0"]


class TestUpgrade:
    @pytest.fixture
    def old(self, tmp_path):
        path = tmp_path / "old.duckdb"
        path.write_bytes(gzip.decompress(SQLROOMS.read_bytes()))
        return path

    def test_a_file_of_sqlrooms_rag_names_the_command(self, old):
        with pytest.raises(SchemaVersionError, match=rf"sqlrag upgrade {old}"):
            Store(old)

    @pytest.mark.slow
    def test_a_file_of_sqlrooms_rag_keeps_ids_and_vectors(self, old):
        rows = execute(old, "SELECT node_id, doc_id, embedding, text FROM documents")
        sources = execute(old, "SELECT doc_id, file_name, text, created_at FROM source_documents ORDER BY doc_id")
        done = upgrade(old)
        assert (done.from_version, done.to_version, done.left_out) == (0, 6, ())
        assert (done.documents, done.chunks) == (3, 6)
        assert check(old) == []
        found = {row[0]: row[1:] for row in execute(old, "SELECT node_id, doc_id, embedding FROM documents")}
        assert found.keys() == {row[0] for row in rows}
        for node_id, doc_id, vector, _ in rows:
            assert found[node_id][0] == doc_id
            assert found[node_id][1] == pytest.approx(np.array(vector) / np.linalg.norm(vector), abs=1e-6)
        assert (
            execute(old, "SELECT doc_id, file_name, text, created_at FROM source_documents ORDER BY doc_id") == sources
        )

    @pytest.mark.slow
    def test_pasted_headings_become_the_heading_path_and_texts_become_slices(self, old):
        upgrade(old)
        found = execute(
            old,
            "SELECT file_name, chunk_index, d.text, heading_path, s.text[i_start + 1:i_end] = d.text "
            "FROM documents AS d JOIN source_documents AS s USING (doc_id) ORDER BY file_name, chunk_index",
        )
        # From the pages in fixtures/make_sqlrooms.py; header_path holds the titles above, the text its own.
        assert found == [
            ("notes.md", 0, "A page without headings tells of geese.", [], True),
            ("setup.md", 0, "# Setup\n\nWords about pumps.", ["Setup"], True),
            ("setup.md", 1, "## Install\n\nOpen the red valve.", ["Setup", "Install"], True),
            ("setup.md", 2, "## Check\n\nClose it.", ["Setup", "Check"], True),
            ("twice.md", 0, "# One\n\nThe same line.", ["One"], True),
            ("twice.md", 1, "# One\n\nThe same line.", ["One"], True),
        ]
        assert execute(old, "SELECT i_start FROM documents WHERE text LIKE '# One%' ORDER BY rid") == [(0,), (23,)]

    @pytest.mark.slow
    def test_it_is_searched_updated_and_upgraded_no_further(self, old):
        upgrade(old)
        again = upgrade(old)
        assert (again.from_version, again.steps, str(again)) == (6, (), f"{old} has schema version 6 already.")
        answer = hybrid_query("red valve", old, query_vector=[1] * 16, top_k=1)
        assert answer[0]["text"] == "## Install\n\nOpen the red valve."
        assert "_node_content" not in answer[0]["metadata"]
        with Store(old, read_only=False) as store:
            store.upsert([Document("n.md", "zebra")], [Chunk("n.md", 0, "zebra")], np.eye(16)[:1])
            assert ids(store.lexical_query("zebra")) == ["n.md#0"]
            assert store.check() == []

    # The layout, with what may be wrong in it: no doc_id (size-based chunking), lists instead of arrays, no key at all.
    ODD = """
        CREATE TABLE documents (node_id VARCHAR, text VARCHAR, embedding FLOAT[], metadata_ JSON);
        INSERT INTO documents VALUES
            ('n1', 'good', [3, 4], '{"ref_doc_id": "d1", "file_name": "a.md"}'),
            ('n2', 'also fine', [0, 2], '{"ref_doc_id": "d1"}'),
            ('n1', 'same id', [1, 0], '{"ref_doc_id": "d1"}'),
            ('n3', ' ', [1, 0], '{"ref_doc_id": "d1"}'),
            ('n4', 'none', NULL, '{"ref_doc_id": "d1"}'),
            ('n5', 'long', [1, 2, 3], '{"ref_doc_id": "d1"}'),
            ('n6', 'nan', ['nan'::FLOAT, 1], '{"ref_doc_id": "d1"}'),
            ('n7', 'null inside', [NULL, 1], '{"ref_doc_id": "d1"}'),
            ('n8', 'zero', [0, 0], '{"ref_doc_id": "d1"}'),
            (NULL, 'no id', [1, 0], '{"ref_doc_id": "d1"}'),
            ('n9', 'no document', [1, 0], NULL);
        CREATE TABLE embedding_metadata (key VARCHAR, value VARCHAR, created_at TIMESTAMP);
        CREATE TABLE mine AS SELECT 1 AS one;
        CREATE VIEW my_view AS FROM documents;
        ALTER TABLE embedding_metadata ADD COLUMN remark VARCHAR;
    """

    @pytest.mark.slow
    def test_what_cannot_be_kept_is_reported(self, tmp_path):
        path = tmp_path / "odd.duckdb"
        execute(path, self.ODD)
        done = upgrade(path)
        reasons = {
            "n1 (2)": "another chunk has the same node_id", "n3": "it is blank", "n4": "it has no vector",
            "n5": "its vector has 3 dimensions, not 2", "n6": "its vector is not finite",
            "n7": "its vector is not finite", "n8": "its vector is zero", "row 9": "it has no node_id",
        }  # fmt: skip
        assert done.left_out == (
            "the view or macro main.my_view",
            "the column embedding_metadata.remark",
            *(f"{name}: The chunk was left out by sqlrag upgrade: {why}." for name, why in reasons.items()),
        )
        assert check(path) == []
        assert execute(path, "FROM mine") == [(1,)]
        assert execute(path, "SELECT node_id, doc_id, embedding, i_start FROM documents ORDER BY rid") == [
            ("n1", "d1", (pytest.approx(0.6), pytest.approx(0.8)), 0),
            ("n2", "d1", (0.0, 1.0), 6),
            ("n9", "n9", (1.0, 0.0), 0),
        ]
        assert execute(path, "SELECT doc_id, file_name, text FROM source_documents ORDER BY doc_id") == [
            ("d1", "a.md", "good\n\nalso fine"),
            ("n9", "", "no document"),
        ]

    @pytest.mark.slow
    def test_numbered_steps_are_applied_in_order_to_a_copy(self, old, tmp_path, monkeypatch):
        """Two later schemas, by scripts of which the second needs what the first made."""
        folder = tmp_path / "sql"
        shutil.copytree(ROOT / "sql", folder)
        steps = folder / "migrations"
        rename = "DROP TABLE documents; ALTER TABLE changed RENAME TO documents;"
        (steps / "0008_tags.sql").write_text(
            f"CREATE TABLE changed AS SELECT * EXCLUDE mark REPLACE ([mark] AS tags) FROM documents; {rename}"
        )
        (steps / "0007_mark.sql").write_text(
            f"CREATE TABLE changed AS SELECT *, heading_path[1] || '!' AS mark FROM documents; {rename}"
        )
        monkeypatch.setattr(schema, "sql_folder", lambda: folder)
        monkeypatch.setattr(upgrade_module, "sql_folder", lambda: folder)
        monkeypatch.setattr(upgrade_module, "SCHEMA_VERSION", "8")
        schema.read_sql.cache_clear()
        seen = []
        migrate = _migrate

        def watched(con, number, name, dimensions):
            seen.append((number, name, con.execute("SELECT current_database()").fetchone()[0]))
            assert execute_other(con, "SELECT count(*) FROM old.main.documents") == [(6,)]
            migrate(con, number, name, dimensions)

        monkeypatch.setattr(upgrade_module, "_migrate", watched)
        try:
            done = upgrade(old)
        finally:
            schema.read_sql.cache_clear()
        assert seen == [
            (1, "0001_sqlrooms_rag", "work"),
            (2, "0002_runs_and_policies", "work"),
            (3, "0003_filters_with_operators", "work"),
            (4, "0004_exploration", "work"),
            (5, "0005_visible_text", "work"),
            (6, "0006_words_by_script", "work"),
            (7, "0007_mark", "work"),
            (8, "0008_tags", "work"),
        ]
        assert (done.from_version, done.to_version) == (0, 8)
        found = execute(old, "SELECT tags FROM documents WHERE length(heading_path) > 0 ORDER BY rid")
        assert found == [(["Setup!"],)] * 3 + [(["One!"],)] * 2
        assert execute(old, "SELECT value FROM embedding_metadata WHERE key = 'schema_version'") == [("8",)]

    @pytest.mark.slow
    def test_a_file_of_schema_1(self, tmp_path):
        """The fixture is a folder of two files, built by the sqlrag that wrote schema 1, with sign codes of 64 bits."""
        path = tmp_path / "kb.duckdb"
        path.write_bytes(gzip.decompress((FIXTURES / "schema_1.duckdb.gz").read_bytes()))
        with pytest.raises(SchemaVersionError, match="sqlrag upgrade"):
            Store(path)
        done = upgrade(path)
        assert (done.from_version, done.to_version, done.chunks, done.left_out) == (1, 6, 3, ())
        assert check(path) == []
        embedder = HashingEmbedder("hashing-64")
        with Store(path, embedder=embedder) as store:
            assert store.hybrid_query("filter E1042", top_k=1)[0]["node_id"] == "pump.md#1"
        folder = tmp_path / "docs"
        folder.mkdir()
        (folder / "garden.txt").write_text("Plain notes about gardens.\n")
        assert update_embeddings(folder, path, embedder=embedder, verbose=False).unchanged == ["garden.txt"]

    def test_a_step_that_fails_leaves_the_file_as_it_was(self, old, monkeypatch):
        content = old.read_bytes()

        def fail(con, number, name, dimensions):
            con.execute("DROP TABLE documents; SELECT no_such_function()")

        monkeypatch.setattr(upgrade_module, "_migrate", fail)
        with pytest.raises(StoreError, match="is as it was"):
            upgrade(old)
        assert old.read_bytes() == content

    def test_the_last_step_leads_to_the_present_schema(self):
        numbers = [number for number, _ in migrations()]
        assert numbers == list(range(1, int(schema.SCHEMA_VERSION) + 1))

    def test_a_newer_file_is_refused(self, small):
        execute(small, "UPDATE embedding_metadata SET value = '99' WHERE key = 'schema_version'")
        for use in (upgrade, Store, compact):
            with pytest.raises(SchemaVersionError, match="Install a newer"):
                use(small)


def execute_other(con, sql):
    return con.cursor().execute(sql).fetchall()


REEMBED = {"model_name": "hashing-96", "provider": "hashing", "progress": "off"}


class TestReembed:
    @pytest.mark.rest
    def test_it_equals_a_file_made_with_the_other_model(self, tmp_path, handbook):
        path = tmp_path / "kb.duckdb"
        shutil.copy(handbook, path)
        options = {**HASHING, "embed_model_name": "hashing-96"}
        fresh = sqlrag.prepare_embeddings(HANDBOOK, tmp_path / "fresh.duckdb", **options).path
        report = reembed(path, **REEMBED)
        rows, other = dump(path)[0], dump(fresh)[0]
        for name in rows.keys() - {"main.embedding_metadata", "main.ingest_log", "main.collections"}:
            if name != "main.source_documents":  # with the times at which they were written
                assert rows[name] == other[name], name
        sources = "SELECT * EXCLUDE created_at FROM source_documents ORDER BY doc_id"
        assert execute(path, sources) == execute(fresh, sources)
        assert report.kept == report.cut_off == 0
        assert report.recut == len(execute(path, "FROM source_documents"))
        found, anew = (timeless(hybrid_query("How do I filter by tag?", file)) for file in (path, fresh))
        assert found == anew
        assert check(path) == []

    @pytest.mark.slow
    def test_it_knows_nothing_but_the_file(self, tmp_path):
        path = build(tmp_path, a_md="# Ducks\n\nalpha", b_txt="beta")
        shutil.rmtree(tmp_path / "docs")
        reembed(path, **REEMBED)
        assert ids(hybrid_query("alpha", path))[0] == "a.md#0"

    @pytest.mark.slow
    def test_chunks_that_a_program_made_stay_as_they_are(self, small):
        rows = execute(small, "SELECT * EXCLUDE (embedding, w0) FROM documents ORDER BY rid")
        report = reembed(small, **REEMBED)
        assert (report.recut, report.kept, report.chunks, report.model_name) == (0, 3, 4, "hashing-96")
        assert execute(small, "SELECT * EXCLUDE (embedding, w0) FROM documents ORDER BY rid") == rows
        expected = HashingEmbedder("hashing-96").embed(["Ducks\n\nduck pond"], kind="document")[0]
        assert execute(small, "SELECT embedding FROM documents WHERE rid = 0")[0][0] == pytest.approx(expected)
        assert check(small) == []

    @pytest.mark.slow
    def test_tokens_are_those_of_the_new_model(self, tmp_path):
        """40 words in chunks of 20 tokens; a tokenizer that sees two in each word cuts them into twice as many."""

        class Halves(HashingEmbedder):
            def token_offsets(self, text):
                return [
                    half for start, end in super().token_offsets(text) for half in ((start, end - 1), (end - 1, end))
                ]

        text = " ".join(f"word{n:02}" for n in range(40))
        path = build(tmp_path, options={"chunk_size": 20, "chunk_overlap": 0}, a_txt=text)
        assert execute(path, "SELECT count(*) FROM documents") == [(2,)]
        reembed(path, embedder=Halves("hashing-96"), progress="off")
        assert execute(path, "SELECT count(*) FROM documents") == [(4,)]
        assert check(path) == []

    @pytest.mark.rest
    def test_a_smaller_window_lowers_the_size_and_tells_of_what_it_cuts_off(self, small, tmp_path):
        path = build(tmp_path, "other.duckdb", options={"chunk_size": 20}, a_txt="word " * 40)
        with pytest.warns(UserWarning, match="lowered to 8 tokens"):
            report = reembed(path, embedder=Recorder(96, max_tokens=8), progress="off")
        assert "lowered to 8 tokens" in str(report)
        assert sqlrag.get_embedding_metadata(path)["chunking"]["chunk_size"] == 8
        with pytest.warns(UserWarning, match="lowered"):
            report = reembed(small, embedder=Recorder(96, max_tokens=3), progress="off")
        # "Ducks > Food\n\nduck duck bread" has 6 tokens, "goose pond water pond" 4, "Ducks\n\nduck pond" 3
        assert report.cut_off == 2
        assert "note: 2 of those chunks are longer" in str(report)

    @pytest.mark.slow
    def test_everything_else_is_kept_but_vectors_of_questions(self, small):
        execute(
            small,
            "CREATE TABLE notes AS SELECT 1 AS one; CREATE VIEW my_view AS FROM notes; "
            "ALTER TABLE documents ADD COLUMN rating INTEGER; "
            "INSERT INTO fts_main_documents.stopwords VALUES ('zzz'); "
            "INSERT INTO embedding_metadata VALUES ('mine', 'x', '2024-01-01')",
        )
        tables = ("ingest_failures", "fts_main_documents.stopwords", "notes", "fts_main_documents.docs")
        before = [execute(small, f"FROM {table}") for table in tables]
        times = execute(small, "SELECT doc_id, created_at FROM source_documents ORDER BY doc_id")
        report = reembed(small, **REEMBED)
        assert [execute(small, f"FROM {table}") for table in tables] == before
        assert execute(small, "SELECT doc_id, created_at FROM source_documents ORDER BY doc_id") == times
        assert execute(small, "FROM query_embeddings") == []
        assert execute(small, "SELECT value FROM embedding_metadata WHERE key = 'mine'") == [("x",)]
        assert report.left_out == ["the view or macro main.my_view", "the column documents.rating"]
        assert execute(small, "SELECT kind, documents, chunks, embedded FROM ingest_log ORDER BY started_at")[-1] == (
            "reembed", 3, 4, 4,
        )  # fmt: skip

    @pytest.mark.rest
    def test_a_file_of_sqlrooms_rag_keeps_its_ids(self, tmp_path):
        path = tmp_path / "old.duckdb"
        path.write_bytes(gzip.decompress(SQLROOMS.read_bytes()))
        upgrade(path)
        before = execute(path, "SELECT node_id, text FROM documents ORDER BY node_id")
        assert reembed(path, **REEMBED).kept == 3
        assert execute(path, "SELECT node_id, text FROM documents ORDER BY node_id") == before
        assert hybrid_query("red valve", path)[0]["text"] == "## Install\n\nOpen the red valve."
        assert check(path) == []

    @pytest.mark.slow
    def test_a_text_that_the_model_refuses_leaves_the_file_as_it_was(self, small):
        content = small.read_bytes()
        with pytest.raises(ProviderError, match="refuses"):
            reembed(small, embedder=Recorder(96, fails=lambda text: "oven" in text), progress="off")
        with pytest.raises(InputError):
            reembed(small, "hashing-0", provider="hashing", progress="off")
        assert small.read_bytes() == content


class TestCommands:
    """``sqlrag compact`` and the others say what the functions return; errors are in test_cli."""

    def run(self, *arguments):
        return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])

    @pytest.mark.slow
    def test_compact(self, small):
        done = self.run("compact", small)
        assert re.fullmatch(rf"{small}: [\d.]+ MB before, [\d.]+ MB after\n", done.stdout)
        facts = json.loads(self.run("compact", "--db", small, "--format", "json").stdout)
        assert facts == {"path": str(small), "bytes_before": small.stat().st_size, "bytes_after": small.stat().st_size}

    @pytest.mark.slow
    def test_repair_and_check(self, small):
        execute(small, "UPDATE documents SET w0 = 0")
        assert self.run("check", small).exit_code == 1
        done = self.run("repair", small)
        assert (done.exit_code, done.stdout) == (
            0, f"{small}: 1 repaired\nThe sign codes were recomputed from the vectors.\n",
        )  # fmt: skip
        assert self.run("check", small).exit_code == 0
        assert self.run("repair", small).stdout == f"{small}: nothing repaired\n"
        execute(small, "UPDATE documents SET embedding = [0, 0, 0, 0, 0, 0, 0, 0] WHERE rid = 0")
        done = self.run("repair", small, "--format", "json")
        assert done.exit_code == 1
        assert [problem["check"] for problem in json.loads(done.stdout)["left"]] == ["not_unit_vectors"]
        assert "Not repaired:\nnot_unit_vectors: 1 row;" in self.run("repair", small).stdout

    @pytest.mark.slow
    def test_upgrade(self, tmp_path):
        path = tmp_path / "odd.duckdb"
        execute(path, TestUpgrade.ODD)
        done = self.run("upgrade", path)
        assert done.exit_code == 0
        steps = "0001_sqlrooms_rag, 0002_runs_and_policies, 0003_filters_with_operators, 0004_exploration, "
        steps += "0005_visible_text, 0006_words_by_script"
        assert done.stdout.startswith(f"{path}: schema version 0 to 6 ({steps}), 2 documents, 3 chunks")
        assert "left out: n8: The chunk was left out by sqlrag upgrade: its vector is zero.\n" in done.stderr
        assert self.run("upgrade", path).stdout == f"{path} has schema version 6 already.\n"

    @pytest.mark.slow
    def test_reembed(self, small):
        arguments = ["reembed", small, "--model", "hashing-96", "--provider", "hashing"]
        assert self.run(*arguments).stdout == (
            f"{small}: 4 chunks with vectors of hashing-96 (96 dimensions)\n"
            "0 documents rechunked, 3 with the chunks that a program made; 4 texts embedded\n"
        )
        facts = json.loads(self.run(*arguments, "--format", "json").stdout)
        assert (facts["kept"], facts["dimensions"], facts["warnings"]) == (3, 96, [])

    @pytest.mark.parametrize("name", ["compact", "repair", "upgrade", "reembed", "check"])
    def test_failures_are_messages(self, tmp_path, name):
        done = self.run(name, tmp_path / "missing.duckdb", "--wait", "0")
        assert (done.exit_code, done.stdout) == (1, "")
        assert done.stderr.startswith("error: There is no file")
