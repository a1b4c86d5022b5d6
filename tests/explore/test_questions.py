"""Questions from every source: what is messy is read, what is wrong is named with its line and a remedy."""

from __future__ import annotations

import pytest

import sqlrag
from sqlrag.explore.questions import heading_questions, read_questions
from tests.support.helpers import build
from tests.support.stores import make_small_store

TABLE = [("pond", {"a.md": 1, "b.md": 2}), ("bread, fresh", {"notes:c.pdf": 1})]


def read(path):
    judged, notices = read_questions(path)
    return [(one.text, one.relevant) for one in judged], notices


@pytest.fixture
def table(tmp_path):
    def written(content, name="questions.csv"):
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return tmp_path / name

    return written


@pytest.mark.parametrize(
    "content",
    [
        'question,document,grade\npond,a.md,\npond,b.md,2\n"bread, fresh",notes:c.pdf,1\n',
        "\ufeffQuestion;Doc-ID;Score\r\npond;a.md;1\r\n pond ;b.md;2.0\r\n;;\r\nbread, fresh;notes:c.pdf;\r\n",
        "note\tQUERY TEXT\tRelevance\tdoc_id\nx\tpond\t1\t a.md\nx\tpond\t2\tb.md\n\nx\tbread, fresh\t\tnotes:c.pdf\n",
        '"who, when"|"query"|"file"|"rating"\n"me, now"|pond|a.md|1\n|pond|b.md|2\n|"bread,\n  fresh"|notes:c.pdf\n',
        "question,page,source,grade\npond,a.md,the wiki,1\npond,b.md,,2\n'bread',,,\n\"bread, fresh\",notes:c.pdf,,1\n",
    ],
    ids=["plain", "mark, semicolons, blank rows", "tabs, other names", "bars, a break in a cell", "two names for one"],
)
def test_a_csv_by_the_names_of_its_columns(table, content):
    found, notices = read(table(content))
    assert found == TABLE
    assert len(notices) == ("'bread'" in content)  # a question without a document is told


def test_ids_of_a_csv(table):
    judged, _ = read_questions(table("id,question,document\nq7,pond,a.md\n,bread,b.md\nq7,pond,b.md\n"))
    assert [(one.query_id, one.text, list(one.relevant)) for one in judged] == [
        ("q7", "pond", ["a.md", "b.md"]),
        ("2", "bread", ["b.md"]),
    ]


def test_a_question_without_an_id_takes_none_that_is_given(table):
    judged, _ = read_questions(table("id,question,document\n2,apple?,a.md\n,banana?,b.md\n4,fig,c.md\n,kiwi,d.md\n"))
    assert [(one.query_id, one.text) for one in judged] == [
        ("2", "apple?"),
        ("5", "banana?"),
        ("4", "fig"),
        ("6", "kiwi"),
    ]


def test_repeated_rows_of_a_csv_count_once(table):
    found, notices = read(table("question,document\npond,a.md\npond,a.md\nPond?,a.md\npond,a.md\n"))
    assert found == [("pond", {"a.md": 1}), ("Pond?", {"a.md": 1})]
    assert notices[0].endswith("questions.csv: 2 rows repeat one above, and counts once.")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "questions.csv is empty. Its first line names"),
        (" \n\n", "questions.csv is empty"),
        (",,\n,,\n", "questions.csv is empty"),
        ("question,document\n", "No question in .*questions.csv has a relevant document"),
        ("question,document\npond,\n", "No question in .*questions.csv has a relevant document"),
        ("pond;a.md\n", "has 'pond', 'a.md'. Name them question and document"),
        ("question,answer\npond,water\n", "has 'question', 'answer'. Name them"),
        ("question,document,Question\npond,a.md,x\n", "two columns are called 'question'"),
        ("question,document\npond,a.md\n,b.md\n", "line 3: 'b.md' stands without a question. Repeat"),
        ("question,document,grade\npond,a.md,good\n", "line 2: the grade must be a whole number, not 'good'"),
        ("question,document,grade\npond,a.md,1\npond,a.md,2\n", "line 3: 'a.md' has the grade 2 for 'pond', and"),
        ("id,question,document\n1,pond,a.md\n1,bread,a.md\n", "line 3: the id '1' has another question above: 'pond'"),
        ('question,document\n"pond"x,a.md\n', "line 2 is not CSV.*Write a quote"),
        ("question,document\npond,caf\xe9".encode("latin-1"), "cannot be read as UTF-8 text.*Save it as UTF-8"),
    ],
    ids=lambda value: repr(value[:24]),
)
def test_a_csv_that_is_wrong(table, content, message):
    with pytest.raises(sqlrag.InputError, match=message):
        read_questions(table(content))


@pytest.mark.parametrize(
    ("files", "name", "message"),
    [
        ({"queries.jsonl": ""}, "", "has questions but no qrels/test.tsv.*Without judgements nothing can be measured"),
        ({"queries.jsonl": "", "qrels/dev.tsv": ""}, "", "Name another split: .*qrels.dev.tsv"),
        ({"corpus.jsonl": ""}, "", "is not in BEIR layout: it needs queries.jsonl and qrels/test.tsv"),
        ({"questions.xlsx": ""}, "questions.xlsx", "is no CSV .* Rename it, or add that file"),
        ({}, "nowhere.csv", "There is no file or folder"),
    ],
)
def test_a_folder_or_file_that_is_something_else(tmp_path, files, name, message):
    for path, content in files.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(content)
    with pytest.raises(sqlrag.NotFoundError, match=message):
        read_questions(tmp_path / name)


def test_unknown_documents_are_named_with_near_ones(tmp_path, table):
    make_small_store(tmp_path / "small.duckdb")
    some = table("question,document\npond,docs/b.md\nbread,a.md\n")
    found = sqlrag.evaluate(some, tmp_path / "small.duckdb", ["lexical"])
    assert found.notices == [
        "The file has no 'docs/b.md' (near 'docs/b.md': b.md): 1 judged id of 2 cannot be found, and count as missed."
    ]
    none = table("question,document\npond,c.pdf\n")
    with pytest.raises(sqlrag.InputError, match=r"such as 'c.pdf' \(near 'c.pdf': notes:c.pdf\). Name documents by"):
        sqlrag.evaluate(none, tmp_path / "small.duckdb", ["lexical"])


def test_headings_as_questions(tmp_path):
    path = build(
        tmp_path,
        options={"chunk_size": 8},
        ducks_md="# The ducks of Kiel\n\n## Why they swim\n\nThey swim.\n\n## See also\n\nGeese.\n",
        geese_md="# The geese of Kiel\n\n## How they fly\n\nThey fly.\n\n## See also\n\nA.\n\n## Food\n\nOats.\n",
    )
    found = sqlrag.evaluate(None, path, ["lexical"], measures=["RR@10"])
    # "See also" is in two documents, "Food" one word.
    assert {one.text: list(one.relevant) for one in found.questions} == {
        "The ducks of Kiel": ["ducks.md"],
        "Why they swim": ["ducks.md"],
        "The geese of Kiel": ["geese.md"],
        "How they fly": ["geese.md"],
    }
    assert found.means["lexical"]["RR@10"] == 1.0
    assert "4 of the 4 headings" in found.notices[0]
    assert "Nobody judged them" in found.notices[0]


def test_many_headings_are_sampled_and_the_same_ones_whatever_their_order():
    rows = [(f"heading number {n}", f"{n}.md") for n in range(500)]
    chosen, notices = heading_questions(rows)
    assert len(chosen) == 200
    assert "200 of the 500 headings" in notices[0]
    assert heading_questions(rows[::-1])[0] == chosen
    with pytest.raises(sqlrag.InputError, match=r"no heading of two words.*a CSV with the columns"):
        heading_questions([("Food", "a.md"), ("See also", "a.md"), ("See also", "b.md")])
