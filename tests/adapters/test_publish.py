"""A published site in a browser, from a server of plain files: it answers as Python does, offline as well."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import threading
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

import duckdb
import numpy as np
import pytest

import sqlrag
from sqlrag.adapters import publish as publishing
from sqlrag.adapters.publish import publish
from sqlrag.embedders import load_embedder, weights
from sqlrag.errors import InputError, NotFoundError, StoreError, StoreExistsError
from tests.adapters.test_search_page import CHROMIUM, PAGES, Visit, browser, sync  # noqa: F401 - a fixture
from tests.support.handbook import HANDBOOK, blocks
from tests.support.helpers import MINILM, ROOT, build
from tests.support.loopback import served
from tests.support.metadata_filters import VALUES
from tests.support.static_files import Files

QUESTION = "How do I filter by tag?"
LIBRARIES = (publishing._DUCKDB, publishing._ARROW, *publishing._OF_THE_MODEL)


def libraries():
    """Return the folder that npm has installed the libraries into, None if it has not."""
    for folder in filter(None, (os.environ.get("SQLRAG_TEST_ASSETS"), ROOT)):
        try:
            for package in LIBRARIES:
                publishing._find(package, folder)
        except NotFoundError:
            continue
        return folder
    return None


def holding(site, *texts):
    """Return what holds one of these texts, in whatever case: files of a site, and the tables of its database."""
    held = {str(file): file.read_bytes() for file in site.rglob("*") if file.is_file()}
    with duckdb.connect(str(site / "kb.duckdb"), read_only=True) as con:  # whose texts are compressed in the file
        tables = con.execute("SELECT schema_name, table_name FROM duckdb_tables() WHERE NOT internal").fetchall()
        for table in tables:
            held[".".join(table)] = repr(con.execute("FROM {}.{}".format(*table)).fetchall()).encode()
    pattern = re.compile("|".join(map(re.escape, texts)).encode(), re.IGNORECASE)
    return sorted(name for name, content in held.items() if pattern.search(content))


in_browser = [
    pytest.mark.slow,
    pytest.mark.model,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium (the package chromium of Debian)"),
    pytest.mark.skipif(not weights.bundle_is_installed(), reason="needs the [offline] extra"),
    pytest.mark.skipif(libraries() is None, reason=f"needs the libraries of npm: {publishing.INSTALL}"),
]


@pytest.fixture(scope="module")
def ducks(tmp_path_factory):
    return build(tmp_path_factory.mktemp("ducks"), a_md="# Ducks\n\nA pond.")


@pytest.fixture
def path(ducks, tmp_path):
    """Return a file of the hashing embedder."""
    return Path(shutil.copy(ducks, tmp_path / "kb.duckdb"))


class TestRefused:
    def test_libraries_that_are_not_installed(self, path, tmp_path):
        with pytest.raises(NotFoundError, match="npm install @duckdb/duckdb-wasm@"):
            publish(path, tmp_path / "site", parts="words", assets=tmp_path)
        assert not (tmp_path / "site").exists()

    def test_a_folder_of_something_else(self, path, tmp_path):
        with pytest.raises(StoreExistsError, match="no published site"):
            publish(path, tmp_path, overwrite=True, assets=tmp_path)

    @pytest.mark.parametrize("facts", ['{"my": "jekyll"}', "[]", "no JSON", "[" * 100_000])
    def test_a_folder_with_a_file_of_that_name(self, path, tmp_path, facts):
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / "site.json").write_text(facts)
        with pytest.raises(StoreExistsError, match="no published site"):
            publish(path, tmp_path / "mine", overwrite=True, assets=tmp_path)

    def test_a_site_that_would_take_the_place_of_its_source(self, path, tmp_path):
        site = tmp_path / "site"
        site.mkdir()
        (site / "site.json").write_text('{"format": 1, "database": {}}')
        inside = path.rename(site / path.name)
        with pytest.raises(InputError, match="is inside of"):
            publish(inside, site, overwrite=True, assets=tmp_path)
        assert inside.exists()

    def test_what_others_put_into_a_site_stays(self, tmp_path):
        for folder, text in (("old", "1"), ("work/new", "2")):
            (tmp_path / folder / "assets").mkdir(parents=True)
            (tmp_path / folder / "index.html").write_text(text)
            (tmp_path / folder / "assets" / text).touch()
        (tmp_path / "old" / "CNAME").write_text("docs.example.org")
        (tmp_path / "old" / ".git").mkdir()
        publishing._put(tmp_path / "work" / "new", tmp_path / "old")
        left = sorted(file.relative_to(tmp_path / "old").as_posix() for file in (tmp_path / "old").rglob("*"))
        assert left == [".git", "CNAME", "assets", "assets/2", "index.html"]
        assert (tmp_path / "old" / "index.html").read_text() == "2"

    def test_a_folder_below_a_file(self, path, tmp_path):
        with pytest.raises(StoreError, match="could not be made"):
            publish(path, path / "site", parts="words", assets=libraries() or pytest.skip("needs the libraries of npm"))

    def test_a_file_that_is_too_large(self, path, tmp_path, monkeypatch):
        monkeypatch.setattr(publishing, "MOST_BYTES", 10)
        with pytest.raises(InputError, match=r"1 chunk, texts 0\.0 MB.*--collection.*--with words.*sqlrag serve"):
            publish(path, tmp_path / "site", parts="words", assets=tmp_path)

    def test_a_collection_without_chunks(self, path, tmp_path):
        with pytest.raises(InputError, match="no chunk in"):
            publish(path, tmp_path / "site", collection="none", assets=tmp_path)

    def test_vectors_alone_of_a_model_without_browser_form(self, path, tmp_path):
        with pytest.raises(InputError, match="no form that a browser can load"):
            publish(path, tmp_path / "site", parts="vectors", assets=tmp_path)


class TestColumns:
    @pytest.fixture
    def tickets(self, tmp_path):
        lines = ["id,body,mail,author", "1,The valve leaks.,ann.secret@example.com,Zimmermann", "2,A pump hums.,,"]
        (tmp_path / "tickets.csv").write_text("\n".join(lines))
        path = build(tmp_path, a_md="---\nmail: of.a.page@example.com\n---\n# Ducks\n\nA pond.")
        sqlrag.index_rows(tmp_path / "tickets.csv", path, key="id", text="body", progress="off")
        return path

    @pytest.mark.slow
    def test_those_that_are_public_are_named(self, tickets, tmp_path):
        done = publish(tickets, tmp_path / "site", parts="words", cdn=True)
        assert done.notices == ["Columns of tables that are published: author, id, mail; see leave_out."]
        assert b"ann.secret" in (tmp_path / "site" / "metadata.json").read_bytes()
        assert publish(tickets, tmp_path / "pages", parts="words", cdn=True, collection="default").notices == []

    @pytest.mark.slow
    def test_those_that_are_left_out_are_nowhere(self, tickets, tmp_path):
        done = publish(tickets, tmp_path / "site", parts="words", cdn=True, leave_out=["Mail", "author"])
        assert done.notices == ["Columns of tables that are published: id; see leave_out."]
        assert holding(tmp_path / "site", "ann.secret", "Zimmermann") == []
        found = tmp_path / "site" / "kb.duckdb"
        assert [row["node_id"] for row in sqlrag.lexical_query("valve", found)] == ["tickets/1#0"]
        assert [row["node_id"] for row in sqlrag.lexical_query("pond", found)] == ["a.md#0"]
        assert sqlrag.lexical_query("pond", found)[0]["metadata"]["mail"] == "of.a.page@example.com"
        with sqlrag.Store(found) as store:
            assert store.check() == []

    @pytest.mark.slow
    def test_one_that_is_not_there(self, tickets, tmp_path):
        with pytest.raises(InputError, match=r"There is no column 'male' \(leave_out\); did you mean 'mail'"):
            publish(tickets, tmp_path / "site", parts="words", cdn=True, leave_out=["male"])
        with pytest.raises(InputError, match=r"leave_out must be a list of strings"):
            publish(tickets, tmp_path / "site", parts="words", cdn=True, leave_out="mail")
        for name in ("", "title"):
            with pytest.raises(InputError, match=rf"There is no column '{name}' \(leave_out\)"):
                publish(tickets, tmp_path / "site", parts="words", cdn=True, leave_out=[name])

    # Columns of the table, what they are used for, and in what their values are then.
    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("options", "parts"),
        [
            ({}, {"Id": "ids", "body": "texts"}),
            ({"title": "NAME", "tags": "LABELS"}, {"name": "titles", "labels": "tags", "title": "titles"}),
            ({"title": "Name", "metadata": [], "tags": "name"}, {"name": "titles and tags"}),
            ({"text": "{BODY} of {Name}", "metadata": ["body", "name"]}, {"body": "texts", "name": "texts"}),
            ({"text": ["Body", "NAME"], "title": "name"}, {"body": "texts", "name": "texts and titles"}),
            ({"text": "{{mail}} {body}", "markdown": True}, {"body": "texts"}),
            ({"table": "id,body,title\n1,A pump,Zed\n"}, {"title": "titles"}),
            ({"table": "id,body,Straße\n1,A pump,Zed\n", "tags": "straße"}, {"Straße": "tags"}),
        ],
    )
    def test_those_that_are_in_other_parts_of_rows_are_refused(self, path, tmp_path, options, parts):
        named = {"text": "body", "table": "Id,body,name,labels,mail\n1,A pump,Zed,blue,me@example.com\n", **options}
        (tmp_path / "others.csv").write_text(named.pop("table"), "utf-8")
        sqlrag.index_rows(tmp_path / "others.csv", path, key="ID", progress="off", **named)
        for place, (name, part) in enumerate(parts.items()):
            spelled = name if place else name.upper()
            with pytest.raises(InputError, match=f"^'{spelled}' cannot be left out.* in the {part} of the rows of"):
                publish(path, tmp_path / "site", parts="words", cdn=True, leave_out=[spelled])
        assert not (tmp_path / "site").exists()
        if any("mail" in row["metadata"] for row in sqlrag.lexical_query("pump", path)):
            publish(path, tmp_path / "site", parts="words", cdn=True, leave_out=["mail"])
            assert holding(tmp_path / "site", "me@example.com") == []

    @pytest.mark.rest
    def test_the_collections_that_are_published_count(self, tickets, tmp_path):
        (tmp_path / "others.csv").write_text("id,MAIL,Author\n1,A pump hums,me@example.com\n")
        sqlrag.index_rows(tmp_path / "others.csv", tickets, key="id", text="mail", progress="off")
        with pytest.raises(InputError, match=r"'mail' cannot be left out.*the texts of the rows of others"):
            publish(tickets, tmp_path / "site", parts="words", cdn=True, leave_out=["mail"])
        publish(tickets, tmp_path / "one", parts="words", cdn=True, leave_out=["mail"], collection="tickets")
        assert holding(tmp_path / "one", "ann.secret") == []
        publish(tickets, tmp_path / "both", parts="words", cdn=True, leave_out=["author"])  # author and Author
        assert holding(tmp_path / "both", "Zimmermann", "me@example.com") == []

    # What a document may take from its metadata, and values that are more than a text.
    @pytest.mark.rest
    def test_names_and_values_of_all_kinds(self, tmp_path):
        names = ["description", "keywords", "author", "aliases", "tags", "date", "url", "file", "a~b/c", "title_"]
        nested = "['in Quuxlist'] AS listed, {'Quuxkey': 'Quuxvalue'} AS parts"
        columns = ", ".join(f"'Quux{place}' AS \"{name}\"" for place, name in enumerate(names))
        query = f"SELECT 1 AS id, '# A pump' AS body, {columns}, {nested}"
        path = build(tmp_path, a_md="A pond.")
        sqlrag.index_rows(query, path, key="id", text="body", collection="t", markdown=True, progress="off")
        done = publish(path, tmp_path / "site", parts="words", cdn=True, leave_out=[*names, "listed", "parts"])
        assert done.notices == ["Columns of tables that are published: id; see leave_out."]
        assert holding(tmp_path / "site", "quux") == []

    @pytest.mark.slow
    def test_values_that_are_seen_elsewhere_are_told(self, tmp_path):
        path = build(tmp_path, a_md="A pond.")
        query = "SELECT {} AS id, 'A pump' AS body, 'ann@example.com' AS mail, ['Zed', 'Ann'] AS names, 7 AS n"
        rows = "(1, '49.95 to pay', 49.95), (2, 'of 1299', 1299), (3, '1 of 12', 12), (4, '5120', 120)"
        sqlrag.index_rows(
            f"{query.format(1)} UNION ALL {query.format(2)} UNION ALL {query.format(3)}", path, key="id",
            text="{body} of {mail}", collection="t", progress="off",
        )  # fmt: skip
        # Rows 2 and 3 are gone from the source, and stay as they were made.
        sqlrag.index_rows(query.format(1), path, key="id", text="body", collection="t", force=True, progress="off")
        sqlrag.index_rows("SELECT 4 AS id, 'Ann hums' AS body, ['Ann'] AS names", path, key="id", text="body",
                          collection="u", progress="off")  # fmt: skip
        done = publish(path, tmp_path / "site", parts="words", cdn=True, leave_out=["mail", "names", "n"])
        told = "Values of {}, which is left out, are also in the id, text, title or tags of {}, such as {}."
        assert done.notices[0] == told.format("names", "1 row", "u/4")
        assert done.notices[1].startswith(
            "2 rows of t, such as t/2, are of before its columns changed: texts, titles and"
        )
        assert done.notices[2:] == ["Columns of tables that are published: id; see leave_out."]
        sqlrag.update_rows(path, collection="t", prune=True, force=True, progress="off")
        done = publish(path, tmp_path / "other", parts="words", cdn=True, leave_out=["mail"])
        assert done.notices == ["Columns of tables that are published: id, n, names; see leave_out."]
        assert holding(tmp_path / "other", "ann@example") == []
        sqlrag.index_rows(
            f"SELECT * FROM (VALUES {rows}) AS t(id, body, paid)",
            path,
            key="id",
            text="body",
            collection="p",
            progress="off",
        )
        done = publish(path, tmp_path / "third", parts="words", cdn=True, leave_out=["paid"])
        assert done.notices[0] == told.format("paid", "2 rows", "p/1")

    @pytest.mark.rest
    def test_rows_without_their_table(self, tickets, tmp_path):
        sqlrag.export_parquet(tickets, tmp_path / "pq")
        sqlrag.convert(tmp_path / "pq", tmp_path / "other.duckdb")
        publish(tickets, tmp_path / "site", parts="words", cdn=True)
        for path in (tmp_path / "other.duckdb", tmp_path / "site" / "kb.duckdb"):
            with pytest.raises(InputError, match=r"of rows whose table the file does not have, such as tickets/1:"):
                publish(path, tmp_path / "again", parts="words", cdn=True, leave_out=["mail"])
            assert not (tmp_path / "again").exists()
        # Beside a table of the same columns.
        (tmp_path / "more.csv").write_text("id,body,mail\n1,A pump,me@example.com\n")
        path = tmp_path / "other.duckdb"
        sqlrag.index_rows(tmp_path / "more.csv", path, key="id", text="body", progress="off")
        with pytest.raises(InputError, match="such as tickets/1:"):
            publish(path, tmp_path / "more", parts="words", cdn=True, leave_out=["mail"])
        publish(path, tmp_path / "more", parts="words", cdn=True, leave_out=["mail"], collection="more")
        assert holding(tmp_path / "more", "me@example.com") == []


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with sites of some pages of the handbook, below a path, and of a file without model."""
    folder = tmp_path_factory.mktemp("published")
    for name in PAGES:
        (folder / "docs" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(HANDBOOK / name, folder / "docs" / name)
    root = folder / "root"
    root.mkdir()
    path = sqlrag.prepare_embeddings(
        folder / "docs", root / "kb.duckdb", 200, embed_model_name=MINILM, verbose=False
    ).path
    publish(path, root / "below" / "site", title="Pages & more", assets=libraries())
    publish(path, root / "words", parts="words", assets=libraries())
    hashed = build(folder / "hashed", a_md="# Ducks\n\nA pond with ducks.", b_md="# Bread\n\nDucks eat bread.")
    publish(hashed, root / "hashed", assets=libraries())
    (root / "blank.html").write_text("<!doctype html><title>Blank</title><link rel='icon' href='data:,'>")
    return root


@pytest.fixture
def address(folder):
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    with served(functools.partial(Quiet, directory=folder), threading.Event()) as address:
        yield address


@pytest.fixture
def visit(browser):  # noqa: F811
    visit = Visit(browser)
    yield visit
    for context in visit.contexts:
        context.close()
    assert not visit.faults


def opened(visit, address, site, **options):
    """Open a site as a library, in a page of nothing else."""
    page = visit(f"{address}/blank.html")
    page.set_default_timeout(120_000)
    page.evaluate(
        "async ([site, options]) => { const { open } = await import(`${site}/sqlrag/sqlrag.js`);"
        " window.store = await open(`${site}/`, options); window.ready = await store.ready; }",
        [f"{address}/{site}", options],
    )
    return page


def found(page, text, **options):
    """Return ids and scores."""
    code = "async ([text, options]) => (await store.search(text, options)).results.map((r) => [r.node_id, r.score])"
    return page.evaluate(code, [text, options])


def found_by_each(page, texts, **options):
    """Return ids and scores for each question."""
    code = (
        "async ([texts, options]) => { const all = []; for (const text of texts)"
        " all.push((await store.search(text, options)).results.map((r) => [r.node_id, r.score])); return all }"
    )
    return page.evaluate(code, [texts, options])


def scored(results):
    return [[row["node_id"], row["score"]] for row in results]


@pytest.fixture(scope="module")
def questions():
    """Return questions of the handbook, and random ones of its words."""
    asked = [json.loads(line)["text"] for line in (ROOT / "data" / "questions.jsonl").read_text("utf-8").splitlines()]
    words = sorted({word for name in PAGES for word in (HANDBOOK / name).read_text("utf-8").split()})
    draw = random.Random(24)
    return [*draw.sample(asked, 40), *(" ".join(draw.sample(words, draw.randint(1, 6))) for _ in range(60))]


class TestSameAsPython:
    pytestmark = in_browser

    def test_by_words(self, visit, address, folder, questions):
        page = opened(visit, address, "words", model=False)
        quoted = [
            '"filter by tag"',
            '"of the" search',
            "conf* emb*",
            'tag* "search page"',
            '"no such words"',
            "the",
            "日本語",
        ]
        with sqlrag.Store(folder / "words" / "kb.duckdb") as store:
            asked = [*questions, *quoted]
            for text, answer in zip(asked, found_by_each(page, asked, mode="lexical"), strict=True):
                assert answer == scored(store.lexical_query(text, top_k=10)), text
            few = {"tags_any": ["search"], "per_document": 1}
            assert found(page, "filter", mode="lexical", **few) == scored(
                store.lexical_query("filter", top_k=10, **few)
            )

    @pytest.mark.rest
    def test_by_vectors_and_both(self, visit, address, folder, questions):
        page = opened(visit, address, "below/site")
        assert page.evaluate("ready") is True
        embedder = load_embedder(MINILM)
        cosines = []
        with sqlrag.Store(folder / "below" / "site" / "kb.duckdb") as store:
            for text in [*questions[:8], *questions[-12:]]:
                vector = embedder.embed([text], kind="query")[0]
                own = np.array(page.evaluate("async (text) => Array.from(await store.embed(text))", text))
                cosines.append(own @ vector / np.linalg.norm(vector))
                given = {"vector": vector.tolist()}
                asked = {"query_vector": vector, "top_k": 10}
                pairs = [
                    (found(page, text, mode=mode, **options, **given), search(text, **options, **asked))
                    for mode, search, options in (
                        ("vector", store.vector_query, {"exact": True}),
                        ("vector", store.vector_query, {}),
                        ("hybrid", store.hybrid_query, {}),
                        ("hybrid", store.hybrid_query, {"per_document": 2}),
                        ("hybrid", store.hybrid_query, {"fusion": "rrf"}),
                    )
                ]
                for here, there in pairs:
                    assert here == scored(there), text
                by_itself = found(page, text)
                assert [one for one, _ in by_itself] == [one for one, _ in pairs[2][0]], text
                assert np.allclose([score for _, score in by_itself], [score for _, score in pairs[2][0]], atol=1e-5)
        assert min(cosines) > 0.99999

    def test_reading_and_explaining(self, visit, address, folder):
        page = opened(visit, address, "words")
        with sqlrag.Store(folder / "words" / "kb.duckdb") as store:
            best = store.lexical_query(QUESTION)[0]
            source = store.sources([best["doc_id"]])[best["doc_id"]]
            assert page.evaluate("async (id) => (await store.read(id)).text", best["doc_id"]) == source["text"]
            explained = page.evaluate("([text, id]) => store.explain(text, id)", [QUESTION, best["node_id"]])
            assert (explained["rank"], explained["bm25"]) == (1, best["score"])
            told = store.explain(QUESTION, best["node_id"], mode="lexical")
            added = {term.term: term.contribution for term in told.lexical.terms if term.contribution}
            assert {term["term"]: term["contribution"] for term in explained["terms"]} == added
        assert "alone" in page.evaluate("async (text) => (await store.search(text)).notices[0]", QUESTION)


def conditions():
    """Return filters of each operator with each value that it can have, and combinations of them.

    What is made of others, lists of two values and negations, is of some of them.
    """
    plain = [{sign: value} for sign in ("$eq", "$ne", "$contains") for value in VALUES]
    ordered = [value for value in VALUES if isinstance(value, (int, float, str)) and not isinstance(value, bool)]
    ranges = [{sign: value} for sign in ("$gt", "$gte", "$lt", "$lte") for value in ordered]
    pairs = [[VALUES[place - 1], value] for place, value in enumerate(VALUES) if place % 2]
    lists = [{sign: pair} for sign in ("$in", "$nin", "$any", "$all") for pair in pairs]
    texts = [{sign: text} for sign in ("$text_match", "$text_match_insensitive") for text in ("", "R", "ÜBER", "2024")]
    others = [{sign: wanted} for sign in ("$exists", "$empty") for wanted in (True, False)]
    of_a_field = [*plain, *ranges, *lists, *texts, *others, *({"$not": wanted} for wanted in ranges[::3]), *VALUES[::3]]
    return [
        *({"v": wanted} for wanted in of_a_field),
        {"$or": [{"v": 2024}, {"w": {"$gte": 5}}]},
        {"$and": [{"v": {"$gte": 0}}, {"$not": {"w": 5}}]},
        {"$doc_id": "r3.md"},
        {"none": None},
        {"none": 1},
    ]


class TestMetadata:
    pytestmark = in_browser

    @pytest.mark.rest
    def test_the_filters_of_python(self, visit, address, folder):
        documents = {
            f"r{place}_md": f"---\nv: {json.dumps(value)}\nw: {place}\n---\n# Duck\n\nA duck."
            for place, value in enumerate(VALUES)
        }
        publish(build(folder / "rows", **documents), folder / "metadata", parts="words", assets=libraries())
        page = opened(visit, address, "metadata", model=False)
        code = (
            "async (filters) => { const ids = []; for (const metadata of filters)"
            " { const { results } = await store.search('duck', { mode: 'lexical', top_k: 50, metadata });"
            " ids.push(results.map((r) => r.node_id)); } return ids }"
        )
        asked = conditions()
        answers = page.evaluate(code, asked)
        with sqlrag.Store(folder / "metadata" / "kb.duckdb") as store:
            for wanted, answered in zip(asked, answers, strict=True):
                found = store.lexical_query("duck", top_k=50, metadata=wanted)
                assert answered == [row["node_id"] for row in found], wanted
        assert len({tuple(answered) for answered in answers}) > 30

    def test_with_vectors(self, visit, address, folder):
        page = opened(visit, address, "below/site", model=False)
        wanted = {"tags": {"$contains": "search"}}
        vector = load_embedder(MINILM).embed([QUESTION], kind="query")[0]
        with sqlrag.Store(folder / "below" / "site" / "kb.duckdb") as store:
            for mode, search in (("vector", store.vector_query), ("hybrid", store.hybrid_query)):
                there = search(QUESTION, query_vector=vector, metadata=wanted)
                assert there
                here = found(page, QUESTION, mode=mode, vector=vector.tolist(), metadata=wanted, top_k=len(there))
                assert here == scored(there)

    def test_the_page_offers_them(self, visit, address):
        page = visit(f"{address}/words/?q=filter&mode=words")
        sync.expect(page.locator("#list > li").first).to_be_visible(timeout=60_000)
        before = page.locator("#status").inner_text()
        page.locator("#metadata summary").click()
        page.select_option("#condition-field", "title")
        page.fill("#condition-value", "nobody")
        page.click("#condition-add")
        sync.expect(page.locator("#status")).to_contain_text("Nothing was found")
        page.locator("#conditions button").click()
        sync.expect(page.locator("#status")).to_have_text(before)


class TestNotValid:
    pytestmark = in_browser

    def test_options(self, visit, address):
        page = opened(visit, address, "words", model=False)
        refused = (
            "async (options) => {"
            " try { await store.search('filter', options) } catch (error) { return [error.status, error.title] } }"
        )
        for options, title in (
            ({"mode": "lexical", "top_k": 0}, "top_k cannot be 0"),
            ({"mode": "lexical", "per_document": 1.5}, "per_document cannot be 1.5"),
            ({"fusion": "none", "vector": [1] * 384}, "There is no such fusion"),
            ({"mode": "words"}, "There is no such mode"),
            ({"context": "neighbours"}, "A published site has no option context"),
            ({"mode": "lexical", "metadata": {"year": {"$near": 1}}}, "The filter by metadata cannot be used"),
            ({"mode": "lexical", "metadata": {"year": {"$in": 1}}}, "The filter by metadata cannot be used"),
            ({"mode": "lexical", "metadata": {"$near": 1}}, "The filter by metadata cannot be used"),
            ({"vector": [1, 2]}, "The vector cannot be used"),
            ({"vector": [0] * 384}, "The vector cannot be used"),
        ):
            assert page.evaluate(refused, options) == [422, title]
        said = page.evaluate(
            "async () => { try { await store.search('x', {topK: 1}) } catch (e) { return e.message } }"
        )
        assert said.startswith("A published site has no option topK. It has mode, ")

    def test_what_nothing_meets_is_told(self, visit, address):
        page = opened(visit, address, "words", model=False)
        ask = "async ([text, options]) => (await store.search(text, { mode: 'lexical', ...options })).notices"
        none = "No chunk passes the filters: "
        for text, options, told in (
            ("filter", {}, []),
            ("qwertzu filter", {}, ['No chunk holds "qwertzu".']),
            ("qwertzu asdfgh", {}, ["No chunk holds any of the words."]),
            ("filter", {"tags_any": ["shopp"]}, [none + """{"tags_any":["shopp"]}. No chunk has the tag 'shopp'."""]),
            ("filter", {"collection": "x"}, [none + """{"collection":"x"}. No chunk has the collection 'x'."""]),
            ("filter", {"metadata": {"title": "no"}}, [none + """{"metadata":{"title":"no"}}."""]),
        ):
            assert page.evaluate(ask, [text, options]) == told, options

    @pytest.mark.rest
    def test_text_that_is_no_date_is_not_compared_with_dates(self, visit, address, folder):
        dated = {f"d{day}_md": f"---\nday: 2025-01-0{day}\n---\n# Duck\n\nA duck." for day in (1, 2)}
        publish(build(folder / "dated", **dated), folder / "dates", parts="words", assets=libraries())
        page = opened(visit, address, "dates", model=False)
        ask = (
            "async (metadata) => { try {"
            " return (await store.search('duck', { mode: 'lexical', metadata })).results.map((row) => row.node_id) }"
            " catch (error) { return error.detail } }"
        )
        assert page.evaluate(ask, {"day": {"$gte": "2025-01-02"}}) == ["d2.md#0"]
        for odd in ({"day": {"$gte": "01.01.2025"}}, {"$not": {"$or": [{"day": {"$not": {"$lt": "yesterday"}}}]}}):
            assert page.evaluate(ask, odd).startswith(("$gte of day compares with dates", "$lt of day compares with"))


class TestCdn:
    @pytest.mark.slow
    def test_exactly_the_files_of_the_pinned_versions(self, path, tmp_path):
        publish(path, tmp_path / "site", parts="words", cdn=True, assets=tmp_path / "none")
        packages = [publishing._DUCKDB, publishing._ARROW]
        assert named(tmp_path / "site") == {
            f"https://cdn.jsdelivr.net/npm/{package.name}@{package.version}/{file}"
            for package in packages
            for file in package.files.values()
        }
        page = (tmp_path / "site" / "index.html").read_text("utf-8")
        assert "connect-src 'self' https://cdn.jsdelivr.net; worker-src" in page
        assert page.count("https://cdn") == 1
        assert not list((tmp_path / "site").rglob("*.wasm"))

    def test_what_is_not_installed_can_be_loaded(self, path, tmp_path):
        with pytest.raises(NotFoundError, match=r"npm install .* cdn=True"):
            publish(path, tmp_path / "site", parts="words", assets=tmp_path)

    @pytest.mark.skipif(libraries() is None, reason=f"needs the libraries of npm: {publishing.INSTALL}")
    def test_digests_are_those_of_the_files(self):
        for package in LIBRARIES:
            folder = publishing._find(package, libraries())
            for name, file in package.files.items():
                digest = hashlib.sha384((folder / file).read_bytes()).digest()
                assert package.digests[name] == base64.b64encode(digest).decode(), file


def named(site):
    """Return the addresses of the CDN in a site of it."""
    texts = [file.read_text("utf-8") for file in site.rglob("*") if file.suffix in (".js", ".json")]
    return {address for text in texts for address in re.findall(re.escape(publishing._CDN) + r'/[^"]+', text)}


class TestFromACdn:
    pytestmark = in_browser

    @pytest.fixture
    def cdn(self, tmp_path, monkeypatch):
        """Return a folder that is served as the CDN, with the libraries of npm."""
        for package in LIBRARIES:
            source = publishing._find(package, libraries())
            for file in package.files.values():
                target = tmp_path / "cdn" / f"{package.name}@{package.version}" / file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source / file, target)

        class Shared(SimpleHTTPRequestHandler):
            def end_headers(self):
                self.send_header("Access-Control-Allow-Origin", "*")
                super().end_headers()

            def log_message(self, *_):
                pass

        with served(functools.partial(Shared, directory=tmp_path / "cdn"), threading.Event()) as address:
            monkeypatch.setattr(publishing, "_CDN", address)
            yield tmp_path / "cdn"

    def test_no_site_names_it_unasked(self, folder):
        for file in (folder / "below" / "site").rglob("*"):
            if file.is_file() and "assets" not in file.parts:
                assert b"jsdelivr" not in file.read_bytes(), file

    @pytest.mark.rest
    def test_it_answers_by_both(self, visit, address, folder, cdn):
        publish(folder / "kb.duckdb", folder / "cdn", cdn=True, overwrite=True)
        page = visit(f"{address}/cdn/?q=How+do+I+filter+by+tag%3F")
        sync.expect(page.locator(".leg.vector .figure").first).to_contain_text("cosine", timeout=60_000)
        sync.expect(page.locator("#notices li")).to_have_count(0)

    @pytest.mark.parametrize("name", ["dist/duckdb-eh.wasm", "dist/duckdb-browser-blocking.mjs"])
    def test_a_file_with_another_digest_is_refused(self, visit, address, folder, cdn, name):
        visit.failing = True
        publish(folder / "words" / "kb.duckdb", folder / "cdn", parts="words", cdn=True, overwrite=True)
        with (cdn / f"@duckdb/duckdb-wasm@{publishing._DUCKDB.version}" / name).open("ab") as file:
            file.write(b"\0" if name.endswith(".wasm") else b" ")
        page = visit(f"{address}/cdn/?q=filter")
        sync.expect(page.locator("#problem")).to_contain_text("Failed to fetch", timeout=60_000)
        visit.faults = [fault for fault in visit.faults if not re.search("Failed to fetch|SRI|digest", fault)]


class TestRanges:
    pytestmark = in_browser

    @pytest.mark.rest
    def test_a_large_file_is_read_in_parts(self, visit, address, folder, monkeypatch):
        monkeypatch.setattr(publishing, "RANGES_FROM", 0)
        publish(folder / "words" / "kb.duckdb", folder / "ranges", parts="words", assets=libraries())
        asked = [QUESTION, '"filter by tag"', "conf* emb*", "prefixes"]
        with sqlrag.Store(folder / "ranges" / "kb.duckdb") as store:
            expected = [scored(store.lexical_query(text, top_k=10)) for text in asked]
            document = store.lexical_query(QUESTION)[0]["doc_id"]
        with served(functools.partial(Files, directory=folder), threading.Event()) as with_ranges:
            page, before = opened(visit, with_ranges, "ranges", model=False), Files.sent
            assert before < (folder / "ranges" / "kb.duckdb").stat().st_size
            assert [found(page, text, mode="lexical") for text in asked] == expected
            assert Files.requests > 10
            os.utime(folder / "ranges" / "kb.duckdb", (0, 0))
            visit.failing = True
            refused = "async (id) => { try { await store.read(id) } catch (error) { return error.title } }"
            assert page.evaluate(refused, document) == "This site was published anew"
        page = opened(visit, address, "ranges", model=False)  # from a server without ranges
        assert [found(page, text, mode="lexical") for text in asked] == expected


class TestPage:
    pytestmark = in_browser

    def test_words_first_then_vectors_then_offline(self, visit, address):
        page = visit(f"{address}/below/site/?q=How+do+I+filter+by+tag%3F")
        expect = sync.expect
        expect(page).to_have_title(f"{QUESTION} – Pages & more")
        expect(page.locator("#list > li")).to_have_count(10, timeout=60_000)
        expect(page.locator(".leg.vector .figure").first).to_contain_text("cosine", timeout=60_000)
        expect(page.locator("#loading")).to_be_hidden()
        expect(page.locator("#notices li")).to_have_count(0)
        expect(page.locator("#corpus")).to_have_text(re.compile(r"^5 documents · \d+ chunks$"))
        expect(page.locator("h1")).to_have_text("Pages & more")
        expect(page.locator("#list mark.term").first).to_be_visible()
        page.locator("#list a.open").first.click()
        expect(page.locator("#source mark.passage").first).to_be_visible()
        # The worker keeps what the page loads from its second visit on; then it needs nothing else.
        page.evaluate("() => navigator.serviceWorker.ready")
        page.reload()
        expect(page.locator(".leg.vector .figure").first).to_contain_text("cosine", timeout=60_000)
        page.context.set_offline(True)
        page.goto(f"{address}/below/site/?q=phrase&mode=words")
        expect(page.locator("#list > li").first).to_be_visible(timeout=60_000)

    @pytest.mark.parametrize("query", ["", "?q=filter&mode=words", "?q=filter&mode=meaning"])
    def test_the_model_is_loaded_whatever_comes_first(self, visit, address, query):
        page = visit(f"{address}/blank.html")
        with page.expect_response("**/model.onnx", timeout=60_000):
            page.goto(f"{address}/below/site/{query}")
        if query:
            sync.expect(page.locator("#list > li").first).to_be_visible(timeout=60_000)

    def test_words_alone_say_so(self, visit, address):
        page = visit(f"{address}/hashed/?q=ducks")
        sync.expect(page.locator("#list > li")).to_have_count(2, timeout=60_000)
        sync.expect(page.locator("#notices")).to_contain_text("The answer is by words alone. The model")

    @pytest.mark.parametrize(
        ("name", "content", "told"),
        [
            ("kb.duckdb", b"cut off", "7 bytes instead"),
            ("assets/duckdb/duckdb-eh.wasm", None, "engine cannot be started"),
            ("assets/duckdb/apache-arrow.js", None, "part of this site is missing"),
            ("site.json", b'{"format": 2}', "Its format is 2, this script reads 1"),
        ],
    )
    def test_a_damaged_site_says_so(self, visit, address, folder, name, content, told):
        visit.failing = True
        shutil.rmtree(folder / "damaged", ignore_errors=True)
        shutil.copytree(folder / "words", folder / "damaged")
        if content is None:
            (folder / "damaged" / name).unlink()
        else:
            (folder / "damaged" / name).write_bytes(content)
        page = visit(f"{address}/damaged/?q=ducks")
        sync.expect(page.locator("#problem")).to_contain_text(told, timeout=60_000)

    def test_a_browser_without_webassembly_says_so(self, visit, address):
        without = ["--js-flags=--jitless", *["--no-sandbox"] * (os.geteuid() == 0)]
        visit.browser = visit.browser.browser_type.launch(executable_path=CHROMIUM, args=without)
        page = visit(f"{address}/words/?q=ducks")
        sync.expect(page.locator("#problem")).to_contain_text("It has no WebAssembly")
        visit.contexts.clear()
        visit.browser.close()

    def test_a_damaged_model_leaves_the_words(self, visit, address, folder):
        visit.failing = True
        shutil.rmtree(folder / "damaged", ignore_errors=True)
        shutil.copytree(folder / "below" / "site", folder / "damaged")
        (folder / "damaged" / "assets" / "model" / "model.onnx").write_bytes(b"none")
        page = visit(f"{address}/damaged/?q=filter")
        sync.expect(page.locator("#notices")).to_contain_text("4 bytes instead of", timeout=60_000)
        sync.expect(page.locator("#list > li").first).to_be_visible()

    def test_the_example_of_the_handbook(self, visit, address, folder):
        (example,) = [block.text for block in blocks(HANDBOOK / "guides" / "publish.md") if block.language == "html"]
        (folder / "below" / "example.html").write_text(
            f"<!doctype html><link rel='icon' href='data:,'>{example}", "utf-8"
        )
        page = visit(f"{address}/below/example.html")
        page.fill("#question", QUESTION)
        page.press("#question", "Enter")
        sync.expect(page.locator("#found")).to_contain_text("guides/filters.md", timeout=60_000)


MKDOCS = shutil.which("mkdocs")


class TestSiteOfTheHandbook:
    pytestmark = [*in_browser, pytest.mark.skipif(MKDOCS is None, reason="needs mkdocs (the extra 'docs') on the PATH")]

    @pytest.fixture
    def site(self, folder):
        subprocess.run(
            [MKDOCS, "build", "--quiet", "-f", str(ROOT / "data" / "mkdocs.yml"), "-d", str(folder / "handbook")],
            check=True,
            capture_output=True,
            timeout=300,
        )
        return folder / "handbook"

    @pytest.mark.rest
    def test_enter_in_the_box_of_the_theme(self, visit, address, site, folder):
        visit.failing = True  # find/ is looked for, and not there
        page = visit(f"{address}/handbook/guides/filters.html")
        box = page.locator("[data-md-component=search-query]")
        box.click()
        box.fill("prefixes")
        sync.expect(page.locator(".md-search-result__item").first).to_be_visible()
        sync.expect(page.locator(".md-search-result")).not_to_contain_text("searches by words and meaning")
        shutil.copytree(folder / "below" / "site", site / "find")
        page.goto(f"{address}/handbook/guides/filters.html")
        box.click()
        box.fill(QUESTION)
        sync.expect(page.get_by_text("Enter searches by words and meaning")).to_be_visible()
        box.press("Enter")
        page.wait_for_url(f"{address}/handbook/find/?q=*")
        sync.expect(page.locator("#list > li")).to_have_count(10, timeout=60_000)
        sync.expect(page.locator("#query")).to_have_value(QUESTION)
