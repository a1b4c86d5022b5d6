"""Metadata filters with operators, against a reading of them in Python."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import sqlrag
from sqlrag import Chunk, Document, InputError, Store
from sqlrag.ranking.filters import as_alternatives
from tests.support.metadata_filters import MISSING, ROWS, VALUES, equal, filters, passes


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with Store.create(tmp_path_factory.mktemp("conditions") / "kb.duckdb", 8) as store:
        documents = [Document(f"d{place:02}", "zebra") for place in range(len(ROWS) + 5)]
        chunks = [Chunk(document.doc_id, 0, "zebra") for document in documents]
        store.upsert(documents, chunks, np.ones((len(chunks), 8)))
        # Places without a chunk, before, between and after those that are searched.
        store.delete_documents(doc_ids=["d00", "d07", "d08"])
        names = [document.doc_id for document in documents if document.doc_id not in ("d00", "d07", "d08")]
        chunks = [Chunk(name, 0, "zebra", (), row) for name, row in zip(names, ROWS, strict=False)]
        store.upsert([Document(chunk.doc_id, "zebra") for chunk in chunks], chunks, np.ones((len(chunks), 8)))
        store.delete_documents(doc_ids=names[len(ROWS) :])
        store.names = dict(zip(names, ROWS, strict=False))
        yield store


def found(results):
    return [row["doc_id"] for row in results]


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(wanted=filters)
def test_a_filter_lets_through_what_its_words_say_in_every_search(store, wanted):
    expected = [name for name, row in store.names.items() if passes(row, wanted)]
    results = store.lexical_query("zebra", metadata=wanted, top_k=50)
    assert found(results) == expected, as_alternatives(wanted)
    vector = np.ones(8)
    assert found(store.vector_query("", query_vector=vector, metadata=wanted, top_k=50)) == expected
    assert found(store.vector_query("", query_vector=vector, metadata=wanted, top_k=50, exact=True)) == expected
    assert found(store.lexical_query('"zebra"', metadata=wanted, top_k=50)) == expected
    assert [row[3] for row in store.cursor().execute(results.sql).fetchall()] == expected


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_plain_value_and_eq_are_the_same(store, value):
    expected = [name for name, row in store.names.items() if equal(row.get("v", MISSING), value)]
    assert found(store.lexical_query("zebra", metadata={"v": value}, top_k=50)) == expected
    assert found(store.lexical_query("zebra", metadata={"v": {"$eq": value}}, top_k=50)) == expected


def test_a_filter_that_nothing_passes_is_explained(store):
    def notice(wanted):
        (told,) = store.lexical_query("zebra", metadata=wanted).notices
        return told

    wanted = {"yeer": {"$gt": 3}, "v": {"$exists": True}}
    assert (
        notice(wanted)
        == f"No chunk passes the filters: {{'metadata': {wanted}}}. No chunk has the metadata field 'yeer'; "
        "there is 'w/~ é', 'v'."
    )
    assert notice({"V": {"$gt": 10**9}}).endswith("No chunk has the metadata field 'V'; did you mean 'v'?")


def test_values_of_another_kind_that_are_not_compared_are_told(tmp_path):
    with Store.create(tmp_path / "kb.duckdb", 8) as store:
        values = {"a": 100, "b": "200 EUR", "c": None, "d": " ", "e": [300], "f": "2024-05-01", "g": "01.06.2024"}
        documents = [Document(name, "zebra", f"c{name}") for name in values]
        chunks = [Chunk(n, 0, "zebra", (), {"v": v}, collection=f"c{n}") for n, v in values.items()]
        store.upsert(documents, chunks, np.ones((len(values), 8)))

        def notices(wanted, **options):
            return store.lexical_query("zebra", metadata={"v": wanted}, **options).notices

        told = (
            "3 documents have another kind of value in the metadata field 'v', such as '200 EUR', with which 50 is not"
        )
        assert notices({"$gt": 50})[0].startswith(told)
        told = "1 document has another kind of value in the metadata field 'v', such as '200 EUR'"
        assert notices({"$gt": 50}, collection=["ca", "cb", "cc"])[0].startswith(told)
        assert notices({"$gt": 50}, collection=["ca", "cc", "cd", "ce"]) == []
        told = "2 documents have another kind of value in the metadata field 'v', such as '100'"
        assert notices({"$gt": "2024-01-01"}, collection=["ca", "cf", "cg"])[0].startswith(told)
        as_text = "'01.01.2024' is compared with the metadata field 'v' as text, character by character, not as a date."
        first, second = notices({"$gte": "01.01.2024"})
        assert first.startswith(as_text)
        assert second.startswith(told)
        (only,) = notices({"$gte": "01.01.2024"}, collection=["cb", "cc", "cg"])
        assert only.startswith(as_text)
        assert notices({"$gte": "1.2.3"}, collection=["cb", "cc", "cg"]) == []
        either = [{"v": {"$gte": "2024-01-01"}}, {"v": {"$lte": "01.07.2024"}}]
        first, as_a_text, second = store.lexical_query("zebra", metadata={"$or": either}).notices
        assert as_a_text.startswith("'01.07.2024' is compared")
        assert "with which '2024-01-01' is not" in first
        assert "with which '01.07.2024' is not" in second
        assert notices({"$not": {"$gt": 50}}) == notices({"$exists": True}) == []


def test_fields_of_other_collections_are_told_as_such(tmp_path):
    with Store.create(tmp_path / "kb.duckdb", 8) as store:
        documents = [Document("d", "zebra", "new"), Document("e", "zebra", "old")]
        chunks = [
            Chunk("d", 0, "zebra", (), {"value": 3}, collection="new"),
            Chunk("e", 0, "zebra", (), {"amount": 3}, collection="old"),
        ]
        store.upsert(documents, chunks, np.ones((2, 8)))
        found = store.lexical_query("zebra", metadata={"amount": {"$gt": 1}}, collection="new")
        assert found.notices[0].endswith("No chunk of ['new'] has the metadata field 'amount', which others have.")
        found = store.lexical_query("zebra", metadata={"amount": {"$gt": 5}})
        assert "has the metadata field" not in found.notices[0]


def test_fields_with_names_nearly_right_are_named(tmp_path):
    with Store.create(tmp_path / "kb.duckdb", 8) as store:
        fields = {"author": "Ana", "price": 3, "heights": 2}
        store.upsert([Document("d", "zebra")], [Chunk("d", 0, "zebra", (), fields)], np.ones((1, 8)))
        for wanted, meant in {"authors": "author", "prize": "price", "height": "heights", "PRICE": "price"}.items():
            (told,) = store.lexical_query("zebra", metadata={wanted: 1}).notices
            assert told.endswith(f"No chunk has the metadata field {wanted!r}; did you mean {meant!r}?")
        (told,) = store.lexical_query("zebra", metadata={"author.name": "Ana"}).notices
        whole = "'author.name'; filters see 'author' as a whole. Give what is inside of it a field of its own"
        assert told.endswith(f"{whole}, of a table by a query: SELECT *, author.name AS name FROM …")


def test_a_list_that_is_compared_with_a_value_is_explained(tmp_path):
    with Store.create(tmp_path / "kb.duckdb", 8) as store:
        store.upsert([Document("d", "zebra")], [Chunk("d", 0, "zebra", (), {"a/b": ["Li", "Ana"]})], np.ones((1, 8)))
        (told,) = store.lexical_query("zebra", metadata={"a/b": "Li"}).notices
        assert told.endswith("The metadata field 'a/b' is a list; $contains looks for a value in it.")


@pytest.mark.parametrize(
    ("wanted", "hints"),
    [
        ({"a/b": "cancer"}, ["'cancer' in the metadata field 'a/b'; did you mean 'Cancer'?"]),
        ({"a/b": " Cancer"}, ["' Cancer' in the metadata field 'a/b'; did you mean 'Cancer'?"]),
        (
            {"a/b": {"$in": ["CANCER", "x"]}, "year": 3},
            [
                "'CANCER' in the metadata field 'a/b'; did you mean 'Cancer'?",
                "'x' in the metadata field 'a/b'; there is 'Cancer'.",
            ],
        ),
        ({"who": {"$contains": "li ana"}}, ["'li ana' in the metadata field 'who'; did you mean 'Li  Ana'?"]),
        ({"a/b": "Cancer", "who": {"$all": ["Bo", "bO"]}}, ["'bO' in the metadata field 'who'; did you mean 'Bo'?"]),
        ({"$not": {"a/b": {"$in": ["Cancer"]}}}, []),
        ({"a/b": "Canzer"}, ["'Canzer' in the metadata field 'a/b'; did you mean 'Cancer'?"]),
        ({"many": {"$contains": "no 70"}}, []),
        ({"many": {"$contains": "NO 7"}}, ["'NO 7' in the metadata field 'many'; did you mean 'no 7'?"]),
    ],
)
def test_a_value_that_is_nearly_there_is_named(tmp_path, wanted, hints):
    with Store.create(tmp_path / "kb.duckdb", 8) as store:
        fields = {"a/b": "Cancer", "who": ["Li  Ana", "Bo", 3], "year": 2, "many": [f"no {n}" for n in range(51)]}
        store.upsert([Document("d", "zebra")], [Chunk("d", 0, "zebra", (), fields)], np.ones((1, 8)))
        (told,) = store.lexical_query("zebra", metadata=wanted).notices
    assert told == " ".join(
        [f"No chunk passes the filters: {{'metadata': {wanted}}}.", *(f"No chunk has {hint}" for hint in hints)]
    )


@pytest.fixture(scope="module")
def tickets(tmp_path_factory):
    file = tmp_path_factory.mktemp("tickets") / "kb.duckdb"
    rows = [
        {
            "created": f"2025-01-{day:02}",
            "priority": day,
            "open": day > 2,
            "kind": "Parcel",
            "price": Decimal("1.50") * day,
            "version": "1.10",
        }
        for day in (1, 2, 3)
    ]
    with Store.create(file, 8) as store:
        documents = [Document(f"d{number}", "zebra") for number in range(3)]
        chunks = [Chunk(f"d{number}", 0, "zebra", (), row) for number, row in enumerate(rows)]
        store.upsert(documents, chunks, np.ones((3, 8)))
    return file


ODD = "01.02.2025"
HOW_TEXT = 'As text it is in quotes: "1.10"; on a command line \'version="1.10"\'.'
HOW_TRUTH = "It is True in Python, true in JSON; on a command line 'open=true'."
OF_DATES = "The metadata field 'created' holds dates such as '2025-01-01'; those of {} are {}."
HOW_DATES = "Dates are compared where both are written as ISO 8601 has them, such as 2025-12-31."


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ({"priority": "3"}, "The metadata field 'priority' holds numbers such as 1; '3' is none."),
        ({"priority": {"$in": ["2", "3"]}}, "The metadata field 'priority' holds numbers such as 1; '2' is none."),
        ({"priority": {"$lt": "3,00"}}, "The metadata field 'priority' holds numbers such as 1; '3,00' is none."),
        ({"created": "2025"}, OF_DATES.format("2025", '{"$gte": "2025", "$lt": "2026"}')),
        ({"created": "2025-12"}, OF_DATES.format("2025-12", '{"$gte": "2025-12", "$lt": "2026-01"}')),
        ({"open": "true"}, f"The metadata field 'open' holds true or false; 'true' is none. {HOW_TRUTH}"),
        ({"open": "True"}, f"The metadata field 'open' holds true or false; 'True' is none. {HOW_TRUTH}"),
        ({"open": 1}, "The metadata field 'open' holds true or false; 1 is none."),
        (
            {"kind": ["Parcel", "Refund"]},
            (
                "The metadata field 'kind' is no list; $in looks for one of several values. "
                "No chunk has 'Refund' in the metadata field 'kind'; there is 'Parcel'."
            ),
        ),
        ({"kind": {"$gt": 3}}, "The metadata field 'kind' holds text such as 'Parcel'; 3 is none."),
        (
            {"created": ODD},
            f"The metadata field 'created' holds dates such as '2025-01-01'; {ODD!r} is none. {HOW_DATES}",
        ),
        (
            {"version": 1.1},
            f"The metadata field 'version' holds text such as '1.10'; 1.1 is none. {HOW_TEXT}",
        ),
        (
            {"version": 2},
            f"The metadata field 'version' holds text such as '1.10'; 2 is none. {HOW_TEXT.replace('1.10', '2')}",
        ),
        ({"version": True}, "The metadata field 'version' holds text such as '1.10'; True is none."),
        ({"version": {"$gte": 2}}, "The metadata field 'version' holds text such as '1.10'; 2 is none."),
        ({"created": {"$gte": 2025}}, "The metadata field 'created' holds dates such as '2025-01-01'; 2025 is none."),
    ],
)
def test_a_value_that_is_none_of_the_field_is_explained(tickets, wanted, told):
    with Store(tickets) as store:
        (notice,) = store.lexical_query("zebra", metadata=wanted).notices
    assert notice == f"No chunk passes the filters: {{'metadata': {wanted}}}. {told}"


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ({"priorty": {"$ne": 3}}, "No chunk has the metadata field 'priorty'; did you mean 'priority'?"),
        ({"$not": {"nothing": {"$gt": 3}}}, "No chunk has the metadata field 'nothing'"),
        ({"priority": {"$ne": "3"}}, "The metadata field 'priority' holds numbers such as 1; '3' is none."),
        ({"priority": {"$nin": ["3"]}}, "The metadata field 'priority' holds numbers such as 1; '3' is none."),
        ({"created": {"$ne": ODD}}, f"The metadata field 'created' holds dates such as '2025-01-01'; {ODD!r} is none."),
    ],
)
def test_a_negation_that_holds_for_every_chunk_is_noticed(tickets, wanted, told):
    with Store(tickets) as store:
        found = store.lexical_query("zebra", metadata=wanted)
    (notice,) = found.notices
    assert notice.startswith(f"$ne, $nin or $not of the filters holds for every chunk. {told}")
    assert len(found) == 3


@pytest.mark.parametrize(
    "wanted",
    [
        *(
            {"priority": {"$ne": 3}},
            {"priority": {"$nin": [2, "3"]}},
            {"priority": {"$ne": 9}},
            {"kind": {"$ne": None}},
        ),
        *({"nothing": {"$exists": False}}, {"nothing": None}, {"$not": {"nothing": {"$exists": True}}}),
        *({"$doc_id": {"$ne": "d1"}}, {"$or": [{"nothing": {"$ne": None}}, {"priority": 1}]}),
    ],
)
def test_a_negation_that_may_be_meant_is_not(tickets, wanted):
    with Store(tickets) as store:
        found = store.lexical_query("zebra", metadata=wanted)
    assert found
    assert found.notices == []


@pytest.mark.parametrize("wanted", [{"priority": 9}, {"created": "2024-01-01"}, {"created": {"$lt": "2025"}}])
def test_a_value_that_could_be_there_needs_no_explanation(tickets, wanted):
    with Store(tickets) as store:
        (notice,) = store.lexical_query("zebra", metadata=wanted).notices
    assert notice == f"No chunk passes the filters: {{'metadata': {wanted}}}."


@pytest.mark.parametrize("odd", [ODD, "2025/01/01", "2025-1-1", "1 Jan 2025", "yesterday"])
@pytest.mark.parametrize("operator", ["$gt", "$gte", "$lt", "$lte"])
def test_text_that_is_no_date_is_not_compared_with_dates(tickets, tmp_path, odd, operator):
    wanted = {"$or": [{"priority": 7}, {"created": {"$exists": True, operator: odd}}]}
    with Store(tickets, read_only=False) as store:
        for ask in (
            lambda: store.lexical_query("zebra", metadata=wanted),
            lambda: store.chunks(metadata=wanted),
            lambda: store.delete_documents(metadata=wanted),
            lambda: store.delete_chunks(metadata=wanted),
            lambda: sqlrag.export_parquet(tickets, tmp_path / "out", metadata=wanted),
        ):
            with pytest.raises(InputError, match="compares with dates such as '2025-01-01'"):
                ask()
        assert len(store.lexical_query("zebra")) == 3


def test_dates_and_other_text_in_one_field(tmp_path):
    """A filter is refused where a field of the collections that are asked has dates alone; else dates are no match."""
    values = {"new": ["2024-01-18", "2024-07-01"], "old": ["21.01.2024", "09.07.2024"], "soft": ["v1.2", "v0.2"]}
    rows = [(f"{name}{place}", name, value) for name, found in values.items() for place, value in enumerate(found)]
    with Store.create(tmp_path / "kb.duckdb", 8) as store:
        documents = [Document(doc_id, "zebra", collection) for doc_id, collection, _ in rows]
        chunks = [Chunk(doc_id, 0, "zebra", (), {"v": value}, collection) for doc_id, collection, value in rows]
        store.upsert(documents, chunks, np.ones((6, 8)))

        def asked(wanted, collection=None):
            results = store.lexical_query("zebra", metadata={"v": wanted}, collection=collection)
            return found(results), results.notices

        some, (notice,) = asked({"$gte": "v1"})
        assert some == ["soft0"]
        assert notice.startswith(
            "2 documents have another kind of value in the metadata field 'v', such as '2024-01-18', with"
        )
        some, (form, notice) = asked({"$gte": "05.07.2024"})
        assert some == ["old0", "old1", "soft0", "soft1"]
        assert "as text, character by character, not as a date" in form
        assert "such as '2024-01-18', with which '05.07.2024' is not compared" in notice
        assert asked({"$gte": "v1"}, "soft") == (["soft0"], [])
        some, (notice,) = asked({"$gte": "2024-06-01"})
        assert some == ["new1"]
        assert notice.startswith("4 documents have another kind of value in the metadata field 'v', such as")
        assert asked({"$gt": ""}, "new") == asked({"$lt": "~"}, "new") == (["new0", "new1"], [])
        none, (notice,) = asked({"$gte": "2024-06-01"}, "old")
        assert none == []
        assert notice.endswith(
            "The metadata field 'v' holds text such as '21.01.2024'; '2024-06-01' is none. " + HOW_DATES
        )
        with pytest.raises(InputError, match="compares with dates such as '2024-01-18'"):
            asked({"$gte": "01.06.2024"}, "new")


def test_a_condition_that_some_chunk_meets_is_not_to_blame(tickets):
    with Store(tickets) as store:
        for wanted in (
            {"kind": {"$ne": 3}, "priority": 9},
            {"created": {"$text_match": "-01-"}, "priority": 9},
            {"$not": {"kind": 3}, "priority": 9},
        ):
            (notice,) = store.lexical_query("zebra", metadata=wanted).notices
            assert notice == f"No chunk passes the filters: {{'metadata': {wanted}}}."


@pytest.mark.parametrize("text", ["123456789012345678", "12345678901234.56789", "0.12345678901234567890", "1E+400"])
def test_a_decimal_finds_itself(tmp_path, text):
    with Store.create(tmp_path / "kb.duckdb", 8) as store:
        store.upsert([Document("d", "zebra")], [Chunk("d", 0, "zebra", (), {"n": Decimal(text)})], np.ones((1, 8)))
        assert len(store.lexical_query("zebra", metadata={"n": Decimal(text)})) == 1


def test_times_of_numpy_and_pandas(tmp_path):
    moments = np.array(["2025-01-01", "2025-01-02T10:00"], dtype="M8[ns]")
    with Store.create(tmp_path / "kb.duckdb", 8) as store:
        chunks = [Chunk(f"d{place}", 0, "zebra", (), {"d": one}) for place, one in enumerate(moments)]
        store.upsert([Document(chunk.doc_id, "zebra") for chunk in chunks], chunks, np.ones((2, 8)))
        assert found(store.lexical_query("zebra", metadata={"d": {"$in": moments[:1]}})) == ["d0"]
        assert found(store.lexical_query("zebra", metadata={"d": {"$gte": moments[1]}})) == ["d1"]
        assert found(store.lexical_query("zebra", metadata={"d": "2025-01-01"})) == ["d0"]


def test_dates_are_compared_by_their_parts(tickets):
    with Store(tickets) as store:
        for least, days in (("2025", 3), ("2025-01", 3), ("2025-01-02", 2), ("2025-01-02T00:00:00", 2), ("2026", 0)):
            assert len(store.lexical_query("zebra", metadata={"created": {"$gte": least}})) == days, least


@pytest.mark.parametrize("several", [[2, 3], (2, 3), {2, 3}, frozenset([2, 3]), np.array([2, 3])])
def test_lists_of_other_kinds(tickets, several):
    with Store(tickets) as store:
        assert len(store.lexical_query("zebra", metadata={"priority": {"$in": several}})) == 2


def test_a_decimal_is_a_number(tickets):
    with Store(tickets) as store:

        def prices(wanted):
            found = store.lexical_query("zebra", metadata={"price": wanted})
            return sorted(row["metadata"]["price"] for row in found)

        assert prices(Decimal("1.50")) == [1.5]
        assert prices({"$in": [Decimal("3"), Decimal("4.5")]}) == [3, 4.5]
        assert prices({"$gte": Decimal("3.00")}) == [3, 4.5]
        assert prices({"$exists": True, "$ne": Decimal("1.5")}) == [3, 4.5]
        assert prices({"$lt": Decimal("1e30")}) == [1.5, 3, 4.5]
        with pytest.raises(InputError, match="a value that is no number"):
            prices(Decimal("NaN"))


def test_documents_and_chunks_by_their_keys(store):
    assert found(store.lexical_query("zebra", metadata={"$doc_id": {"$in": ["d02", "d04", "nowhere"]}})) == [
        "d02",
        "d04",
    ]
    assert found(store.lexical_query("zebra", metadata={"$node_id": "d03#0"})) == ["d03"]
    assert found(store.lexical_query("zebra", metadata={"$or": [{"$node_id": "d03#0"}, {"v": 1999.5}]})) == [
        "d03",
        "d04",
    ]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"v": {"$like": "x"}}, r"no operator '\$like' \(at 'v'\)"),
        ({"v": {"$gt": 1, "lt": 3}}, "no operator 'lt'"),
        ({"v": {"gt": 1}}, "another system"),
        ({"v": {">=": 1}}, "another system"),
        ({"$nor": [{"v": 1}]}, r"has no '\$nor'"),
        ({"$or": []}, "at least one filter"),
        ({"$or": [{}]}, "none that is empty"),
        ({"$and": {"v": 1}}, r"\$and must be a list"),
        ({"$not": [{"v": 1}]}, "mapping of field names"),
        ({"v": {"$not": 3}}, r"\$not of 'v' must be an object"),
        ({"v": {"$in": "red"}}, "must be a list"),
        ({"v": {"$all": []}}, "at least one value"),
        ({"v": {"$gt": None}}, "a number or text"),
        ({"v": {"$gt": [1]}}, "a number or text"),
        ({"v": {"$lt": True}}, "a number or text"),
        ({"v": {"$gt": float("nan")}}, "no number"),
        ({"v": {"$text_match": 3}}, "must be text"),
        ({"v": {"$exists": "yes"}}, "true or false"),
        ({"v": {"$in": [object]}}, "cannot be used"),
        ({"$doc_id": {"$exists": True}}, r"\$doc_id takes a value"),
        ({"$node_id": {"$gt": ""}}, r"\$node_id takes a value"),
        ({"$and": [{"$or": [{"v": n}, {"w": n}]} for n in range(12)]}, "1,000 conditions"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_case_H4_a_filter_that_cannot_be_used_is_an_error_and_never_no_rows(store, wrong, said):
    with pytest.raises(InputError, match=said):
        store.lexical_query("zebra", metadata=wrong)


@pytest.mark.slow
def test_names_and_ids_are_spelt_as_the_stored_ones(tmp_path):
    with Store.create(tmp_path / "kb.duckdb", 8) as store:
        ids = ["é", "o\u0308", "\x00x", "x"]
        chunks = [Chunk(doc_id, 0, "zebra", (), {"cafe\u0301": place}) for place, doc_id in enumerate(ids)]
        store.upsert([Document(doc_id, "zebra") for doc_id in ids], chunks, np.ones((4, 8)))
        stored = [chunk.doc_id for chunk in store.chunks()]
        assert set(stored) == {"é", "ö", "\x00x", "x"}
        with pytest.raises(InputError, match="more than once"):
            store.upsert([Document("é", "a"), Document("e\u0301", "b")], [], [])
        for doc_id in stored:
            assert found(store.lexical_query("zebra", metadata={"$doc_id": doc_id})) == [doc_id]
            assert found(store.lexical_query("zebra", metadata={"$node_id": {"$in": [f"{doc_id}#0"]}})) == [doc_id]
        assert found(store.lexical_query("zebra", metadata={"cafe\u0301": 1})) == ["ö"]
        assert found(store.lexical_query("zebra", metadata={"café": 1})) == ["ö"]
        assert store.lexical_query("zebra", metadata={"\ud800": "x"}) == []
        many = {"café": {"$in": list(range(3, 20_000))}}
        assert found(store.lexical_query("zebra", metadata=many)) == ["x"]
        assert store.delete_documents(metadata={"$doc_id": "o\u0308"}).deleted == ["ö"]


def test_case_H2_numbers_are_compared_with_numbers(tmp_path):
    with Store.create(tmp_path / "kb.duckdb", 8) as store:
        years = {"number": 2024, "text": "2024", "early": 9}
        chunks = [Chunk(name, 0, "zebra", (), {"year": year}) for name, year in years.items()]
        store.upsert([Document(name, "zebra") for name in years], chunks, np.ones((3, 8)))
        assert found(store.lexical_query("zebra", metadata={"year": {"$eq": 2024}})) == ["number"]
        assert found(store.lexical_query("zebra", metadata={"year": {"$gte": 1000}})) == ["number"]
        assert found(store.lexical_query("zebra", metadata={"year": {"$gt": 300}})) == ["number"]
        assert found(store.lexical_query("zebra", metadata={"year": {"$gte": "2000"}})) == ["text"]


def test_a_filter_of_too_many_levels(store):
    deep = {"v": 1}
    for _ in range(1000):
        deep = {"$not": deep}
    with pytest.raises(InputError, match="levels"):
        store.lexical_query("zebra", metadata=deep)
    nested: list = []
    for _ in range(5000):
        nested = [nested]
    for wanted in (nested, {"$in": [nested]}, {"$gt": nested}):
        with pytest.raises(InputError, match="cannot be used"):
            store.lexical_query("zebra", metadata={"v": wanted})
    operators = {"$eq": 1}
    for _ in range(1000):
        operators = {"$not": operators}
    with pytest.raises(InputError, match="levels"):
        store.lexical_query("zebra", metadata={"v": operators})


def test_in_sql_wrong_filters_are_errors(store):
    con = store.cursor()
    for wrong in (
        '{"$or": [{"v": 1}], "v": 2}',
        '{"v": {"$like": 1}}',
        '{"$not": {"v": 1}}',
        '{"v": {"$gt": 1, "lt": 2}}',
    ):
        with pytest.raises(Exception, match=r"filter|stand alone"):
            con.execute("SELECT count(*) FROM lexical_query('zebra', metadata := $1)", [wrong]).fetchall()


@pytest.mark.parametrize(
    "wanted",
    [
        {"v": None},
        {"v": {"$ne": 1}},
        {"v": {"$nin": [1]}},
        {"v": {"$exists": False}},
        {"v": {"$empty": True}},
        {"$not": {"v": {"$gt": 3}}},
        {"$or": [{"v": 1}, {"v": None}]},
    ],
    ids=str,
)
def test_nothing_is_deleted_for_the_lack_of_a_field(store, wanted):
    with pytest.raises(InputError, match="without such a field"):
        store.delete_documents(metadata=wanted)


@pytest.mark.slow
def test_deleting_with_operators(tmp_path):
    with Store.create(tmp_path / "kb.duckdb", 8) as store:
        documents = [Document(f"d{year}", "zebra", metadata={"year": year}) for year in range(2020, 2026)]
        chunks = [Chunk(document.doc_id, 0, "zebra", (), document.metadata) for document in documents]
        store.upsert(documents, chunks, np.ones((6, 8)))
        assert store.delete_documents(metadata={"year": {"$lt": 2022}}).deleted == ["d2020", "d2021"]
        assert store.delete_documents(metadata={"$doc_id": {"$in": ["d2025"]}}).deleted == ["d2025"]
        assert found(store.lexical_query("zebra")) == ["d2022", "d2023", "d2024"]
        assert store.check() == []
