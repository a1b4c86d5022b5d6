"""What is to be read around a result: exact slices within a limit, the same for one file and several."""

from __future__ import annotations

from itertools import pairwise

import pytest

import sqlrag
from sqlrag import InputError, RetrievePlan, Store, build_prompt, fit_context
from sqlrag.answers.answer import answer, prepare_prompt
from sqlrag.answers.chat_models import Piece
from tests.support.helpers import build

# Four sections, each longer than a chunk; table, code and markup inside.
PAGE = """---
title: Garden book
---
# Garden book

Opening words about gardens.

## Ponds

The *pond* is deep. A heron visits it. Frogs sing there at night. In winter the ice is thick, and nobody swims.

Clean the [filter](filters.md) in spring. The pump needs a new seal every year. Newts come back in April each year.

The liner lasts for twenty years. A hole in it is mended with a patch. The edge is hidden by flat stones and reeds.

## Beds

Roses want sun. `Lavender` wants less water. Tulips are planted in autumn, and they are lifted again in June.

| plant | water |
|---|---|
| rose | much |
| thyme | little |
"""

SMALL = {"chunk_size": 90, "chunk_overlap": 0, "chunk_unit": "chars"}
MODES = ("neighbours", "section")


@pytest.fixture(scope="module")
def garden(tmp_path_factory):
    return build(tmp_path_factory.mktemp("garden"), options=SMALL, book_md=PAGE, note_txt="A pump. A pond.\n\nA seal.")


def text_of(store, row):
    return store.sources([row["doc_id"]])[row["doc_id"]]["text"]


def book(results):
    return [row for row in results if row["doc_id"] == "book.md"]


def _rows(first):
    return "".join(
        f"{first}row{n} has {'okapi' if n == 60 else 'words'}. Sentence two | It is {n}. More of it |\n"
        for n in range(120)
    )


_LINES = "".join(f"x{n} = f('{'okapi' if n == 120 else 'words'}.')  # One of {n}. Then more.\n" for n in range(240))
_PROSE = "Here it is said. There it is not.\n\n" * 30

WHOLE = {
    "table.md": f"# Facts\n\n{_PROSE}| a | b |\n|---|---|\n{_rows('| ')}\n{_PROSE}",
    "bare.md": f"# Facts\n\n{_PROSE}a | b\n--- | ---\n{_rows('')}\n{_PROSE}",
    "quote.md": f"# Facts\n\n{_PROSE}> | a | b |\n> |---|---|\n{_rows('> | ')}\n{_PROSE}",
    "table.csv": "a,b\n" + _rows("").replace(" | ", ",").replace(" |", ""),
    "table.html": "<h1>Facts</h1><table><tr><th>a</th><th>b</th></tr>"
    + _rows("<tr><td>").replace(" | ", "</td><td>").replace(" |", "</td></tr>")
    + "</table>",
    "fence.md": f"# Code\n\n{_PROSE}```python\n{_LINES}```\n\n{_PROSE}",
    "indented.md": f"# Code\n\n{_PROSE}" + "".join(f"    {line}\n" for line in _LINES.split("\n")) + f"\n{_PROSE}",
    "item.md": f"# Code\n\n{_PROSE}- See:\n\n  ```\n"
    + "".join(f"  {line}\n" for line in _LINES.splitlines())
    + f"  ```\n\n{_PROSE}",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WHOLE)
def test_a_context_never_begins_or_ends_within_a_row_or_a_line_of_code(tmp_path, name):
    path = build(tmp_path, options={"chunk_size": 500, "chunk_unit": "chars"}, **{name.replace(".", "_"): WHOLE[name]})
    seen = set()
    with Store(path) as store:
        for query, limits in {"okapi": range(600, 7000, 490), "said": range(600, 2400, 490)}.items():
            for limit in limits:
                for row in store.lexical_query(query, top_k=80, context="neighbours", context_chars=limit):
                    text = text_of(store, row)
                    start, end = row["context_start"], row["context_end"]
                    seen.add((start, end))
                    assert text[start:end] == row["context"]
                    before = text[text.rfind("\n", 0, start) + 1 : start].strip()
                    behind = text[end : (text + "\n").find("\n", end)].strip()
                    for cut in (before, behind):
                        assert cut in ("", ">", "Here it is said.", "There it is not.")
    assert len(seen) > 6


class TestResults:
    @pytest.mark.parametrize("limit", [1, 60, 150, 200, 300, 1000, 100_000])
    @pytest.mark.parametrize("context", MODES)
    @pytest.mark.parametrize("search", ["hybrid_query", "vector_query", "lexical_query"])
    def test_a_context_is_an_exact_slice_with_the_whole_chunk_within_the_limit(self, garden, search, context, limit):
        with Store(garden) as store:
            plain = getattr(store, search)("pump in the pond", top_k=30)
            found = getattr(store, search)("pump in the pond", top_k=30, context=context, context_chars=limit)
            assert len(found) > 3
            for row, before in zip(found, plain, strict=True):
                source = text_of(store, row)
                start, end = row["context_start"], row["context_end"]
                assert source[start:end] == row["context"]
                assert start <= row["i_start"] < row["i_end"] <= end
                assert source[row["i_start"] : row["i_end"]] == row["text"]
                assert len(row["context"]) <= max(limit, len(row["text"]))
                assert row["context_shown"] is None or len(row["context_shown"]) == len(row["context"])
                around = ("context", "context_start", "context_end", "context_shown")
                assert {**row, **dict.fromkeys(around)} == before  # nothing else changes

    @pytest.mark.slow
    @pytest.mark.parametrize("context", MODES)
    def test_it_begins_and_ends_with_a_chunk_or_a_sentence(self, garden, context):
        with Store(garden) as store:
            con = store.cursor()
            for limit in range(80, 500, 7):
                for row in book(store.lexical_query("pump", context=context, context_chars=limit)):
                    source = text_of(store, row)
                    cuts = con.execute("SELECT i_start, i_end FROM documents WHERE doc_id = 'book.md'").fetchall()
                    starts, ends = {start for start, _ in cuts}, {end for _, end in cuts}
                    begin, stop = row["context_start"], row["context_end"]
                    before = source[:begin].rstrip()
                    assert begin in starts or before.endswith((".", "|", "# Garden book", "## Ponds", "## Beds"))
                    assert stop in ends or source[:stop].endswith((".", "|"))

    @pytest.mark.slow
    def test_neighbours_grow_on_both_sides(self, garden):
        lengths = []
        for limit in range(100, 700, 50):
            (row,) = book(sqlrag.lexical_query("newts", garden, context="neighbours", context_chars=limit))
            lengths.append(len(row["context"]))
        assert lengths[-1] > lengths[0] + 300
        assert all(a <= b for a, b in pairwise(lengths))
        assert row["context_start"] < row["i_start"]
        assert row["i_end"] < row["context_end"]

    def test_a_section_ends_where_the_next_heading_is(self, garden):
        with Store(garden) as store:
            (row,) = book(store.lexical_query("newts", context="section"))
            section = PAGE[PAGE.index("## Ponds") : PAGE.index("## Beds")].strip()
            assert row["context"] == section
            (row,) = book(store.lexical_query("newts", context="neighbours"))
            assert row["context"] == PAGE[PAGE.index("# Garden book") :].strip()  # the front matter is no text

    def test_what_is_read_is_without_markup(self, garden):
        (row,) = book(sqlrag.lexical_query("newts", garden, context="neighbours"))
        seen = row["context_shown"].replace("\xad", "")
        assert "The pond is deep." in seen
        assert "Clean the filter in spring." in seen
        assert "Lavender wants less" in seen
        assert not {"`", "#", "](", "*"} & {part for part in ("`", "#", "](", "*") if part in seen}

    def test_a_chunk_that_is_longer_than_the_limit_is_its_own_context(self, garden):
        (row,) = book(sqlrag.lexical_query("newts", garden, context="neighbours", context_chars=5))
        assert (row["context"], row["context_start"], row["context_end"]) == (row["text"], row["i_start"], row["i_end"])

    def test_nothing_more_by_default(self, garden):
        for row in sqlrag.hybrid_query("pump", garden):
            assert [row[f"context{end}"] for end in ("", "_start", "_end", "_shown")] == [None] * 4

    def test_a_limit_without_a_context_is_said_to_have_no_effect(self, garden):
        found = sqlrag.hybrid_query("pump", garden, context_chars=300)
        assert found.notices == ['context_chars=300 has no effect with context="chunk".']

    @pytest.mark.parametrize("value", ["paragraph", "", None, 1])
    def test_another_context_is_refused(self, garden, value):
        with pytest.raises(InputError, match="context must be one of 'chunk', 'neighbours', 'section'"):
            sqlrag.hybrid_query("pump", garden, context=value)

    def test_without_the_text_of_the_document_the_chunk_stands_alone_and_that_is_said(self, garden, tmp_path):
        copy = tmp_path / "copy.duckdb"
        copy.write_bytes(garden.read_bytes())
        with Store(copy, read_only=False) as store:
            store.cursor().execute("UPDATE source_documents SET text = '' WHERE doc_id = 'book.md'")
            found = store.lexical_query("pump", context="section")
        one, other = book(found)[0], next(row for row in found if row["doc_id"] == "note.txt")
        assert one["context"] == one["text"]
        assert len(other["context"]) >= len(other["text"])
        (notice,) = found.notices
        assert "is not stored" in notice
        assert one["node_id"] in notice
        assert other["node_id"] not in notice

    def test_the_time_at_which_a_document_was_stored(self, garden):
        with Store(garden) as store:
            times = dict(store.cursor().execute("SELECT doc_id, created_at FROM sources").fetchall())
            macro = "SELECT doc_id, created_at FROM source_documents_of(['book.md#0', 'note.txt#0'])"
            assert dict(store.cursor().execute(macro).fetchall()) == times
            for row in store.hybrid_query("pump", top_k=9):
                assert row["created_at"] == f"{times[row['doc_id']].isoformat(timespec='seconds')}Z"
            for one in store.retrieve("pump", RetrievePlan()):
                assert one.created_at == f"{times[one.doc_id].isoformat(timespec='seconds')}Z"


class Cites:
    """A chat model that cites the first source, and keeps what it was asked."""

    model_name = "cites"

    def chat(self, messages, **_options):
        self.asked = messages[-1]["content"]
        yield Piece("Once a year [1].", "stop")


class TestPrompts:
    def test_a_model_reads_the_context_and_the_chunk_is_cited(self, garden):
        model = Cites()
        reply = answer("newts", garden, chat_model=model, plan=RetrievePlan(mode="lexical", k=1, context="section"))
        (source,) = reply.sources
        assert "Frogs sing there at night." in model.asked  # of another chunk
        assert "Roses" not in model.asked
        assert "Frogs" not in source["quote"]
        assert source["spans"] == [[source["i_start"], source["i_end"]]]
        assert PAGE[source["i_start"] : source["i_end"]] == source["quote"]
        assert PAGE[source["context_start"] : source["context_end"]] == source["context"]

    @pytest.mark.parametrize("context", MODES)
    def test_overlapping_contexts_are_read_once(self, garden, context):
        with Store(garden) as store:
            found = store.lexical_query("pond pump newts liner", top_k=9, context=context)
            own = book(found)
            assert len(own) > 2
            prompt = build_prompt("How often?", found)
        for sentence in ("Frogs sing there at night.", "The pump needs a new seal every year.", "Newts come back"):
            assert prompt.user.count(sentence) == 1
        sources = [source for source in prompt.sources if source["doc_id"] == "book.md"]
        ranges = sorted((source["context_start"], source["context_end"]) for source in sources)
        assert all(end <= start for (_, end), (start, _) in pairwise(ranges))
        # What was found is cited as before, and nothing else.
        cited = [PAGE[start:end] for source in sources for start, end in source["spans"]]
        assert all(any(row["text"] in part for part in cited) for row in own)
        assert sum(map(len, cited)) <= sum(len(row["text"]) for row in own) + 2 * len(own)
        best = next(source for source in sources if own[0]["text"] in source["quote"])
        assert (best["node_id"], best["score"]) == (own[0]["node_id"], own[0]["score"])
        assert [source["number"] for source in prompt.sources] == list(range(1, len(prompt.sources) + 1))

    def test_contexts_that_do_not_touch_stay_two(self, garden):
        with Store(garden) as store:
            found = store.lexical_query("heron tulips", context="section")
        assert {row["heading_path"][-1] for row in found} == {"Ponds", "Beds"}
        assert len(build_prompt("?", found).sources) == 2

    def test_contexts_that_are_not_what_they_say_are_not_joined(self, garden):
        with Store(garden) as store:
            found = book(store.lexical_query("pond pump newts", top_k=9, context="section"))
        whole = len(build_prompt("?", found).sources)
        assert whole < len(found)
        for change in ({"context_end": 9}, {"context_start": 0}, {"context_start": None}, {"i_start": 0, "i_end": 0}):
            changed = [row | change for row in found]
            sources = build_prompt("?", changed).sources
            assert [source["node_id"] for source in sources] == [row["node_id"] for row in found]
        with pytest.raises(InputError, match="context of a context"):
            build_prompt("?", [found[0] | {"context": 5}])

    def test_candidates_are_joined_like_results(self, garden):
        with Store(garden) as store:
            plan = RetrievePlan(mode="lexical", k=9, context="section")
            by_candidates = build_prompt("How?", store.retrieve("pond pump newts", plan))
            by_rows = build_prompt("How?", store.lexical_query("pond pump newts", top_k=9, context="section"))
        assert by_candidates == by_rows

    def test_what_does_not_fit_loses_its_context_before_its_text(self, garden):
        found = book(sqlrag.lexical_query("newts", garden, context="section"))
        whole = fit_context(found, 500)
        assert whole.contexts[0]["context"] is not None
        room = fit_context([row | {"context": None} for row in found], 500).tokens
        tight = fit_context(found, room)
        assert tight.tokens == room < whole.tokens
        assert tight.contexts[0]["context"] is None
        assert tight.contexts[0]["text"] == found[0]["text"]
        assert f"is cut to {len(found[0]['text'])} of its {len(found[0]['context'])} characters." in tight.notices[0]

    def test_the_size_that_is_counted_is_that_of_the_prompt(self, garden):
        with Store(garden) as store:
            found = store.lexical_query("pond pump newts liner", top_k=9, context="neighbours", context_chars=300)
        for room in (150, 200, 400, 1000):
            window = fit_context(found, room, count_tokens=len)
            user = build_prompt("?", window.contexts, "{% for c in contexts %}{{ c.block }}{% endfor %}").user
            assert 0 < len(user) <= window.tokens <= room

    def test_compressed_sources_have_no_context_and_that_is_said(self, garden):
        plan = RetrievePlan(mode="lexical", k=1, context="section")
        prompt, notices = prepare_prompt("newts", garden, plan=plan, compress=True)
        assert notices == ["context has no effect with compress, whose policy has neighbours."]
        assert prompt.sources[0]["context"] is None
        assert "Newts come back" in prompt.user
        assert "Frogs" not in prompt.user
