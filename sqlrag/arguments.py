"""Checks of arguments, whose InputError names the option, and helpers that format values in messages."""

from __future__ import annotations

import difflib
import math
import os
import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from numbers import Integral, Real
from types import ModuleType
from typing import Any

from sqlrag.errors import InputError
from sqlrag.normalize import is_blank

MOST = 2**31 - 1  # results, and so chunks in a file

_LISTED = 20  # items of a list for people

_LONGEST = 200  # characters of a value in a message


@dataclass(frozen=True)
class Range:
    """The valid numbers of a parameter, as an annotation of its type: ``Annotated[float, Range(ge=0, le=1)]``.

    ``ge`` and ``le`` are inclusive limits, ``gt`` is an exclusive lower limit; ``unit`` is the noun in messages.
    """

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    unit: str = "number"

    def limits(self) -> dict[str, Any]:
        """Return the limits that are set, by name."""
        limits = {"ge": self.ge, "gt": self.gt, "le": self.le}
        return {name: limit for name, limit in limits.items() if limit is not None}

    def number(self, name: str, value: object) -> float:
        """Return a number within the range, which must have no ``gt``."""
        return number(name, value, self.ge or 0, math.inf if self.le is None else self.le, self.unit)

    def whole(self, name: str, value: object) -> int:
        """Return a whole number within the range, which must have no ``gt``."""
        return whole(name, value, int(self.ge or 0), MOST if self.le is None else int(self.le))


# What users of other programs call what is here, for commands, options, functions, parameters and fields alike. Of the
# names that a guess stands at, the first is meant that there is.
_GUESSES = {
    # Functions and commands.
    "hybrid_query": ("search", "query", "find", "retrieve", "similarity_search"),
    "search": ("query", "find", "retrieve"),
    "prepare_embeddings": ("build", "ingest", "create", "prepare", "import", "embed_documents"),
    "build": ("index", "ingest", "create", "prepare", "import"),
    "update_embeddings": ("update", "sync", "refresh"),
    "update": ("insert", "add", "upsert", "sync", "refresh"),
    "add_documents": ("insert", "add", "upsert", "upload"),
    "answer": ("ask", "chat", "generate"),
    "ask": ("chat", "answer", "generate"),
    "delete_documents": ("delete", "remove"),
    "delete": ("remove", "rm"),
    "get_embedding_metadata": ("info", "stats", "describe"),
    "info": ("inspect", "stats", "status", "describe", "list", "ls"),
    "open_store": ("open", "load"),
    "serve": ("run", "server", "ui"),
    "convert": ("export",),
    # Parameters, options and fields.
    "query_text": ("query", "q", "text", "question", "query_string"),
    "question": ("query", "q", "text", "query_text"),
    "top_k": ("k", "n", "limit", "n_results", "top_n", "num_results", "max_results", "results", "size", "count"),
    "k": ("top_k", "n", "limit", "n_results", "top_n", "num_results", "max_results"),
    "chunk_size": ("size", "max_chunk_size"),
    "key": ("id", "key_column", "id_column", "primary_key", "pk"),
    "metadata": ("filter", "filters", "where", "query_filter", "metadata_filter", "metadata_filters"),
    "tags_any": ("tag", "tags"),
    "min_similarity": ("threshold", "score_threshold", "similarity_threshold", "min_score", "cutoff"),
    "fusion": ("ranker", "hybrid"),
    "mode": ("search_type", "query_type", "type"),
    "form": ("json", "csv", "output_format"),
    "output": ("out", "outfile", "output_file", "destination", "target"),
    "ignore": ("exclude", "excludes"),
    "patterns": ("pattern", "glob", "globs", "include"),
    "pattern": ("patterns", "glob", "globs", "include"),
    "embed_model_name": ("model", "model_name", "embedding_model"),
    "model_name": ("model", "embedding_model"),
    "chat_model": ("model", "model_name", "llm"),
    "model": ("embed_model_name", "model_name", "embedding_model"),
    "chunk_overlap": ("overlap",),
    "db_path": ("db", "database", "store", "file", "path"),
    "db": ("database", "store", "file", "path", "db_path"),
    "overwrite": ("force", "replace"),
    "prune": ("delete_missing", "cleanup"),
    "files": ("file",),
    # Nothing here does that.
    "": ("all", "dry_run"),
}


def _plain(name: str) -> str:
    return name.replace("-", "").replace("_", "").lower()


def guessed(name: str, valid: Iterable[str]) -> str | None:
    """Return the valid name for what users of other programs call otherwise, such as ``top_k`` for ``limit``.

    Case, dashes and underscores do not matter. None where nothing is known, "" where it is known that nothing does it.
    """
    names, plain = list(valid), _plain(name)
    same = [one for one in names if _plain(one) == plain]
    meant = [ours for ours, guesses in _GUESSES.items() if plain in map(_plain, guesses)]
    return next((one for one in (*same, *meant) if one in (*names, "")), None)


def nearest(name: str, valid: Iterable[str]) -> str | None:
    """Return the valid name that was probably meant, such as ``embed_model_name`` for ``model``; None without one.

    Examples
    --------
    >>> nearest("where", ["top_k", "metadata"]), nearest("limit", ["top_k", "metadata"]), nearest("limit", ["k1"])
    ('metadata', 'top_k', None)
    """
    names = sorted(valid, key=len)
    known = guessed(name, names)
    if known is not None:
        return known or None
    alike = difflib.get_close_matches(name, names, n=1, cutoff=0.7)
    return next(iter(alike + [one for one in names if name in one.split("_")]), None)


def meant_or_there(name: str, known: Sequence[str]) -> str:
    """Return which of the known names were probably meant by an unknown one, in any case, or some of them.

    Those that end with it, after a slash, are meant before those that are like it.

    Examples
    --------
    >>> meant_or_there("authors", ["author", "year"]), meant_or_there("x", ["author"]), meant_or_there("x", [])
    ("did you mean 'author'?", "there is 'author'.", '')
    >>> meant_or_there("OPEN", ["Open", "open", "closed"])
    "did you mean 'Open', 'open'?"
    """
    folded: dict[str, list[str]] = {}
    for one in known:
        folded.setdefault(one.casefold(), []).append(one)
    ending = [one for one in known if one.casefold().endswith(f"/{name.casefold()}")]
    close = difflib.get_close_matches(name.casefold(), folded, 3, 0.6)
    near = ending or [one for word in close for one in folded[word]]
    if near:
        return f"did you mean {_listed(near[:3])}?"
    more = f" and {len(known) - 5:,} more" if known[5:] else ""
    return f"there is {_listed(known[:5])}{more}." if known else ""


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"{shortened(name)!r}" for name in names)


_FILTERS = ("collection", "tags_any", "tags_all", "metadata")


def refuse_unknown_names(function: str, valid: Collection[str], given: Iterable[str]) -> None:
    """Raise TypeError for a keyword that a function does not take, as Python does, with what is like it or there."""
    unknown = sorted(set(given).difference(valid))
    if unknown:
        names = [name for name in valid if name not in ("self", "cls")]
        meant = nearest(unknown[0], names)
        hint = f". Did you mean {meant!r}?" if meant else f"; it takes {', '.join(names)}" * (0 < len(names) <= 12)
        if "rows" in names and unknown[0] in _FILTERS:
            hint = f"; for a part of a file pass rows=embed_rows(db_path, {unknown[0]}=…)"
        raise TypeError(f"{function}() got an unexpected keyword argument {unknown[0]!r}{hint}")


class _Module(ModuleType):
    """A module with the name of what people look for; a call of it says what is meant."""

    def __call__(self, *_args: Any, **_kwargs: Any) -> Any:
        package, _, name = self.__name__.rpartition(".")
        meant = next(ours for ours, guesses in _GUESSES.items() if name in guesses)
        raise TypeError(f"{self.__name__} is a module and no function. Did you mean {package}.{meant}?")


def refuse_calls(module: str) -> None:
    """Have a module that is called name the function that is meant, in place of "'module' object is not callable"."""
    sys.modules[module].__class__ = _Module


# Functions that remedies name, and the commands that do the same.
_COMMANDS = (
    (r"prepare_embeddings\(folder, '([^' ]+)'\)", r"sqlrag build FOLDER -o \1"),
    (r"prepare_embeddings\(folder, ('[^']+')\)", r"sqlrag build FOLDER -o \1"),
    (r"convert\('([^' ]+)', '([^' ]+)'\)", r"sqlrag convert \1 \2"),
    (r"convert\(('[^']+'), ('[^']+')\)", r"sqlrag convert \1 \2"),
    (
        r"update_rows\(\s*('[^']+'), collection=('[^']+'), prune=True, force=True\)",
        r"sqlrag update-rows \1 --collection \2 --prune --force",
    ),
    (r"prune=True in update_rows", "sqlrag update-rows --prune"),
    (
        r"delete_documents\(('[^']+'), folder=('[^']+'), collection=('[^']+')\)",
        r"sqlrag delete --folder \2 --collection \3 --db \1",
    ),
    (r"delete_documents\(('[^']+'), collection=('[^']+')\)", r"sqlrag delete --collection \2 --db \1"),
    (
        r"update_embeddings\(input_dir=('[^']+'), db_path=('[^']+'), collection='([^']+)'\)",
        r"sqlrag update \1 --db \2 --collection \3",
    ),
    (r"update_embeddings\('[^']+', ('[^']+')(, collection='[^']+')?\)", r"sqlrag update \1"),
    (r"\(prepare_embeddings; index_rows for rows of tables\)", "(sqlrag build)"),
    (r"reembed\(db_path, model\)", "sqlrag reembed FILE --model NAME"),
    (r"(check|repair|compact|upgrade)\(db_path\)", r"sqlrag \1 FILE"),
    (r",? or\s+pass an embedder of your own( \(embedder\))?", ""),
    (r"Pass an embedder, or index", "Index"),
    (r" or pass api_key\b", ""),
    (r"\ba (Candidate or a )?dict\b", "an object"),
)


def with_commands(text: str) -> str:
    """Return a message for those who do not write Python: with commands in place of calls of functions.

    Examples
    --------
    >>> with_commands("Run repair(db_path).")
    'Run sqlrag repair FILE.'
    """
    for pattern, words in _COMMANDS:
        text = re.sub(pattern, words, text)
    return text


def number(name: str, value: object, low: float, high: float, what: str = "number") -> float:
    """Return a number from ``low`` to ``high``; an infinite ``high`` means the greatest float."""
    given: float = math.nan  # fails the comparison below
    if isinstance(value, Real) and not isinstance(value, bool):
        with suppress(OverflowError):  # a fraction too large for a float
            given = int(value) if isinstance(value, Integral) else float(value)
    if not low <= given <= min(high, sys.float_info.max):
        span = f"from {low} to {high}" if high < math.inf else f"of {low} or more"
        raise InputError(f"{name} must be a {what} {span}, not {shown(value)}.")
    return given


def whole(name: str, value: object, low: int, high: int = MOST) -> int:
    """Return a whole number from ``low`` to ``high``."""
    if isinstance(value, bool) or not isinstance(value, Integral) or not low <= int(value) <= high:
        raise InputError(f"{name} must be a whole number from {low} to {high}, not {shown(value)}.")
    return int(value)


def flag(name: str, value: object) -> bool:
    """Return a truth value."""
    scalar = str(getattr(value, "dtype", "")) == "bool" and getattr(value, "shape", None) == ()  # of numpy
    if not isinstance(value, bool) and not scalar:
        raise InputError(f"{name} must be True or False, not {shown(value)}.")
    return bool(value)


def choice(name: str, value: object, valid: Iterable[str]) -> str:
    """Return one of the valid names."""
    names = tuple(valid)
    if not isinstance(value, str) or value not in names:
        raise InputError(f"{name} must be one of {', '.join(map(repr, names))}, not {shown(value)}.")
    return value


def text(name: str, value: object) -> str:
    """Return a string."""
    if not isinstance(value, str):
        raise InputError(f"{name} must be a string, not {shown(value)}.")
    return value


def not_blank(name: str, value: object) -> str:
    """Return a string that is not blank."""
    if not isinstance(value, str) or is_blank(value):
        raise InputError(f"{name} must be a text that is not blank, not {shown(value)}.")
    return value


def texts(**values: object) -> None:
    """Check that each is a string or None."""
    for name, value in values.items():
        if value is not None:
            text(name, value)


def path(name: str, value: object) -> str | os.PathLike[str]:
    """Return a path: a string or an object with one, such as :class:`pathlib.Path`."""
    named = value if isinstance(value, (str, os.PathLike)) else None
    if named is None or not isinstance(os.fspath(named), str) or not os.fspath(named):
        raise InputError(f"{name} must be a path, such as 'kb.duckdb', not {shown(value)}.")
    return named


def items(name: str, values: object, example: str) -> list[Any]:
    """Return the items of a list, tuple, array or other iterable; strings and mappings are refused."""
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise InputError(f"{name} must be a list, such as {example}, not {shown(values)}.")
    try:
        return list(values)
    except TypeError as error:  # an array without dimensions
        raise InputError(f"{name} must be a list, such as {example}, not {shown(values)}.") from error


def mapping(name: str, values: object) -> dict[str, Any]:
    """Return a copy of a mapping of names to values."""
    if not isinstance(values, Mapping) or not all(isinstance(key, str) for key in values):
        raise InputError(f"{name} must be a dict of names to values, not {shown(values)}.")
    return dict(values)


def weights(name: str, values: object, count: int) -> tuple[float, ...]:
    """Return ``count`` finite numbers of 0 or more, not all 0."""
    try:
        checked = tuple(number(name, value, 0, math.inf) for value in items(name, values, str([1] * count)))
    except InputError:
        checked = ()
    if len(checked) != count or not 0 < sum(map(float, checked)) < math.inf:
        wanted = f"{count} finite numbers of 0 or more, not all of them 0"
        raise InputError(f"{name} must be {wanted}, not {shown(values)}.")
    return checked


def shown(value: object) -> str:
    """Return a value for a message: shortened, and also where Python refuses to print an integer."""
    try:
        text = repr(value)
    except ValueError:
        return f"a {type(value).__name__} of very many digits"
    except RecursionError:
        return f"a {type(value).__name__} of very many levels"
    return shortened(text)


def shortened(text: str) -> str:
    """Return a text, cut to the length that a message shows."""
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"


def first_lines(items: Sequence[str], begin: str = "  ") -> list[str]:
    """Return a line for each of the first 20 items of a list for people, and one that says how many more there are.

    Examples
    --------
    >>> first_lines(["a.md"], "deleted: ")
    ['deleted: a.md']
    >>> first_lines([str(number) for number in range(3000)])[-2:]
    ['  19', '  … and 2,980 more']
    """
    more = len(items) - _LISTED
    return [f"{begin}{item}" for item in items[:_LISTED]] + [f"{begin}… and {more:,} more"] * (more > 0)


def failure_lines(failures: Iterable[tuple[str, str, str]], begin: str = "  ") -> list[str]:
    """Return lines for people about failures: ``doc_id``, status and reason; of more than three alike, one line.

    Examples
    --------
    >>> failure_lines([("a.md", "empty", "no text"), ("b.pdf", "failed", "no PDF")], "")
    ['empty: a.md: no text', 'failed: b.pdf: no PDF']
    >>> failure_lines([(f"t/{number}", "empty", "the row has no text") for number in range(4)], "")
    ['empty: the row has no text: t/0, t/1, t/2, t/3']
    """
    alike: dict[tuple[str, str], list[str]] = {}
    for doc_id, status, reason in failures:
        alike.setdefault((status, reason), []).append(doc_id)
    lines = []
    for (status, reason), ids in alike.items():
        if len(ids) > 3:
            more = f" and {len(ids) - _LISTED:,} more" * (len(ids) > _LISTED)
            lines.append(f"{status}: {reason}: {', '.join(ids[:_LISTED])}{more}")
        else:
            lines += [f"{status}: {doc_id}: {reason}" for doc_id in ids]
    return first_lines(lines, begin)


def counted(count: int, singular: str, plural: str = "") -> str:
    """Return a number with its noun, such as "1 chunk" or "2,000 chunks".

    Examples
    --------
    >>> counted(1, "file"), counted(1200, "file"), counted(0, "match", "matches")
    ('1 file', '1,200 files', '0 matches')
    """
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}"
