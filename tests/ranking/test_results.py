"""Results: a list of dicts first of all, then tables, a notebook view and plain text."""

from __future__ import annotations

import copy
import doctest
import io
import json
import pickle
import subprocess
import sys
import unicodedata
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlrag import Store
from sqlrag.errors import InputError, MissingExtraError
from sqlrag.ranking import results as results_module
from sqlrag.ranking.results import COLUMN_TYPES, RESULT_KEYS, Results, format_results, print_results
from tests.support.helpers import build


def row(number: int = 0, **values) -> dict:
    """One complete result; ``values`` replace what is given here."""
    complete = {
        "node_id": f"guides/install.md#{number}",
        "text": "## Linux\n\nUnpack the archive.",
        "metadata": {"title": "Installing", "level": 2},
        "score": round(2 / 61, 9),
        "score_type": "rrf",
        "source_doc": None,
        "doc_id": "guides/install.md",
        "chunk_index": number,
        "collection": "default",
        "heading_path": ["Installing", "Linux"],
        "page": None,
        "i_start": 10,
        "i_end": 38,
        "vector_score": 0.71234,
        "vector_rank": 1,
        "lexical_score": 9.8131,
        "lexical_rank": 2,
    }
    return complete | values


def columns(line: str) -> int:
    """Columns of a line, counted apart from the code: wide characters take two, combining ones none."""
    return sum((unicodedata.east_asian_width(c) in "WF") + (unicodedata.combining(c) == 0) for c in line)


@pytest.fixture
def results() -> Results:
    second = row(1, page=3, lexical_score=None, lexical_rank=None, source_doc={"doc_id": "guides/install.md"})
    return Results(
        [row(0), second], query_text="how to install?", sql="FROM hybrid", notices=["so it is"], timings={"fuse": 0.001}
    )


def test_the_examples_of_the_docstrings_hold():
    outcome = doctest.testmod(results_module)
    assert outcome.attempted >= 3
    assert outcome.failed == 0


def test_the_keys_and_their_order():
    # As the design lists them.
    listed = (
        "node_id text metadata score score_type source_doc doc_id chunk_index collection heading_path page "
        "i_start i_end vector_score vector_rank lexical_score lexical_rank shown tags checksum "
        "created_at context context_start context_end context_shown"
    )
    assert " ".join(RESULT_KEYS) == listed


def test_importing_loads_nothing_heavy():
    heavy = ("pandas", "polars", "pyarrow", "numpy", "duckdb")
    modules = "sqlrag.ranking.results, sqlrag.ranking.fusion"
    code = f"import sys, {modules}; print([m for m in {heavy} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


# ---- a list


def test_it_is_a_list_of_dicts(results):
    assert isinstance(results, list)
    assert results == [dict(results[0]), dict(results[1])]
    assert results != [results[0]]
    assert Results() == []
    assert json.loads(json.dumps(results)) == results


def test_slices_and_copies_keep_the_attributes(results):
    for part in (results[:1], results[::-1], results[5:], results.copy(), copy.copy(results), copy.deepcopy(results)):
        assert type(part) is Results
        assert (part.query_text, part.sql) == ("how to install?", "FROM hybrid")
        assert (part.notices, part.timings) == (["so it is"], {"fuse": 0.001})
    assert results[:1] == [results[0]]
    assert results[-1] is results[1]
    assert pickle.loads(pickle.dumps(results)).notices == ["so it is"]


def test_the_notices_of_a_slice_are_its_own(results):
    results[:1].notices.append("another")
    assert results.notices == ["so it is"]


# ---- tables


def test_arrow_has_one_schema_for_any_result(results):
    table = results.arrow()
    assert table.schema.names == list(RESULT_KEYS)
    assert table.schema.equals(Results().arrow().schema)
    assert (len(table), len(Results().arrow())) == (2, 0)
    assert str(table.schema.field("heading_path").type.value_type) == "string"
    assert {str(table.schema.field(name).type) for name, kind in COLUMN_TYPES.items() if kind == "int32"} == {"int32"}


def test_arrow_holds_the_values(results):
    rows = results.arrow().to_pylist()
    assert [json.loads(r["metadata"]) for r in rows] == [{"title": "Installing", "level": 2}] * 2
    assert [r["source_doc"] and json.loads(r["source_doc"]) for r in rows] == [None, {"doc_id": "guides/install.md"}]
    for got, want in zip(rows, results, strict=True):
        assert {k: v for k, v in got.items() if COLUMN_TYPES[k] != "json"} == {
            k: v for k, v in {**dict.fromkeys(RESULT_KEYS), **want}.items() if COLUMN_TYPES[k] != "json"
        }


def test_arrow_of_rows_that_lack_keys():
    assert Results([{"node_id": "x", "score": 1.0}]).arrow().to_pylist() == [
        dict.fromkeys(RESULT_KEYS) | {"node_id": "x", "score": 1.0}
    ]


def test_df(results):
    frame = results.df()
    assert list(frame.columns) == list(RESULT_KEYS)
    assert frame["metadata"].tolist() == [{"title": "Installing", "level": 2}] * 2
    assert frame["heading_path"].tolist() == [["Installing", "Linux"]] * 2
    assert frame["lexical_rank"].isna().tolist() == [False, True]
    assert frame["page"].tolist()[1] == 3
    numbers = [name for name, kind in COLUMN_TYPES.items() if kind in ("int32", "float64")]
    empty = Results().df()
    assert (len(empty), list(empty.columns)) == (0, list(RESULT_KEYS))
    assert empty[numbers].dtypes.tolist() == frame[numbers].dtypes.tolist()
    assert str(frame["page"].dtype) == "Int64"


def test_pl(results):
    frame = results.pl()
    assert frame.columns == list(RESULT_KEYS)
    assert frame.schema == Results().pl().schema
    assert frame["heading_path"].to_list() == [["Installing", "Linux"]] * 2
    assert frame["lexical_rank"].to_list() == [2, None]


@pytest.mark.parametrize(("package", "method"), [("pandas", "df"), ("polars", "pl")])
def test_a_missing_package_is_named_with_its_remedy(results, monkeypatch, package, method):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"Results\.{method}\(\).*sqlrag-duckdb\[notebook\]") as caught:
        getattr(results, method)()
    assert isinstance(caught.value.__cause__, ImportError)


# ---- the notebook


class _Cells(HTMLParser):
    """Collects the tags and the text of the table cells."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.cells: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_data(self, data):
        if self.cells:
            self.cells[-1] += data


def test_html_table(results):
    parsed = _Cells(results._repr_html_())
    assert parsed.cells[:8] == [
        "#", "Score", "Vector rank (cosine)", "Lexical rank (BM25)", "Document", "Section", "Page", "Text",
    ]  # fmt: skip
    assert parsed.cells[8:16] == [
        "1", "0.0328 rrf", "#1 (0.7123)", "#2 (9.81)", "guides/install.md#0", "Installing › Linux", "",
        "Unpack the archive.",
    ]  # fmt: skip
    assert parsed.cells[19] == ""  # the second result is none of the lexical leg
    assert parsed.cells[22] == "3"
    assert "so it is" in results._repr_html_()


def test_html_without_pages_has_no_such_column():
    assert "Page" not in _Cells(Results([row()])._repr_html_()).cells


def test_html_of_one_leg_has_no_column_for_the_other():
    cells = _Cells(Results([row(vector_rank=None, vector_score=None)])._repr_html_()).cells
    assert "Vector rank (cosine)" not in cells
    assert "Lexical rank (BM25)" in cells


def test_html_marks_the_words_that_were_looked_for(tmp_path):
    """As the index sees them, escaped, far into the text too, and after the file has been closed."""
    text = "`<b>`Pools`</b>` & more. " + "word " * 60 + "Filling `<i>`the`</i>` ConnectionPool."
    build(tmp_path, a_md="nothing here", b_md=text)
    with Store(tmp_path / "kb.duckdb") as store:
        near = store.hybrid_query("how to pool")
        far = store.lexical_query("fill")
        by_vector = store.vector_query("how to pool")
    (tmp_path / "kb.duckdb").unlink()
    cell = next(line for line in near._repr_html_().split("<td") if "b.md#0" not in line and "&lt;b&gt;" in line)
    assert "&lt;b&gt;<mark>Pools</mark>&lt;/b&gt; &amp; more." in cell
    assert "<mark>Filling</mark> &lt;i&gt;the&lt;/i&gt; ConnectionPool." in far[:1]._repr_html_()
    assert "…word" in far._repr_html_()
    assert "<mark>" not in by_vector._repr_html_()


def test_html_without_results():
    assert "No results" in Results(query_text="x")._repr_html_()


def test_html_cuts_the_text():
    cell = _Cells(Results([row(text="word " * 1000)])._repr_html_()).cells[-1]
    assert 190 <= len(cell) <= 200
    assert cell.endswith("word…")


def test_html_escapes_everything():
    attack = "<script>alert('1')</script>\" onmouseover=\"x"
    rows = [{key: attack if COLUMN_TYPES[key] == "string" else value for key, value in row().items()}]
    rows[0]["heading_path"] = [attack]
    rows[0]["page"] = attack
    text = Results(rows, query_text=attack, notices=[attack])._repr_html_()
    assert _Cells(text).tags == {"div", "p", "strong", "em", "table", "thead", "tbody", "tr", "th", "td"}
    assert "<script" not in text
    assert 'onmouseover="' not in text


# ---- the terminal


def test_format_results_whole(results):
    assert format_results(results, "how to install?") == (
        "Query: how to install?\n"
        "2 results\n"
        "Note: so it is\n"
        "\n"
        " 1. guides/install.md#0 (0.0328 rrf)\n"
        "    Installing › Linux\n"
        "    vector #1 (cosine 0.7123), lexical #2 (BM25 9.81)\n"
        "\n"
        "    Unpack the archive.\n"
        "\n"
        " 2. guides/install.md#1 (0.0328 rrf)\n"
        "    Installing › Linux, page 3\n"
        "    vector #1 (cosine 0.7123), lexical -\n"
        "\n"
        "    Unpack the archive."
    )


def test_format_nothing():
    assert format_results([], "x") == "Query: x\nNo results"


def test_format_the_dicts_of_the_published_package():
    published = {"node_id": "0b1c", "text": "Hello.", "metadata": "{}", "score": 0.5, "score_type": "weighted"}
    assert format_results([published], "x") == "Query: x\n1 result\n\n 1. 0b1c (0.5000 weighted)\n\n    Hello."


def test_an_id_that_does_not_name_its_document_gets_the_document():
    assert "doc.md [0b1c] (" in format_results([row(node_id="0b1c", doc_id="doc.md")], "x")


def test_a_score_without_a_rank_has_no_number():
    # Convex fusion knows the exact score of a chunk that the leg itself did not return.
    text = format_results([row(vector_rank=None, vector_score=0.25)], "x")
    assert "vector (cosine 0.2500), lexical #2" in text


def test_a_text_of_nothing_but_its_heading_is_shown():
    assert format_results([row(text="## Linux\n")], "x").endswith("\n    Linux")


def test_the_columns_of_a_row_are_below_its_legs():
    """Those that its text and title lack, a long value cut; metadata of other documents are not shown."""
    columns = {"hours": 2.5, "open": True, "product": "web", "subject": "Late", "memo": "word " * 30, "tags": ["a"]}
    own = {"file_name": "7", "file_path": "t/7", "mime": "application/vnd.sqlrag.row+markdown"}
    found = row(heading_path=["Late"], metadata=own | columns, text="The parcel.", row_key=7)
    text = format_results([found], "x")
    memo = " ".join(["word"] * 8)
    assert f'\n    hours: 2.5, open: true, product: web, memo: {memo}…, tags:\n    ["a"]\n\n    The parcel.' in text
    cells = _Cells(Results([found])._repr_html_()).cells
    assert cells[cells.index("Columns") + len(cells) // 2].startswith("hours: 2.5, open: true")
    assert "hours" not in format_results([row(metadata={"mime": "text/csv"} | columns)], "x")
    many = format_results([row(metadata=own | {f"c{n}": "\x1b[31m" + "v" * 30 for n in range(99)})], "x")
    assert "…\n\n" in many
    assert "\x1b" not in many
    assert len(many.splitlines()) == 12  # four of them are columns


def test_tables_in_a_text_are_cells_without_pipes():
    text = "| a | b |\n| --- | :-: |\n| x \\| y | |\n| 1 | 2 |\nAfter | it."
    assert format_results([row(text=text)], "x").endswith("\n    a · b; x | y 1 · 2; After | it.")


def test_the_text_is_cut_to_three_lines():
    lines = format_results([row(text="word " * 1000)], "x").split("\n\n")[-1].splitlines()
    assert len(lines) == 3
    assert lines[-1].endswith("word…")


_pieces = st.one_of(
    st.sampled_from(["word", "漢字仮名", "e\u0301", " ", "\n", "\t", "#", "\x1b[31m", "\u202e"]), st.characters()
)
_texts = st.builds(lambda pieces, times: "".join(pieces) * times, st.lists(_pieces, max_size=6), st.integers(1, 120))


@pytest.mark.slow
@given(_texts, _texts, st.lists(_texts, max_size=3), _texts)
def test_no_line_is_wider_than_a_hundred_columns_and_nothing_steers_the_terminal(query, text, headings, name):
    found = Results(
        [row(text=text, heading_path=headings, node_id=name, doc_id=name)], query_text=query, notices=[text]
    )
    for shown in (format_results(found, query), repr(found)):
        assert all(columns(line) <= 100 for line in shown.split("\n"))
        assert not any(
            unicodedata.category(char) in ("Cc", "Cs") or char == "\u202e" for char in shown.replace("\n", "")
        )


@given(
    st.lists(
        st.builds(str.__mul__, st.sampled_from(["abc", "漢字", "a漢"]), st.integers(1, 120)), min_size=1, max_size=8
    )
)
def test_wrapping_loses_no_character(words):
    shown = format_results([], " ".join(words)).removeprefix("Query:").removesuffix("No results")
    assert "".join(shown.split()) == "".join(words)


def test_wrapping_fills_the_lines():
    # 200 words, n of them take 2n - 1 columns. The first line has 7 columns of "Query: " and 47 words, the next three
    # have 50 words each, which leaves 3.
    assert [len(line) for line in format_results([], "a " * 200).splitlines()[:-1]] == [100, 99, 99, 99, 5]


@pytest.mark.parametrize(("letter", "of_a_line"), [("x", 96), ("漢", 48), ("e\u0301", 96)])
def test_words_wider_than_a_line_are_broken_and_fill_it(letter, of_a_line):
    # 100 columns less an indent of 4; wide letters take two. The whole has 280 columns, the last for the ellipsis.
    lines = format_results([row(text=letter * 400)], "x").split("\n\n")[-1].splitlines()
    in_all = (280 - 1) * of_a_line // 96
    assert [line.strip() for line in lines] == [letter * of_a_line] * 2 + [letter * (in_all - 2 * of_a_line) + "…"]


def test_a_long_id_starts_beside_its_number():
    first, second, *_ = format_results([row(node_id="x" * 150, doc_id="x")], "?").splitlines()[3:]
    assert (first, second) == (" 1. " + "x" * 96, "    " + "x" * 54 + " (0.0328 rrf)")


def test_a_text_that_fits_is_not_cut():
    assert format_results([row(text="x" * 280)], "x").endswith("    " + "x" * (280 - 2 * 96))
    assert "…" in format_results([row(text="x" * 281)], "x")


def test_headings_at_the_beginning_of_the_text_are_not_shown_twice():
    text = "\n# Installing #\n\n## Linux\n\n## Archive\nUnpack it.\n## Linux\n"
    assert format_results([row(text=text)], "x").endswith("\n    Archive Unpack it. ## Linux")


def test_repr_is_short(results):
    assert repr(results) == (
        "Results for 'how to install?': 2\n"
        " 1  0.0328 rrf  guides/install.md#0  Installing › Linux  Unpack the archive.\n"
        " 2  0.0328 rrf  guides/install.md#1  Installing › Linux  Unpack the archive.\n"
        "Note: so it is"
    )
    many = Results([row(n) for n in range(40)], query_text="x")
    assert len(repr(many).splitlines()) == 12
    assert repr(many).endswith("and 30 more")
    assert repr(Results(query_text="x")) == "Results for 'x': none"
    notice = "word " * 40 + "and the remedy."
    lines = repr(Results(query_text="x", notices=[notice])).splitlines()[1:]
    assert (" ".join(lines), max(map(len, lines)) <= 100) == (f"Note: {notice}", True)


def test_print_results(results, capsys):
    assert print_results(results, "how to install?") is None
    assert capsys.readouterr().out == format_results(results, "how to install?") + "\n"
    stream = io.StringIO()
    print_results(results, "how to install?", file=stream)
    assert stream.getvalue() == format_results(results, "how to install?") + "\n"
    assert capsys.readouterr().out == ""
    with pytest.raises(InputError, match="The results come first"):
        print_results("how to install?", results)


def test_printing_to_a_narrow_encoding_does_not_fail():
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii", write_through=True)
    print_results([row(text="漢字 and words")], "é?", file=stream)
    assert b"?? and words" in stream.buffer.getvalue()
