"""Cutting documents into chunks."""

import itertools
import re
import time
import tracemalloc
import unicodedata
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sqlrag.errors import InputError
from sqlrag.ingest.chunk import Chunks, check_policy, chunk
from sqlrag.ingest.folder import find_files, read_document
from sqlrag.links import MARKDOWN
from sqlrag.normalize import is_blank, normalize
from sqlrag.types import ChunkPolicy, Document
from sqlrag.visible import page_of, shown_text
from tests.support.helpers import DATA

CHARS = ChunkPolicy(chunk_size=200, chunk_overlap=0, chunk_unit="chars")


def words(text):
    """A tokenizer to count by eye: a run of word characters or one other sign is a token."""
    return [match.span() for match in re.finditer(r"\w+|[^\w\s]", text)]


def pairs(text):
    """A tokenizer that counts a slice otherwise than its surroundings: words in steps of two letters."""
    return [(i, min(i + 2, end)) for start, end in words(text) for i in range(start, end, 2)]


def spaced(text):
    """A tokenizer to which a word without the space before it is strange, as to byte-pair ones: a token a letter."""
    found = [match.span() for match in re.finditer(r" \w+|\w|\W", text)]
    return [(start + (end - start > 1), end) for start, end in found]


def octets(text):
    """A tokenizer with several tokens for one character, as byte-level ones have."""
    return [(i, i + 1) for i, character in enumerate(text) for _ in character.encode("utf-8", "surrogatepass")]


def markdown(text, **fields):
    return Document("a.md", text, file_name="a.md", mime="text/markdown", **fields)


def test_chunks_that_are_made_when_they_are_asked_for_are_the_same():
    document = markdown("# A\n\n" + "".join(f"## {i}\n\none *two* three {i}\n\n" for i in range(50)))
    policy = replace(CHARS, chunk_size=60)
    made, expected = Chunks(document, policy), chunk(document, policy)
    assert len(made) == len(expected) > 20
    assert list(made) == expected
    assert (made[3:9], made[-1], made[len(made) :]) == (expected[3:9], expected[-1], [])
    with pytest.raises(IndexError):
        made[len(made)]


def test_fault_T18_the_memory_of_a_long_page_is_that_of_its_text():
    """What is allocated is counted: a build holds the text, and as much again of what is shown of its chunks.

    tests/bench/pages.py measures a page of 50 MB.
    """
    body = f"About *pumps* and [valves](valves.md).{' Check the pressure.' * 60}\n\n"
    text = "# Pumps &rarr; valves\n\n" + "".join(f"## Part {i}\n\n{body}" for i in range(300))
    chunk(markdown("# A *b*\n"), CHARS)  # what is loaded once
    tracemalloc.start()
    try:
        made = Chunks(markdown(text), replace(CHARS, chunk_size=1500))
        page_of.cache_clear()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert "\u2192" in made[0].shown  # so that what is shown of the page takes two bytes a character
    assert held < 1.7 * len(text)


def paths(chunks):
    return [c.heading_path for c in chunks]


def assert_sound(document, chunks, unit=None, size=None):
    """What holds for every document: exact slices, in order, trimmed, nothing lost, nothing too large."""
    covered = bytearray(len(document.text))
    for index, c in enumerate(chunks):
        assert c.chunk_index == index
        assert c.content == document.text[c.i_start : c.i_end]
        assert c.content
        assert c.content == c.content.strip()
        covered[c.i_start : c.i_end] = b"\x01" * (c.i_end - c.i_start)
        if size is not None:
            assert len(unit(c.content if unit is list else c.visible)) <= size
    starts = [(c.i_start, c.i_end) for c in chunks]
    assert starts == sorted(starts)
    assert len({c.i_end for c in chunks}) == len(chunks), "a chunk says nothing new"
    shown = shown_text(document.text, document.body_start) if document.mime == MARKDOWN else document.text
    lost = [i for i in range(document.body_start, len(document.text)) if not covered[i]]
    assert is_blank("".join(shown[i] for i in lost if shown[i] == document.text[i]))
    assert not any(covered[: document.body_start])


# The handed cases.


def test_case_B1_hash_comment_in_code_fence():
    text = "# Setup\n\n```bash\n# install deps\npip install x\n```\n\n# Next\nok"
    chunks = chunk(markdown(text), CHARS)
    assert paths(chunks) == [("Setup",), ("Next",)]
    assert "```bash\n# install deps\npip install x\n```" in chunks[0].content


@pytest.mark.parametrize(
    "body",
    [
        "~~~\n# no\n~~~",
        "````\n```\n# no\n```\n````",
        "    # no",
        "<!--\n# no\n-->",
        "<pre>\n# no\n</pre>",
        "> # no",
        "- item\n\n  # no",
        "- ```sh\n  # no\n  ```",
        "\\# no",
        "#no",
        "####### no",
        "```\n# no, and the fence is never closed",
        "| a |\n| - |\n| # no |",
    ],
)
def test_what_looks_like_a_heading_and_is_none(body):
    assert paths(chunk(markdown(f"# Yes\n\n{body}\n"), CHARS)) == [("Yes",)]


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("# Plain #", "Plain"),
        ("Set\n===", "Set"),
        ("Two\nlines\n---", "a > Two lines"),
        ("   ### Indented", "a > Indented"),
        ("# *Em* **strong** `co<d>e`", "Em strong co<d>e"),
        ("# [link](https://example.org) ![pic](x.png)", "link pic"),
        ("# [ref][r]", "ref"),
        ("# A &amp; B \\* C <br> D", "A & B * C D"),
        ("#\ttab  and   spaces", "tab and spaces"),
    ],
)
def test_titles_are_plain_text(title, expected):
    chunks = chunk(markdown(f"{title}\n\nbody\n\n[r]: https://example.org"), CHARS)
    assert [" > ".join(path) for path in paths(chunks)] == [expected]
    assert chunks[0].content.startswith(title.strip())


def test_case_B4_text_before_the_first_heading():
    chunks = chunk(markdown("intro persimmon\n\n# T\nx"), CHARS)
    assert [(c.heading_path, c.content) for c in chunks] == [((), "intro persimmon"), (("T",), "# T\nx")]
    assert [c.content for c in chunk(markdown("just a line, no heading"), CHARS)] == ["just a line, no heading"]


def test_case_B6_slash_in_a_heading():
    chunks = chunk(markdown("# Root\n## 24/7 Support\ncall us"), CHARS)
    assert paths(chunks) == [("Root", "24/7 Support")]


def test_case_B7_section_longer_than_the_window():
    text = "# Log\n" + "word " * 2999 + "zanzibar"
    policy = ChunkPolicy(chunk_size=512)
    chunks = chunk(markdown(text), policy, token_offsets=words, window=254)
    assert set(paths(chunks)) == {("Log",)}
    assert "zanzibar" in chunks[-1].content
    assert max(len(words(c.embedding_text())) for c in chunks) <= 254
    assert_sound(markdown(text), chunks, words, 254)
    # 3,002 tokens (with "#" and "Log") in pieces of 253 (one goes to the path), each repeating 64 of the one before.
    assert len(chunks) == 16


def test_case_B8_metadata_does_not_move_borders():
    body = "# T\n\n" + "some words here. " * 100
    bare = markdown(body)
    front = "---\nnote: " + "x" * 2000 + "\n---\n"
    long = Document(
        "d/" * 150 + "a.md",
        front + body,
        file_path="/r/" + "d/" * 150 + "a.md",
        mime="text/markdown",
        metadata={"note": "x" * 2000},
        body_start=len(front),
    )
    policy = ChunkPolicy(chunk_size=128, chunk_overlap=16)
    expected = chunk(bare, policy, token_offsets=words)
    found = chunk(long, policy, token_offsets=words)
    assert len(expected) > 1
    assert [c.embedding_text() for c in found] == [c.embedding_text() for c in expected]
    assert [c.i_start - len(front) for c in found] == [c.i_start for c in expected]


def test_case_B11_fence_longer_than_a_chunk():
    lines = [f"print({i:03})  # line {i:03}" for i in range(80)]
    text = "# Code\n\nSee:\n\n```python\n" + "\n".join(lines) + "\n```\n\nEnd."
    document = markdown(text)
    chunks = chunk(document, CHARS)
    assert_sound(document, chunks, list, 200)
    # Cut at line ends: every line is whole in some chunk, and no chunk begins or ends within one.
    assert all(any(line in c.content.split("\n") for c in chunks) for line in lines)
    assert {line for c in chunks for line in c.content.split("\n")} <= set(text.split("\n"))


def test_a_fence_that_fits_is_kept_whole():
    fence = "```sql\n" + "\n".join(f"SELECT {i};\n" for i in range(15)) + "\n```"
    assert 150 < len(fence) < 200
    for filler in range(0, 260, 7):
        document = markdown("# T\n\n" + "word " * (filler // 5) + "\n\n" + fence + "\n\n" + "after " * 40)
        for overlap in (0, 60):
            chunks = chunk(document, replace(CHARS, chunk_overlap=overlap))
            assert any(fence in c.content for c in chunks)
            assert all(c.content.count("```") in (0, 2) for c in chunks)
            assert_sound(document, chunks, list, 200)


def test_case_A3_blank_page_does_not_shift_numbers():
    chunks = chunk(Document("a.pdf", "\n\ngamma ray", mime="application/pdf", page_starts=(0, 2)), CHARS)
    assert [(c.content, c.page) for c in chunks] == [("gamma ray", 2)]


def test_case_A8_line_ends_make_no_difference():
    text = "# Top\n## Sub\nbody\n"
    windows = chunk(markdown(text.replace("\n", "\r\n")), CHARS)
    assert paths(windows) == paths(chunk(markdown(text), CHARS)) == [("Top", "Sub")]
    assert chunk(markdown(normalize(text.replace("\n", "\r\n"))), CHARS) == chunk(markdown(text), CHARS)


@pytest.mark.parametrize("text", ["# A\n\n---\n\ntext: not yaml\n\n---\nmore", "---hello\nx\n---\n", "---\na: b\nbody"])
def test_case_A9_rules_are_body(text):
    assert_sound(markdown(text), chunk(markdown(text), CHARS))


def test_case_A15_blank_text_and_a_lone_title():
    assert chunk(markdown(""), CHARS) == []
    assert chunk(markdown("\n \n"), CHARS) == []
    assert [(c.content, c.heading_path) for c in chunk(markdown("# Only a title"), CHARS)] == [
        ("# Only a title", ("Only a title",))
    ]


# Structure.


LONG = "\n\n" + "long " * 34
"""Text that leaves no room for another section beside its own in a chunk of 200 characters."""


def test_levels_may_be_skipped_and_come_back():
    text = f"# A\na{LONG}\n### B\nb{LONG}\n## C\nc{LONG}\n### D\nd{LONG}\n# E\ne"
    assert paths(chunk(markdown(text), CHARS)) == [("A",), ("A", "B"), ("A", "C"), ("A", "C", "D"), ("E",)]


def test_an_empty_heading_ends_a_section_and_has_no_title():
    assert paths(chunk(markdown(f"# A\na{LONG}\n## B\nb{LONG}\n##\nc"), CHARS)) == [("A",), ("A", "B"), ("A",)]


def test_a_title_without_text_goes_with_what_follows():
    chunks = chunk(markdown(f"# A\n\n## B\n\n### C\n\nbody{LONG}\n\n## Done\n\n# E\nend"), CHARS)
    # It is followed by a heading above it: E's chunk would be the wrong place.
    assert [(c.heading_path, c.content) for c in chunks] == [
        (("A", "B", "C"), f"# A\n\n## B\n\n### C\n\nbody{LONG.rstrip()}"),
        (("A", "Done"), "## Done"),
        (("E",), "# E\nend"),
    ]


def test_a_title_does_not_push_a_section_over_the_limit():
    body = "## B\n" + "x" * 195
    chunks = chunk(markdown(f"# Title\n{body}"), CHARS)
    assert [(c.heading_path, c.content) for c in chunks] == [(("Title",), "# Title"), (("Title", "B"), body)]


def test_the_title_of_the_front_matter_stands_in_for_a_missing_first_heading():
    front = "---\ntitle: Page\n---\n"
    for body, expected in [
        (f"intro{LONG}\n\n## Sub\nx{LONG}", [("Page",), ("Page", "Sub")]),
        # A heading of level 1 stands below it, and takes its place where it says the same.
        (f"intro{LONG}\n\n# Own\nx\n\n# Next\ny{LONG}", [("Page",), ("Page", "Own"), ("Page", "Next")]),
        (f"intro{LONG}\n\n# `page`:\nx{LONG}\n\n# Next\ny", [("page:",), ("page:",), ("page:", "Next")]),
    ]:
        document = markdown(front + body, metadata={"title": "Page"}, body_start=len(front))
        assert paths(chunk(document, CHARS)) == expected


# Packing.


def test_a_section_that_fits_is_one_chunk_with_all_below_it():
    for text, path in [
        ("# T\n\n## A\n\na\n\n### B\n\nb\n\n#### C\n\nc", ("T", "A")),
        ("# T\n\n## A\n\n### B\n\nb", ("T", "A", "B")),
        ("# T\n\n## A\n\n### B\n\nb\n\n### C\n\nc", ("T", "A")),
        # D has a heading but no text of its own, and what follows is not below it.
        ("# T\n\n## A\n\n### D\n\n### C\n\nc", ("T", "A")),
    ]:
        chunks = chunk(markdown(f"{text}\n\n## End\n\nz"), CHARS)
        assert [(c.content, c.heading_path) for c in chunks] == [(text, path), ("## End\n\nz", ("T", "End"))]


def test_sections_that_share_nothing_but_the_title_are_not_put_together():
    assert paths(chunk(markdown("# T\n\nintro\n\n## A\n\na\n\n## B\n\nb"), CHARS)) == [("T",), ("T", "A"), ("T", "B")]
    assert paths(chunk(markdown("intro\n\n## A\n\na"), CHARS)) == [("a",), ("a", "A")]


def test_sections_with_no_heading_in_common_are_not_put_together():
    assert paths(chunk(markdown("intro\n\n# A\n\na\n\n# B\n\nb"), CHARS)) == [(), ("A",), ("B",)]


def test_neighbours_are_put_together_below_a_heading_while_they_fit():
    text = f"# T\n\n## A\n\n{'a ' * 20}\n\n" + "".join(f"### A{i}\n\n{'x ' * 20}\n\n" for i in range(6)) + "## B\n\nb"
    chunks = chunk(markdown(text), CHARS)
    # 4 times some 50 characters make 200, T included; B has nothing but the title in common with what is before.
    assert [(c.heading_path, re.findall("#+ (.*)", c.content)) for c in chunks] == [
        (("T", "A"), ["T", "A", "A0", "A1", "A2"]),
        (("T", "A"), ["A3", "A4", "A5"]),
        (("T", "B"), ["B"]),
    ]
    assert_sound(markdown(text), chunks, list, 200)


def test_a_section_that_does_not_fit_is_cut_alone():
    text = f"# T\n\n## A\n\na\n\n### Large\n\n{'large ' * 60}\n\n### A2\n\nx\n\n### A3\n\ny{LONG}{LONG}"
    found = chunk(markdown(text), CHARS)
    assert paths(found) == [("T", "A"), *[("T", "A", "Large")] * 2, ("T", "A", "A2"), *[("T", "A", "A3")] * 2]
    assert found[0].content == "# T\n\n## A\n\na"


def test_a_change_moves_no_border_beyond_the_next_heading_below_the_title():
    def page(changed):
        sections = [f"### {name}{i}\n\n{'word ' * 12}" for name in "ABC" for i in range(7)]
        parts = [f"## {name}\n\n" + "\n\n".join(sections[i : i + 7]) for i, name in zip((0, 7, 14), "ABC", strict=True)]
        return "# T\n\n" + "\n\n".join(parts).replace("### A1\n", "### A1\n\n" + changed)

    before, after = ([c.embedding_text() for c in chunk(markdown(page(c)), CHARS)] for c in ("", "more " * 9))
    of_a = [i for i, text in enumerate(before) if text.startswith("T > A")]
    assert before[: of_a[-1] + 1] != after[: of_a[-1] + 1]
    assert before[of_a[-1] + 1 :] == after[-(len(before) - of_a[-1] - 1) :]
    assert len(before) - len(of_a) >= 6


def test_sections_on_two_pages_are_not_put_together():
    pages = ["## A\n\na", "### B\n\nb\n\n### C\n\nc", "## D\n\nd"]
    document = markdown("\n\n".join(pages), page_starts=(0, 8, 8 + len(pages[1]) + 2))
    assert [(c.page, c.content) for c in chunk(document, CHARS)] == list(enumerate(pages, 1))


@pytest.mark.parametrize(
    "inline",
    ["[a label of some words](to.md#somewhere)", "`code of some words`", "<b id='x' class=\"some more\">x</b>"],
)
def test_a_link_a_tag_and_code_in_a_line_are_not_cut(inline):
    for filler in range(20):
        text = "word " * filler + inline + " word" * 30
        chunks = chunk(text, replace(CHARS, chunk_size=80))
        assert sum(inline in c.content for c in chunks) == 1
    # Where it is larger than a chunk, it is cut at a word.
    assert {len(c.content.split()[0]) for c in chunk(f"`{'word ' * 40}`", replace(CHARS, chunk_size=80))} <= {4, 5}


def test_other_formats_and_the_size_strategy_have_no_headings():
    text = "# A\nx\n# B\ny"
    assert paths(chunk(Document("a.txt", text), CHARS)) == [()]
    assert paths(chunk(markdown(text), replace(CHARS, strategy="size"))) == [()]


def test_chunks_of_a_pdf_do_not_cross_pages():
    pages = ["alpha " * 50, "", "# no heading", "omega " * 50]
    starts = [0, 302, 304, 318]
    document = Document("a.pdf", "\n\n".join(pages), mime="application/pdf", page_starts=tuple(starts))
    chunks = chunk(document, replace(CHARS, chunk_overlap=20))
    assert [c.page for c in chunks] == [1, 1, 3, 4, 4]
    assert paths(chunks) == [()] * 5
    assert_sound(document, chunks, list, 200)


def test_a_chunk_knows_its_document():
    document = Document(
        "notes:a/b.md",
        "# T\nx",
        collection="notes",
        file_path="/elsewhere/a/b.md",
        file_name="b.md",
        mime="text/markdown",
        tags=("x", "y"),
        metadata={"lang": "en", "mime": "overruled"},
    )
    (found,) = chunk(document, CHARS)
    assert found.node_id == "notes:a/b.md#0"
    assert (found.collection, found.tags, found.page) == ("notes", ("x", "y"), None)
    assert found.metadata == {"lang": "en", "file_name": "b.md", "file_path": "a/b.md", "mime": "text/markdown"}


def test_a_string_is_a_document_without_name():
    (found,) = chunk("# T\nx", CHARS)
    assert (found.doc_id, found.heading_path, found.metadata) == ("", ("T",), {})


# Sizes.


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("a b c d\n\ne f\ng. h i j k l", "a b c d"),
        ("a b c d e f\ng. h i j k l", "a b c d e f"),
        ("a b c d e f. g h i j k l", "a b c d e f."),
        ("a b c d e f g h i j k l", "a b c d e f g h"),
        ("a b\n\nc d e f g h i j k l", "a b\n\nc d e f g h"),  # a border in the first half would make a tiny piece
    ],
)
def test_the_best_border_is_taken(text, first):
    chunks = chunk(text, ChunkPolicy(chunk_size=8, chunk_overlap=0), token_offsets=words)
    assert chunks[0].content == first


def test_overlap_repeats_whole_words_up_to_its_size():
    text = " ".join(f"w{i}" for i in range(20))
    chunks = chunk(text, ChunkPolicy(chunk_size=8, chunk_overlap=3), token_offsets=words)
    assert [c.content.split()[0] for c in chunks] == ["w0", "w5", "w10", "w15"]
    assert chunks[0].content.split()[-3:] == chunks[1].content.split()[:3] == ["w5", "w6", "w7"]


def test_overlap_prefers_the_beginning_of_a_line():
    text = "\n".join(f"line {i} of it" for i in range(9))
    chunks = chunk(text, ChunkPolicy(chunk_size=16, chunk_overlap=6), token_offsets=words)
    assert all(c.content.startswith("line ") for c in chunks)
    assert chunks[1].content.startswith("line 3")


def test_overlap_never_repeats_more_than_half():
    text = " ".join(f"w{i}" for i in range(1000))
    greedy = chunk(text, ChunkPolicy(chunk_size=100, chunk_overlap=99), token_offsets=words)
    # Each piece adds at least half of itself: 1,000 / 50.
    assert len(greedy) <= 20
    narrow = chunk("# T\n" + text, ChunkPolicy(chunk_size=512, chunk_overlap=64), token_offsets=words, window=40)
    assert len(narrow) <= 1000 / 18


def test_overlap_counts_characters_when_the_size_does():
    policy = ChunkPolicy(chunk_size=1000, chunk_overlap=30, chunk_unit="chars")
    chunks = chunk("word " * 400, policy, token_offsets=words, window=100)
    assert {a.i_end - b.i_start for a, b in itertools.pairwise(chunks)} == {29}  # six words of five, the last space off


def test_composed_characters_stay_together():
    family = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
    for text in (family * 30, "e\u0323\u0301" * 60, "\u2764\ufe0f" * 60):
        chunks = chunk(text, ChunkPolicy(chunk_size=16, chunk_overlap=0, chunk_unit="chars"))
        assert "".join(c.content for c in chunks) == text
        for c in chunks:
            assert not unicodedata.combining(c.content[0])
            assert c.content[0] not in "\u200d\ufe0f"
            assert c.content[-1] != "\u200d"


def test_the_size_holds_even_inside_a_composed_character():
    chunks = chunk("e" + "\u0301" * 100, ChunkPolicy(chunk_size=10, chunk_overlap=0, chunk_unit="chars"))
    assert max(len(c.content) for c in chunks) <= 10


def test_a_slice_is_counted_as_it_will_be_embedded():
    # The first word of a slice costs six tokens, not the one that it cost in its place: 10 - 6 = 4 others have room.
    chunks = chunk("letter " * 50, ChunkPolicy(chunk_size=10, chunk_overlap=0), token_offsets=spaced)
    assert {len(spaced(c.content)) for c in chunks} == {10}
    assert [c.content for c in chunks] == ["letter letter letter letter letter"] * 10


def test_one_word_longer_than_a_chunk():
    text = "x" * 1001
    chunks = chunk(text, replace(CHARS, chunk_overlap=50))
    assert_sound(Document("", text), chunks, list, 200)


def test_the_window_holds_in_characters_too():
    text = "# T\n" + "ab cd " * 300
    policy = ChunkPolicy(chunk_size=1000, chunk_overlap=0, chunk_unit="chars")
    chunks = chunk(text, policy, token_offsets=words, window=50)
    assert max(len(words(c.embedding_text())) for c in chunks) <= 50
    assert max(len(c.content) for c in chunk(text, policy, token_offsets=words, window=5000)) > 900


def test_a_long_heading_path_loses_its_outer_titles():
    text = "# " + "a " * 20 + "\n## " + "b " * 20 + "\n### " + "c " * 5 + "\nbody"
    (found,) = chunk(text, token_offsets=words, window=64)[-1:]
    # A third of 64 is 21: c's 5 fit, with b's 20 and the sign between them 26 do not.
    assert found.heading_path == ("c c c c c",)
    without = replace(ChunkPolicy(), include_headers=False)
    assert len(chunk(text, without, token_offsets=words, window=64)[-1].heading_path) == 3


def test_a_long_title_is_cut_and_marked():
    title = "very long title " * 40
    (found,) = chunk(f"# {title}\nbody", ChunkPolicy(chunk_size=5000, chunk_overlap=0, chunk_unit="chars"))
    assert len(found.heading_path[0]) <= 200
    assert found.heading_path[0].endswith("…")
    assert title.strip() in found.content
    narrow = chunk(f"# {title}\nbody", token_offsets=words, window=30)
    assert all(len(words(c.embedding_text())) <= 30 for c in narrow)
    assert narrow[0].heading_path[0].endswith("…")


@pytest.mark.parametrize("window", [1, 2, 3, 4, 7])
def test_tiny_windows_hold_too(window):
    chunks = chunk("# A title\n\nsome words to cut. And more.", token_offsets=words, window=window)
    assert all(1 <= len(words(c.embedding_text())) <= window for c in chunks)


# Wrong arguments.


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"chunk_size": 0}, "chunk_size must be above 0, not 0"),
        ({"chunk_size": -5}, "-5"),
        ({"chunk_size": 1.5}, "1.5"),
        ({"chunk_size": True}, "True"),
        ({"chunk_size": "512"}, "'512'"),
        ({"chunk_overlap": -1}, "not -1"),
        ({"chunk_overlap": 512}, r"below chunk_size \(512\), not 512"),
        ({"chunk_overlap": 600}, "600"),
        ({"strategy": "semantic"}, "'semantic'"),
        ({"chunk_unit": "words"}, "'words'"),
    ],
)
def test_a_wrong_policy_is_named(change, said):
    policy = replace(ChunkPolicy(), **change)
    with pytest.raises(InputError, match=said):
        check_policy(policy)
    with pytest.raises(InputError, match=said):
        chunk("text", policy, token_offsets=words)


def test_tokens_need_a_tokenizer():
    with pytest.raises(InputError, match="token_offsets"):
        chunk("text")
    with pytest.raises(InputError, match="token_offsets"):
        chunk("text", CHARS, window=100)
    with pytest.raises(InputError, match="not 0"):
        chunk("text", token_offsets=words, window=0)


# Anything.

BLOCKS = st.sampled_from(
    (
        *("# ", "## ", "###### ", "```\n", "```\ncode # x\n\ncode\n```\n", "---\n", "===\n", "> ", "- ", "    "),
        *("| a | b |\n", "\n", "\n\n", " ", "\t", "\r\n", ". ", "。", "word ", "a", "\u0301", "\u200d", "\U0001f468"),
        *("漢字", "\u2028", "<!--"),
    )
)
TEXTS = st.lists(BLOCKS | st.text(st.characters(exclude_categories=()), max_size=8), max_size=60).map("".join)


@pytest.mark.slow
@settings(deadline=None, max_examples=500)
@given(
    text=TEXTS,
    size=st.integers(1, 60),
    overlap=st.floats(0, 1, exclude_max=True),
    tokenizer=st.sampled_from([None, words, pairs, spaced, octets]),
    strategy=st.sampled_from(["markdown", "size"]),
    window=st.none() | st.integers(4, 80),
)
@example("# a\n```\n" + "x\n" * 30 + "```\n" + "y " * 40, 20, 0.9, pairs, "markdown", 13)
def test_every_text_is_cut_soundly(text, size, overlap, tokenizer, strategy, window):
    unit, measure = ("chars", list) if tokenizer is None else ("tokens", tokenizer)
    window = None if tokenizer is None else window
    policy = ChunkPolicy(strategy, size, int(overlap * size), unit)
    # A character can take four of the tokens that count bytes: nothing smaller can hold it.
    least = 4 if tokenizer is octets else 1
    document = markdown(text)
    chunks = chunk(document, policy, token_offsets=tokenizer, window=window)
    assert_sound(document, chunks, measure, max(size, least))
    assert chunks == chunk(document, policy, token_offsets=tokenizer, window=window)
    for c in chunks if window else ():
        assert len(measure(c.embedding_text())) <= max(window, least)


@pytest.mark.slow
@settings(deadline=None, max_examples=500)
@given(pages=st.lists(TEXTS.map(normalize).map(str.strip), min_size=1, max_size=5), size=st.integers(1, 40))
def test_pages_are_kept(pages, size):
    starts = [sum(len(page) + 2 for page in pages[:i]) for i in range(len(pages))]
    document = Document("a.pdf", "\n\n".join(pages), mime="application/pdf", page_starts=tuple(starts))
    chunks = chunk(document, ChunkPolicy(chunk_size=size, chunk_overlap=size // 3, chunk_unit="chars"))
    assert_sound(document, chunks, list, size)
    assert all(c.content in pages[c.page - 1] for c in chunks)
    assert {c.page for c in chunks} == {i for i, page in enumerate(pages, 1) if not is_blank(page)}


@pytest.mark.slow
@pytest.mark.skipif(not DATA.exists(), reason="the documentation pages are not beside the project")
def test_real_pages_are_cut_soundly_and_quickly():
    root = DATA / "docs" / "duckdb-current"
    documents = [read_document(path, root) for path in find_files(root)[0]]
    assert len(documents) == 425
    begin = time.perf_counter()
    chunked = [chunk(document, ChunkPolicy(), token_offsets=words, window=254) for document in documents]
    seconds = time.perf_counter() - begin
    # Four pages hold nothing but front matter: they are found by their titles.
    bare = [c[0].content for d, c in zip(documents, chunked, strict=True) if not d.text[d.body_start :].strip()]
    assert sorted(bare) == ["Database Integration", "File Formats", "Network and Cloud Storage", "Statements Overview"]
    for document, chunks in zip(documents, chunked, strict=True):
        if document.text[document.body_start :].strip():
            assert_sound(document, chunks, words, 254)
    # Seconds are not measured here, only that nothing grows with the square: 4.3 MB take about 4 s on one slow core.
    assert seconds < 60


class TestSegments:
    POLICY = ChunkPolicy(chunk_size=20, chunk_overlap=0, chunk_unit="chars")

    def test_a_list_of_texts_is_the_pages_of_a_document(self):
        pages = ["one two", "", "# three\n\nfour", "five six seven eight nine"]
        chunks = chunk(pages, self.POLICY)
        whole = "\n\n".join(pages)
        assert [(c.page, c.content) for c in chunks] == [
            (1, "one two"), (3, "# three\n\nfour"), (4, "five six seven eight"), (4, "nine"),
        ]  # fmt: skip
        assert all(whole[c.i_start : c.i_end] == c.content for c in chunks)
        assert chunk([], self.POLICY) == chunk([""], self.POLICY) == []

    @pytest.mark.parametrize("wrong", [None, 5, ["a", 5], {"a": 1}, b"a", [b"a"]])
    def test_anything_else_is_refused(self, wrong):
        with pytest.raises(InputError, match="document"):
            chunk(wrong, self.POLICY)


class TestShortTexts:
    """A short plain text of ASCII is one chunk without counting; the chunks are those that counting gives."""

    @pytest.mark.slow
    @given(
        text=st.text("ab .\n\té!", max_size=70),
        title=st.text("ab é", max_size=25),
        size=st.integers(4, 60),
        window=st.none() | st.integers(20, 100),
        unit=st.sampled_from(["tokens", "chars"]),
        headers=st.booleans(),
    )
    @settings(max_examples=300, deadline=None)
    def test_the_chunks_are_the_same(self, text, title, size, window, unit, headers):
        document = Document("a.txt", text, file_name="a.txt", metadata={"title": title})
        policy = ChunkPolicy(chunk_size=size, chunk_overlap=2, chunk_unit=unit, include_headers=headers)
        calls = []

        def token_offsets(text):  # a token for every character
            calls.append(text)
            return [(i, i + 1) for i in range(len(text))]

        with pytest.MonkeyPatch.context() as patch:
            found = chunk(document, policy, token_offsets=token_offsets, window=window)
            patch.setattr("sqlrag.ingest.chunk._short", lambda *_: [])
            assert found == chunk(document, policy, token_offsets=token_offsets, window=window)

    def test_nothing_is_counted(self):
        document = Document("a.txt", "A pump moves water.", file_name="a.txt", metadata={"title": "Pumps"})

        def token_offsets(text):
            raise AssertionError(text)

        (only,) = chunk(document, ChunkPolicy(), token_offsets=token_offsets, window=510)
        assert (only.content, only.heading_path) == ("A pump moves water.", ("Pumps",))


@pytest.mark.parametrize("overlap", [10, 25, 60, 90])
def test_what_is_repeated_of_a_table_is_whole_rows(overlap):
    header = "| name | what | price |\n| --- | --- | --- |\n"
    rows = [f"| item{i} | the product. It has the number {i} | {i}.50 |" for i in range(40)]
    text = header + "\n".join(rows) + "\n\nAfter the table."
    document = Document("products.md", text, mime="text/markdown")
    chunks = chunk(document, ChunkPolicy(chunk_size=300, chunk_overlap=overlap, chunk_unit="chars"))
    assert len(chunks) > 5
    assert all(text[one.i_start : one.i_end] == one.content for one in chunks)
    for before, one in pairwise(chunks):
        assert one.content.startswith(("| item", "After")), one.content
        assert before.i_end - one.i_start <= overlap
    assert {row for one in chunks for row in one.content.splitlines()} >= set(rows)
    repeated = any(one.i_start < before.i_end for before, one in pairwise(chunks))
    assert repeated == (overlap >= 60)
