"""Handed cases, through the public functions: folders go in, answers come out."""

from __future__ import annotations

import json
import logging
import time

import duckdb
import numpy as np
import pytest
from fpdf import FPDF
from pypdf import PdfWriter

from sqlrag import (
    Chunk,
    Document,
    Store,
    check,
    compact,
    hybrid_query,
    lexical_query,
    prepare_embeddings,
    reciprocal_rank_fusion,
    update_embeddings,
    vector_query,
)
from sqlrag.embedders import HashingEmbedder
from sqlrag.errors import InputError, ModelMismatchError, NotFoundError
from tests.support.helpers import HASHING, MINILM, Recorder, build, ids, python, real_model, write

MODEL = HashingEmbedder("hashing-64")


def rows(path, sql):
    with duckdb.connect(str(path), read_only=True) as con:
        return con.execute(sql).fetchall()


def found(path, query):
    return {row["doc_id"] for row in lexical_query(query, path, top_k=50)}


def store_of(path, texts, vectors=None, dimensions=64, **fields):
    """Make a store of one-chunk documents ``{doc_id: text}``; without vectors those of the hashing embedder."""
    if vectors is None:
        vectors = MODEL.embed(list(texts.values()), kind="document")
    store = Store.create(path, dimensions, embedder=MODEL if dimensions == 64 else None)
    documents = [Document(doc_id, text) for doc_id, text in texts.items()]
    store.upsert(documents, [Chunk(doc_id, 0, text) for doc_id, text in texts.items()], np.asarray(vectors))
    return store


def locked_pdf(user, owner):
    writer = PdfWriter()
    writer.add_blank_page(200, 200)
    page = FPDF()
    page.set_font("helvetica")
    page.add_page()
    page.cell(text="gamma ray")
    import io

    writer.append(io.BytesIO(page.output()))
    writer.encrypt(user, owner, algorithm="AES-256")
    buffer = io.BytesIO()
    writer.write(buffer)
    return buffer.getvalue()


class TestIngest:
    def test_case_A1_encrypted_pdfs_do_not_stop_a_run(self, tmp_path):
        root = write(
            tmp_path / "docs", ok_md="# A\nalpha", locked_pdf=locked_pdf("secret", "x"), perm_pdf=locked_pdf("", "x")
        )
        prepared = prepare_embeddings(root, tmp_path / "kb.duckdb", **HASHING)
        assert [failure.doc_id for failure in prepared.report.failures] == ["locked.pdf"]
        assert "encrypted" in prepared.report.failures[0].reason
        assert (prepared.report.documents, prepared.report.failed) == (2, 1)
        # A3: the blank page keeps its number.
        assert [(row["doc_id"], row["page"]) for row in lexical_query("gamma", prepared.path)] == [("perm.pdf", 2)]

    def test_case_A4_glued_words_leave_the_vector_leg(self, tmp_path):
        path = build(tmp_path, a_txt="Thischapterdealswith the pump", b_txt="unrelated")
        assert found(path, "chapter") == set()  # not repaired by guessing
        assert found(path, "chapter pump") == {"a.txt"}
        assert ids(vector_query("chapter pump", path))[0] == "a.txt#0"

    @pytest.mark.slow
    def test_case_A8_line_ends_make_no_difference(self, tmp_path):
        text = "---\nlang: en\n---\n# Top\n## Sub\nbody\n"
        dump = "SELECT text, metadata_, heading_path, i_start, i_end FROM documents"
        one = build(tmp_path, "one.duckdb", folder="lf", a_md=text)
        two = build(tmp_path, "two.duckdb", folder="crlf", a_md=text.replace("\n", "\r\n"))
        assert rows(one, dump) == rows(two, dump)
        assert hybrid_query("body", two, metadata={"lang": "en"})[0]["heading_path"] == ["Top", "Sub"]

    @pytest.mark.parametrize(
        "text", ["# A\n\n---\n\ntext: not yaml\n\n---\nmore", "---hello\nx\n---\n", "---\nunclosed: yes\nbody here"]
    )
    def test_case_A9_rules_stay_in_the_text(self, tmp_path, text):
        path = build(tmp_path, a_md=text)
        stored = "".join(row[0] for row in rows(path, "SELECT text FROM documents ORDER BY chunk_index"))
        assert [c for c in stored if not c.isspace()] == [c for c in text if not c.isspace()]
        assert {row["metadata"].keys() == {"file_name", "file_path", "mime"} for row in hybrid_query("x", path)} == {
            True
        }

    def test_case_A11_wrong_front_matter_costs_no_document(self, tmp_path):
        root = write(tmp_path / "docs", bad_md="---\ntitle: Foo: bar\n---\n# T\nquince", good_md="apple")
        prepared = prepare_embeddings(root, tmp_path / "kb.duckdb", **HASHING)
        (warning,) = prepared.report.warnings
        assert warning.startswith("bad.md, line 2: ")
        (row,) = lexical_query("quince", prepared.path)
        assert row["heading_path"] == ["T"]
        assert row["metadata"]["front_matter"] == "title: Foo: bar\n"

    def test_case_A12_hidden_parents_do_not_hide_the_folder(self, tmp_path):
        root = write(tmp_path / ".kb" / "notes", a_md="alpha", **{".git__x_md": "hidden"})
        prepared = prepare_embeddings(root, tmp_path / "kb.duckdb", **HASHING)
        assert rows(prepared.path, "SELECT doc_id FROM source_documents") == [("a.md",)]
        assert [(file.path, file.reason) for file in prepared.report.skipped] == [(".git/x.md", "hidden")]
        (root / "a.md").unlink()
        with pytest.raises(NotFoundError, match=r"1 file was skipped: hidden \(1\)"):
            prepare_embeddings(root, tmp_path / "x.duckdb", **HASHING)

    @pytest.mark.slow
    def test_case_A13_one_name_in_two_folders(self, tmp_path, monkeypatch):
        path = build(tmp_path, a__README_md="mango", b__README_md="lychee")
        first = rows(path, "SELECT node_id, text FROM documents")
        assert first == [("a/README.md#0", "mango"), ("b/README.md#0", "lychee")]
        monkeypatch.chdir(tmp_path / "docs" / "a")
        prepare_embeddings("..", "../../kb.duckdb", overwrite=True, **HASHING)
        assert rows(path, "SELECT node_id, text FROM documents") == first

    def test_case_A15_empty_files_cost_no_call(self, tmp_path):
        model = Recorder()
        root = write(tmp_path / "docs", e_md="", w_md="\n \n", h_md="# Only a title")
        report = prepare_embeddings(root, tmp_path / "kb.duckdb", embedder=model, progress="off").report
        assert [(failure.doc_id, failure.status) for failure in report.failures] == [
            ("e.md", "empty"),
            ("w.md", "empty"),
        ]
        assert (report.embedded, report.failed, report.empty) == (1, 0, 2)
        assert rows(tmp_path / "kb.duckdb", "SELECT text, heading_path FROM documents") == [
            ("# Only a title", ["Only a title"])
        ]

    def test_case_B1_a_comment_in_a_fence_is_no_heading(self, tmp_path):
        path = build(tmp_path, a_md="# Setup\n\n```bash\n# install deps\npip install x\n```\n\n# Next\nok")
        assert rows(path, "SELECT heading_path FROM documents") == [(["Setup"],), (["Next"],)]
        assert "# install deps\npip install x" in lexical_query("pip", path)[0]["text"]

    def test_case_B4_text_before_a_heading_and_files_without_one(self, tmp_path):
        path = build(tmp_path, i_md="intro persimmon\n\n# T\nx", ii_md="just a line, no heading")
        (row,) = lexical_query("persimmon", path)
        assert (row["heading_path"], row["chunk_index"]) == ([], 0)
        assert found(path, "line") == {"ii.md"}

    def test_case_B6_a_slash_in_a_heading(self, tmp_path):
        path = build(tmp_path, a_md="# Root\n## 24/7 Support\ncall us")
        assert lexical_query("call", path)[0]["heading_path"] == ["Root", "24/7 Support"]
        assert rows(path, "SELECT heading FROM chunks WHERE text LIKE '%call%'") == [("Root > 24/7 Support",)]

    @pytest.mark.slow
    def test_case_B8_long_paths_and_front_matter_move_no_border(self, tmp_path):
        body = "# T\n\n" + "some words here. " * 200
        plain = build(tmp_path, "one.duckdb", folder="one", a_md=body, options={"chunk_size": 128})
        head = "---\nnote: " + "x" * 2048 + "\n---\n"
        deep = "__".join(["d" * 60] * 5) + "__a_md"
        long = build(tmp_path, "two.duckdb", folder="two", **{deep: head + body}, options={"chunk_size": 128})
        dump = "SELECT text FROM documents ORDER BY chunk_index"
        assert rows(plain, dump) == rows(long, dump)

    def test_case_B11_a_long_fence_is_cut_at_line_ends(self, tmp_path):
        lines = [f"value_{n} = compute({n})" for n in range(80)]
        text = "# Code\n\n```python\n" + "\n".join(lines) + "\n```\n"
        path = build(tmp_path, a_md=text, options={"chunk_unit": "chars", "chunk_size": 200, "chunk_overlap": 0})
        chunks = rows(path, "SELECT text, i_start, i_end FROM documents ORDER BY chunk_index")
        assert len(chunks) > 5
        for chunk, start, end in chunks:
            assert text[start:end] == chunk
            assert set(chunk.splitlines()) <= {"# Code", "", "```python", "```", *lines}  # whole lines only


class TestMiniLM:
    pytestmark = real_model

    @pytest.mark.slow
    def test_case_B7_the_last_word_of_a_long_section_is_found_by_its_vector(self, tmp_path):
        from sqlrag import load_embedder

        root = write(tmp_path / "docs", log_md="# Log\n" + "the pump was checked again today. " * 500 + "zanzibar")
        with pytest.warns(UserWarning, match="lowered to"):
            path = prepare_embeddings(root, tmp_path / "kb.duckdb", 500, embed_model_name=MINILM, progress="off").path
        best = vector_query("zanzibar", path, top_k=1)[0]
        assert "zanzibar" in best["text"]
        assert best["heading_path"] == ["Log"]
        model = load_embedder(MINILM)
        texts = [text for (text,) in rows(path, "SELECT visible FROM chunks")]  # what is embedded
        assert len(texts) > 10
        longest = max(len(model.token_offsets(f"Log\n\n{text}")) for text in texts)
        assert longest + model.special_tokens <= model.max_tokens


class TestLexical:
    @pytest.mark.slow
    def test_case_E1_what_is_written_is_searchable_and_what_is_gone_is_not_counted(self, tmp_path):
        path = build(tmp_path, a_md="lion", c_md="lion")
        with Store(path, read_only=False) as store:
            before = store.lexical_query("lion")[0]["score"]
            store.upsert(
                [Document("b.md", "zebra")], [Chunk("b.md", 0, "zebra")], MODEL.embed(["zebra"], kind="document")
            )
            assert ids(store.lexical_query("zebra")) == ["b.md#0"]
            assert store.lexical_query("lion")[0]["score"] != before  # the corpus has grown
            store.upsert([Document("b.md", "zebra")], [], [])
            assert store.lexical_query("zebra") == []
            assert store.lexical_query("lion")[0]["score"] == before  # and is what it was: no ghost is counted
            assert store.cursor().execute("SELECT bool_and(in_step) FROM index_status").fetchone() == (True,)

    @pytest.mark.parametrize("query", ["E1042", "e1042", "8080", "2.13", "v2.13", "port 8080"])
    def test_case_E3_digits_are_words(self, tmp_path, query):
        path = build(tmp_path, err_md="Error E1042 on port 8080 since v2.13", other_md="Error on a port since then")
        assert lexical_query(query, path)[0]["doc_id"] == "err.md"
        assert found(path, query.removeprefix("port ")) == {"err.md"}

    def test_case_E5_stop_words_and_punctuation_alone(self, tmp_path):
        path = build(tmp_path, a_md="what is this thing", b_md="zebra")
        assert found(path, "what is this?") == {"a.md"}  # where there is nothing else, they count
        assert found(path, "what is this zebra?") == {"b.md"}
        answer = hybrid_query("!!!", path)
        assert len(answer) == 2
        assert {row["score_type"] for row in answer} == {"adaptive"}
        assert {row["lexical_rank"] for row in answer} == {None}
        assert answer.notices == ["The question has no words that the lexical leg could look for."]
        assert lexical_query("!!!", path) == []

    @pytest.mark.slow
    def test_case_E7_scripts_without_blanks(self, tmp_path):
        path = build(
            tmp_path,
            jp_txt="東京大学に行く",
            cn_txt="我们在北京学习数据库",
            kr_txt="서울에서 데이터베이스를",
            th_txt="ฐานข้อมูลขนาดใหญ่",
        )
        for query, doc_id in {
            "東京": "jp.txt", "大学": "jp.txt", "北京": "cn.txt", "数据库": "cn.txt", "서울": "kr.txt",
            "데이터베이스": "kr.txt", "ข้อมูล": "th.txt",
        }.items():  # fmt: skip
            assert lexical_query(query, path)[0]["doc_id"] == doc_id, query
        assert not rows(path, "SELECT 1 FROM fts_main_documents.docs WHERE len = 0")  # none is indexed as empty

    @pytest.mark.parametrize("query", ["cafe", "café", "CAFÉ", "cafe\u0301", "naive", "uberprufung", "Überprüfung"])
    def test_case_E9_accents(self, tmp_path, query):
        # The second file is decomposed, as some systems write it.
        path = build(tmp_path, a_md="naïve café Überprüfung", b_md="nai\u0308ve cafe\u0301 U\u0308berpru\u0308fung")
        assert found(path, query) == {"a.md", "b.md"}

    @pytest.mark.slow
    def test_case_E10_names_of_fields(self, tmp_path):
        path = build(tmp_path, a_md="# Zoo\n\nlion")
        match = "SELECT fts_main_documents.match_bm25(node_id, 'zoo', fields := {}) FROM documents"
        for fields in ("'text,heading_path'", "'text, heading_path'", "'heading_path'", "NULL"):
            assert rows(path, match.format(fields))[0][0] > 0
        for fields in ("'title'", "'text,title'", "''"):
            with pytest.raises(duckdb.ConversionException):
                rows(path, match.format(fields))

    def test_case_E12_an_attached_file_after_use(self, tmp_path):
        path = build(tmp_path, a_md="zebra", b_md="lion")
        with duckdb.connect() as con:
            con.execute(f"ATTACH '{path}' AS kb (READ_ONLY)")
            con.execute("USE kb")
            assert con.execute("SELECT node_id FROM lexical_query('zebra')").fetchall() == [("a.md#0",)]
            match = "SELECT node_id FROM documents WHERE fts_main_documents.match_bm25(node_id, 'zebra') IS NOT NULL"
            assert con.execute(match).fetchall() == [("a.md#0",)]

    @pytest.mark.parametrize("count", [1, 2, 3, 50])
    def test_case_E13_a_word_of_every_document_is_found_and_scores_above_0(self, tmp_path, count):
        with store_of(tmp_path / "kb.duckdb", {f"{n:02}.md": "duck" for n in range(count)}) as store:
            answer = store.lexical_query("duck", top_k=100)
            assert len(answer) == count
            assert all(row["score"] > 0 for row in answer)

    @pytest.mark.slow
    def test_case_E14_the_text_is_indexed_and_not_the_metadata(self, tmp_path):
        path = build(tmp_path, long__name_md="---\ntags: [quagga]\nnote: okapi\n---\n# Heading\n\nzebra")
        for absent in ("okapi", "name", "long", "markdown"):
            assert found(path, absent) == set()
        assert found(path, "zebra") == found(path, "heading") == {"long/name.md"}
        assert found(path, "quagga") == {"long/name.md"}  # what front matter says of the page counts as its heading

    def test_case_E15_each_question_gets_its_own_rows(self, tmp_path):
        path = build(tmp_path, **{f"p{n}_md": f"word{n}" for n in range(5)})
        with Store(path) as store:
            for _ in range(2):
                for n in range(5):
                    assert ids(store.lexical_query(f"word{n}")) == [f"p{n}.md#0"]

    @pytest.mark.slow
    @pytest.mark.parametrize("alias", ["documents", "d", "s", "t", "p", "score", "q"])
    def test_case_E15_match_bm25_anywhere_in_a_statement(self, tmp_path, alias):
        path = build(tmp_path, a_md="zebra zebra", b_md="lion", c_md="zebra and others")
        match = "fts_main_documents.match_bm25({}, 'zebra')"
        wanted = [(row["node_id"],) for row in lexical_query("zebra", path)]
        assert wanted == [("a.md#0",), ("c.md#0",)]
        for column in ("node_id", f"{alias}.node_id"):
            score = match.format(column)
            for sql in (
                f"SELECT node_id FROM documents AS {alias} WHERE {score} IS NOT NULL ORDER BY {score} DESC",
                f"SELECT node_id FROM documents AS {alias} WHERE {score} > 0 ORDER BY ALL",
                f"FROM (SELECT node_id, {score} n FROM documents {alias}) SELECT node_id WHERE n > 0 ORDER BY n DESC",
                f"SELECT node_id FROM chunks AS {alias} WHERE {score} IS NOT NULL ORDER BY {score} DESC",
                f"SELECT node_id FROM documents AS {alias} GROUP BY node_id HAVING {score} > 0 ORDER BY ALL",
            ):
                assert rows(path, sql) == wanted, sql

    @pytest.mark.slow
    def test_case_E16_no_extension_is_loaded_and_none_is_looked_for(self, tmp_path):
        write(tmp_path / "docs", a_md="# T\n\nzebra E1042", b_md="lion")
        code = (
            "import socket, sys, duckdb\n"
            "def refuse(*_):\n    raise AssertionError('the network is used')\n"
            "socket.socket.connect = refuse\n"
            "connect = duckdb.connect\n"
            "def strict(*args, config=None, **named):\n"
            "    plain = {'autoinstall_known_extensions': 'false', 'autoload_known_extensions': 'false',\n"
            "             'extension_directory': sys.argv[1] + '/none'}\n"
            "    return connect(*args, config={**(config or {}), **plain}, **named)\n"
            "duckdb.connect = strict\n"
            "import sqlrag\n"
            "path = sys.argv[1] + '/kb.duckdb'\n"
            "sqlrag.prepare_embeddings(sys.argv[1] + '/docs', path, embedding_provider='hashing',\n"
            "    embed_model_name='hashing-64', progress='off')\n"
            "with sqlrag.Store(path) as store:\n"
            "    answer = store.hybrid_query('zebra', fusion='convex', metadata={'mime': 'text/markdown'})\n"
            "    assert not answer.notices, answer.notices\n"
            "    loaded = store.cursor().execute(\n"
            "        'SELECT DISTINCT function_name FROM duckdb_functions() WHERE internal').fetchall()\n"
            "    assert ('json_extract',) in loaded\n"
            "    assert ('stem',) not in loaded and ('vss_match',) not in loaded, loaded\n"
            "    assert store.check() == []\n"
            "print(answer[0]['node_id'], answer[0]['lexical_rank'])\n"
        )
        assert python(code, tmp_path, HOME=str(tmp_path)) == "a.md#0 1\n"
        assert not (tmp_path / "none").exists()

    def test_case_E17_whole_documents_are_not_indexed(self, tmp_path):
        text = "one two three\n\n# A\n\nfour five"
        path = build(tmp_path, a_md=text)
        ((words,),) = rows(path, "SELECT sum(len) FROM fts_main_documents.docs")
        assert words == 6  # the chunks' own words, once: five and the A of the heading line
        assert rows(path, "SELECT count(*) FROM fts_main_documents.docs") == rows(
            path, "SELECT count(*) FROM documents"
        )

    @pytest.mark.parametrize(
        ("query", "words"),
        [
            ('Message: {0}, "quote', "message 0 quote"),
            ("#682", "682"),
            ("B=128", "b 128"),
            ("'; drop table chunks; --", "drop table chunks"),
            ("zebra " * 5000, "zebra"),
            ("' ); drop table documents; --", "drop table documents"),
            ("%s %(x)s $1 ? :name {}", "s x 1 name"),
            ("zebra\x00lion", "zebra lion"),
            ("\\ ' \" ` $ ; /* */ -- zebra", "zebra"),
        ],
    )
    def test_case_E18_a_question_is_data(self, tmp_path, query, words):
        texts = {"a.md": "Message 0 quote 682 B=128 zebra", "b.md": "drop table chunks documents lion s x 1 name"}
        with store_of(tmp_path / "kb.duckdb", texts) as store:
            expected = store.lexical_query(words, top_k=10)
            assert expected
            answer = store.lexical_query(query, top_k=10)
            assert [(row["node_id"], row["score"]) for row in answer] == [(r["node_id"], r["score"]) for r in expected]
            assert store.hybrid_query(query, top_k=10)[0]["node_id"]
            assert store.check() == []

    def test_case_E19_phrases_and_prefixes_and_nothing_else(self, tmp_path):
        with store_of(tmp_path / "kb.duckdb", {"a.md": "vector database", "b.md": "database vector"}) as store:
            plain = store.lexical_query("vector database")
            assert plain[0]["score"] == plain[1]["score"]
            assert [row["doc_id"] for row in store.lexical_query('"vector database"')] == ["a.md"]
            assert len(store.lexical_query("vect*")) == 2
            for query in ("+vector -database", "vector AND database", "vector^2 database", '"vector database'):
                answer = store.lexical_query(query)
                assert [row["score"] for row in answer] == [row["score"] for row in plain], query
            for query in ("vectro~", "datab%", "vec?or"):
                assert store.lexical_query(query) == [], query


class TestVector:
    def test_case_F3_another_number_of_dimensions(self, tmp_path):
        with store_of(tmp_path / "kb.duckdb", {"a": "x"}, np.eye(8)[:1], 8) as store:
            with pytest.raises(ModelMismatchError, match="8 dimensions; you passed 16"):
                store.vector_query(query_vector=np.ones(16))
            with pytest.raises(ModelMismatchError, match="8 dimensions; you passed 16"):
                store.upsert([Document("b", "y")], [Chunk("b", 0, "y")], np.ones((1, 16)))
        other = HashingEmbedder("hashing-16")
        with Store(tmp_path / "kb.duckdb", embedder=other) as store, pytest.raises(ModelMismatchError, match="8 dim"):
            store.hybrid_query("x")

    @pytest.mark.parametrize("kind", [list, tuple, np.float64, np.float32, np.float16])
    def test_case_F5_any_kind_of_numbers(self, tmp_path, kind):
        vectors = [[1.0, 0.0, 0.0], [0.6, 0.8, 0.0]]
        given = [kind(v) for v in vectors] if kind in (list, tuple) else np.array(vectors, dtype=kind)
        with store_of(tmp_path / "kb.duckdb", {"a": "x", "b": "y"}, given, 3) as store:
            answer = store.vector_query(query_vector=given[1])
            assert ids(answer) == ["b#0", "a#0"]
            assert [row["score"] for row in answer] == pytest.approx([1.0, 0.6], abs=1e-3)

    def test_case_F6_no_index_that_needs_an_extension(self, tmp_path):
        path = build(tmp_path, a_md="zebra")
        indexes = rows(path, "SELECT sql FROM duckdb_indexes()")
        assert not [sql for (sql,) in indexes if "HNSW" in (sql or "").upper()]
        # A plain connection may change it.
        with duckdb.connect(str(path)) as con:
            con.execute("DELETE FROM documents")

    def test_case_F7_a_filter_does_not_shrink_the_answer(self, tmp_path):
        close, far = MODEL.embed(["zebra", "lion tiger"], kind="document")
        tags = ["a"] * 100 + ["b"] * 5
        documents = [Document(f"d{n:03}", "zebra") for n in range(105)]
        chunks = [Chunk(d.doc_id, 0, "zebra", (tag,), {"tag": tag}) for d, tag in zip(documents, tags, strict=True)]
        with Store.create(tmp_path / "kb.duckdb", 64, embedder=MODEL) as store:
            store.upsert(documents, chunks, np.array([close if tag == "a" else far for tag in tags]))
            wanted = [f"d{n}#0" for n in range(100, 105)]
            for search in (store.hybrid_query, store.vector_query, store.lexical_query):
                assert ids(search("zebra", top_k=5, metadata={"tag": "b"})) == wanted
                assert ids(search("zebra", top_k=5, tags_all=["b"])) == wanted


class TestFusion:
    @pytest.mark.parametrize("fusion", ["adaptive", "rrf", "weighted", "convex"])
    def test_case_G1_an_empty_leg_changes_no_shape(self, tmp_path, fusion):
        with store_of(tmp_path / "kb.duckdb", {"a": "alpha"}) as store:
            full = store.hybrid_query("alpha", fusion=fusion)
            one = store.hybrid_query("zzzz", fusion=fusion)
            assert [tuple(row) for row in one] == [tuple(row) for row in full]
            assert one[0]["score_type"] == full[0]["score_type"] == fusion
            assert one[0]["lexical_score"] in ({0.0} if fusion in ("adaptive", "convex") else {None})
            other = store.hybrid_query("alpha beta", fusion=fusion, min_similarity=0.9)
            assert [tuple(row) for row in other] == [tuple(row) for row in full]
            assert (other[0]["score_type"], other[0]["vector_rank"], other[0]["lexical_rank"]) == (fusion, None, 1)
            assert store.hybrid_query("zzzz", fusion=fusion, min_similarity=0.9) == []
            assert store.hybrid_query("alpha", fusion=fusion, metadata={"nothing": "here"}) == []
            assert store.hybrid_query("alpha", fusion=fusion, collection="none") == []

    def test_case_G2_the_formula(self):
        fused = reciprocal_rank_fusion([["X", "a", "Y"], ["b", "c", "Y"]], k=60)
        # 2 / 63, 1 / 61, 1 / 62: by hand
        assert fused == [
            ("Y", 0.031746032), ("X", 0.016393443), ("b", 0.016393443), ("a", 0.016129032), ("c", 0.016129032)
        ]  # fmt: skip

    @pytest.mark.parametrize("fusion", ["adaptive", "rrf", "weighted", "convex"])
    def test_case_G4_first_in_both_legs_is_first(self, tmp_path, fusion):
        texts = {f"d{n}": f"zebra {'filler ' * n}word{n}" for n in range(6)} | {"best": "zebra zebra"}
        with store_of(tmp_path / "kb.duckdb", texts) as store:
            best = store.hybrid_query("zebra", fusion=fusion)[0]
            assert (best["node_id"], best["vector_rank"], best["lexical_rank"]) == ("best#0", 1, 1)

    @pytest.mark.slow
    def test_case_G6_ties_are_in_the_order_of_the_ids(self, tmp_path):
        names = ["e", "b", "d", "a", "c"]  # not the order in which they are written
        path = tmp_path / "kb.duckdb"
        with store_of(path, dict.fromkeys(names, "the same line")):
            pass
        wanted = ["a#0", "b#0", "c#0"]
        for threads in (1, 4):
            with Store(path, threads=threads) as store:
                for _ in range(20):
                    for fusion in ("adaptive", "rrf", "weighted", "convex"):
                        assert ids(store.hybrid_query("same line", top_k=3, fusion=fusion)) == wanted
                    assert ids(store.vector_query("same line", top_k=3)) == wanted
                    assert ids(store.lexical_query("same line", top_k=3)) == wanted
                    # Also where a leg's own pool cuts through the ties.
                    cut = store.hybrid_query("same line", top_k=3, vector_top_k=3, lexical_top_k=3)
                    assert ids(cut) == wanted

    def test_case_G8_scaled_scores(self, tmp_path):
        # A: cosine .95 and a word; B: cosine .10 and none
        vectors = [[0.95, (1 - 0.95**2) ** 0.5, 0.0], [0.10, 0.0, (1 - 0.10**2) ** 0.5]]
        with store_of(tmp_path / "kb.duckdb", {"A": "zebra", "B": "lion"}, vectors, 3) as store:
            answer = store.hybrid_query("zebra", query_vector=[1, 0, 0], fusion="weighted", vector_weight=0.5)
            assert [(row["node_id"], row["score"]) for row in answer] == [("A#0", 1.0), ("B#0", 0.0)]
            assert [row["vector_score"] for row in answer] == pytest.approx([0.95, 0.10], abs=1e-6)
        with store_of(tmp_path / "equal.duckdb", {"A": "zebra", "B": "zebra"}, [[1.0, 0, 0]] * 2, 3) as store:
            answer = store.hybrid_query("zebra", query_vector=[1, 0, 0], fusion="weighted")
            assert [row["score"] for row in answer] == [1.0, 1.0]

    def test_case_G9_raw_scores_tell_that_nothing_is_relevant(self, tmp_path):
        texts = {"a": "zebra zebra", "b": "lion tiger"}
        with store_of(tmp_path / "kb.duckdb", texts) as store:
            hopeless = store.hybrid_query("qqqq xxxx")[0]
            good = store.hybrid_query("zebra")[0]
            assert hopeless["score"] == pytest.approx(0.75, abs=1e-9)  # as high as the best vector ever is
            assert (hopeless["lexical_score"], hopeless["lexical_rank"]) == (0, None)
            assert hopeless["vector_score"] < 0.5 < good["vector_score"]
            assert store.hybrid_query("qqqq xxxx", min_similarity=0.5) == []
            assert ids(store.hybrid_query("zebra", min_similarity=0.5)) == ["a#0"]


@pytest.mark.slow
def test_case_L1_names_and_filters_are_data(tmp_path, caplog):
    root = write(tmp_path / "docs", **{"it's_md": "zebra", "x; drop table documents_md": "zebra"})
    with caplog.at_level(logging.WARNING):
        path = prepare_embeddings(root, tmp_path / "it's kb.duckdb", **HASHING).path
    assert not caplog.records
    assert ids(lexical_query("zebra", path)) == ["it's.md#0", "x; drop table documents.md#0"]
    assert hybrid_query("zebra", path, metadata={"a' OR '1'='1": "a' OR '1'='1"}) == []
    assert hybrid_query("zebra", path, collection="x' OR 1=1 --") == []
    assert hybrid_query("zebra", path, tags_any=["x') OR (1=1"]) == []
    with Store(path) as store:
        assert store.check() == []


@pytest.mark.slow
def test_case_E18_a_very_long_question_takes_no_minute(tmp_path):
    path = build(tmp_path, a_md="zebra")
    began = time.perf_counter()
    assert ids(hybrid_query(" ".join(f"word{n}" for n in range(5000)) + " zebra", path)) == ["a.md#0"]
    assert time.perf_counter() - began < 30
    with pytest.raises(InputError):
        hybrid_query("zebra", path, top_k=0)


class TestDAndK:
    """Cases that are about the whole and not about one function."""

    @pytest.mark.slow
    def test_case_D9_the_index_needs_no_extension_of_any_version(self, tmp_path):
        """The index is tables of ours: another DuckDB reads it as it is (tests/matrix does), and nothing is loaded."""
        path = build(tmp_path, a_md="alpha", b_md="beta")
        with Store(path) as store:
            assert ids(store.lexical_query("alpha")) == ["a.md#0"]
            # What fts and vss bring; the list of extensions would read a folder, which an opened file may not.
            brought = "SELECT function_name FROM duckdb_functions() WHERE function_name IN ('stem', 'vss_match')"
            assert store.cursor().execute(brought).fetchall() == []
        with Store(path, read_only=False) as store:
            store.cursor().execute("UPDATE embedding_metadata SET value = '1.3.2' WHERE key = 'duckdb_version'")
        assert ids(lexical_query("beta", path)) == ["b.md#0"]
        assert check(path) == []

    def test_case_D10_the_published_columns_can_be_read(self, tmp_path):
        """The layout that llama-index's own store reads, in its order, without that package."""
        path = build(tmp_path, a_md="alpha")
        with duckdb.connect(str(path), read_only=True) as con:
            columns = [row[0] for row in con.execute("DESCRIBE documents").fetchall()]
            assert columns[:5] == ["node_id", "text", "embedding", "metadata_", "doc_id"]
            (metadata,) = con.execute("SELECT metadata_ FROM documents").fetchone()
        assert {"_node_content", "_node_type"} <= json.loads(metadata).keys()

    @pytest.mark.slow
    def test_case_K3_nothing_is_printed_and_the_report_reads_well(self, tmp_path, capfd):
        root = write(tmp_path / "docs", a_md="alpha", empty_md="", broken_pdf="no PDF")
        prepared = prepare_embeddings(root, tmp_path / "kb.duckdb", verbose=False, **{**HASHING, "progress": "auto"})
        write(root, b_md="beta")
        report = update_embeddings(root, prepared.path, verbose=False)
        hybrid_query("alpha", prepared.path, verbose=True)
        compact(prepared.path)
        assert capfd.readouterr() == ("", "")
        assert repr(prepared) == f"SqlragIndex({str(prepared.path)!r}: 1 document, 1 chunk, 1 failed)"
        assert repr(report) == (
            "UpdateReport(1 added, 0 changed, 0 renamed, 1 unchanged, 0 removed, 0 missing, 1 failed)"
        )
