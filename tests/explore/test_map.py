"""The map of a corpus: places, clusters, labels, what becomes of it, and how it is drawn and written."""

from __future__ import annotations

import json
import math
import shutil
import sys
from collections import Counter
from itertools import combinations

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import sqlrag
from sqlrag import Chunk, Document, InputError, MissingExtraError, NotFoundError, Store, corpus_map
from sqlrag.cli import app
from sqlrag.explore.map import default_clusters, hdbscan, k_means, principal_components
from tests.support.helpers import build

# Three subjects: five, four and three chunks, near one axis of the vectors each. "file" is in every text.
TEXTS = {
    "birds.md": ["duck pond file", "duck goose file", "goose pond file", "duck duck pond file 77", "the goose file"],
    "bread.md": ["oven flour file", "flour yeast file", "oven yeast file", "oven oven file"],
    "cars.md": ["wheel engine file", "engine brake file", "wheel brake file"],
}


def fill(store: Store, names=tuple(TEXTS)) -> None:
    for name in names:
        chunks = [Chunk(name, i, text) for i, text in enumerate(TEXTS[name])]
        axis = list(TEXTS).index(name)
        vectors = np.zeros((len(chunks), 8))
        vectors[:, axis] = 1
        vectors[np.arange(len(chunks)), 3 + np.arange(len(chunks))] = 0.1 * (axis + 1)
        store.upsert([Document(name, "\n".join(TEXTS[name]), metadata={"title": name.upper()})], chunks, vectors)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    path = tmp_path_factory.mktemp("map") / "kb.duckdb"
    with Store.create(path, 8) as store:
        fill(store)
        store.upsert([Document("empty.md", "")], [], np.empty((0, 8)))
    return path


@pytest.fixture
def path(made, tmp_path):
    copy = tmp_path / "kb.duckdb"
    copy.write_bytes(made.read_bytes())
    return copy


def rows(path, sql):
    with duckdb.connect(str(path), read_only=True) as con:
        return con.execute(sql).fetchall()


class TestPlaces:
    def test_principal_components_are_those_of_numpy(self):
        points = np.random.default_rng(1).normal(size=(500, 12)) * np.arange(1, 13)
        found = principal_components(lambda: iter(np.array_split(points, 7)), 12)
        centred = points - points.mean(axis=0)
        _, _, axes = np.linalg.svd(centred, full_matrices=False)
        axes *= np.sign(axes[np.arange(12), np.abs(axes).argmax(axis=1)])[:, None]
        assert np.allclose(found, centred @ axes.T, atol=1e-5)
        assert np.all(np.diff(found.var(axis=0)) < 0)

    @pytest.mark.parametrize("vectors", [np.empty((0, 4)), np.ones((1, 4)), np.ones((3, 4)), np.ones((2, 1))])
    def test_points_that_do_not_differ_lie_at_one_place(self, vectors):
        found = principal_components(lambda: iter([vectors]), vectors.shape[1])
        assert found.shape[0] == len(vectors)
        assert found.shape[1] >= 2
        assert not found.any()

    def test_k_means_finds_the_groups_and_the_largest_is_0(self):
        chance = np.random.default_rng(2)
        wanted = np.repeat([2, 0, 3, 1], [20, 60, 10, 40])
        centres = np.eye(4)[wanted] * 10
        assert np.array_equal(k_means(centres + chance.normal(size=centres.shape), 4), wanted)
        assert k_means(np.ones((5, 3)), 4).tolist() == [0] * 5
        assert len(set(k_means(centres, 9).tolist())) == 4
        assert [default_clusters(n) for n in (1, 2, 200, 10**6)] == [1, 1, 10, 16]

    @pytest.mark.rest
    def test_hdbscan_leaves_lone_points_out(self):
        chance = np.random.default_rng(3)
        places = np.concatenate([chance.normal(size=(30, 2)), chance.normal(size=(60, 2)) + 50, [[500.0, 0.0]]])
        assert hdbscan(places).tolist() == [1] * 30 + [0] * 60 + [-1]
        assert hdbscan(places[:3]).tolist() == [-1] * 3


class TestMap:
    @pytest.mark.slow
    def test_words_of_labels_are_spelled_as_they_are_written(self, tmp_path):
        kb = build(
            tmp_path,
            a_md="# Störung\n\nStürzt beim Öffnen",
            b_md="café cafe café résumé naïve",
        )
        corpus_map(kb, clusters=2)
        found = {row[0] for row in rows(kb, "SELECT DISTINCT unnest(string_split(label, ', ')) FROM corpus_map")}
        assert {"café", "naïve", "résumé"} < found
        assert len(found & {"störung", "öffnen", "stürzt"}) == 2
        assert not found & {"cafe", "naive", "resume", "storung", "offnen", "sturzt"}

    @pytest.mark.slow
    def test_clusters_and_their_labels(self, path):
        drawn = corpus_map(path, clusters=3)
        assert [(row["node_id"], row["cluster"]) for row in drawn][::4] == [
            ("birds.md#0", 0), ("birds.md#4", 0), ("bread.md#3", 1)
        ]  # fmt: skip
        # "file" is in all of them, "77" is a number, "the" a stop word; "duck" counts once in "duck duck".
        counts = [Counter(w for text in own for w in set(text.split()) - {"77", "the"}) for own in TEXTS.values()]
        mean, total = sum(map(Counter.total, counts)) / 3, sum(counts, Counter())
        for topic, own in zip(drawn.topics(), counts, strict=True):
            score = {w: math.sqrt(n / own.total()) * math.log(1 + mean / total[w]) for w, n in own.items()}
            assert topic["label"].split(", ") == sorted(score, key=lambda w: (-round(score[w], 9), w))[:3]
        assert [t["points"] for t in drawn.topics()] == [5, 4, 3]
        assert rows(path, "SELECT cluster, label, points FROM topics") == [tuple(t.values()) for t in drawn.topics()]
        assert rows(path, "SELECT level, method, clusters, points, in_step FROM map_status") == [
            ("chunk", "pca", "3", 12, True)
        ]
        assert str(drawn).startswith("Map of 12 chunks by pca, 3 clusters\n      5  duck, goose, pond")
        assert drawn.df().columns.tolist() == drawn.pl().columns == ["node_id", "doc_id", "x", "y", "cluster", "label"]
        assert drawn[-1] == drawn[11:][0] == list(drawn)[11]
        assert sqlrag.check(path) == []

    @pytest.mark.rest
    def test_the_order_of_writing_and_the_threads_do_not_show(self, path, tmp_path):
        other = tmp_path / "other.duckdb"
        with Store.create(other, 8) as store:
            fill(store, reversed(list(TEXTS)))
            fill(store, ["bread.md"])
        with Store(other, read_only=False, threads=1) as store:
            again = corpus_map(store)
        assert again.arrow().equals(corpus_map(path).arrow())
        assert [row["node_id"] for row in again][:2] == ["birds.md#0", "birds.md#1"]

    def test_documents(self, path):
        drawn = corpus_map(path, level="document", clusters=None)
        assert [(row["node_id"], row["doc_id"]) for row in drawn] == [(None, name) for name in TEXTS]
        assert {(row["cluster"], row["label"]) for row in drawn} == {(-1, "")}
        assert drawn.topics() == []
        places = drawn.arrow().select(["x", "y"]).to_pandas().to_numpy()
        # Means of nearly orthogonal unit vectors, so about the square root of 2 from each other in the plane.
        assert [round(float(np.linalg.norm(a - b)), 1) for a, b in combinations(places, 2)] == [1.4] * 3

    @pytest.mark.slow
    def test_what_becomes_of_it_when_the_file_changes(self, path):
        corpus_map(path)
        sqlrag.delete_documents(path, doc_ids="cars.md")
        assert rows(path, "SELECT points, missing FROM map_status") == [(9, 0)]
        with Store(path, read_only=False) as store:
            fill(store, ["bread.md"])
        assert rows(path, "SELECT points, missing, in_step FROM map_status") == [(5, 4, False)]
        with Store(path) as store:
            from sqlrag.explore.points import stored_map

            assert stored_map(store).notices == ["4 chunks written since the map was drawn; redraw it to see them."]
        sqlrag.compact(path)
        with duckdb.connect(str(path)) as con:
            con.execute("UPDATE corpus_map SET node_id = 'gone' WHERE node_id = 'birds.md#0'")
        assert [problem.check for problem in sqlrag.check(path)] == ["map_without_chunks"]
        assert sqlrag.repair(path).left == ()
        assert rows(path, "SELECT count(*) FROM corpus_map") == [(4,)]
        sqlrag.reembed(path, "hashing-16", provider="hashing", verbose=False)
        assert rows(path, "FROM corpus_map") == rows(path, "FROM map_status") == []

    @pytest.mark.slow
    def test_documents_that_change_while_it_is_drawn_and_damaged_vectors_are_not_on_it(self, path, monkeypatch):
        from sqlrag.explore import map as map_module
        from sqlrag.explore.map import _clusters

        def meanwhile(*given):
            with Store(path, read_only=False) as store:
                store.upsert([Document("cars.md", "new")], [Chunk("cars.md", 0, "new")], np.eye(8)[:1])
            return k_means(*given)

        with duckdb.connect(str(path)) as con:
            con.execute("UPDATE documents SET embedding = [NULL, 1, 0, 0, 0, 0, 0, 0] WHERE node_id = 'birds.md#0'")
            con.execute(
                "UPDATE documents SET embedding = ['nan'::FLOAT, 1, 0, 0, 0, 0, 0, 0] WHERE node_id = 'birds.md#1'"
            )
        k_means = _clusters
        monkeypatch.setattr(map_module, "_clusters", meanwhile)
        drawn = corpus_map(path)
        assert {row["doc_id"] for row in drawn} == {"birds.md", "bread.md"}
        assert np.isfinite([row["x"] for row in drawn]).all()
        off = rows(
            path, "SELECT node_id FROM documents WHERE node_id NOT IN (SELECT node_id FROM corpus_map) ORDER BY 1"
        )
        assert off == [("birds.md#0",), ("birds.md#1",), ("cars.md#0",)]
        assert rows(path, "SELECT missing, in_step FROM map_status") == [(3, False)]

    @pytest.mark.slow
    def test_an_empty_file_and_one_without_a_map(self, tmp_path):
        path = tmp_path / "none.duckdb"
        Store.create(path, 8).close()
        with pytest.raises(NotFoundError, match="sqlrag map"):
            sqlrag.plot_map(path)
        assert len(corpus_map(path)) == 0
        assert rows(path, "SELECT points, in_step FROM map_status") == [(0, True)]

    @pytest.mark.parametrize(
        "wrong", [{"method": "tsne"}, {"level": "page"}, {"clusters": 0}, {"clusters": "many"}, {"clusters": 1.5}]
    )
    def test_wrong_arguments(self, path, wrong):
        with pytest.raises(InputError, match=next(iter(wrong))):
            corpus_map(path, **wrong)
        assert rows(path, "FROM corpus_map") == []

    def test_what_is_missing_is_said(self, path, monkeypatch):
        for module in ("umap", "sklearn.cluster", "matplotlib.figure"):
            monkeypatch.setitem(sys.modules, module, None)
        monkeypatch.delitem(sys.modules, "sqlrag.explore.plot", raising=False)
        monkeypatch.delitem(vars(sqlrag), "plot_lengths", raising=False)  # the lazy name, once it is imported
        calls = [lambda: corpus_map(path, method="umap"), lambda: corpus_map(path, clusters="hdbscan")]
        for call in [*calls, lambda: sqlrag.plot_lengths(path)]:
            with pytest.raises(MissingExtraError, match=r"pip install 'sqlrag-duckdb\[explore\]'"):
                call()
        exec("from sqlrag import *", names := {})
        with pytest.raises(MissingExtraError, match="A picture"):
            names["plot_lengths"](path)


@pytest.fixture
def chromium():
    """Chromium, or none: see tests/adapters/test_search_page.py."""
    sync = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("needs Chromium (the package chromium of Debian)")
    with sync.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


class TestPictures:
    @pytest.mark.slow
    @pytest.mark.parametrize("theme", ["light", "dark"])
    def test_no_label_of_the_map_covers_another(self, path, theme):
        with Store(path, read_only=False) as store:
            corpus_map(store, clusters=3)
            store.cursor().execute("UPDATE corpus_map SET x = x / 100, y = y / 100, label = label || ' $_$ é'")
            figure = sqlrag.plot_map(store, theme=theme)
        figure.draw_without_rendering()
        axes = figure.axes[0]
        boxes = [text.get_window_extent() for text in axes.texts]
        assert len(boxes) == 3
        assert not any(a.overlaps(b) for a, b in combinations(boxes, 2))
        assert all(axes.get_window_extent().x0 <= box.x0 and box.x1 <= axes.get_window_extent().x1 for box in boxes)

    @pytest.mark.parametrize("dots_per_inch", [80, 120], ids=["in a notebook", "as it is"])
    def test_fault_U12_sixteen_labels_in_a_crowd_stand_apart(self, dots_per_inch):
        plot = pytest.importorskip("sqlrag.explore.plot", reason="needs matplotlib")
        figure, axes, colours = plot._figure("light", 10, 7)
        places = np.random.default_rng(7).normal(0.5, 0.03, (16, 2))
        axes.set(xlim=(0, 1), ylim=(0, 1))
        labels = [plot.Label(f"window, function_{n}, über", x, y, "C0", "o") for n, (x, y) in enumerate(places)]
        plot.place_labels(axes, labels, colours)
        figure.set_dpi(dots_per_inch)
        figure.draw_without_rendering()
        boxes = [text.get_window_extent() for text in axes.texts]
        assert [text.get_text() for text in axes.texts] == [label.text for label in labels]
        assert [pair for pair in combinations(boxes, 2) if pair[0].overlaps(pair[1])] == []
        points = axes.transData.transform(places)
        far = [np.hypot(*(np.clip(at, box.min, box.max) - at)) for at, box in zip(points, boxes, strict=True)]
        assert max(far) < axes.get_window_extent().height / 4

    def test_lengths(self, path):
        axes = sqlrag.plot_lengths(path).axes[0]
        assert sum(bar.get_height() for bar in axes.patches) == 12
        lengths = sorted(len(text) for own in TEXTS.values() for text in own)
        assert axes.get_legend().get_texts()[0].get_text() == f"median {np.median(lengths):,.0f}"

    def test_ranks(self):
        results = [
            {"node_id": "a.md#0", "vector_rank": 2, "lexical_rank": 1},
            {"node_id": "b" * 99 + "#1", "vector_rank": 1, "lexical_rank": None},
        ]
        axes = sqlrag.plot_ranks(results, theme="dark").axes[0]
        assert [label.get_text() for label in axes.get_yticklabels()] == ["a.md#0", "…" + "b" * 45 + "#1"]
        assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "2", "not found"]
        found = [marks.get_offsets()[:, 0].tolist() for marks in axes.collections[1:]]
        assert found[:3] == [[2, 1], [], [1]]
        for wrong in ([], results * 51):
            with pytest.raises(InputError, match="1 to 100"):
                sqlrag.plot_ranks(wrong)


class TestFiles:
    def test_the_page_holds_any_text_and_loads_nothing(self, path, tmp_path):
        hostile = "</script><img src=x onerror=alert(1)><!--\u2028&amp;"
        with Store(path, read_only=False) as store:
            store.upsert([Document("x.md", hostile)], [Chunk("x.md", 0, hostile)], np.eye(8)[:1])
            corpus_map(store, clusters=3)
        page = sqlrag.export_map_html(path, tmp_path / "map.html", title=hostile)
        text = page.read_text("utf-8")
        data = text.partition('id="data">')[2].partition("</script>")[0]
        assert not set("<>&\u2028") & set(data)
        found = json.loads(data)
        assert found["title"] == hostile
        assert found["text"][found["id"].index("x.md#0")].startswith("</script><img")
        assert "http" not in text.replace("http-equiv", "")
        with pytest.raises(sqlrag.StoreExistsError):
            sqlrag.export_map_html(path, page)

    @pytest.mark.slow
    def test_the_page_in_a_browser(self, path, tmp_path, chromium):
        corpus_map(path, clusters=3)
        address = sqlrag.export_map_html(path, tmp_path / "map.html").as_uri()
        said = []
        for scheme in ("light", "dark"):
            page = chromium.new_page(color_scheme=scheme)
            page.on("console", lambda message: said.append(message.text))
            page.on("pageerror", lambda error: said.append(str(error)))
            page.goto(address)
            assert page.inner_text("#about") == "12 chunks by pca."
            assert page.locator("#topics button").count() == 3
            page.fill("#search", "DUCK")
            assert page.inner_text("#count") == "3 found"
            page.click("#topics li:nth-child(2) button")
            assert page.inner_text("#count") == "0 found"
            ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert ground == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 28)"}[scheme]
            assert said == []
            page.close()

    def test_parquet_for_the_viewer(self, path, tmp_path):
        corpus_map(path, clusters=3)
        assert sqlrag.export_map_parquet(path, tmp_path / "map")[1:] == (12, 0)
        table = pq.read_table(tmp_path / "map" / "map.parquet")
        assert table.column_names == [
            *("node_id", "title", "fileName", "file_path", "text", "x", "y", "topic", "outdegree", "indegree")
        ]
        assert table.slice(5, 1).to_pylist()[0] | {"x": 0, "y": 0} == {
            "node_id": "bread.md#0",
            "title": "BREAD.MD",
            "fileName": "bread.md",
            "file_path": "bread.md",
            "text": "oven flour file",
            "x": 0,
            "y": 0,
            "topic": "oven, flour, yeast",
            "outdegree": 0,
            "indegree": 0,
        }
        assert pq.read_table(tmp_path / "map" / "map_links.parquet").column_names == ["source_id", "target_id"]

    @pytest.mark.slow
    def test_both_pages_show_the_visible_text(self, tmp_path):
        pages = {f"p{i}_md": f"# P{i}\n\n<b class='kt'>pump{i}</b> *valve*\n" for i in range(12)}
        made = build(tmp_path, **pages)
        corpus_map(made, clusters=2)
        sqlrag.export_map_parquet(made, tmp_path / "map")
        texts = pq.read_table(tmp_path / "map" / "map.parquet")["text"].to_pylist()
        assert sorted(texts)[0].split() == ["P0", "pump0", "valve"]
        page = sqlrag.export_map_html(made, tmp_path / "map.html").read_text("utf-8")
        assert '"P0 pump0 valve"' in page
        assert "class='kt'" not in page

    @pytest.mark.slow
    def test_the_command(self, path, tmp_path):
        outputs = [tmp_path / name for name in ("map.html", "map.png", "map")]
        arguments = ["map", path, "--clusters", "3", "--html", outputs[0], "--png", outputs[1], "--parquet", outputs[2]]
        done = CliRunner().invoke(app, [str(a) for a in [*arguments, "--format", "json"]])
        assert done.exit_code == 0, done.output
        assert [topic["points"] for topic in json.loads(done.stdout)] == [5, 4, 3]
        assert all(output.exists() for output in outputs)
        assert CliRunner().invoke(app, ["map", str(path), "--clusters", "some"]).exit_code == 2
        shown = CliRunner().invoke(app, ["info", str(path)]).stdout
        assert "12 chunks by pca" in shown
