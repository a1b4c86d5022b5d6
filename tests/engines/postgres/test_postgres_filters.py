"""Filters on a store in Postgres: the same chunks pass as in a DuckDB file, whose filters test_filters.py checks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sqlrag import Chunk, Document, InputError, Store
from sqlrag.search.postgres_store import PostgresStore
from tests.support.metadata_filters import ROWS, VALUES, filters, passes

ODD = [
    {"v": value}
    for value in (
        *(1, 1.0, "1", -0.0, 0, 1e308, 5e-324, 2**63 - 1, -(2**63), 2**64 - 1, 2**64, 9007199254740993, 0.1),
        *(1e22, 123456789.123456789, True, "true", "null", [], [[]], [None], {}, {"a": None}),
        *({"b": [1, {"c": "d"}], "a": 1}, [1, 1.0, True], [{"a": 1}], "ẞ İ ß"),
        *("é", "e\u0301", "\U0001f980 日本", "a\\b", "'", '"', "100 %s %(x)s", "a\nb\tc", " "),
    )
]
KEYS = ["a.b", "a/b", "~1", "it's", 'a"b', "50 %", "%s", "%(k)s", "{x}", "a b", "", "日本", "$", "a\\b", "::", "a->b"]
ROWS_BY_KEY = [{key: place, "v": key} for place, key in enumerate(KEYS)]
EVERY = [*ROWS, *ODD, *ROWS_BY_KEY]
TAGS = [(), ("a",), ("b",), ("a", "b"), ("ä b", "%s"), ("it's",), ('"',), ("{}",), ("a", "b", "c")]


@pytest.fixture(scope="module")
def both(postgres, tmp_path_factory):
    """The same rows in Postgres and in a DuckDB file; every vector has a cosine of its own."""
    names = [f"d{place:03}" for place in range(len(EVERY))]
    documents = [
        Document(name, "zebra", ("main", "other", "it's")[place % 3], tags=TAGS[place % len(TAGS)])
        for place, name in enumerate(names)
    ]
    chunks = [
        Chunk(one.doc_id, 0, "zebra", one.tags, metadata, one.collection)
        for one, metadata in zip(documents, EVERY, strict=True)
    ]
    vectors = np.random.default_rng(3).normal(size=(len(chunks), 8))
    folder = tmp_path_factory.mktemp("conditions")
    with PostgresStore.create(postgres.new_url(), 8) as there, Store.create(folder / "kb.duckdb", 8) as here:
        for store in (there, here):
            store.upsert(documents, chunks, vectors)
        yield there, here


def found(store, **asked):
    results = store.vector_query(query_vector=np.ones(8), top_k=len(EVERY), exact=True, **asked)
    return [(row["node_id"], row["score"]) for row in results]


def same(both, **asked):
    there, here = (found(store, **asked) for store in both)
    assert there == here
    return [node_id for node_id, _ in here]


def test_plain_values_and_operators(both):
    """Each operator with each value, and with some under $not."""
    values = [*VALUES, *(row["v"] for row in ODD)]
    orders = [one for one in values if isinstance(one, (int, float, str)) and not isinstance(one, bool)]
    operands = {
        **dict.fromkeys(("$eq", "$ne", "$contains"), values),
        **{sign: [[], *([one] for one in values), values[:5]] for sign in ("$in", "$nin", "$any")},
        "$all": [*([one] for one in values), [1, True], ["red", 2024]],
        **dict.fromkeys(("$gt", "$gte", "$lt", "$lte"), orders),
        **{
            sign: [one for one in orders if isinstance(one, str)] for sign in ("$text_match", "$text_match_insensitive")
        },
        "$exists": [True, False],
        "$empty": [True, False],
    }
    wrong, passed = [], 0
    for sign, wanted in operands.items():
        for place, operand in enumerate(wanted):
            for filter_ in [{"v": {sign: operand}}, {"v": {"$not": {sign: operand}}}][: 1 + (place % 4 == 0)]:
                there, here = (found(store, metadata=filter_) for store in both)
                passed += len(here)
                if there != here:
                    names = {name for name, _ in there} ^ {name for name, _ in here}
                    wrong.append((filter_, [(name, EVERY[int(name[1:4])], (name in dict(here))) for name in names]))
    assert wrong == []
    assert passed > 5_000


# In ranges that reach over months, days and offsets; one is beyond the year 9999 in UTC, others are no dates.
TIMES = [
    *(
        "2024-05-01",
        "2024-05-01T00:00",
        "2024-04-30T23:30:00-01:00",
        "2024-05-01T01:30+02",
        "2024-05-02 00:30:00.5+1445",
    ),
    *("2024-05-05T03:00-99:59", "2024-04-27T03:00+99:59", "2024-05-11", "2024-04-21", "2024-02-31T00:00+02:00"),
    *("0001-01-02", "9999-11-30", "9999-12-31T23:59-23:59", "2024", "2024-05", "", "20240501", "2024-W18-3", "x"),
]

# With line feeds, where one line may be a date; by what is a letter or digit; and about the years 0 and 10000.
ODD_TIMES = [
    *(
        "2024-05-01\n",
        "2024-05-01T10:30:00Z\n",
        "\n2024-05-01",
        "x\n2024-05-01T10:30 y\nz",
        "2024-05-01 \n",
        "2024-05\n",
    ),
    *("\n", "\n-", "x\ny", "2024-05-01\r", "2024-05-01T10:30\u2028", "2024-05-01T10:30:00+05:00\n", "\xa0", "..."),
    *("１２", "٢٠٢٥", "²", "½", "Ⅷ", "ª", "é", "\u0301", "Ⓐ", "\U00011240", "🦆", "2024-05-01T10:30+０5:00"),
    *("0001-01-01", "0001-01-01T00:00:00+05:00", "0001-01-01T00:00:00Z", "0000-12-31T19:00", "0000-12-31T23:00-05:00"),
    *("0000-01-01", "0000-01-01T00:00+05:00", "0000-02-29T00:00+00", "-1-12-31", "0000-00-10T00:00+01:00", "0001"),
    *("9999-12-31T23:00-05:00", "10000-01-01T04:00", "9999-12-31", "2024-05-01T10:30+05:", "2024-05-01T10:30+5"),
]


@pytest.mark.parametrize("times", [TIMES, ODD_TIMES], ids=["plain", "odd"])
def test_ranges_of_times(postgres, tmp_path, times):
    chunks = [Chunk("d", place, "zebra", (), {"v": one}) for place, one in enumerate(times)]
    vectors = np.random.default_rng(3).normal(size=(len(times), 8))
    with PostgresStore.create(postgres.new_url(), 8) as there, Store.create(tmp_path / "kb.duckdb", 8) as here:
        for store in (there, here):
            store.upsert([Document("d", "zebra")], chunks, vectors)
        passed = 0
        for sign in ("$gt", "$gte", "$lt", "$lte"):
            for one in times:
                for filter_ in ({"v": {sign: one}}, {"v": {"$not": {sign: one}}}):
                    passed += len(same((there, here), metadata=filter_))
        assert passed > 1_000


def test_a_date_before_a_line_feed_is_no_date(postgres, tmp_path):
    """Neither is it compared with text, nor is the text refused as it is beside a field of dates."""
    chunks = [Chunk("d", 0, "zebra", (), {"day": "2025-01-31T10:00:00Z\n"})]
    with PostgresStore.create(postgres.new_url(), 8) as there, Store.create(tmp_path / "kb.duckdb", 8) as here:
        for store in (there, here):
            store.upsert([Document("d", "zebra")], chunks, np.ones((1, 8)))
        assert same((there, here), metadata={"day": {"$gte": "01.01.2025"}}) == []
        assert same((there, here), metadata={"day": {"$not": {"$gte": "01.01.2025"}}}) == ["d#0"]


def test_text_that_is_no_date_is_not_compared_with_dates(postgres):
    chunks = [Chunk("d", 0, "zebra", (), {"day": "2025-01-31T10:00:00+01:00", "year": 2025})]
    with PostgresStore.create(postgres.new_url(), 8) as store:
        store.upsert([Document("d", "zebra")], chunks, np.ones((1, 8)))
        for ask in (store.delete_documents, store.chunks, lambda **asked: found(store, **asked)):
            with pytest.raises(InputError, match="compares with dates such as '2025-01-31T10:00:00"):
                ask(metadata={"day": {"$gte": "01.01.2025"}})
        assert len(found(store, metadata={"day": {"$gte": "2025-01-31T09:00:00"}})) == 1
        (notice,) = store.lexical_query("zebra", metadata={"year": "2025"}).notices
        assert notice.endswith("The metadata field 'year' holds numbers such as 2025; '2025' is none.")


@pytest.mark.parametrize("key", KEYS)
def test_names_of_fields(both, key):
    place = KEYS.index(key)
    if not key:
        assert len(same(both, metadata={"": 10})) == 1
        return
    name = f"d{len(ROWS) + len(ODD) + place:03}#0"
    assert same(both, metadata={key: place}) == [name]
    assert same(both, metadata={key: {"$exists": True}}) == [name]
    assert len(same(both, metadata={key: {"$ne": place}})) == len(EVERY) - 1
    assert name in same(both, metadata={"v": key})


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(filters)
def test_filters_of_any_shape(both, wanted):
    names = set(same(both, metadata=wanted))
    expected = {f"d{place:03}#0" for place, row in enumerate(ROWS) if passes(row, wanted)}
    assert {name for name in names if int(name[1:4]) < len(ROWS)} == expected


json_values = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=5)
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=6,
).filter(lambda value: not (isinstance(value, dict) and any(key.startswith("$") for key in value)))


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(json_values, st.sampled_from(["$eq", "$ne", "$in", "$nin", "$contains", "$any", "$all"]))
def test_any_json_may_be_asked_for(both, value, sign):
    operand = [value] if sign in ("$in", "$nin", "$any", "$all") else value
    same(both, metadata={"v": {sign: operand}})


@pytest.mark.parametrize(
    ("wanted", "number"),
    [
        ({"$doc_id": "d003"}, 1),
        ({"$doc_id": {"$in": ["d003", "d004", "x"]}}, 2),
        ({"$node_id": {"$nin": ["d003#0", "d004#0"]}}, len(EVERY) - 2),
        ({"$not": {"$node_id": "d003#0"}}, len(EVERY) - 1),
        ({"$or": [{"$doc_id": "d003"}, {"v": "50 %"}]}, 2),
        ({"$doc_id": "100 %s"}, 0),
        ({}, len(EVERY)),
    ],
)
def test_ids(both, wanted, number):
    assert len(same(both, metadata=wanted)) == number


def test_tags_and_collections(both):
    every = [*{tag for tags in TAGS for tag in tags}, "none"]
    for tag in every:
        for other in every:
            same(both, tags_any=[tag, other])
            same(both, tags_all=[tag, other])
    assert len(same(both, tags_any=["ä b"], tags_all=["%s"], collection=["main", "other"])) > 0
    assert len(same(both, collection="it's", metadata={"v": {"$exists": True}})) > 0


def test_hints_for_filters_that_nothing_passes(both):
    for wanted in ({"nowhere": 1}, {"50 %": "x"}, {"v": "Red vine"}, {"v": " RED  wine"}):
        there, here = (store.vector_query(query_vector=np.ones(8), metadata=wanted).notices for store in both)
        assert there == here
        assert here
    assert here[0].endswith("No chunk has ' RED  wine' in the metadata field 'v'; did you mean 'Red wine'?")


def test_what_is_compared_by_value_here_only(both):
    """Objects and large numbers: what is equal or greater by its value, though a DuckDB file does not say so."""
    there, here = both
    nested = {"a": 1.0, "b": [1.0, {"c": "d"}]}
    assert len(found(there, metadata={"v": nested})) == 1
    assert found(here, metadata={"v": nested}) == []
    beyond = {"v": {"$gt": 9007199254740992.0, "$lt": 9007199254740994}}
    assert len(found(there, metadata=beyond)) == 1
    assert found(here, metadata=beyond) == []
