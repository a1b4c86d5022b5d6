"""Compression: exact offsets, sentence borders of several languages, what is chosen, neighbours from a store."""

from __future__ import annotations

import doctest
import logging
import math
import time
from itertools import accumulate
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sqlrag import Chunk, ChunkPolicy, Document, Store
from sqlrag.blocks import compress as compress_module
from sqlrag.blocks.compress import JOINER, CompressPolicy, _choose, _Match, _runs, compress
from sqlrag.engines.duckdb import lexical
from sqlrag.engines.duckdb.lexical import tokenize
from sqlrag.engines.duckdb.rows import chunks_at
from sqlrag.errors import InputError
from sqlrag.ingest.chunk import chunk
from sqlrag.ingest.sentences import sentence_spans
from sqlrag.normalize import normalize
from sqlrag.types import Candidate
from tests.support.helpers import build

MARKDOWN = {"mime": "text/markdown"}


def sentences(text, **options):
    return [text[start:end] for start, end in sentence_spans(text, **options)]


def whole(text, doc_id="a", **fields):
    """A candidate that is a whole document."""
    return Candidate(doc_id, 0, text, i_start=0, i_end=len(text), **fields)


def candidate_of(piece, **fields):
    return Candidate(
        piece.doc_id, piece.chunk_index, piece.content, i_start=piece.i_start, i_end=piece.i_end, page=piece.page,
        heading_path=piece.heading_path, metadata=piece.metadata, **fields,
    )  # fmt: skip


class Reader:
    """A store of documents in memory."""

    def __init__(self, sources, chunks):
        self.texts = sources
        self.chunks = {(piece.doc_id, piece.chunk_index): candidate_of(piece) for piece in chunks}
        self.asked = []

    def chunks_at(self, places):
        self.asked.append(list(places))
        return [self.chunks[place] for place in places if place in self.chunks]

    def sources(self, doc_ids):
        return {doc_id: {"text": self.texts[doc_id]} for doc_id in doc_ids if doc_id in self.texts}


class StoreReader:
    """The same over a real store."""

    def __init__(self, store):
        self.store = store

    def chunks_at(self, places):
        return chunks_at(self.store.cursor(), places)

    def sources(self, doc_ids):
        return self.store.sources(doc_ids)


def check_offsets(rows, sources):
    """Every span is the slice of its source that its offsets name; spans of a document come once, in order."""
    seen = {}
    for row in rows:
        assert row["text"] == JOINER.join(span["text"] for span in row["spans"])
        for span in row["spans"]:
            assert sources[row["doc_id"]][span["start"] : span["end"]] == span["text"]
            assert span["text"].strip() == span["text"] != ""
            seen.setdefault(row["doc_id"], []).append((span["start"], span["end"]))
        starts = [span["start"] for span in row["spans"]]
        assert starts == sorted(starts)
        assert (row["i_start"], row["i_end"]) == (row["spans"][0]["start"], row["spans"][-1]["end"])
    for spans in seen.values():
        ordered = sorted(spans)
        assert all(one[1] <= two[0] for one, two in zip(ordered, ordered[1:]))  # noqa: B905, RUF007


def test_the_examples_of_the_docstrings_hold():
    outcome = doctest.testmod(compress_module)
    assert outcome.attempted >= 3
    assert outcome.failed == 0


# ---- sentences

SENTENCES = {
    "en": [
        "Dr. Smith paid $3.50 for v1.2.0, e.g. in the U.S. office.",
        "See Fig. 3 for more!",
        "Why?",
        "“So,” he said.",
    ],
    "de": ["Der Vertrag gilt z. B. ab dem 3. Oktober 2020.", "Herr Dr. Müller kam.", "Am 1. Januar war frei."],
    "ru": ["Он родился в 1799 г. в Москве.", "А. С. Пушкин писал стихи.", "Почему?"],
    "zh": ["今天天气很好。", "我们去公园吧！", "你呢？"],
    "ja": ["今日は晴れです。", "公園へ行きましょう！"],
}


@pytest.mark.parametrize("language", SENTENCES)
def test_abbreviations_and_dates_end_no_sentence(language):
    gap = "" if language in ("zh", "ja") else " "
    text = gap.join(SENTENCES[language])
    assert sentences(text, language=language) == SENTENCES[language]
    assert sentences(text, language=f"{language}-XX") == SENTENCES[language]
    if language != "de":  # written in Latin letters, like English
        assert sentences(text) == SENTENCES[language]


@pytest.mark.parametrize("text", ["Call it in C++ or in .NET 8.", "The file .Env holds it.", "It is .5 of that."])
def test_a_full_stop_that_begins_a_word_ends_no_sentence(text):
    assert sentences(f"{text} Then stop.") == [text, "Then stop."]


def test_the_blocks_of_markdown_are_kept_apart():
    text = (
        "# First\nSecond one. Second two\ngoes on.\n\n- An item. More of it.\n- no full stop\n\n"
        "| a | b |\n|---|---|\n| 1. x | 2 |\n| 3 | 4 |\n\n```py\nx = 1. \n\nY = 2\n```\n\n"
        "<p>So. It</p>\n\nTitle\n=====\nEnd"
    )
    assert sentences(text, markdown=True) == [
        "# First", "Second one.", "Second two\ngoes on.", "- An item.", "More of it.", "- no full stop",
        "| a | b |", "|---|---|\n| 1. x | 2 |", "| 3 | 4 |", "```py\nx = 1. \n\nY = 2\n```", "<p>So. It</p>",
        "Title\n=====", "End",
    ]  # fmt: skip


PIECES = [
    *" \n\n\t.!?。…aB1é漢か😀\u200d\u0308\u2028\xa0\u3000“”’()[]#*->`|:",
    "\r\n",
    "Dr. ",
    "```\n",
    "| a |\n|--|\n",
]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=60).map("".join)


@settings(deadline=None)
@given(TEXTS, st.booleans(), st.sampled_from([None, "en", "de", "ru", "zh", "xx"]), st.sampled_from([None, 1, 7, 30]))
def test_sentences_hold_every_character_that_is_not_blank_once(text, markdown, language, longest):
    spans = sentence_spans(text, markdown=markdown, language=language, longest=longest)
    covered = [position for start, end in spans for position in range(start, end)]
    assert covered == sorted(set(covered))
    assert all(text[position].isspace() for position in set(range(len(text))) - set(covered))
    assert all(text[start:end].strip() == text[start:end] != "" for start, end in spans)
    assert longest is None or all(end - start <= longest for start, end in spans)


def test_blanks_of_several_bytes_after_an_initial(caplog):
    # sentencex 1.0.32 looks one byte before the full stop, inside the blank, and panics.
    for blank in "\u2003\u2028\u3000":
        text = f"Bei B{blank}. Ja, gut. Nein."
        assert sentence_spans(text, language="de") == sentence_spans(text.replace(blank, " "), language="de")
    assert caplog.records == []


def test_a_fault_in_the_library_leaves_one_sentence_and_a_word_in_the_log(monkeypatch, caplog):
    import sentencex

    class PanicException(BaseException):
        pass

    def panic(language, text):
        raise PanicException("byte index 1 is not a char boundary")

    monkeypatch.setattr(sentencex, "get_sentence_boundaries", panic)
    assert sentences("One. Two. ") == ["One. Two."]
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


# ---- words


@pytest.mark.rest
@settings(deadline=None)
@given(st.lists(TEXTS, max_size=6))
def test_words_are_those_of_the_lexical_index(tmp_path_factory, texts):
    path = tmp_path_factory.getbasetemp() / "words.duckdb"
    if not path.is_file():
        Store.create(path, 8).close()
    with Store(path) as store:
        for text, got in zip(texts, lexical.words_of(texts), strict=True):
            expected = tokenize(store.cursor(), text)
            assert got[: len(expected)] == expected


def test_stop_words_count_only_alone_and_stems_are_those_of_the_stemmer():
    assert lexical.stems_of_query("How do the cats sleep in Straßen?", "porter") == ["cat", "sleep", "strassen"]
    assert lexical.stems_of_query("to be or not to be", "none") == ["to", "be", "or", "not"]
    assert lexical.terms_of(["cats"], "none") == [["cats"]]


# ---- what is chosen

PETS = "Cats sleep all day. Dogs bark at night. Fish swim in water. Birds fly south. Dogs and cats fight. Snakes hiss."


def texts(rows):
    return [[span["text"] for span in row["spans"]] for row in rows]


def test_the_best_sentences_with_a_window():
    found = [whole(PETS)]
    policy = {"sentences": 1, "window": 0}
    assert texts(compress("do cats fight?", found, CompressPolicy(**policy))) == [["Dogs and cats fight."]]
    (row,) = compress("do cats fight?", found, CompressPolicy(sentences=2, window=0))
    assert [span["text"] for span in row["spans"]] == ["Cats sleep all day.", "Dogs and cats fight."]
    assert row["text"] == "Cats sleep all day.\n…\nDogs and cats fight."
    assert row["terms"] == ["cat", "fight"]
    assert row["left_out"] == len(PETS) - len("Cats sleep all day.") - len("Dogs and cats fight.")
    (row,) = compress("do cats fight?", found, CompressPolicy(sentences=1))
    assert texts([row]) == [["Birds fly south. Dogs and cats fight. Snakes hiss."]]
    assert texts(compress("do cats fight?", found, CompressPolicy(sentences=1, window=99))) == [[PETS]]
    check_offsets([row], {"a": PETS})


def test_a_sentences_score_is_bm25_over_all_sentences():
    found = [whole("The owl. An owl and an owl saw mice. Nothing here.", "a"), whole("Mice.", "b")]
    rows = compress("owls", found, CompressPolicy(window=0))
    # Words: 2, 7, 2, 1, so 3 on average; two of four sentences hold the term.
    weight = math.log(1 + (4 - 2 + 0.5) / (2 + 0.5))
    expected = [weight * tf * 2.2 / (tf + 1.2 * (0.25 + 0.75 * n / 3)) for tf, n in ((1, 2), (2, 7))]
    assert rows[0]["spans"][0]["score"] == pytest.approx(max(expected), abs=1e-9)
    assert [row["terms"] for row in rows] == [["owl"], []]


def test_where_no_word_matches_all_is_kept_or_its_beginning():
    (row,) = compress("aardvark", [whole(PETS)])
    assert texts([row]) == [[PETS]]
    assert (row["terms"], row["left_out"], row["spans"][0]["score"]) == ([], 0, 0)
    (row,) = compress("aardvark", [whole(PETS)], CompressPolicy(max_chars=50))
    assert texts([row]) == [["Cats sleep all day. Dogs bark at night."]]
    found = [whole("One. The second is too long. Three.")]
    assert texts(compress("aardvark", found, CompressPolicy(max_chars=13))) == [["One."]]


def test_the_characters_are_a_limit():
    for most in range(1, 120):
        (row,) = compress("cats fight", [whole(PETS)], CompressPolicy(max_chars=most))
        assert 0 < len(row["text"]) <= most
        check_offsets([row], {"a": PETS})
    (row,) = compress("cats fight", [whole(PETS)], CompressPolicy(max_chars=len("Dogs and cats fight.")))
    assert row["text"] == "Dogs and cats fight."


def test_a_row_has_the_keys_of_a_result_and_those_of_the_candidate():
    scores = {"score": 0.5, "score_type": "rrf", "lexical_score": 2.0, "lexical_rank": 1}
    given_ = whole(PETS, tags=("t",), heading_path=("H",), metadata={"k": 1}, page=3, **scores)
    (row,) = compress("cats", [given_])
    from sqlrag.ranking.results import RESULT_KEYS

    assert set(RESULT_KEYS) <= set(row)
    assert (row["node_id"], row["node_ids"], row["score"], row["score_type"]) == ("a#0", ["a#0"], 0.5, "rrf")
    assert (row["tags"], row["heading_path"], row["metadata"], row["page"]) == (["t"], ["H"], {"k": 1}, 3)
    assert (row["spans"][0]["node_id"], row["spans"][0]["page"], row["spans"][0]["heading_path"]) == ("a#0", 3, ["H"])


def test_markdown_is_known_by_its_mime():
    text = "# Cats\nsleep. They purr\n\n```\ncat one. \n\nCat two\n```"
    assert texts(compress("one", [whole(text)], CompressPolicy(window=0))) == [["```\ncat one."]]
    found = [whole(text, metadata=MARKDOWN)]
    assert texts(compress("one", found, CompressPolicy(window=0))) == [["```\ncat one. \n\nCat two\n```"]]


def test_without_offsets_spans_have_none():
    for offsets in ({}, {"i_start": 0, "i_end": 0}, {"i_start": 5, "i_end": 7}):
        (row,) = compress("fight", [Candidate("a", 0, PETS, **offsets)], CompressPolicy(window=0))
        (span,) = row["spans"]
        assert (span["start"], span["end"], span["text"]) == (None, None, "Dogs and cats fight.")
        assert (row["i_start"], row["i_end"]) == (None, None)


def test_nothing_and_blank_contents():
    assert compress("q", []) == []
    (row,) = compress("q", [whole("  \n")])
    assert (row["text"], row["spans"]) == ("", [])


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ({"sentences": 0}, "sentences"),
        ({"window": -1}, "window"),
        ({"window": True}, "window"),
        ({"max_chars": 0}, "max_chars"),
        ({"neighbours": 1.5}, "neighbours"),
        ({"neighbours": 1}, "store"),
        ({"language": 3}, "language"),
        ({"stemmer": "klingon"}, "stemmer"),
    ],
)
def test_a_policy_out_of_range_is_refused(policy, message):
    with pytest.raises(InputError, match=message):
        compress("q", [whole(PETS)], CompressPolicy(**policy))


def test_a_blank_question_is_refused():
    with pytest.raises(InputError, match="blank"):
        compress(" \n", [whole(PETS)])


# ---- passages


def slices(text, *borders, doc_id="a"):
    return [Candidate(doc_id, i, text[s:e], i_start=s, i_end=e) for i, (s, e) in enumerate(borders)]


def test_candidates_that_overlap_are_one_row_and_repeat_nothing():
    one, two, three = slices(PETS, (0, 59), (40, 76), (77, len(PETS)))
    rows = compress("cats dogs fish birds", [three, two, one], CompressPolicy(sentences=9))
    assert [row["node_ids"] for row in rows] == [["a#2"], ["a#1", "a#0"]]
    assert rows[1]["text"] == PETS[:76]
    assert rows[1]["node_id"] == "a#1"
    check_offsets(rows, {"a": PETS})
    # Chunks inside others, and the same one twice.
    rows = compress("cats", [two, *slices(PETS, (0, 76)), two])
    assert [row["node_ids"] for row in rows] == [["a#1", "a#0", "a#1"]]


def test_a_row_of_two_candidates_may_hold_twice_as_much():
    found = slices(PETS, (0, 59), (40, 76))
    policy = CompressPolicy(sentences=1, window=0)
    assert texts(compress("sleep fly", found, policy)) == [["Cats sleep all day.", "Birds fly south."]]
    (row,) = compress("sleep fly", found, CompressPolicy(sentences=1, window=9, max_chars=35))
    assert 35 < len(row["text"]) <= 70


def test_overlaps_that_contradict_each_other_are_refused():
    one, two = slices(PETS, (0, 59), (40, 76))
    changed = Candidate("a", 1, two.content.replace("Fish", "Cows"), i_start=40, i_end=76)
    with pytest.raises(InputError, match="a#1 does not fit"):
        compress("q", [one, changed])


def test_neighbours_are_joined_without_repeating_the_overlap():
    source = "\n\n".join(f"Part {i} has words. It ends with number {i}." for i in range(9))
    pieces = chunk(
        Document("a", source), ChunkPolicy(strategy="size", chunk_size=60, chunk_overlap=25, chunk_unit="chars")
    )
    assert len(pieces) > 6
    assert any(two.i_start < one.i_end for one, two in zip(pieces, pieces[1:]))  # noqa: B905, RUF007
    reader = Reader({"a": source}, pieces)
    hit = candidate_of(pieces[4], score=1.0)
    everything = CompressPolicy(sentences=99, window=99, neighbours=2)
    (row,) = compress("number", [hit], everything, store=reader)
    assert row["text"] == source[pieces[2].i_start : pieces[6].i_end]
    assert reader.asked == [[("a", 2), ("a", 3), ("a", 5), ("a", 6)]]
    check_offsets([row], {"a": source})
    (span,) = row["spans"]
    assert span["node_id"] == "a#2"
    assert row["node_ids"] == ["a#4"]
    # At the ends of a document there is less; two hits whose neighbours meet are one row.
    (row,) = compress("number", [candidate_of(pieces[0])], everything, store=reader)
    assert row["text"] == source[: pieces[2].i_end]
    one = CompressPolicy(sentences=99, window=99, neighbours=1)
    rows = compress("number", [candidate_of(pieces[0]), candidate_of(pieces[6])], one, store=reader)
    assert [row["text"] for row in rows] == [source[: pieces[1].i_end], source[pieces[5].i_start : pieces[7].i_end]]
    rows = compress("number", [candidate_of(pieces[5]), candidate_of(pieces[1])], everything, store=reader)
    assert [(row["node_ids"], row["text"]) for row in rows] == [(["a#5", "a#1"], source[: pieces[7].i_end])]


def test_neighbours_bring_what_matches_there():
    source = "It is blue.\n\nThe whale is large.\n\nIt sings."
    pieces = [Chunk("a", i, t, i_start=source.index(t), i_end=source.index(t) + len(t))
              for i, t in enumerate(source.split("\n\n"))]  # fmt: skip
    hit = candidate_of(pieces[0])
    policy = CompressPolicy(window=0, neighbours=1)
    assert texts(compress("whale", [hit], policy, store=Reader({"a": source}, pieces))) == [["The whale is large."]]
    assert texts(compress("whale", [hit], CompressPolicy(window=0))) == [["It is blue."]]
    # Without the source nobody knows what is between them.
    assert texts(compress("whale", [hit], policy, store=Reader({}, pieces))) == [["It is blue."]]


def test_a_candidate_that_no_longer_fits_its_document_is_refused():
    hit = whole(PETS)
    with pytest.raises(InputError, match=r"a#0 does not fit.*Search again"):
        compress("q", [hit], CompressPolicy(neighbours=1), store=Reader({"a": "Changed. " + PETS}, []))


@pytest.mark.parametrize("mark", ["", "> "])
def test_rows_below_the_header_of_their_table_are_whole(mark):
    rows = [f"{mark}| row{n} is it. Not that | More of {n}. |" for n in range(3)]
    text = "It ends. Here.\n\n" + "\n".join(rows) + "\n\nNext | one. Last | one."
    assert sentences(text, markdown=True) == ["It ends.", "Here.", *rows, "Next | one.", "Last | one."]
    assert sentences("\n".join(rows), markdown=True) == rows


def test_over_a_real_store(tmp_path):
    body = "\n\n".join(f"## Part {i}\n\nPart {i} tells of whales. It is long. Öl für {i} €." for i in range(8))
    path = build(
        tmp_path, options={"chunk_size": 12, "chunk_overlap": 4}, whales_md=f"---\ntitle: W\n---\n# Whales\n\n{body}\n"
    )
    with Store(path) as store:
        results = store.lexical_query("whales 3 €", top_k=4)
        names = ("doc_id", "chunk_index", "score", "collection", "i_start", "i_end", "page", "metadata", "node_id")
        found = [
            Candidate(content=row["text"], heading_path=tuple(row["heading_path"]), **{key: row[key] for key in names})
            for row in results
        ]
        rows = compress("whales 3 €", found, CompressPolicy(neighbours=1, max_chars=80), store=StoreReader(store))
        source = store.get_source_documents([found[0].node_id])[0]["text"]
    assert sorted(i for row in rows for i in row["node_ids"]) == sorted(c.node_id for c in found)
    assert rows[0]["node_ids"][0] == found[0].node_id
    check_offsets(rows, {"whales.md": source})


@pytest.mark.rest
@settings(deadline=None)
@given(
    st.lists(TEXTS.map(normalize), min_size=1, max_size=3),
    st.data(),
    st.sampled_from([None, 1, 9, 40]),
    st.integers(0, 2),
)
def test_offsets_are_exact_for_any_text_policy_and_choice(bodies, data, most, neighbours):
    sources = {f"d{i}": body for i, body in enumerate(bodies)}
    policy = ChunkPolicy(chunk_size=17, chunk_overlap=6, chunk_unit="chars")
    pieces = [p for key, body in sources.items() for p in chunk(Document(key, body, mime="text/markdown"), policy)]
    chosen = data.draw(st.lists(st.sampled_from(pieces), max_size=5)) if pieces else []
    found = [candidate_of(piece) for piece in chosen]
    options = CompressPolicy(max_chars=most, neighbours=neighbours, window=data.draw(st.integers(0, 2)))
    rows = compress("a B 漢 or 1", found, options, store=Reader(sources, pieces))
    check_offsets(rows, sources)
    assert sorted(i for row in rows for i in row["node_ids"]) == sorted(c.node_id for c in found)
    order = [found.index(next(c for c in found if c.node_id == row["node_id"])) for row in rows]
    assert order == sorted(order)
    assert most is None or all(len(row["text"]) <= most * len(row["node_ids"]) for row in rows)
    assert compress("a B 漢 or 1", found, options, store=Reader(sources, pieces)) == rows


def plainly_chosen(spans, matches, policy, share):
    """Return the sentences to keep, each choice from the rule alone."""
    most = math.inf if policy.max_chars is None else policy.max_chars * share
    ranked = sorted((i for i, match in enumerate(matches) if match.score > 0), key=lambda i: (-matches[i].score, i))
    best = ranked[: policy.sentences * share]
    around = [
        (i + step * sign) for i in best for step in range(1, min(policy.window, len(spans)) + 1) for sign in (-1, 1)
    ]
    order = [*best, *(i for i in around if 0 <= i < len(spans))] if ranked else range(len(spans))
    chosen = set()
    for i in order:
        runs = _runs({*chosen, i})
        length = sum(spans[last][1] - spans[first][0] for first, last in runs) + len(JOINER) * (len(runs) - 1)
        if length <= most:
            chosen.add(i)
        elif not ranked:
            break
    return chosen


def test_the_choice_is_that_of_the_rule():
    random = Random(7)
    for _ in range(500):
        ends = list(accumulate(random.randint(1, 9) for _ in range(2 * random.randint(1, 12))))
        spans = list(zip(ends[::2], ends[1::2], strict=True))
        matches = [_Match(random.choice([0, 0, 1, 2]), []) for _ in spans]
        limit = random.choice([None, random.randint(1, 60)])
        policy = CompressPolicy(random.randint(1, 4), window=random.randint(0, 5), max_chars=limit)
        share = random.randint(1, 2)
        assert _choose(spans, matches, policy, share) == plainly_chosen(spans, matches, policy, share)


def test_many_sentences_take_time_in_proportion():
    """6,000 with all of them around each took 8 seconds when each pair was looked at."""
    spans = [(10 * i, 10 * i + 8) for i in range(6000)]
    matches = [_Match(1 + i % 7, []) for i in range(6000)]
    policy = CompressPolicy(6000, window=6000, max_chars=10**6)
    began = time.process_time()  # that of this process, whatever else the machine does
    assert len(_choose(spans, matches, policy, 1)) == 6000
    assert time.process_time() - began < 1
