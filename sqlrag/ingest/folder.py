"""Finds the files of a folder and reads each into a Document with the reader of its suffix."""

from __future__ import annotations

import datetime as dt
import fnmatch
import hashlib
import os
import re
import stat
import unicodedata
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sqlrag.errors import DocumentError, InputError, MissingExtraError, NotFoundError
from sqlrag.ingest.readers import reader_of, readers
from sqlrag.normalize import clean_name
from sqlrag.types import DEFAULT_COLLECTION, Document

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlrag.ingest.readers.pdf import PdfExtractor

NO_PATTERN = "matches none of the patterns"

MAX_BYTES = 64 * 2**20

IGNORE_FILE = ".sqlragignore"

_MOST_PATTERNS = 2**20  # bytes


class SkippedFile(NamedTuple):
    """A file that is not read. ``path`` is relative to the input folder, POSIX; ``reason`` is for people."""

    path: str
    reason: str


class Twin(SkippedFile):
    """A file whose ``path`` is another's after Unicode normalisation; ``written`` is its own, in ASCII with escapes."""

    written: str


class IgnoredFile(SkippedFile):
    """A file that is left out on purpose: an update treats its document as one whose file is gone."""


class FileState(NamedTuple):
    """What is known of a file without parsing it: the SHA-256 of its bytes, its kind, its time, its path."""

    checksum: str
    mime: str
    modified_at: dt.datetime
    file_path: str


def find_files(
    input_dir: str | os.PathLike[str], *, patterns: Sequence[str] | None = None, ignore: Sequence[str] | None = None
) -> tuple[list[Path], list[SkippedFile]]:
    """List the files of a folder that can be read, and those that cannot with the reason.

    Names that begin with a dot are skipped below the folder, never because of a parent of it. A link that leads out
    of the folder is skipped; so is a link to a folder inside, whose files are found at their own place.

    Parameters
    ----------
    input_dir : path
        A folder; searched to any depth.
    patterns : sequence of str, optional
        Keep only files whose name or relative POSIX path matches one, as ``*.md`` or ``guides/*``. ``*`` also
        matches ``/``.
    ignore : sequence of str, optional
        Patterns of gitignore for files and folders to leave out; they decide before those of the files
        ``.sqlragignore``, of which each folder may have one, as git reads ``.gitignore``.

    Returns
    -------
    files, skipped : list of Path, list of SkippedFile
        Both sorted by POSIX path relative to ``input_dir``. The paths begin with ``input_dir`` as it was given.

    Raises
    ------
    NotFoundError
        There is no such folder.
    InputError
        It is a file, or blank; or a pattern to ignore is wrong, or a ``.sqlragignore`` cannot be read.
    """
    root = existing_folder(input_dir)
    wanted = [patterns] if isinstance(patterns, str) else patterns
    files: list[tuple[str, Path]] = []
    skipped: list[SkippedFile] = []
    seen: dict[str, str] = {}
    for relative, reason, is_ignored in sorted(_walk(root, [ignore] if isinstance(ignore, str) else ignore or ())):
        name = clean_name(relative)
        reason = reason or _unwanted(name, wanted)
        if not reason and name in seen:
            why = f"has the same name as {seen[name]!a} after Unicode normalisation; rename one of them"
            twin = Twin(name, why)
            twin.written = ascii(relative)[1:-1]
            skipped.append(twin)
        elif reason:
            skipped.append((IgnoredFile if is_ignored else SkippedFile)(name, reason))
        else:
            seen[name] = relative
            files.append((name, root / relative))
    return [path for _, path in sorted(files)], sorted(skipped)


def document_id(
    path: str | os.PathLike[str], root: str | os.PathLike[str], *, collection: str = DEFAULT_COLLECTION
) -> str:
    """Return the id of a file: its POSIX path relative to ``root`` (NFC), ``{collection}:`` before it if not default.

    Raises
    ------
    DocumentError
        ``path`` is not below ``root``, or leads out of it by a link.
    """
    absolute, base = (os.path.abspath(os.path.expanduser(one)) for one in (path, root))  # noqa: PTH100, PTH111
    below = os.path.join(base, "")  # noqa: PTH118 - a Path takes several times as long
    is_below = os.path.normcase(absolute).startswith(os.path.normcase(below))
    relative = absolute[len(below) :] if is_below else ""
    if not relative or (_may_lead_out(below, relative) and not _is_real(absolute, base)):
        raise DocumentError(clean_name(os.fspath(path)), f"is not inside the input folder {base}; it is not read")
    name = clean_name(relative.replace(os.sep, "/"))
    return name if collection == DEFAULT_COLLECTION else f"{collection}:{name}"


def _may_lead_out(folder: str, relative: str) -> bool:
    """Return whether a part of a path below a folder is a link; Windows has junctions, too, which do not say so."""
    ends = (found.end() for found in re.finditer("[^/]+", relative))
    return os.name == "nt" or any(os.path.islink(folder + relative[:end]) for end in ends)  # noqa: PTH114


def _is_real(path: str, folder: str) -> bool:
    """Return whether a path leads into a folder, wherever the links in both lead."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def file_state(
    path: str | os.PathLike[str],
    root: str | os.PathLike[str],
    *,
    collection: str = DEFAULT_COLLECTION,
    max_bytes: int = MAX_BYTES,
) -> FileState:
    """Return the state of a file; raises as :func:`read_document` does."""
    path = _expanded(path)
    data, modified_at = _read_bytes(path, document_id(path, root, collection=collection), max_bytes)
    reader = reader_of(path.suffix)
    mime = "" if reader is None else reader.mime
    return FileState(hashlib.sha256(data).hexdigest(), mime, modified_at, stored_path(path))


def matches(name: str, patterns: Sequence[str] | None) -> bool:
    """Return whether a relative POSIX path is among those that ``patterns`` name; None names all."""
    return not _unwanted(name, [patterns] if isinstance(patterns, str) else patterns)


def read_document(
    path: str | os.PathLike[str],
    root: str | os.PathLike[str],
    *,
    collection: str = DEFAULT_COLLECTION,
    max_bytes: int = MAX_BYTES,
    pdf_extractor: PdfExtractor | None = None,
) -> Document:
    """Read one file into a Document.

    The suffix selects one of :func:`sqlrag.ingest.readers.readers`, which the content must match.

    Parameters
    ----------
    path, root : path
        The file and the input folder it is below.
    collection : str
        The collection that it goes to; part of the id.
    max_bytes : int
        A larger file is not read (default 64 MiB).
    pdf_extractor : callable, optional
        ``(bytes) -> list[str]``, one string a page, in place of PDFium and pypdf and without their limits: for scans
        (OCR), or where words come out run together. What it returns is normalised, never repaired.

    Returns
    -------
    Document
        ``modified_at`` is naive UTC; ``file_path`` is absolute, with links left as they are.

    Raises
    ------
    DocumentError
        The file cannot be used. ``status`` is "empty" for a file without any text, else "failed".
    """
    doc_id = document_id(path, root, collection=collection)
    path = _expanded(path)
    data, modified_at = _read_bytes(path, doc_id, max_bytes)
    reader = reader_of(path.suffix)
    if reader is None:
        raise DocumentError(doc_id, f"unsupported suffix {path.suffix!r}; supported are {', '.join(readers())}")
    if not data.strip():
        raise DocumentError(doc_id, f"the file is empty ({len(data)} bytes, none of them text)", "empty")
    try:
        document = reader.read(data, doc_id, pdf_extractor)
    except MissingExtraError as error:
        raise DocumentError(doc_id, str(error)) from error
    return replace(
        document,
        collection=collection,
        file_path=stored_path(path),
        file_name=clean_name(path.name),
        checksum=hashlib.sha256(data).hexdigest(),
        mime=reader.mime,
        size_bytes=len(data),
        modified_at=modified_at,
    )


def existing_folder(input_dir: str | os.PathLike[str]) -> Path:
    """Return the folder of documents, or raise why there is none."""
    if not os.fspath(input_dir).strip():
        raise InputError("input_dir is blank; pass the folder that holds your documents ('.' for this one)")
    root = _expanded(input_dir)
    if root.is_dir():
        return root
    if root.exists():
        raise InputError(f"{root} is a file, not a folder; pass the folder that holds it: {root.parent}")
    if any(sign in root.name for sign in "*?["):
        folder = next(one for one in root.parents if not any(sign in one.name for sign in "*?["))
        raise NotFoundError(
            f"input folder {root} does not exist: name the folder {folder}, and {root.name!r} as a pattern"
        )
    raise NotFoundError(f"input folder {root} does not exist (looked for at {_absolute(root)})")


def _expanded(path: str | os.PathLike[str]) -> Path:
    """Return the path with ``~`` replaced; an unknown user stays as it is (``Path.expanduser`` raises RuntimeError)."""
    return Path(os.path.expanduser(path))  # noqa: PTH111


def _absolute(path: str | os.PathLike[str]) -> Path:
    """Return the path from the root of the disk without ``..``, links left as they are (``resolve`` follows them)."""
    return Path(os.path.abspath(path))  # noqa: PTH100


def stored_path(path: Path) -> str:
    """Return the whole path of a file or folder as it is stored, links left as they are."""
    return clean_name(_absolute(path).as_posix())


def find_stored(path: str) -> Path | None:
    """Return the file or folder of a stored path, None where it is gone.

    A path is stored normalised; the file system may have its names in another form, such as decomposed by macOS.
    """
    if not path:
        return None
    found = Path(path)
    if found.exists():
        return found
    parent = find_stored(str(found.parent)) if found.parent != found else None
    if parent is None or not parent.is_dir():
        return None
    try:
        return next((file for file in sorted(parent.iterdir()) if clean_name(file.name) == found.name), None)
    except OSError:  # a folder that cannot be read
        return None


def _walk(root: Path, ignore: Sequence[str]) -> Iterator[tuple[str, str, bool]]:
    """Yield (relative POSIX path, reason not to read it or "", whether it is ignored) of every file."""
    real_root = os.path.realpath(root)
    first = [_Patterns("", "ignore", _patterns(ignore, "ignore"))] if ignore else []
    pending: list[tuple[str, str, list[_Patterns]]] = [("", "", [])]
    while pending:
        folder, why, above = pending.pop()
        try:
            with os.scandir(root / folder) as found:
                entries = list(found)
        except OSError as error:
            yield folder or ".", f"unreadable folder: {error.strerror or error}", False
            continue
        if not why and any(entry.name == IGNORE_FILE for entry in entries):
            own = f"{folder}/{IGNORE_FILE}" if folder else IGNORE_FILE
            above = [_Patterns(f"{folder}/" if folder else "", own, _patterns_of(root / own)), *above]
        for entry in entries:
            relative = f"{folder}/{entry.name}" if folder else entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            hidden = "hidden" if entry.name.startswith(".") else ""
            reason = why or hidden or _ignored(relative + "/" * is_folder, [*first, *above])
            if is_folder:
                pending.append((relative, reason, above))
            elif entry.name != IGNORE_FILE:
                is_ignored = reason not in ("", "hidden")
                yield relative, reason or _reason_of_entry(entry, real_root), is_ignored


class _Patterns(NamedTuple):
    """Patterns to ignore: the folder that they are of, with a "/", where they stand, and each with what it does."""

    folder: str
    where: str
    patterns: list[tuple[bool, re.Pattern[str]]]


def _ignored(path: str, above: Sequence[_Patterns]) -> str:
    """Return why a file or folder ("/" at its end) is ignored, "" where it is not.

    As in git the nearest list decides, by its last pattern that matches, and nothing below an ignored folder is asked
    for.
    """
    for folder, where, patterns in above:
        name = unicodedata.normalize("NFC", path.removeprefix(folder))
        for is_ignored, pattern in reversed(patterns):
            if pattern.search(name):
                return f"ignored by {where}" if is_ignored else ""
    return ""


def _patterns(lines: Sequence[str], where: str) -> list[tuple[bool, re.Pattern[str]]]:
    """Return the patterns of lines as git means them.

    Those of pathspec match what is below a folder as well, so that one after another would decide of all of it: here
    each of them ends where the name does.
    """
    from pathspec import GitIgnoreSpec

    found = []
    for number, line in enumerate(lines, 1):
        # pathspec takes it for letters, and what is to be left out would be read.
        if named := re.match(r"(?!#).*\[[^]]*\[:(\w+):\]", line):
            raise InputError(
                f"{where}, line {number}: the class [:{named[1]}:] in {line!r:.200} is not known here. Write its "
                "characters, such as [A-Z] or [0-9]."
            )
        try:
            compiled = GitIgnoreSpec.from_lines(
                [re.sub(r"/\*\*/ *$", "/**/*/", unicodedata.normalize("NFC", line))]
            ).patterns
        except ValueError as error:
            raise InputError(f"{where}, line {number}: {line!r:.200} is no pattern of gitignore: {error}") from error
        for pattern in compiled:
            if pattern.regex is None:  # a comment
                continue
            text = pattern.regex.pattern.replace("(?:(?P<ps_d>/)|$)", "/?$").replace("(?P<ps_d>/)", "/$")
            found.append((bool(pattern.include), re.compile(text + "." if text.endswith("/") else text)))
    return found


def _patterns_of(path: Path) -> list[tuple[bool, re.Pattern[str]]]:
    """Return the patterns of a file. One that cannot be read is no reason to read what it would leave out."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise InputError(f"{path} is not a regular file; its lines should be patterns of what to ignore.")
        with path.open("rb") as file:
            data = file.read(_MOST_PATTERNS + 1)
        text = data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else f"it is not UTF-8 (byte {error.start})"
        raise InputError(f"{path} cannot be read: {why}. No folder is read without knowing what to ignore.") from error
    if len(data) > _MOST_PATTERNS:
        raise InputError(f"{path} is larger than {_MOST_PATTERNS:,} bytes, which no list of patterns is.")
    return _patterns(text.replace("\r\n", "\n").split("\n"), str(path))


def _reason_of_entry(entry: os.DirEntry[str], real_root: str) -> str:
    if entry.is_symlink():
        target = Path(os.path.realpath(entry.path))
        if not target.is_relative_to(real_root):
            return "a link that leads out of the input folder"
        if target.is_dir():
            return "a link to a folder inside the input folder, read at its own place"
        if not target.exists():
            return "a link to nothing"
    if not entry.is_file():
        return "not a regular file"
    suffix = Path(entry.name).suffix
    if reader_of(suffix) is None:
        return f"unsupported suffix {suffix!a}" if suffix else "no suffix"
    return ""


def _unwanted(name: str, patterns: Sequence[str] | None) -> str:
    if patterns is None:
        return ""
    wanted = [clean_name(pattern) for pattern in patterns]
    forms = [form for pattern in wanted for form in (pattern, pattern.removeprefix("**/"))]
    base = name.rpartition("/")[2]
    if any(fnmatch.fnmatchcase(name, form) or fnmatch.fnmatchcase(base, form) for form in forms):
        return ""
    return NO_PATTERN


def _read_bytes(path: Path, doc_id: str, max_bytes: int) -> tuple[bytes, dt.datetime]:
    try:
        status = path.stat()
        # Opening a pipe would wait for ever.
        if not stat.S_ISREG(status.st_mode):
            raise DocumentError(doc_id, "is not a regular file")
        with path.open("rb") as file:
            data = file.read(min(status.st_size, max_bytes) + 1)  # to ask for more takes as much memory at first
            if len(data) > status.st_size:
                data += file.read(max_bytes + 1 - len(data))
    except OSError as error:
        raise DocumentError(doc_id, f"unreadable: {error.strerror or error}") from error
    if len(data) > max_bytes:
        size = max(status.st_size, len(data))
        raise DocumentError(
            doc_id, f"too large: {size:,} bytes, the limit is {max_bytes:,}; split it or raise max_bytes"
        )
    return data, dt.datetime.fromtimestamp(status.st_mtime, dt.UTC).replace(tzinfo=None)
