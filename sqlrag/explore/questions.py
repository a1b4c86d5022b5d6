"""Reads questions with what was judged relevant: a list, JSON lines, a CSV, a folder in BEIR layout, or headings."""

from __future__ import annotations

import csv
import difflib
import hashlib
import io
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlrag.arguments import counted, items, not_blank, shown, whole
from sqlrag.errors import InputError, NotFoundError
from sqlrag.normalize import clean_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_KEYS = {"id": ("id", "_id", "query_id"), "query": ("query", "text", "query_text", "question")}

# The columns of a CSV by what they hold, the best name first; without blanks, case and signs.
_COLUMNS = {
    "question": ("question", "query", "querytext", "text"),
    "document": (
        *("document", "docid", "doc", "documentid", "relevant", "nodeid", "chunk", "corpusid", "page", "file"),
        *("filename", "path", "source"),
    ),
    "id": ("id", "queryid", "questionid", "qid"),
    "grade": ("grade", "score", "relevance", "rating"),
}

_GRADE = re.compile(r"-?[0-9]{1,4}(\.0+)?")

_EXAMPLE = '[{"query": "How do I filter?", "relevant": ["guides/filters.md"]}]'

_HEADINGS = 200  # questions that are made of a file

_NEAR = 20_000  # names among which near ones are looked for


@dataclass(frozen=True)
class Question:
    """A question, the grade of each document or chunk that was judged for it, and its vector if given."""

    query_id: str
    text: str
    relevant: dict[str, int]
    query_vector: Any = None


def read_questions(questions: object) -> tuple[list[Question], list[str]]:
    """Return the questions with a judgement, in their order, and notices about what was left out.

    Raises
    ------
    InputError
        There is none, an id occurs twice, or the form is not that of :func:`sqlrag.evaluate`.
    NotFoundError
        A file does not exist.
    """
    notices: list[str] = []
    if isinstance(questions, (str, os.PathLike)):
        path = Path(questions)
        if not path.exists():
            raise NotFoundError(f"There is no file or folder {path}.")
        of_file = path.suffix.lower() if path.is_file() else ""
        if of_file == ".csv":
            judged = _of_csv(path, notices)
        else:
            judged = _of_jsonl(path) if of_file == ".jsonl" else _of_beir(path)
        where = f" in {path}"
    else:
        if hasattr(questions, "columns"):  # a frame, of pandas or polars
            records = 'to_dict("records")' if hasattr(questions, "iloc") else "to_dicts()"
            raise InputError(
                f"questions is a data frame. Pass its rows, frame.{records}, with the columns query and relevant, or "
                "the path of a CSV that it is saved in, with the columns question and document."
            )
        judged = [
            _question(one, number, "questions") for number, one in enumerate(items("questions", questions, _EXAMPLE))
        ]
        where = ""
    seen: set[str] = set()
    for one in judged:
        if one.query_id in seen:
            raise InputError(
                f"There are two questions with the id {one.query_id!r}{where}. Give each an id of its own."
            )
        seen.add(one.query_id)
    kept = [
        replace(one, relevant={clean_name(name): grade for name, grade in one.relevant.items()})
        for one in judged
        if any(grade > 0 for grade in one.relevant.values())
    ]
    if not kept:
        raise InputError(f"No question{where} has a relevant document or chunk.")
    if len(kept) < len(judged):
        left_out = counted(len(judged) - len(kept), "question has", "questions have")
        notices.append(f"{left_out} no relevant document, and cannot be measured; {len(kept):,} can.")
    return kept, notices


def heading_questions(rows: Iterable[Sequence[Any]]) -> tuple[list[Question], list[str]]:
    """Return questions that are headings, and the notice that they are no judgements.

    ``rows`` are the last heading and the ``doc_id`` of each chunk. Taken are headings of two words or more that stand
    in one document only; where there are more than 200, those whose SHA-256 is lowest.

    Raises
    ------
    InputError
        There is no such heading.
    """
    documents: dict[str, set[str]] = {}
    for heading, doc_id in rows:
        text = " ".join(str(heading).split())
        if len(text.split()) > 1 and not text.endswith("…"):
            documents.setdefault(text, set()).add(doc_id)
    own = sorted((text for text, among in documents.items() if len(among) == 1), key=hashed)
    if not own:
        raise InputError(
            "The file has no heading of two words that stands in one document only, so no question can be made of it. "
            "Write some down: a CSV with the columns question and document."
        )
    chosen = own[:_HEADINGS]
    notice = (
        f"The questions are {len(chosen):,} of the {len(own):,} headings that the file has in one document only: a "
        "smoke test. Nobody judged them, and they favour the words; choose nothing by them."
    )
    found = [Question(str(n), text, dict.fromkeys(documents[text], 1)) for n, text in enumerate(chosen, start=1)]
    return found, [notice]


def hashed(text: str) -> str:
    """Return the SHA-256 of a text, by which questions are chosen and divided: it depends on nothing else."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _of_jsonl(path: Path) -> list[Question]:
    return [_question(row, number, str(path)) for number, row in enumerate(_json_lines(path))]


def _of_beir(path: Path) -> list[Question]:
    """Read ``queries.jsonl`` and a table of judgements: a folder's ``qrels/test.tsv``, or the table at the path."""
    if path.is_dir():
        candidates = [path / "qrels" / "test.tsv", path / "qrels.tsv"]
        table = next((one for one in candidates if one.exists()), candidates[0])
    else:
        table = path
    places = [folder / "queries.jsonl" for folder in (table.parent, table.parent.parent)]
    queries = next((one for one in places if one.exists()), None)
    if queries is None and path.is_file():
        raise NotFoundError(
            f"{path} is no CSV (.csv) and no JSON lines (.jsonl) by its name; as judgements in BEIR layout it needs "
            "queries.jsonl beside it or in the folder above. Rename it, or add that file."
        )
    if queries is None:
        raise NotFoundError(f"{path} is not in BEIR layout: it needs queries.jsonl and qrels/test.tsv.")
    if not table.exists():
        others = sorted(str(one) for one in path.glob("qrels/*.tsv"))
        remedy = f"Name another split: {others[0]}" if others else "Without judgements nothing can be measured."
        raise NotFoundError(f"{path} has questions but no qrels/test.tsv, which says what is relevant. {remedy}")
    texts = {str(row.get("_id")): row.get("text") for row in _json_lines(queries)}
    judged: dict[str, dict[str, int]] = {}
    for line, text in _lines(table):
        row = text.split("\t")
        if line == 1 and row[0] in ("query-id", "query_id"):
            continue
        if len(row) < 3 or not _GRADE.fullmatch(row[-1]):
            raise InputError(f"{table}, line {line}: expected query-id, corpus-id and score, separated by tabs.")
        # TREC's own tables have four columns; the second is an iteration.
        judged.setdefault(row[0], {})[row[-2]] = int(float(row[-1]))
    missing = sorted(set(judged) - set(texts))
    if missing:
        raise InputError(f"{queries} has no question {missing[0]!r}, which {table} judges.")
    return [
        Question(query_id, not_blank(f"The question {query_id}", texts[query_id]), relevant)
        for query_id, relevant in judged.items()
    ]


def _of_csv(path: Path, notices: list[str]) -> list[Question]:
    """Read a table with a question and one relevant document in each row, below a row of names."""
    found: dict[str, Question] = {}
    repeated = 0
    for line, cells in _csv_rows(path):
        text, document = " ".join(cells["question"].split()), cells["document"].strip()
        grade = cells.get("grade", "").strip() or "1"
        if not text and not document:
            continue
        if not text:
            raise InputError(
                f"{path}, line {line}: {document!r} stands without a question. Repeat the question in each of its rows."
            )
        if not _GRADE.fullmatch(grade):
            raise InputError(f"{path}, line {line}: the grade must be a whole number, not {grade!r}.")
        query_id = cells.get("id", "").strip() or text
        one = found.setdefault(query_id, Question(query_id, text, {}))
        if one.text != text:
            raise InputError(f"{path}, line {line}: the id {query_id!r} has another question above: {one.text!r}.")
        if not document:
            continue
        given = int(float(grade))
        repeated += document in one.relevant
        if one.relevant.setdefault(document, given) != given:
            raise InputError(
                f"{path}, line {line}: {document!r} has the grade {given} for {text!r}, and another one above."
            )
    if repeated:
        notices.append(f"{path}: {counted(repeated, 'row repeats', 'rows repeat')} one above, and counts once.")
    named = {query_id for query_id, one in found.items() if query_id != one.text}
    past = (number for number in count(len(found) + 1) if str(number) not in named)
    return [
        one if query_id in named else replace(one, query_id=str(next(past) if str(number) in named else number))
        for number, (query_id, one) in enumerate(found.items(), start=1)
    ]


def _csv_rows(path: Path) -> list[tuple[int, dict[str, str]]]:
    """Return each row below the names with its line: the cells by kind of column; other columns are left out."""
    content = _text(path)
    if not content.strip(" \t\n,;|"):
        raise InputError(f"{path} is empty. Its first line names the columns, such as: question,document")
    tables: list[list[tuple[int, list[str]]]] = []
    fault = ""
    for delimiter in ",;\t|":
        reader = csv.reader(io.StringIO(content, newline=""), delimiter=delimiter, strict=True)
        try:
            tables.append([(reader.line_num, row) for row in reader if any(cell.strip() for cell in row)])
        except csv.Error as error:
            fault = f"{path}, line {reader.line_num} is not CSV: {error}. Write a quote inside a quoted cell twice."
            tables.append([])
            continue
        names = [re.sub(r"[\W_]+", "", name).casefold() for name in tables[-1][0][1]] if tables[-1] else []
        if all(set(names) & set(_COLUMNS[kind]) for kind in ("question", "document")):
            break
    else:
        widest = max(tables, key=lambda table: len(table[0][1]) if table else 0)
        if not widest:
            raise InputError(fault)
        raise InputError(
            f"{path}: the first line names no column for the question and one for the document; it has "
            f"{', '.join(map(repr, widest[0][1][:8]))}. Name them question and document."
        )
    places = {}
    for kind, valid in _COLUMNS.items():
        name = next((name for name in valid if name in names), None)
        if name is not None and names.count(name) > 1:
            raise InputError(f"{path}: two columns are called {name!r}. Rename one of them.")
        if name is not None:
            places[kind] = names.index(name)
    return [
        (line, {kind: row[at] if at < len(row) else "" for kind, at in places.items()}) for line, row in tables[-1][1:]
    ]


def _json_lines(path: Path) -> Iterator[Mapping[str, Any]]:
    for line, text in _lines(path):
        try:
            row = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}, line {line} is not JSON: {error}") from error
        if not isinstance(row, Mapping):
            raise InputError(f"{path}, line {line} is not a JSON object.")
        yield row


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the non-blank lines of a file with their numbers."""
    for line, text in enumerate(_text(path).split("\n"), start=1):
        if text.strip():
            yield line, text


def _text(path: Path) -> str:
    """Return the text of a file, with line ends as they are in Python."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise NotFoundError(f"There is no file {path}.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read as UTF-8 text: {error}. Save it as UTF-8.") from error


def _question(row: Any, number: int, where: str) -> Question:
    place = f"{where}[{number}]"
    if not isinstance(row, Mapping):
        raise InputError(f"{place} must be a dict, as in {_EXAMPLE}, not {shown(row)}.")
    found = {kind: next((row[key] for key in keys if key in row), None) for kind, keys in _KEYS.items()}
    needed = {"query": _KEYS["query"], "relevant": ("relevant",)}
    lacking = [kind for kind, names in needed.items() if not row.keys() & names]
    if lacking:
        raise InputError(f"{place} has no {lacking[0]!r}, only {shown(list(row))}. It must be as in {_EXAMPLE}.")
    relevant = row["relevant"]
    if isinstance(relevant, str):
        relevant = [relevant]
    if not isinstance(relevant, Mapping):
        relevant = dict.fromkeys(items(f"{place}['relevant']", relevant, "['guides/filters.md']"), 1)
    grades = {
        not_blank(f"An id in {place}['relevant']", key): whole(f"{place}['relevant'][{key!r}]", grade, -10, 1000)
        for key, grade in relevant.items()
    }
    query_id = str(number + 1) if found["id"] is None else str(found["id"])
    return Question(query_id, not_blank(f"{place}['query']", found["query"]), grades, row.get("query_vector"))


def unit_of(rows: Sequence[tuple[str, str]], judged: Iterable[Question]) -> tuple[str, list[str]]:
    """Return what was judged, "doc_id" or "node_id", and a notice about ids that the store does not have.

    ``rows`` are the ``doc_id`` and ``node_id`` of each chunk.

    Raises
    ------
    InputError
        The store has none of the ids, or some are documents and others chunks.
    """
    ids = {judged_id for one in judged for judged_id in one.relevant}
    names = [{row[place] for row in rows} for place in (0, 1)]
    known = {unit: ids & names[place] for place, unit in enumerate(("doc_id", "node_id"))}
    unknown = sorted(ids - known["doc_id"] - known["node_id"])
    some = ", ".join(map(repr, unknown[:3])) + _near(unknown, names[0])
    if len(unknown) == len(ids):
        raise InputError(
            f"The file has no document and no chunk of the ids in the judgements, such as {some}. Name documents by "
            "their doc_id, as a search shows it."
        )
    documents = sorted(known["doc_id"] - known["node_id"])
    chunks = sorted(known["node_id"] - known["doc_id"])
    if documents and chunks:
        raise InputError(
            f"Judgements are of documents ({documents[0]!r}) and of chunks ({chunks[0]!r}); use only one of these."
        )
    notice = f"The file has no {some}{' …' if len(unknown) > 3 else ''}: {counted(len(unknown), 'judged id')} of "
    notice += f"{len(ids):,} cannot be found, and count as missed."
    return "node_id" if chunks else "doc_id", [notice] if unknown else []


def _near(unknown: Sequence[str], names: set[str]) -> str:
    """Return the documents that the first unknown id may mean, as a remark in brackets; "" for none."""
    if not unknown:
        return ""
    last = unknown[0].rpartition("/")[2]
    near = sorted(name for name in names if name.rpartition("/")[2] == last)[:3]
    if not near and len(names) <= _NEAR:
        near = difflib.get_close_matches(unknown[0], sorted(names), n=1, cutoff=0.6)
    return f" (near {unknown[0]!r}: {', '.join(near)})" if near else ""
