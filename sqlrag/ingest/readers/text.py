"""Markdown and plain text: encoding, front matter, and the kind of a file that is not text."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from sqlrag.errors import DocumentError
from sqlrag.ingest.readers.encoding import decode
from sqlrag.normalize import clean_metadata, is_blank, normalize
from sqlrag.types import Document

RAW_KEY = "front_matter"

MAX_FRONT_MATTER = 65_536

MAX_NEAR_MISS = 4_096

MAX_ALIASES = 10

MAX_REPEATED = 5

_TEXT = "tag:yaml.org,2002:str"

_MERGE = "tag:yaml.org,2002:merge"

_NUMBER = re.compile(r"-?[0-9]{1,19}(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")

# Blank lines before, blanks around the hyphens, more or fewer of them, or dashes; then a key of YAML.
_NEAR_OPENING = re.compile(r"\s*(?:-{2,}|[–—―]+)[^\S\n]*\n(?=[^\W\d_][\w .-]{0,40}:(?:\s|\Z))")

_NEAR_CLOSING = re.compile(r"^[^\S\n]*(?:[-.]{2,}|[–—―]|$)", re.MULTILINE)

_FRONT_MATTER = re.compile(r"---\n(.*?)^(?:---|\.\.\.)(?:\n|\Z)", re.DOTALL | re.MULTILINE)

_TOML = re.compile(r"\+\+\+\n(.*?)^\+\+\+(?:\n|\Z)", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class FrontMatter:
    """The contents of front matter. ``body_start`` is the offset after it, 0 where there is none."""

    body_start: int = 0
    metadata: Mapping[str, Any] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def split_front_matter(text: str, doc_id: str) -> FrontMatter:
    """Read the front matter of a normalised text.

    There is front matter only where line 1 is exactly ``---`` and a later line is exactly ``---`` or ``...``. Between
    them is a YAML mapping; between two lines ``+++`` it is TOML. What cannot be used stays as it was written under the
    key ``front_matter``, with a warning that names the line. A block that YAML reads as plain prose was set between two
    rules: it is body text. So is one that misses the two lines narrowly, with a warning.

    Keys are the characters that were written, and so are values but for ``true``, ``false``, ``null`` and the numbers
    of YAML 1.2 that lose nothing as such: ``no``, ``1.10``, ``0123``, ``12:30`` and dates stay text. ``title`` is text
    in any case. Tags are read from ``tags`` and ``tag`` (a list, or a string with commas), as they were written.
    A key that is given again overrides the one before, with a warning.

    Parameters
    ----------
    text : str
        As :func:`sqlrag.normalize.normalize` returns it.
    doc_id : str
        Named in the warnings.

    Returns
    -------
    FrontMatter
        Its metadata went through :func:`sqlrag.normalize.clean_metadata`.
    """
    match = _FRONT_MATTER.match(text) or _TOML.match(text)
    if match is None:
        return FrontMatter(warnings=_near_miss(text, doc_id))
    raw, language = match.group(1), "TOML" if text.startswith("+") else "YAML"
    if len(raw) > MAX_FRONT_MATTER:
        remark = f"{doc_id}, line 1: front matter of more than {MAX_FRONT_MATTER:,} characters is read as body text"
        return FrontMatter(warnings=(remark,))
    try:
        loaded, written, repeated = _load(raw) if language == "YAML" else _load_toml(raw)
        if isinstance(loaded, str):
            remark = f"{doc_id}, line 1: the text between the --- lines is not front matter and is read as body text"
            return FrontMatter(warnings=(remark,))
        if loaded is not None and not isinstance(loaded, Mapping):
            raise ValueError(f"a {type(loaded).__name__} where names with values are expected")
        metadata = clean_metadata(loaded or {})
    # PyYAML raises its own errors, ValueError, RecursionError and others on odd input: each is only a warning.
    except Exception as error:
        remark = f"{doc_id}, line {_line_of(error)}: front matter is not usable {language} ({_problem_of(error)})"
        return FrontMatter(match.end(), {RAW_KEY: raw}, (), (f"{remark}; kept as text under '{RAW_KEY}'",))
    if metadata.get("title") is not None and isinstance(written.get("title"), str):
        metadata["title"] = normalize(written["title"])
    remarks = [f"{doc_id}, line {line}: '{key}' is given again; this value is kept" for key, line in repeated]
    if len(remarks) > MAX_REPEATED:
        remarks[MAX_REPEATED:] = [f"{doc_id}: and {len(remarks) - MAX_REPEATED} more keys that are given again"]
    return FrontMatter(match.end(), metadata, _tags(metadata, written), tuple(remarks))


def _near_miss(text: str, doc_id: str) -> tuple[str, ...]:
    """Return a remark if the beginning looks like front matter, but for the lines around it."""
    opening = _NEAR_OPENING.match(text)
    closing = _NEAR_CLOSING.search(text, opening.end(), opening.end() + MAX_NEAR_MISS) if opening else None
    if opening is None or closing is None:
        return ()
    try:
        loaded = _load(text[opening.end() : closing.start()])[0]
    except Exception:  # as in split_front_matter
        return ()
    what = "what looks like front matter is read as body text"
    how = "it must begin in line 1 and stand between two lines of exactly three hyphens"
    return (f"{doc_id}, line 1: {what}; {how}",) if isinstance(loaded, Mapping) else ()


def _load(raw: str) -> tuple[Any, Any, list[tuple[str, int]]]:
    """Return the values, the same with each scalar as it was written, and repeated keys with their line."""
    import yaml

    repeated: list[tuple[str, int]] = []

    def load(base: Any, tag_of: Callable[[str], str] | None) -> Any:
        aliases = 0

        class Loader(base):  # type: ignore[misc]
            """Aliases of aliases (and merge keys) expand to gigabytes; front matter needs few."""

            def compose_node(self, parent: Any, index: Any) -> Any:
                nonlocal aliases
                aliases += self.check_event(yaml.AliasEvent)
                if aliases > MAX_ALIASES:
                    raise ValueError(f"more than {MAX_ALIASES} aliases")
                return super().compose_node(parent, index)

            def compose_mapping_node(self, anchor: Any) -> Any:
                node = super().compose_mapping_node(anchor)
                keys: set[str] = set()
                for key, _ in node.value:
                    if not isinstance(key, yaml.ScalarNode):
                        continue
                    if key.tag != _MERGE or key.style:
                        key.tag = _TEXT
                    name = normalize(key.value)
                    if tag_of is not None and name in keys:
                        repeated.append((name, key.start_mark.line + 2))
                    keys.add(name)
                return node

            def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
                if tag_of is None or kind is not yaml.ScalarNode or not implicit[0]:
                    return super().resolve(kind, value, implicit)
                return tag_of(value)

        return yaml.load(raw, Loader)  # noqa: S506 - both bases build plain values only

    return load(yaml.SafeLoader, _tag_of), load(yaml.BaseLoader, None) or {}, repeated


def _load_toml(raw: str) -> tuple[Any, Any, list[tuple[str, int]]]:
    """Return the same as :func:`_load`; TOML has no keys that are given again."""
    import tomllib

    def number(written: str) -> object:
        return float(written) if repr(float(written)) == written else written

    loaded = tomllib.loads(raw, parse_float=number)
    return loaded, tomllib.loads(raw, parse_float=str), []


def _tag_of(scalar: str) -> str:
    """Return the YAML type of an unquoted scalar by the core schema of YAML 1.2, where it loses no character by it."""
    if scalar in {"", "~", "null", "Null", "NULL"}:
        return "tag:yaml.org,2002:null"
    if scalar in {"true", "True", "TRUE", "false", "False", "FALSE"}:
        return "tag:yaml.org,2002:bool"
    if scalar == "<<":
        return _MERGE
    if _NUMBER.fullmatch(scalar):
        for kind in (int, float):
            with suppress(ValueError):
                return f"tag:yaml.org,2002:{kind.__name__}" if repr(kind(scalar)) == scalar else _TEXT
    return _TEXT


_PLACE = re.compile(r" \(at line (\d+), column \d+\)$")


def _line_of(error: Exception) -> int:
    """Return the 1-based line of the file where YAML or TOML failed: their first line is line 2 of the file."""
    mark = getattr(error, "problem_mark", None)
    place = _PLACE.search(str(error))
    return mark.line + 2 if mark is not None else int(place[1]) + 1 if place else 1


def _problem_of(error: Exception) -> str:
    problem = getattr(error, "problem", None) or _PLACE.sub("", str(error)) or type(error).__name__
    return " ".join(str(problem).split())


def _tags(metadata: Mapping[str, Any], written: Any) -> tuple[str, ...]:
    """Return the tags in order, without repeats."""
    found: list[str] = []
    for key, value in written.items() if isinstance(written, Mapping) else ():
        if not isinstance(key, str) or key.lower() not in {"tags", "tag"} or metadata.get(key) is None:
            continue
        parts = value.split(",") if isinstance(value, str) else value
        found += [part for part in parts if isinstance(part, str)]
    return tuple(dict.fromkeys(tag for part in found if not is_blank(tag := normalize(part).strip())))


_SIGNATURES = (
    (b"%PDF-", "a PDF"),
    (b"PK\x03\x04", "a ZIP archive or an Office document"),
    (b"\xd0\xcf\x11\xe0", "an old Office document"),
    (b"{\\rtf", "an RTF document"),
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"\x7fELF", "a program"),
    (b"SQLite format 3\x00", "an SQLite database"),
)


# What follows a data: URI is taken for the picture that it is, in a text of its own.
_DATA_URI = re.compile(r"data:[\w.+/-]*;base64,[A-Za-z0-9+/=%_-]*")

_RUN = re.compile(r"[A-Za-z0-9+/_-]{60,}")

_HEX_RUN = re.compile(r"[0-9a-fA-F]{129,}")

_HEX_DUMP = re.compile(r"^[^\S\n]*[0-9a-fA-F]{4,16}:?[^\S\n]+(?:[0-9a-fA-F]{2,8}[^\S\n]+){4,}.*$", re.MULTILINE)

_LONG_LINE = re.compile(r"^.{5000,}$", re.MULTILINE)

_GENERATED_SHARE = 0.6

_JUDGED = 262_144


def read_text(data: bytes, doc_id: str, _: object = None) -> Document:
    """Return the text of a Markdown or plain text file, and what its front matter says.

    Its encoding is found by :func:`sqlrag.ingest.readers.encoding.decode`.

    Raises
    ------
    DocumentError
        The bytes are not text, or text that no one wrote (:func:`generated_kind`); status "empty" where there is
        nothing but front matter without a title.
    """
    kind = kind_of(data)
    if kind and (kind != "an HTML page" or doc_id.lower().endswith(".txt")):
        raise DocumentError(doc_id, f"the content is not text: it is {kind}; give the file its right suffix")
    text, warnings = decode(data, doc_id)
    text = normalize(text)
    front = split_front_matter(text, doc_id)
    title = front.metadata.get("title")
    if is_blank(text[front.body_start :]) and not (isinstance(title, str) and not is_blank(title)):
        what = "nothing but front matter" if front.body_start else "nothing but blank space"
        raise DocumentError(doc_id, f"the file is empty: it holds {what}", "empty")
    kind = generated_kind(text[front.body_start :])
    if kind:
        raise DocumentError(doc_id, f"the content is not written for readers: it is {kind}; leave it out of the folder")
    return Document(
        doc_id,
        text,
        tags=front.tags,
        metadata=front.metadata,
        body_start=front.body_start,
        warnings=(*warnings, *front.warnings),
    )


def kind_of(data: bytes) -> str:
    """Return the kind of content by its first bytes; "" if unknown."""
    start = data[:512].lstrip().lower()
    if start.startswith((b"<!doctype html", b"<html")):
        return "an HTML page"
    return next((name for signature, name in _SIGNATURES if data.startswith(signature)), "")


def generated_kind(text: str) -> str:
    """Return what a text is if a program wrote it for programs, in words for a message; "" if people may read it.

    A key or certificate; or 1,000 characters and more, of which (of the first 262,144) at least 60 % are in runs of
    60 letters of both cases and digits, in runs of 129 hexadecimal digits, in lines of a hex dump, or in lines of 5,000
    characters with hardly a blank. Pictures that are written into a page as ``data:`` do not count, nor do languages
    without blanks. In real manuals no more than 30 % are such.
    """
    if text.startswith("-----BEGIN ") and text.rstrip().endswith("-----"):
        return "a key or certificate"
    text = _DATA_URI.sub("", text[:_JUDGED])
    least = _GENERATED_SHARE * max(1000, len(text))
    if len(text) < least:
        return ""
    kinds = (
        ("encoded data (Base64)", sum(len(run) for run in _RUN.findall(text) if _is_encoded(run))),
        ("encoded data (hexadecimal)", sum(map(len, _HEX_RUN.findall(text)))),
        ("a hex dump", sum(map(len, _HEX_DUMP.findall(text)))),
        ("minified code or data", sum(len(line) for line in _LONG_LINE.findall(text) if _is_minified(line))),
    )
    return next((kind for kind, size in kinds if size >= least), "")


def _is_encoded(run: str) -> bool:
    return any(one.isdigit() for one in run) and not run.islower() and not run.isupper()


def _is_minified(line: str) -> bool:
    return 20 * len(line.split()) < len(line) and 20 * len(line.encode("ascii", "ignore")) > 19 * len(line)
