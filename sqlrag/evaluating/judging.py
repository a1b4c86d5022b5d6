"""Questions with judgements: from a file, a folder in BEIR layout, or a list; compared with what the file holds."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlrag.errors import InputError, NotFoundError
from sqlrag.options import items, not_blank, shown, whole
from sqlrag.store.schema import read_sql
from sqlrag.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import duckdb

_KEYS = {"id": ("id", "_id", "query_id"), "query": ("query", "text", "query_text", "question")}
_GRADE = re.compile(r"-?[0-9]{1,4}(\.0+)?")
_EXAMPLE = '[{"query": "How do I filter?", "relevant": ["guides/filters.md"]}]'


@dataclass(frozen=True)
class Question:
    """A question, the grade of each document or chunk that was judged for it, and its vector where that is given."""

    query_id: str
    text: str
    relevant: dict[str, int]
    query_vector: Any = None


def read_questions(questions: object) -> list[Question]:
    """Return the questions with a judgement, in their order.

    Raises
    ------
    InputError
        There is none, an id is there twice, or something is not as :func:`sqlrag.evaluate` says.
    NotFoundError
        A file is not there.
    """
    if isinstance(questions, (str, os.PathLike)):
        path = Path(questions)
        if not path.exists():
            raise NotFoundError(f"There is no file or folder {path}.")
        judged = _of_jsonl(path) if path.suffix == ".jsonl" else _of_beir(path)
    else:
        judged = [
            _question(one, number, "questions") for number, one in enumerate(items("questions", questions, _EXAMPLE))
        ]
    seen: set[str] = set()
    for one in judged:
        if one.query_id in seen:
            raise InputError(f"There are two questions with the id {one.query_id!r}.")
        seen.add(one.query_id)
    judged = [one for one in judged if any(grade > 0 for grade in one.relevant.values())]
    if not judged:
        raise InputError("There is no question for which something is relevant.")
    return judged


def _of_jsonl(path: Path) -> list[Question]:
    return [_question(row, number, str(path)) for number, row in enumerate(_json_lines(path))]


def _of_beir(path: Path) -> list[Question]:
    """Read ``queries.jsonl`` and a table of judgements: a folder's ``qrels/test.tsv``, or the one that is named."""
    if path.is_dir():
        candidates = [path / "qrels" / "test.tsv", path / "qrels.tsv"]
        table = next((one for one in candidates if one.exists()), candidates[0])
    else:
        table = path
    beside = [folder / "queries.jsonl" for folder in (table.parent, table.parent.parent)]
    queries = next((one for one in beside if one.exists()), None)
    if not table.exists() or queries is None:
        raise NotFoundError(f"{path} is no folder in BEIR layout: queries.jsonl and qrels/test.tsv have to be there.")
    texts = {str(row.get("_id")): row.get("text") for row in _json_lines(queries)}
    judged: dict[str, dict[str, int]] = {}
    for line, text in _lines(table):
        row = text.split("\t")
        if line == 1 and row[0] in ("query-id", "query_id"):
            continue
        if len(row) < 3 or not _GRADE.fullmatch(row[-1]):
            raise InputError(f"{table}, line {line}: query-id, corpus-id and score are wanted, between tabs.")
        # TREC's own tables have an iteration in the second of four columns.
        judged.setdefault(row[0], {})[row[-2]] = int(float(row[-1]))
    missing = sorted(set(judged) - set(texts))
    if missing:
        raise InputError(f"{queries} has no question {missing[0]!r}, which {table} judges.")
    return [
        Question(query_id, not_blank(f"The question {query_id}", texts[query_id]), relevant)
        for query_id, relevant in judged.items()
    ]


def _json_lines(path: Path) -> Iterator[Mapping[str, Any]]:
    for line, text in _lines(path):
        try:
            row = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}, line {line} is no JSON: {error}") from error
        if not isinstance(row, Mapping):
            raise InputError(f"{path}, line {line} is no JSON object.")
        yield row


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file that are not blank, with their numbers."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            yield from ((line, text.rstrip("\n")) for line, text in enumerate(file, start=1) if text.strip())
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read as UTF-8 text: {error}") from error


def _question(row: Any, number: int, where: str) -> Question:
    place = f"{where}[{number}]"
    if not isinstance(row, Mapping):
        raise InputError(f"{place} must be a dict, as in {_EXAMPLE}, not {shown(row)}.")
    found = {kind: next((row[key] for key in keys if key in row), None) for kind, keys in _KEYS.items()}
    relevant = row.get("relevant")
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


def unit_of(con: duckdb.DuckDBPyConnection, judged: Iterable[Question]) -> tuple[str, list[str]]:
    """Return what was judged, "doc_id" or "node_id", and a remark on ids that the file does not have.

    Raises
    ------
    InputError
        The file has none of the ids, or some are documents and others chunks.
    """
    ids = {judged_id for one in judged for judged_id in one.relevant}
    rows = con.execute(read_sql("evaluating/known_ids")).fetchall()
    known = {unit: ids & {row[place] for row in rows} for place, unit in enumerate(("doc_id", "node_id"))}
    unknown = sorted(ids - known["doc_id"] - known["node_id"])
    some = ", ".join(map(repr, unknown[:3]))
    if len(unknown) == len(ids):
        raise InputError(f"The file has no document and no chunk of the ids in the judgements, such as {some}.")
    documents = sorted(known["doc_id"] - known["node_id"])
    chunks = sorted(known["node_id"] - known["doc_id"])
    if documents and chunks:
        raise InputError(
            f"Judgements are of documents ({documents[0]!r}) and of chunks ({chunks[0]!r}); use one of both."
        )
    remark = f"The file has no {some}{' …' if len(unknown) > 3 else ''}: {counted(len(unknown), 'judged id')} of "
    remark += f"{len(ids):,} cannot be found, and count as missed."
    return "node_id" if chunks else "doc_id", [remark] if unknown else []
