"""Joins by meaning, duplicates, clusters, classes, terms and trends: equal to numpy, over tables and documents."""

from __future__ import annotations

import datetime as dt
import math
import re
import tracemalloc
from collections import Counter
from itertools import pairwise

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sqlrag import (
    Analysis,
    Chunk,
    Document,
    InputError,
    ModelMismatchError,
    NotFoundError,
    Store,
    classify,
    cluster,
    distinctive_terms,
    embed_rows,
    index_rows,
    near_duplicates,
    semantic_join,
    trend,
)
from sqlrag.embedders.hashing import HashingEmbedder
from sqlrag.explore import nearest
from tests.support.helpers import Recorder, build, python

HASHING = HashingEmbedder("hashing-64")

TICKETS = """
    SELECT * FROM (VALUES
        (3, 'the parcel came late', DATE '2024-01-03'),
        (1, 'the invoice is wrong', DATE '2024-01-20'),
        (8, 'the parcel came late', DATE '2024-04-08'),
        (5, 'wrong invoice again', DATE '2024-04-30')
    ) AS t(id, body, day)
"""


def table(vectors, **columns):
    """Return a table of vectors, with numbers from 0 as keys."""
    lists = pa.array([list(map(float, row)) for row in vectors], pa.list_(pa.float64()))
    return pa.table({"id": pa.array(np.arange(len(vectors))), "v": lists, **columns})


def rows_of(vectors, **columns):
    return embed_rows(table(vectors, **columns), key="id", vector="v", columns=list(columns))


def topics(rows, seed, dimensions=32, centres=12, noise=0.5):
    """Return vectors around common centres."""
    middle = np.random.default_rng(0).standard_normal((centres, dimensions))
    own = np.random.default_rng(seed)
    return middle[own.integers(0, centres, rows)] + noise * own.standard_normal((rows, dimensions))


def unit(vectors):
    array = np.asarray(vectors, dtype=np.float64)
    return array / np.linalg.norm(array, axis=1, keepdims=True)


def cosines(left, right):
    """Return what numpy computes in float64 from the unit vectors in float32, in 9 decimals."""
    one, two = (unit(rows_of(vectors).vectors) for vectors in (left, right))
    return np.clip(np.einsum("id,jd->ij", one, two).round(9), -1, 1) + 0.0


def joined(left, right, k, threshold):
    """Return (left, right, score, rank) by a full sort of all cosines."""
    found = []
    for i, row in enumerate(cosines(left, right)):
        best = sorted(range(len(row)), key=lambda j: (-row[j], j))[:k]
        found += [(i, j, row[j], rank) for rank, j in enumerate(best, start=1) if row[j] >= threshold]
    return found


def values(analysis):
    return [tuple(row.values()) for row in analysis]


@pytest.fixture
def small_blocks(monkeypatch):
    """Let a hundred rows be several blocks, and pairs be dropped on the way."""
    for name, value in {"_LEFT": 16, "_RIGHT": 40, "_PENDING": 60, "_NUMBERS": 256, "_BLOCK": 30}.items():
        monkeypatch.setattr(nearest, name, value)


NUMBERS = st.integers(-3, 3).map(float)
MATRICES = st.integers(1, 5).flatmap(
    lambda width: st.tuples(
        *[st.lists(st.lists(NUMBERS, min_size=width, max_size=width).filter(any), min_size=1, max_size=12)] * 2
    )
)


class TestSemanticJoin:
    @pytest.mark.slow
    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(MATRICES, st.integers(1, 15), st.sampled_from([-1, 0, 0.5, 1]))
    def test_it_equals_a_full_sort(self, sides, k, threshold):
        left, right = sides
        found = semantic_join(rows_of(left), rows_of(right), k=k, threshold=threshold)
        assert values(found) == joined(left, right, k, threshold)

    @pytest.mark.parametrize("k", [1, 3, 50, 300])
    def test_it_does_over_several_blocks(self, k, small_blocks):
        left, right = topics(50, 1), topics(210, 2)
        right[[7, 100, 200]] = right[30]
        left[3] = right[30]
        found = semantic_join(rows_of(left), rows_of(right), k=k, threshold=0.1)
        assert values(found) == joined(left, right, k, 0.1)
        assert found.arrow().num_rows == len(found)

    @pytest.mark.slow
    def test_it_does_by_the_bound_of_short_vectors(self, small_blocks, monkeypatch):
        left, right = topics(90, 1, 256, noise=0.2), topics(150, 2, 256, noise=0.2)
        expected = joined(left, right, 2, 0.97)
        monkeypatch.setattr(nearest, "_WORTH", 1)
        monkeypatch.setattr(nearest, "_SELECTIVE", 1.1)
        used = []
        monkeypatch.setattr(
            nearest, "_heads", lambda *given, known=nearest._heads: used.append(known(*given)) or used[-1]
        )
        assert values(semantic_join(rows_of(left), rows_of(right), k=2, threshold=0.97)) == expected
        assert used[0][0].shape == (90, 49)
        assert 0 < len(expected) < 180

    def test_scores_differ_from_those_of_unrounded_vectors_by_less_than_a_millionth(self):
        left, right = topics(30, 1, 384), topics(40, 2, 384)
        exact = unit(left) @ unit(right).T
        for one, two, score, _ in values(semantic_join(rows_of(left), rows_of(right), k=40)):
            assert abs(score - exact[one, two]) < 1e-6

    def test_codes_find_what_is_near_with_the_same_scores(self, small_blocks):
        left, right = topics(300, 1, 64), topics(400, 2, 64)
        one, two = rows_of(left), rows_of(right)
        exact = values(semantic_join(one, two, k=2))
        by_codes = values(semantic_join(one, two, k=2, exact=False, probes=6))
        assert values(semantic_join(one, two, k=2, exact=False, probes=1000)) == exact
        score = {(i, j): value for i, j, value, _ in exact}
        right_ones = [row for row in by_codes if (row[0], row[1]) in score]
        assert len(right_ones) >= 0.95 * len(exact)
        assert len(by_codes) == len(exact)
        assert all(score[row[:2]] == row[2] for row in right_ones)

    def test_equal_vectors_are_in_the_order_of_their_keys(self):
        right = pa.table({"id": ["b", "c", "a"], "v": [[1.0, 0], [1.0, 0], [2.0, 0]]})
        found = semantic_join(rows_of([[1.0, 0]]), embed_rows(right, key="id", vector="v"), k=2)
        assert values(found) == [(0, "a", 1.0, 1), (0, "b", 1.0, 2)]

    @pytest.mark.parametrize("exact", [True, False])
    def test_a_table_without_rows_gives_none(self, exact):
        empty = embed_rows(
            pa.table({"id": pa.array([], "int64"), "v": pa.array([], pa.list_(pa.float32(), 3))}), vector="v"
        )
        assert values(semantic_join(empty, rows_of([[1.0, 2]]), exact=exact)) == []
        assert values(semantic_join(rows_of([[1.0, 2]]), empty, exact=exact)) == []

    @pytest.mark.slow
    def test_a_table_with_the_chunks_of_a_file(self, kb):
        tickets = embed_rows(TICKETS, key="id", text="body", embedder=HASHING, progress="off")
        with Store(kb) as store:
            best = [store.vector_query(top_k=1, query_vector=vector)[0] for vector in tickets.vectors]
        found = semantic_join(tickets, kb)
        assert [row["left_key"] for row in found] == [1, 3, 5, 8]
        assert [row["right_key"] for row in found] == [row["node_id"] for row in best]
        assert np.allclose([row["score"] for row in found], [row["score"] for row in best], atol=1e-7)

    def test_vectors_of_different_models_are_refused(self, kb):
        other = embed_rows(TICKETS, key="id", text="body", embedder=HashingEmbedder("hashing-32"), progress="off")
        with pytest.raises(
            ModelMismatchError, match=r"are of hashing-32, those of .*kb.duckdb of hashing-64.*Embed both"
        ):
            semantic_join(other, kb)
        with pytest.raises(ModelMismatchError, match="have 2 dimensions, those of the given rows 3"):
            semantic_join(rows_of([[1.0, 2]]), rows_of([[1.0, 2, 3]]))

    def test_another_model_of_the_same_name_is_refused(self, kb):
        class Impostor(HashingEmbedder):
            def embed(self, texts, *, kind):
                return super().embed(texts, kind=kind)[:, ::-1]

        other = embed_rows(TICKETS, key="id", text="body", embedder=Impostor("hashing-64"), progress="off")
        with pytest.raises(ModelMismatchError, match="cosine"):
            semantic_join(other, kb)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"k": 0}, "k must be a whole number from 1"),
            ({"threshold": 1.5}, "threshold must be a number from -1 to 1"),
            ({"threshold": math.nan}, "threshold must be a number from -1 to 1"),
            ({"exact": "yes"}, "exact must be True or False"),
            ({"exact": False, "probes": 0}, "probes must be a whole number from 1"),
        ],
    )
    def test_wrong_options(self, options, message):
        with pytest.raises(InputError, match=message):
            semantic_join(rows_of([[1.0, 2]]), rows_of([[1.0, 2]]), **options)

    def test_other_objects_are_refused(self):
        with pytest.raises(InputError, match="left must be what embed_rows returned"):
            semantic_join(pd.DataFrame({"id": [1]}), rows_of([[1.0, 2]]))

    def test_too_many_pairs_are_refused(self, monkeypatch):
        monkeypatch.setattr(nearest, "MOST_PAIRS", 50)
        with pytest.raises(InputError, match="More than 50 pairs would be found"):
            near_duplicates(rows_of(topics(30, 1)), threshold=-1)


THREADS = """
import hashlib, numpy as np, pyarrow as pa
from sqlrag import classify, cluster, embed_rows, near_duplicates, semantic_join
own = np.random.default_rng(3)
middle = own.standard_normal((20, 384))
def rows(n):
    vectors = middle[own.integers(0, 20, n)] + 0.4 * own.standard_normal((n, 384))
    return embed_rows(pa.table({"v": list(vectors)}), vector="v")
one, two = rows(1500), rows(2500)
found = [
    semantic_join(one, two, k=3), semantic_join(one, two, k=3, exact=False), near_duplicates(two, threshold=0.9),
    cluster(two, clusters=9), classify(one, {str(i): row for i, row in enumerate(middle)}),
]
print([hashlib.sha256(repr(one.arrow().to_pydict()).encode()).hexdigest() for one in found])
"""


@pytest.mark.slow
def test_the_number_of_threads_changes_nothing():
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    assert len({python(THREADS, **dict.fromkeys(names, threads)) for threads in "12"}) == 1


class TestNearDuplicates:
    @pytest.mark.slow
    @settings(max_examples=60, deadline=None)
    @given(MATRICES, st.sampled_from([0.5, 0.9, 1]))
    def test_pairs_and_groups_equal_a_comparison_of_all(self, sides, threshold):
        vectors = sides[0]
        scores = cosines(vectors, vectors)
        first = [
            min(j for j in range(len(vectors)) if np.array_equal(*np.float32(unit([vectors[i], vectors[j]]))))
            for i in range(len(vectors))
        ]
        pairs = {
            (i, j)
            for j in range(len(vectors))
            for i in range(j)
            if scores[i, j] >= threshold and (i == first[i]) and (j == first[j])
        } | {(first[j], j) for j in range(len(vectors)) if first[j] != j}
        found = near_duplicates(rows_of(vectors), threshold=threshold)
        assert {row[:2] for row in values(found)} == pairs
        assert [row[:3] for row in values(found)] == sorted(
            ((i, j, 1.0 if first[i] == first[j] else scores[i, j]) for i, j in pairs), key=lambda p: (-p[2], p[0], p[1])
        )
        # Groups: what can be reached from a row.
        groups = []
        for i in range(len(vectors)):
            reached, before = {i}, set()
            while reached != before:
                before = set(reached)
                reached |= {one for pair in pairs for one in pair if reached & set(pair)}
            if len(reached) > 1 and reached not in groups:
                groups.append(reached)
        groups.sort(key=lambda group: (-len(group), min(group)))
        members = [(n, i, i == min(g), len(g)) for n, g in enumerate(groups) for i in sorted(g)]
        assert values(near_duplicates(rows_of(vectors), threshold=threshold, level="row")) == members

    def test_over_several_blocks_and_by_codes(self, small_blocks):
        vectors = topics(200, 1, 16, noise=0.3)
        scores = cosines(vectors, vectors)
        expected = {(i, j) for i, j in zip(*np.nonzero(np.triu(scores >= 0.9, 1)), strict=True)}
        found = near_duplicates(rows_of(vectors), threshold=0.9)
        assert {row[:2] for row in values(found)} == expected
        assert len(expected) > 500
        by_codes = near_duplicates(rows_of(vectors), threshold=0.9, exact=False, probes=5)
        assert {row[:2] for row in values(by_codes)} <= expected
        assert len(by_codes) > 0.95 * len(expected)
        every = near_duplicates(rows_of(vectors), threshold=0.9, exact=False, probes=1000)
        assert values(every) == values(found)

    @pytest.mark.slow
    def test_by_the_bound_of_short_vectors(self, small_blocks, monkeypatch):
        vectors = topics(150, 1, 256, noise=0.2)
        expected = values(near_duplicates(rows_of(vectors), threshold=0.97))
        monkeypatch.setattr(nearest, "_WORTH", 1)
        monkeypatch.setattr(nearest, "_SELECTIVE", 1.1)
        assert values(near_duplicates(rows_of(vectors), threshold=0.97)) == expected
        assert expected

    def test_texts_of_a_table(self):
        rows = embed_rows(TICKETS, key="id", text="body", embedder=HASHING, progress="off")
        assert values(near_duplicates(rows, level="row")) == [(0, 3, True, 2), (0, 8, False, 2)]

    def test_one_row_has_no_duplicates(self):
        assert values(near_duplicates(rows_of([[1.0, 2]]))) == []
        assert values(near_duplicates(rows_of([[1.0, 2]]), level="row")) == []

    def test_wrong_options(self):
        with pytest.raises(InputError, match="threshold must be a number from -1 to 1, not -2"):
            near_duplicates(rows_of([[1.0]]), threshold=-2)
        with pytest.raises(InputError, match="level must be one of 'pair', 'row'"):
            near_duplicates(rows_of([[1.0]]), level="group")


class TestCluster:
    def test_words_of_labels_are_spelled_as_they_are_written(self):
        texts = ["stürzt Öffnen", "STÜRZT öffnen", "Rechnung fällig", "Rechnung fällig"]
        frame = pd.DataFrame({"id": range(4), "body": texts})
        rows = embed_rows(frame, key="id", text="body", embedder=HASHING, progress="off")
        words = {word for row in cluster(rows, clusters=2) for word in row["label"].split(", ")}
        assert {"stürzt", "öffnen"} <= words
        assert not words & {"sturzt", "offnen", "fallig"}

    def test_clusters_are_counted_by_month(self):
        rows = embed_rows(TICKETS, key="id", text="body", columns=["day"], embedder=HASHING, progress="off")
        found = cluster(rows, clusters=2, by="day")
        assert [(row["key"], row["cluster"]) for row in found] == [(1, 0), (3, 1), (5, 0), (8, 1)]
        assert found[1]["label"] == "came, late, parcel"
        assert {"invoice", "wrong"} <= set(found[0]["label"].split(", "))
        assert [(row["cluster"], row["count"], row["share"]) for row in found.sizes] == [(0, 2, 0.5), (1, 2, 0.5)]
        months = [dt.date(2024, month, 1) for month in (1, 2, 3, 4)]
        assert [(row["period"], row["cluster"], row["count"], row["total"], row["share"]) for row in found.periods] == [
            (month, number, *counts)
            for month, counts in zip(months, [(1, 2, 0.5), (0, 0, None), (0, 0, None), (1, 2, 0.5)], strict=True)
            for number in (0, 1)
        ]

    @pytest.mark.parametrize("period", ["day", "week", "month", "quarter", "year"])
    def test_periods_equal_a_count_in_python(self, period):
        own = np.random.default_rng(1)
        days = [dt.date(2023, 11, 1) + dt.timedelta(int(n)) for n in own.integers(0, 300, 80)]
        found = cluster(rows_of(topics(80, 1), day=pa.array(days)), clusters=3, by="day", period=period)
        begins = {
            "day": lambda d: d,
            "week": lambda d: d - dt.timedelta(d.weekday()),
            "month": lambda d: d.replace(day=1),
            "quarter": lambda d: d.replace(month=(d.month - 1) // 3 * 3 + 1, day=1),
            "year": lambda d: d.replace(month=1, day=1),
        }[period]
        counts = Counter((begins(day), row["cluster"]) for day, row in zip(days, found, strict=True))
        totals = Counter(map(begins, days))
        periods = found.periods
        assert {(row["period"], row["cluster"]): row["count"] for row in periods if row["count"]} == dict(counts)
        assert all(row["total"] == totals[row["period"]] for row in periods)
        assert all(
            row["share"] is None
            if not row["total"]
            else math.isclose(row["share"], row["count"] / row["total"], abs_tol=1e-9)
            for row in periods
        )
        spans = sorted({row["period"] for row in periods})
        steps = {(after - before).days for before, after in pairwise(spans)}
        assert (
            steps
            <= {"day": {1}, "week": {7}, "month": {28, 29, 30, 31}, "quarter": {90, 91, 92}, "year": {365, 366}}[period]
        )

    def test_scores_are_cosines_with_the_means(self):
        vectors = topics(300, 1)
        found = cluster(rows_of(vectors), clusters=5)
        numbers, own = np.array([row["cluster"] for row in found]), unit(vectors)
        assert Counter(numbers.tolist()) == {row["cluster"]: row["count"] for row in found.sizes}
        assert sorted((row["count"] for row in found.sizes), reverse=True) == [row["count"] for row in found.sizes]
        for number in range(5):
            mean = unit([own[numbers == number].mean(axis=0)])[0]
            assert np.allclose(
                [row["score"] for row in found if row["cluster"] == number], own[numbers == number] @ mean, atol=1e-6
            )

    def test_few_rows(self):
        assert values(cluster(rows_of([[1.0, 2]]))) == [(0, 0, "", 1.0)]
        empty = embed_rows(
            "SELECT 1 AS id, [1.0] AS v, DATE '2024-01-01' AS day WHERE false", vector="v", columns=["day"]
        )
        found = cluster(empty, by="day")
        assert (values(found), values(found.sizes), values(found.periods)) == ([], [], [])

    @pytest.mark.slow
    def test_a_file_is_read_with_the_column(self, tmp_path):
        kb = build(tmp_path, a_md="---\nday: 2024-01-05\n---\nzebra", b_md="---\nday: 2024-03-01\n---\nlion")
        periods = cluster(kb, clusters=1, by="day").periods
        assert [(row["period"], row["count"]) for row in periods] == [
            (dt.date(2024, 1, 1), 1), (dt.date(2024, 2, 1), 0), (dt.date(2024, 3, 1), 1)
        ]  # fmt: skip
        assert sum(row["count"] for row in cluster(kb, by="modified_at").periods) == 2
        with pytest.raises(InputError, match=r"No chunk of .* has the metadata field 'dya'; did you mean 'day'\?"):
            cluster(kb, by="dya")

    def test_columns_that_are_no_dates(self):
        rows = rows_of([[1.0, 2]], day=pa.array(["2024-01-01"]))
        with pytest.raises(
            InputError, match=r"column day \(by\) of the given rows is of type string.*CAST\(\"day\" AS TIMESTAMP"
        ):
            cluster(rows, by="day")
        with pytest.raises(
            InputError, match=r"read without the column 'days' \(by\): embed_rows\(…, columns=\['days'\]\). Read: day"
        ):
            cluster(rows, by="days")
        none = rows_of([[1.0, 2]], day=pa.array([None], pa.date32()))
        with pytest.raises(InputError, match="No row of the given rows has a date in 'day'"):
            cluster(none, by="day")

    @pytest.mark.parametrize(
        ("values", "date"),
        [
            (["03.02.2024", "31.12.2024"], dt.date(2024, 2, 3)),
            (["03.02.2024 10:30", "31.12.2024 00:00"], dt.date(2024, 2, 3)),
            (["02/03/2024", "12/31/2024"], dt.date(2024, 2, 3)),
            (["02/03/2024", "12/03/2024"], dt.date(2024, 3, 2)),
            (["Feb 3, 2024", None], dt.date(2024, 2, 3)),
            (["2024-02-03", "2024-12-31 10:00:00"], dt.date(2024, 2, 3)),
            (["2024-02-03", "31.12.2024"], dt.date(2024, 2, 3)),
            (["2024-12-31"] * 1500 + ["03.02.2024", None], dt.date(2024, 2, 3)),
            (["2024-02-03", "soon", "31.12.2024"], dt.date(2024, 2, 3)),
            ([2023, 2024], dt.date(2023, 1, 1)),
            ([1706918400, 1735603200], dt.date(2024, 2, 3)),
            ([1706918400000, 1735603200000], dt.date(2024, 2, 3)),
        ],
    )
    def test_the_remedy_for_dates_of_another_form_works(self, values, date):
        vectors = [[1.0, place + 1] for place in range(len(values))]
        frame = pd.DataFrame({"day": pd.Series(values, dtype=object if isinstance(values[0], str) else "int64")})
        with pytest.raises(InputError, match="column day") as caught:
            cluster(rows_of(vectors, day=pa.Array.from_pandas(frame["day"])), by="day")
        query = re.search(r'REPLACE \((.*) AS "day"\) FROM', str(caught.value))[1]
        with duckdb.connect() as con:
            made = con.sql(f"SELECT {query} AS day FROM frame").to_arrow_table()["day"]
        assert cluster(rows_of(vectors, day=made), by="day", period="day").periods[0]["period"] == date
        assert made.null_count == len([value for value in values if value in (None, "soon")])
        remedy = re.search(r"frame\['day'\] = (.*)\.$", str(caught.value))[1]
        found = eval(remedy, {"pandas": pd, "frame": frame})
        assert (found.min().date(), found.isna().sum()) == (date, made.null_count)

    def test_a_file_with_dates_of_another_form_says_how_they_are_read(self, tmp_path):
        kb = build(tmp_path, a_md="---\nday: 05.01.2024\n---\nzebra", b_md="---\nday: 31.03.2024\n---\nlion")
        with pytest.raises(
            InputError, match=r"strptime\(\"day\", '%d.%m.%Y'\).*pandas.to_datetime\(.*, format='%d.*again"
        ):
            cluster(kb, clusters=1, by="day")

    def test_the_query_for_some_dates_of_another_form_works(self, tmp_path):
        table = tmp_path / "t.csv"
        table.write_text("id,body,day\n1,zebra,2024-09-16\n2,lion,14.02.2024\n3,owl,2024-09-17\n")
        given = {"key": "id", "text": "body", "collection": "t", "embedder": HASHING, "verbose": False}
        index_rows(table, kb := tmp_path / "kb.duckdb", **given)
        for notices in (
            cluster(kb, clusters=1, by="day").notices,
            trend("zebra", kb, threshold=0.5, by="day").notices,
        ):
            query = re.search(r"in a query by (.*), in a data frame by", notices[0])[1]
            read = f"SELECT * REPLACE ({query} AS day) FROM '{table}'"
            assert index_rows(read, kb, **given).columns_changed == 3
            assert cluster(kb, clusters=1, by="day").notices == []
            index_rows(table, kb, **given)

    def test_a_missing_date_is_noticed_and_a_wrong_one_does_not_fill_the_memory(self):
        rows = rows_of([[1.0, 2], [2.0, 1]], day=pa.array([None, dt.date(2024, 1, 1)]))
        found = cluster(rows, by="day")
        assert found.notices == ["1 row without a date in 'day' left out."]
        assert [row["count"] for row in found.periods] == [1]
        rows = rows_of([[1.0, 2], [2.0, 1]], day=pa.array([dt.date(1, 1, 1), dt.date(9999, 1, 1)]))
        with pytest.raises(InputError, match=r"From 0?0?0?1-01-01 to 9999-01-01 are .* days, too many"):
            cluster(rows, by="day", period="day")

    def test_dates_that_python_has_not_are_refused_with_their_span(self):
        dates = "(1, 'red fox', DATE '0044-03-15 (BC)'), (2, 'blue', DATE '2024-01-01')"
        rows = embed_rows(
            f"FROM (VALUES {dates}) AS t(id, body, day)", key="id", text="body", columns=["day"],
            embedder=HASHING, progress="off",
        )  # fmt: skip
        with pytest.raises(
            InputError, match=r"from 0044-03-15 \(BC\) to 2024-01-01. Only those of the years 1 to 9999"
        ):
            cluster(rows, by="day", period="year")

    def test_wrong_options(self):
        with pytest.raises(InputError, match="clusters must be a whole number from 1 to 1000, not 0"):
            cluster(rows_of([[1.0]]), clusters=0)
        with pytest.raises(InputError, match="period must be one of 'day'"):
            cluster(rows_of([[1.0]]), period="decade")

    def test_documents_and_rows_of_a_file_by_metadata(self, kb):
        rows = embed_rows(kb, columns=["day", "created_at"])
        found = cluster(rows, clusters=2, by="day")
        assert [row["key"] for row in found] == rows.keys.to_pylist()
        assert sum(row["count"] for row in found.periods) == len(rows) - 1
        assert found.notices == ["1 row without a date in 'day' left out."]
        assert {row["period"].month for row in found.periods} == {1, 2, 3, 4, 5}
        assert len(cluster(rows, by="created_at").periods.df()) > 0


class TestClassify:
    def test_labels_and_margins_equal_numpy(self):
        vectors, means = topics(500, 1), topics(7, 2)
        labels = {f"l{i}": row for i, row in enumerate(means)}
        scores = cosines(vectors, means)
        for (key, label, near, score, second, margin), own in zip(
            values(classify(rows_of(vectors), labels)), scores, strict=True
        ):
            order = sorted(range(7), key=lambda j: -own[j])
            assert (near, second) == (f"l{order[0]}", f"l{order[1]}")
            assert label == near
            assert abs(score - own[order[0]]) < 1e-6
            assert abs(margin - (own[order[0]] - own[order[1]])) < 1e-6
            assert key is not None

    def test_examples_are_represented_by_their_mean(self):
        one, two = np.array([[1.0, 0, 0], [0, 3.0, 0]]), np.array([0, 0, 1.0])
        found = classify(rows_of([[1.0, 1, 0], [0, 1, 3]]), {"plane": one, "up": two})
        assert values(found)[0] == (0, "plane", "plane", 1.0, "up", 1.0)
        assert found[1]["label"] == "up"

    def test_rows_below_a_threshold_or_margin_get_no_label(self):
        rows, labels = rows_of([[1.0, 0], [1.0, 0.9], [-1.0, 0.1]]), {"a": [1.0, 0], "b": [0.0, 1]}
        assert [row["label"] for row in classify(rows, labels)] == ["a", "a", "b"]
        assert [row["label"] for row in classify(rows, labels, threshold=0.5)] == ["a", "a", None]
        assert [row["label"] for row in classify(rows, labels, margin=0.2)] == ["a", None, "b"]
        assert [row["nearest"] for row in classify(rows, labels, margin=2)] == ["a", "a", "b"]

    def test_label_texts_and_example_texts(self):
        embedder = Recorder(64)
        rows = embed_rows(TICKETS, key="id", text="body", embedder=embedder, progress="off")
        assert sorted(embedder.texts) == ["the invoice is wrong", "the parcel came late", "wrong invoice again"]
        found = classify(rows, ["late parcel", "invoice"])
        assert [(row["key"], row["label"]) for row in found] == [
            (1, "invoice"),
            (3, "late parcel"),
            (5, "invoice"),
            (8, "late parcel"),
        ]
        found = classify(rows, {"delivery": ["parcel late", "parcel"], "billing": "invoice"})
        assert [row["label"] for row in found] == ["billing", "delivery", "billing", "delivery"]
        assert classify(rows, ["parcel"])[0] == {
            "key": 1,
            "label": "parcel",
            "nearest": "parcel",
            "score": 0.0,
            "second": None,
            "margin": None,
        }

    def test_of_equal_labels_the_earlier_one_is_the_nearest(self):
        found = classify(rows_of([[1.0, 1.0]]), {"z": [1.0, 0], "a": [0.0, 1]})
        assert values(found) == [(0, "z", "z", 0.707106781, "a", 0.0)]

    def test_a_file_embeds_labels_with_its_model(self, kb):
        found = classify(kb, ["parcel", "invoice"])
        texts = dict(zip(embed_rows(kb).keys.to_pylist(), embed_rows(kb).texts.to_pylist(), strict=True))
        for row in found:
            if row["margin"]:
                assert row["label"] in texts[row["key"]]

    @pytest.mark.parametrize(
        ("labels", "message"),
        [
            ([], "labels is empty"),
            ("billing", "labels must be a list"),
            (["billing", "Billing "], r"label 'Billing ' is there twice"),
            ({"a": None}, "The label 'a' is None. Give a text that says what it means"),
            (["billing", " "], "A label must be a text that is not blank"),
            ({"a": []}, "label 'a' has no example"),
            ({"a": [1.0, 2], "b": [2.0, 4]}, "labels 'a' and 'b' have the same vector"),
            ({"a": [[1.0, 2], [-1.0, -2]]}, "opposite to each other"),
            ({"a": [0.0, 0]}, "Vector 0 is zero"),
            ({"a": [math.nan, 0]}, "not finite"),
            (["billing"], "there is no model to embed texts with. Pass the model that made them"),
        ],
    )
    def test_wrong_labels(self, labels, message):
        with pytest.raises(InputError, match=message):
            classify(rows_of([[1.0, 2]]), labels)

    def test_labels_of_another_length(self):
        with pytest.raises(ModelMismatchError, match="2 dimensions; you passed 3"):
            classify(rows_of([[1.0, 2]]), {"a": [1.0, 2, 3]})
        rows = embed_rows(table([[1.0] * 64]), vector="v", embedder=HASHING)
        assert classify(rows, ["billing"])[0]["nearest"] == "billing"
        with pytest.raises(InputError, match="have 2 dimensions, those of hashing-64 64"):
            embed_rows(table([[1.0, 2]]), vector="v", embedder=HASHING)


@pytest.fixture(scope="module")
def kb(tmp_path_factory):
    """Rows of a table beside a document, embedded by hashing, with dates from January to May."""
    path = tmp_path_factory.mktemp("analytics") / "kb.duckdb"
    source = """
        SELECT i AS id,
               ['parcel late box', 'invoice wrong sum', 'lamp broken glass'][i % 3 + 1] || ' number' || i AS body,
               DATE '2024-01-10' + CAST(i * 10 AS INTEGER) AS day, i % 2 = 0 AS open
        FROM range(13) AS t(i) WHERE i NOT IN (4, 5)
    """
    index_rows(source, path, key="id", text="body", collection="tickets", embedder=HASHING, progress="off")
    with Store(path, read_only=False) as store:
        chunk = Chunk("about.md", 0, "the the the parcel page")
        store.upsert([Document("about.md", chunk.content)], [chunk], HASHING.embed([chunk.content], kind="document"))
    return path


class TestDistinctiveTerms:
    def test_it_equals_the_formula_of_the_paper(self, kb):
        with duckdb.connect(str(kb), read_only=True) as con:
            texts = con.execute(
                "SELECT collection, json_extract_string(metadata_, '$.open') = 'true', text FROM documents"
            ).fetchall()
        group, rest, everything = Counter(), Counter(), Counter()
        for collection, is_open, text in texts:
            words = text.lower().split()
            everything.update(words)
            if collection == "tickets":
                (group if is_open else rest).update(words)
        found = distinctive_terms(
            kb,
            {"metadata": {"open": True}},
            {"metadata": {"open": False}, "collection": "tickets"},
            top_k=1000,
            prior=20,
        )
        prior = {word: 20 * count / everything.total() for word, count in everything.items()}
        for row in found:
            word = row["term"]
            y, z, a = group[word], rest[word], prior[word]
            delta = math.log((y + a) / (group.total() + 20 - y - a)) - math.log((z + a) / (rest.total() + 20 - z - a))
            assert row["log_odds"] == pytest.approx(delta, abs=1e-8)
            assert row["z"] == pytest.approx(delta / math.sqrt(1 / (y + a) + 1 / (z + a)), abs=1e-8)
            assert (row["count"], row["count_against"]) == (y, z)
        assert {row["term"] for row in found} == {word for word in everything if group[word] + rest[word]}
        assert [(-row["z"], row["term"]) for row in found] == sorted((-row["z"], row["term"]) for row in found)

    def test_against_all_others_without_stop_words(self, kb):
        found = distinctive_terms(kb, {"metadata": {"$doc_id": "about.md"}})
        assert [row["term"] for row in found][:2] == ["page", "parcel"]
        assert "the" not in found.df()["term"].tolist()
        assert len(distinctive_terms(kb, {"collection": "tickets"}, top_k=3)) == 3

    @pytest.mark.parametrize(
        ("group", "against", "message"),
        [
            ({"collection": "nowhere"}, None, "No chunk passes the filters: .*'nowhere'"),
            ({}, None, "passes against={} beside those of group"),
            ({"tag": "x"}, None, "group has tag; the filters are collection"),
            ("tickets", None, "group must be a dict"),
            ({"collection": "tickets"}, {"tags_any": "x"}, "tags_any must be a list"),
        ],
    )
    def test_wrong_groups(self, kb, group, against, message):
        with pytest.raises(InputError, match=message):
            distinctive_terms(kb, group, against)

    def test_wrong_options(self, kb):
        with pytest.raises(InputError, match="prior must be more than 0"):
            distinctive_terms(kb, {"collection": "tickets"}, prior=0)
        with pytest.raises(InputError, match="top_k must be a whole number from 1"):
            distinctive_terms(kb, {"collection": "tickets"}, top_k=0)
        with pytest.raises(NotFoundError):
            distinctive_terms(kb.with_name("none.duckdb"), {})


class TestTrend:
    @pytest.mark.parametrize("period", ["month", "week"])
    def test_it_equals_a_count_over_all_vectors(self, kb, period):
        rows = embed_rows(kb, columns=["day"])
        vector = HASHING.embed(["late parcel"], kind="query")[0].astype(np.float64)
        scores = rows.vectors.astype(np.float64) @ vector / np.linalg.norm(vector)
        hits, totals = Counter(), Counter()
        for score, day in zip(scores, rows.columns["day"].to_pylist(), strict=True):
            if day is None:
                continue
            begin = dt.date.fromisoformat(day[:10])
            begin = begin.replace(day=1) if period == "month" else begin - dt.timedelta(begin.weekday())
            totals[begin] += 1
            hits[begin] += score >= 0.5
        found = trend("late parcel", kb, threshold=0.5, by="day", period=period)
        assert {row["period"]: row["total"] for row in found if row["total"]} == dict(totals)
        assert {row["period"]: row["count"] for row in found if row["total"]} == dict(hits)
        assert all(row["share"] == (round(row["count"] / row["total"], 9) if row["total"] else None) for row in found)
        assert found.notices == ["1 document without a date in 'day' left out."]
        if period == "week":
            assert any(row["total"] == 0 for row in found)
        assert values(trend(vector, kb, threshold=0.5, by="day", period=period)) == values(found)

    def test_a_document_counts_once_and_filters_hold(self, tmp_path):
        with Store.create(tmp_path / "kb.duckdb", 2) as store:
            chunks = [Chunk("a.md", 0, "one"), Chunk("a.md", 1, "two"), Chunk("b.md", 0, "three", ("tag",))]
            documents = [
                Document("a.md", "one two", metadata={"day": "2024-02-29T23:30:00-02:00"}),
                Document("b.md", "three", metadata={"day": "2024-05-01"}, tags=("tag",)),
            ]
            store.upsert(documents, chunks, [[1, 0], [1, 0.1], [0, 1]])
            found = trend([1, 0], store, threshold=0.9, by="day")
            assert [(row["period"].month, row["count"], row["total"]) for row in found] == [
                (2, 1, 1),
                (3, 0, 0),
                (4, 0, 0),
                (5, 0, 1),
            ]
            assert [row["count"] for row in trend([0, 1], store, threshold=0.9, by="day", tags_any=["tag"])] == [1]
            assert trend([1, 0], store, threshold=-1).arrow()["count"].to_pylist() == [2]

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"by": "dya"}, r"No document of .* has a date in 'dya' \(by\); did you mean 'day'\?"),
            ({"by": "open"}, r"No document of .* has a date in 'open' \(by\): 'true' is none; write 2024-05-01"),
            ({"threshold": 2}, "threshold must be a number from -1 to 1"),
            ({"period": "months"}, "period must be one of"),
            ({"by": " "}, "by must be a text that is not blank"),
        ],
    )
    def test_wrong_options(self, kb, options, message):
        with pytest.raises(InputError, match=message):
            trend("parcel", kb, **{"threshold": 0.5, "by": "day", **options})

    def test_wrong_questions(self, kb):
        with pytest.raises(InputError, match="question must be a text that is not blank"):
            trend(" ", kb, threshold=0.5)
        with pytest.raises(ModelMismatchError, match="64 dimensions; you passed 2"):
            trend([1, 2], kb, threshold=0.5)


class TestEmbedRows:
    @pytest.mark.parametrize(
        "kind", ["query", "connection", "relation", "arrow", "reader", "pandas", "polars", "parquet", "csv", "database"]
    )
    def test_every_source_gives_the_same_rows(self, kind, tmp_path):
        options = {"key": "id", "text": "body", "embedder": HASHING, "progress": "off"}
        con = duckdb.connect()
        con.execute(f"CREATE TABLE tickets AS {TICKETS}")
        arrow = con.sql("FROM tickets").to_arrow_table()
        pq.write_table(arrow, tmp_path / "t.parquet")
        con.execute(f"COPY tickets TO '{tmp_path / 't.csv'}'")
        with duckdb.connect(str(tmp_path / "shop.db")) as shop:
            shop.execute(f"CREATE TABLE tickets AS {TICKETS}")
        source = {
            "query": TICKETS,
            "connection": "FROM tickets",
            "relation": con.sql("FROM tickets"),
            "arrow": arrow,
            "reader": arrow.to_reader(),
            "pandas": arrow.to_pandas(),
            "polars": pl.from_arrow(arrow),
            "parquet": tmp_path / "t.parquet",
            "csv": str(tmp_path / "*.csv"),
            "database": "FROM tickets",
        }[kind]
        database = {"connection": con, "database": tmp_path / "shop.db"}.get(kind)
        rows = embed_rows(source, database=database, columns=["day"], **options)
        assert rows.keys.to_pylist() == [1, 3, 5, 8]
        assert rows.texts.to_pylist()[0] == "the invoice is wrong"
        assert [str(day)[:10] for day in rows.columns["day"].to_pylist()] == [
            "2024-01-20",
            "2024-01-03",
            "2024-04-30",
            "2024-04-08",
        ]
        assert np.array_equal(rows.vectors, HASHING.embed(rows.texts.to_pylist(), kind="document"))

    def test_rows_without_a_key_are_numbered(self):
        rows = embed_rows(pd.DataFrame({"body": ["b", "a", " ", None]}), text="body", embedder=HASHING, progress="off")
        assert rows.keys.to_pylist() == [0, 1]
        assert rows.notices == ["2 rows of the given rows without a text: left out."]

    def test_columns_are_found_in_whatever_case_and_named_as_they_were_asked_for(self):
        rows = embed_rows(
            "SELECT 1 AS ID, 'red fox' AS Body, DATE '2024-05-01' AS Day", key="id", text="body", columns=["day", "id"],
            embedder=HASHING, progress="off",
        )  # fmt: skip
        assert rows.columns.to_pylist() == [{"day": dt.date(2024, 5, 1), "id": 1}]
        assert cluster(rows, by="day").periods[0]["count"] == 1

    @pytest.mark.parametrize("text", [("body", "id"), "{id}: {body}"], ids=["columns", "template"])
    def test_texts_of_several_columns(self, text):
        rows = embed_rows(TICKETS, key="id", text=text, embedder=HASHING, progress="off")
        assert re.fullmatch(r"body: .*\nid: 1|1: .*", rows.texts[0].as_py())

    @pytest.mark.parametrize("kind", ["FLOAT[3]", "DOUBLE[]", "INTEGER[]", "DECIMAL(9,2)[]"])
    def test_vectors_are_scaled(self, kind):
        rows = embed_rows(
            f"SELECT i AS id, CAST([i, 2, 3] AS {kind}) AS v FROM range(1, 4) AS t(i)", key="id", vector="v"
        )
        assert np.allclose(rows.vectors, unit([[1, 2, 3], [2, 2, 3], [3, 2, 3]]), atol=1e-7)
        assert (rows.model, rows.texts, rows.vectors.dtype) == (None, None, np.float32)

    def test_given_vectors_with_texts_need_no_model(self):
        rows = embed_rows("SELECT 'red fox' AS t, [1.0, 2] AS v UNION ALL SELECT 'blue', NULL", text="t", vector="v")
        assert rows.notices == ["1 row of the query without a vector: left out."]
        assert cluster(rows)[0]["label"] in ("fox, red", "")

    def test_keys_of_types_that_python_has_not(self):
        rows = embed_rows(
            "SELECT CAST('6ccd780c-baba-1026-9564-5b8c656024db' AS UUID) AS id, [1.0] AS v", key="id", vector="v"
        )
        assert rows.keys.to_pylist() == ["6ccd780c-baba-1026-9564-5b8c656024db"]

    def test_a_text_that_is_longer_than_the_window_is_noticed(self):
        rows = embed_rows(TICKETS, key="id", text="body", embedder=Recorder(64, max_tokens=3), progress="off")
        assert "longer than 3 tokens" in rows.notices[0]
        assert "index_rows cuts long texts" in repr(rows)

    def test_chunks_of_a_file(self, kb):
        rows = embed_rows(kb, collection="tickets", metadata={"open": True}, columns=["day"])
        with duckdb.connect(str(kb), read_only=True) as con:
            expected = con.execute(
                "SELECT node_id, text, embedding FROM documents WHERE metadata_->>'open' = 'true' "
                "ORDER BY doc_id, chunk_index"
            ).fetchall()
        assert rows.keys.to_pylist() == [row[0] for row in expected]
        assert rows.texts.to_pylist() == [row[1] for row in expected]
        assert np.array_equal(rows.vectors, np.array([row[2] for row in expected], np.float32))
        assert rows.model == "hashing-64"
        with Store(kb) as store:
            assert len(embed_rows(store)) == 12
        assert embed_rows(kb, embedder=HASHING).model == "hashing-64"

    @pytest.mark.parametrize(
        ("source", "options", "message"),
        [
            (TICKETS, {}, r"Name the column of the texts \(text\), or that of ready-made vectors"),
            (TICKETS, {"text": "bodies"}, "no column 'bodies'.*Did you mean 'body'"),
            (TICKETS, {"text": "body", "key": "nr"}, "no column 'nr'"),
            (TICKETS, {"text": "body", "columns": ["when"]}, "no column 'when'"),
            (TICKETS, {"text": "body", "collection": "x"}, "collection chooses chunks of a file"),
            (TICKETS, {"vector": "body"}, r"column body \(vector\) is of type VARCHAR.*CAST\(\"body\" AS FLOAT\[\]\)"),
            ("SELECT 1 AS id, 'a' AS t FROM range(2)", {"key": "id", "text": "t"}, "key id is not unique"),
            (
                "SELECT unnest([[1.0], [1.0, 2], [3.0]]) AS v",
                {"vector": "v"},
                r"different lengths: 1 \(2 rows\), 2 \(1 row\).*len\(\"v\"\) = 1",
            ),
            ("SELECT [1.0, NULL] AS v", {"vector": "v"}, "vector of the row 0 .* has a NULL in it"),
            ("SELECT 7 AS k, ['NaN'::FLOAT, 1] AS v", {"vector": "v", "key": "k"}, r"Vector 0 \(key 7\) is not finite"),
            ("SELECT 7 AS k, [0.0, 0] AS v", {"vector": "v", "key": "k"}, r"Vector 0 \(key 7\) is zero"),
            ("SELECT CAST([] AS FLOAT[]) AS v", {"vector": "v"}, "are empty lists"),
            ("rows.txt", {"text": "t"}, r"'rows.txt' is read as a file of sqlrag.*leave out text. Tables are files"),
            (42, {"text": "t"}, "source must be a path, SQL"),
        ],
    )
    def test_wrong_sources(self, source, options, message):
        with pytest.raises((InputError, NotFoundError), match=message):
            embed_rows(source, **options)

    def test_columns_of_a_table_are_refused_for_a_file(self, kb):
        with pytest.raises(InputError, match="own keys, texts and vectors: leave out key and text"):
            embed_rows(kb, key="id", text="body")
        with pytest.raises(InputError, match=r"No chunk of .* has the metadata field 'dya'"):
            embed_rows(kb, columns=["dya"])
        with pytest.raises(NotFoundError):
            embed_rows(kb.with_name("none.duckdb"))
        with pytest.raises(ModelMismatchError):
            embed_rows(kb, embedder=HashingEmbedder("hashing-32"))


NOTHING_PASSES = r"No chunk passes the filters: .*'stars'.*No chunk has the metadata field 'stars'"


@pytest.mark.parametrize(
    "call",
    [
        lambda kb, filters: embed_rows(kb, **filters),
        lambda kb, filters: trend("parcel", kb, threshold=0.3, by="day", **filters),
        lambda kb, filters: distinctive_terms(kb, filters),
    ],
)
def test_a_selection_without_any_chunk_is_refused_with_what_is_not_there(kb, call):
    with pytest.raises(InputError, match=NOTHING_PASSES):
        call(kb, {"metadata": {"stars": {"$gt": 9}}})


def test_a_result_without_rows_is_shown():
    nothing = near_duplicates(rows_of([[1, 0], [0, 1]]))
    assert nothing[:5] == []
    assert repr(nothing).splitlines()[0] == "0 rows"
    assert "0 rows" in nothing._repr_html_()


def test_results_are_frames_and_sequences():
    found = near_duplicates(rows_of([[1.0, 0], [1.0, 0.01], [0.0, 1]]))
    assert isinstance(found, Analysis)
    assert found.df().columns.tolist() == found.pl().columns == found.arrow().column_names
    assert (len(found), found[0]["key"], found[:1]) == (1, 0, [found[0]])
    assert repr(found).splitlines() == [
        "1 row",
        "key  other_key  score   group",
        "0    1          1.0000  0",
    ] or "0.9999" in repr(found)
    assert "<td>0</td>" in found._repr_html_()
    many = semantic_join(rows_of(topics(30, 1)), rows_of(topics(30, 2)))
    assert repr(many).splitlines()[-1] == "and 20 more"


@pytest.mark.slow
def test_memory_does_not_grow_with_the_product_of_the_tables():
    own = np.random.default_rng(1)
    one, two = (rows_of(own.standard_normal((rows, 4))) for rows in (3000, 60_000))
    tracemalloc.start()
    try:
        assert len(semantic_join(one, two, k=2)) == 6000
        assert tracemalloc.get_traced_memory()[1] < 150e6  # all products in float32 are 720 MB
    finally:
        tracemalloc.stop()
