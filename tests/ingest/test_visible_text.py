"""What is embedded, indexed and shown of a Markdown page is what its reader sees; its text stays as it is written."""

import duckdb
import numpy as np
import pytest
from typer.testing import CliRunner

from sqlrag import (
    Store,
    build_prompt,
    check,
    convert,
    highlight,
    lexical_query,
    load_embedder,
    reembed,
    repair,
    update_embeddings,
    upgrade,
)
from sqlrag.cli import app
from sqlrag.embedders import HashingEmbedder
from sqlrag.engines.duckdb.metadata import VECTORS_WITH_MARKUP
from sqlrag.ranking.snippets import body_of
from sqlrag.types import Chunk, Document
from tests.support.helpers import MINILM, Recorder, build, real_model, write

PAGE = '# P\n\n<div class="highlight"><span class="nv">alpha</span> <span class="kt" title="beta">beta</span></div>\n'

TABLE = "## Prices\n\n| name | price |\n|---|---|\n" + "".join(f"| row{i} | {i} |\n" for i in range(300))


END = "# B\n\nwords\n\n[x]: http://a.example\n\n<!-- end -->\n"

UNSEEN = "---\ntitle: T\n---\n<script>x</script>\n"


def rows(path, statement):
    with duckdb.connect(str(path), read_only=True) as con:
        return con.execute(statement).fetchall()


@pytest.mark.slow
def test_fault_T1_markup_is_no_word_in_any_leg_view_or_snippet(tmp_path):
    path = build(tmp_path, a_md=PAGE, b_md="# P\n\nalpha beta beta\n")
    assert {term for (term,) in rows(path, "SELECT term FROM vocabulary")} == {"alpha", "beta", "p"}
    for word in ("nv", "class", "div", "highlight", "span"):
        assert not lexical_query(word, path)
    found = next(row for row in lexical_query("alpha", path) if row["doc_id"] == "a.md")
    assert found["text"] == PAGE.strip()
    assert "span" not in repr(lexical_query("alpha", path))
    assert "Section: P\n\nP\n\n alpha  beta beta\n```" in build_prompt("alpha?", [found]).user
    assert build_prompt("alpha?", [found]).sources[0]["quote"] == PAGE.strip()
    [(text,)] = rows(path, "SELECT visible FROM chunks WHERE doc_id = 'a.md'")
    assert text.split() == ["P", "alpha", "beta", "beta"]
    assert check(path) == []


def test_fault_T1_a_mark_is_on_the_word_and_never_on_an_attribute(tmp_path):
    path = build(tmp_path, a_md='# P\n\n<span class="kt">a</span> <i class="alpha">alpha</i> caf&eacute;s\n')
    [row] = lexical_query("alpha cafés", path)
    spans = highlight("alpha cafés", [row["shown"]], path)[0]
    assert [row["text"][start:end] for start, end in spans] == ["alpha", "caf&eacute;s"]
    assert row["text"][spans[0][1] :].startswith("</i>")


def test_fault_T1_what_is_embedded_is_the_visible_text(tmp_path):
    path = build(tmp_path, a_md=PAGE)
    vector = rows(path, "SELECT embedding FROM documents")[0][0]
    text = "P\n\n" + rows(path, "SELECT visible FROM chunks")[0][0]
    expected = HashingEmbedder("hashing-64").embed([text], kind="document")[0]
    assert vector == pytest.approx(expected / sum(expected**2) ** 0.5, abs=1e-6)
    assert "class" not in text


WIDE = "A    lot \t of\n\n\n\n   space\u00a0\u3000here  \n    and <b>there</b>   "


@pytest.mark.slow
def test_fault_T19_blank_space_is_one_in_what_is_embedded_alone(tmp_path):
    model = Recorder()
    options = {"embedder": model, "embed_model_name": None, "embedding_provider": "auto", "chunk_unit": "chars"}
    path = build(tmp_path, a_md=f"# A   title\n\n{WIDE}", b_txt=WIDE, options=options)
    narrow = "A lot of\n\nspace here\nand there"
    assert model.texts[-2:] == [f"b\n\n{narrow.replace('there', '<b>there</b>')}", f"A title\n\nA title\n\n{narrow}"]
    assert rows(path, "SELECT text FROM documents ORDER BY doc_id") == [
        (f"# A   title\n\n{WIDE.strip()}",),
        (WIDE.strip(),),
    ]

    (tmp_path / "docs" / "a.md").rename(tmp_path / "docs" / "c.md")  # its vector is found by the text as it is stored
    model.texts.clear()
    report = update_embeddings(tmp_path / "docs", path, embedder=model, prune=True, progress="off")
    assert (report.embedded, report.reused, [text for text in model.texts if "lot" in text]) == (0, 1, [])

    with Store(path, embedder=model, read_only=False) as store:
        store.index([Chunk("d", 0, WIDE)])
    assert model.texts[-1] == narrow.replace("there", "<b>there</b>")
    model.texts.clear()
    reembed(path, embedder=model, progress="off")
    assert sum("lot of\n\nspace here\nand" in text for text in model.texts) == 3


@pytest.mark.parametrize(
    "text", [WIDE, "def f(x):\n    return  x\n\n\n\n# y\u2028z", "| a    |  b |\n|------|----|\n| 1    |  2 |"]
)
@pytest.mark.parametrize("provider", ["hashing", pytest.param("onnx", marks=real_model)])
def test_fault_T19_vectors_of_files_of_before_are_the_same(provider, text):
    """These models see words and no blank space, so that no file of before has to be told of."""
    model = load_embedder("hashing-64" if provider == "hashing" else MINILM, provider=provider)
    before, after = model.embed([text, Chunk("", 0, text).embedding_text()], kind="document")
    assert np.array_equal(before, after)


@pytest.mark.slow
def test_a_page_of_markup_alone_is_empty_and_the_end_of_another_makes_no_chunk(tmp_path):
    path = build(tmp_path, a_md="<!-- nothing -->\n", b_md=END, options={"chunk_size": 16, "chunk_unit": "chars"})
    assert rows(path, "SELECT doc_id, status FROM ingest_failures") == [("a.md", "empty")]
    assert rows(path, "SELECT shown_end FROM source_documents") == [(10,)]
    assert check(path) == []
    assert update_embeddings(tmp_path / "docs", path, progress="off").unchanged == ["b.md"]


def test_fault_T22_anchors_are_cut_from_headings(tmp_path):
    anchors = {"a_md": "{/*x*/}", "b_md": "{#x}", "c_md": "{: #x .y}", "d_md": "[#x]"}
    path = build(tmp_path, **{name: f"## Title {anchor}\n\ntext\n" for name, anchor in anchors.items()})
    assert rows(path, "SELECT DISTINCT heading_path[2:] FROM documents") == [(["Title"],)]
    assert [row["text"][:10] for row in lexical_query("title", path)] == ["## Title {"] * 2 + [
        "## Title {",
        "## Title [",
    ]
    assert not lexical_query("x", path)


@pytest.mark.slow
def test_fault_T22_every_piece_of_a_table_has_its_header_row(tmp_path):
    path = build(tmp_path, a_md=TABLE)
    pieces = rows(path, "SELECT text, visible(text, shown) FROM documents ORDER BY chunk_index")
    assert len(pieces) > 2
    assert all(text == text.strip() and "price" in visible for text, visible in pieces)
    assert sum("price" in text for text, _ in pieces) == 1
    [first, *_] = lexical_query('"row277" price', path)
    assert "| row277 |" in first["text"]
    assert "price" not in first["text"]
    # In a prompt and in a list of results it stands above the rows.
    for seen in (build_prompt("row", [first]).user, body_of(first)):
        assert 0 <= seen.index("price") < seen.index("row277")
    long = "| a | b |\n|---|---|\n" + "".join(f"| {'x y. ' * 30} | row{i} |\n" for i in range(8))
    path = build(tmp_path / "long", a_md=long, options={"chunk_size": 260, "chunk_unit": "chars"})
    assert all(text.startswith("|") and text.endswith("|") for (text,) in rows(path, "SELECT text FROM documents"))


@pytest.mark.slow
def test_fault_T22_wikilinks_are_links_that_are_found_as_in_obsidian(tmp_path):
    links = "[[Note]] [[x/note#Part|label]] [[missing]] ![[Other.md]] ![[picture.png]] [[#Here]] [a](z/note.md)\n"
    path = build(tmp_path, a_md=links, x__note_md="# N\n[[note]]\n", y__z__Note_md="# M\n", Other_md="# O\n[[a]]\n")
    found = rows(path, "SELECT label, target, fragment, broken FROM links WHERE source = 'a.md' ORDER BY link_index")
    assert found == [
        ("Note", "x/note.md", None, False),
        ("label", "x/note.md", "Part", False),
        ("missing", "missing.md", None, True),
        ("Other", "Other.md", None, False),
        ("Here", "a.md", "Here", False),
        ("a", "z/note.md", None, True),
    ]
    assert rows(path, "SELECT target FROM links WHERE source = 'x/note.md'") == [("x/note.md",)]
    write(tmp_path / "docs", Note_md="# New\n", missing_md="# Now\n")
    update_embeddings(tmp_path / "docs", path, progress="off")
    again = rows(path, "SELECT target, broken FROM links WHERE source = 'a.md' AND link_index IN (0, 2)")
    assert again == [("Note.md", False), ("missing.md", False)]
    assert check(path) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault",
    [
        "UPDATE documents SET shown = NULL",
        "UPDATE documents SET shown = repeat('x', length(text)) WHERE doc_id = 'a.md'",
        "UPDATE source_documents SET shown_end = NULL",
    ],
)
def test_what_is_shown_is_repaired(tmp_path, fault):
    path = build(tmp_path, a_md=PAGE, b_md=UNSEEN, c_md=TABLE)
    columns = (
        "SELECT rid, shown FROM documents ORDER BY rid",
        "SELECT doc_id, shown_end FROM source_documents ORDER BY 1",
    )
    before = [rows(path, statement) for statement in columns]
    with duckdb.connect(str(path)) as con:
        con.execute(fault)
    assert check(path)
    done = repair(path)
    assert done.done[0] == "What a reader sees of the chunks was computed again from the texts."
    assert (done.left, check(path)) == ((), [])
    assert [rows(path, statement) for statement in columns] == before
    assert len(lexical_query("alpha", path)) == 1


@pytest.mark.slow
def test_a_damaged_index_leaves_what_is_shown(tmp_path):
    path = build(tmp_path, a_md=PAGE)
    with duckdb.connect(str(path)) as con:
        con.execute("DELETE FROM fts_main_documents.postings")
    assert repair(path).done == ("The lexical index was rebuilt from the chunks.",)


@pytest.mark.slow
@pytest.mark.parametrize(("page", "told"), [(PAGE, True), ("plain words\n", False)])
def test_an_upgrade_tells_of_vectors_that_were_made_of_markup(tmp_path, page, told):
    path = build(tmp_path, a_md=page)
    with duckdb.connect(str(path)) as con:
        con.execute("UPDATE documents SET shown = NULL")
        con.execute("UPDATE embedding_metadata SET value = '4' WHERE key = 'schema_version'")
    notices = (VECTORS_WITH_MARKUP,) if told else ()
    done = upgrade(path)
    assert (done.notices, done.steps[0]) == (notices, "0005_visible_text")
    assert (VECTORS_WITH_MARKUP in str(done)) is told
    run = CliRunner()
    assert (VECTORS_WITH_MARKUP in run.invoke(app, ["info", str(path)]).output) is told
    reembed(path, embedder=HashingEmbedder("hashing-32"), progress="off")
    assert VECTORS_WITH_MARKUP not in run.invoke(app, ["info", str(path)]).output
    assert check(path) == []


def test_markup_between_chunks_is_not_missed(tmp_path):
    text = "import a from 'b'\n\n# A\n\nwords\n\n<!-- c -->\n\n## D\n\nmore\n\n[e]: f\n"
    path = build(tmp_path, a_md=text, b_md=UNSEEN, c_md=PAGE)
    found = rows(path, "SELECT doc_id, characters, covered, coverage FROM document_coverage ORDER BY doc_id")
    assert [row[3] for row in found] == [1, None, 1]
    assert found[0][1] == found[0][2] < len("".join(text.split()))
    with duckdb.connect(str(path)) as con:
        con.execute("DELETE FROM documents WHERE doc_id = 'a.md' AND chunk_index = 0")
    assert rows(path, "SELECT coverage < 0.5 FROM document_coverage WHERE doc_id = 'a.md'") == [(True,)]


def test_pages_that_name_pages_of_their_own_names_elsewhere_do_not_link_themselves(tmp_path):
    pages = {f"{name}_md": f"See [f]({{% link docs/sql/functions/{name}.md %}})." for name in ("date", "text", "enum")}
    kb = build(tmp_path, **pages)
    with duckdb.connect(str(kb), read_only=True) as con:
        found = con.execute("SELECT source, target, broken FROM links ORDER BY source").fetchall()
    assert found == [(f"{name}.md", f"docs/sql/functions/{name}.md", True) for name in ("date", "enum", "text")]


def test_fault_T22_links_of_sites_are_found(tmp_path):
    links = "[1](/guide/b) [2](c.html#x) [3](../guide/) [4](/docs/d/) [5](C) [6](/none) [7](e.html) [8](b.md)"
    path = build(
        tmp_path,
        src__guide__a_md=links + " [9](/)",
        src__guide__b_md="# B\n",
        src__guide__c_mdx="# C\n",
        src__guide__index_md="# I\n[a](/src/guide/a)\n",
        src__docs__d_md="# D\n",
        src__guide__e_html="<h1>E</h1>",
    )
    found = rows(path, "SELECT target, broken FROM links WHERE source = 'src/guide/a.md' ORDER BY link_index")
    assert found == [
        ("src/guide/b.md", False),
        ("src/guide/c.mdx", False),
        ("src/guide/index.md", False),
        ("src/docs/d.md", False),
        ("src/guide/c.mdx", False),
        ("none", True),
        ("src/guide/e.html", False),
        ("src/guide/b.md", False),
        (".", True),
    ]


def test_links_that_liquid_makes_are_found(tmp_path):
    links = [
        "[1]({% link docs/sql/b.md %}#x)", "[2]({{ '/docs/c/' | relative_url }} \"T\")",
        "[3]({{ site.baseurl }}/docs/sql/b)",
        "[4][d]", "[5]({% post_url 2020_01_01_p %})", "[6]({{ site.repository }}/x)", "[7]({% link blog/b.md %})",
        "[8]({{ 'https://a.b/c' | escape }})",
    ]  # fmt: skip
    path = build(
        tmp_path,
        sql__a_md=" ".join(links) + "\n`[0]({% link c.md %})`\n\n[d]: {% link docs/sql/b.md %}\n",
        sql__b_md="# B\n",
        c_md="# C\n",
        _posts__2020_01_01_p_md="# P\n",
    )
    found = rows(
        path, "SELECT label, target, fragment FROM links WHERE NOT external AND NOT broken ORDER BY link_index"
    )
    assert found == [
        ("1", "sql/b.md", "x"), ("2", "c.md", None), ("3", "sql/b.md", None), ("4", "sql/b.md", None),
        ("5", "_posts/2020_01_01_p.md", None),
    ]  # fmt: skip
    assert rows(path, "SELECT label, url, external FROM links WHERE external OR broken ORDER BY link_index") == [
        ("6", "{{ site.repository }}/x", True), ("7", "{% link blog/b.md %}", False),
        ("8", "{{ 'https://a.b/c' | escape }}", True),
    ]  # fmt: skip


def test_links_to_what_the_front_matter_calls_a_page_are_found(tmp_path):
    path = build(
        tmp_path,
        guide__a_md="[1](/docs/start) [2](/docs/guide/b) [3](slow) [4](../b/) [5](/far/) [6](../no/) [7](/docs/no)\n",
        guide__b_md="# B\n",
        start_md="# S\n",
        guide__c_md="---\nslug: slow\n---\nC\n",
        d_html="---\npermalink: /far/\n---\nD\n",
        e_md="---\npermalink: /far/\n---\nD\n",
    )
    found = rows(path, "SELECT label, target, broken FROM links ORDER BY link_index")
    assert found == [
        ("1", "start.md", False), ("2", "guide/b.md", False), ("3", "guide/c.md", False), ("4", "guide/b.md", False),
        ("5", "e.md", False), ("6", "no", True), ("7", "docs/no", True),
    ]  # fmt: skip


def test_fault_T22_a_wikilink_in_a_table_has_no_backslash(tmp_path):
    path = build(tmp_path, a_md="| x |\n|---|\n| [[b\\|c]] |\n", b_md="# B\n")
    assert rows(path, "SELECT label, target, broken FROM links") == [("c", "b.md", False)]


@pytest.mark.slow
def test_given_chunks_and_imports_have_the_same_rows(tmp_path):
    path = build(tmp_path, a_md=PAGE, b_md=TABLE)
    wanted = rows(path, "SELECT node_id, text, shown, i_start FROM documents ORDER BY node_id")
    words = rows(path, "SELECT term, df FROM vocabulary ORDER BY term")
    for suffix in ("ragmd", "parquet", "rag"):
        other, back = tmp_path / f"x.{suffix}", tmp_path / f"{suffix}.duckdb"
        convert(path, other)
        convert(other, back)
        assert rows(back, "SELECT node_id, text, shown, i_start FROM documents ORDER BY node_id") == wanted
        assert rows(back, "SELECT term, df FROM vocabulary ORDER BY term") == words
        assert check(back) == []
    with Store.create(tmp_path / "own.duckdb", 2) as store:
        document = Document("n.md", "x " + PAGE, mime="text/markdown")
        own = [Chunk("n.md", 0, PAGE.strip(), i_start=2, i_end=2 + len(PAGE.strip())), Chunk("n.md", 1, "<b>free</b>")]
        store.upsert([document], own, [[1, 0], [0, 1]])
    assert rows(tmp_path / "own.duckdb", "SELECT visible(text, shown) FROM documents ORDER BY rid")[1] == ("free",)
    assert not lexical_query("nv", tmp_path / "own.duckdb")
