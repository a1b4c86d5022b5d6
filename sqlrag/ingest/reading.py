"""Find the files of a folder and read each into a Document."""

from __future__ import annotations

import codecs
import datetime as dt
import fnmatch
import hashlib
import os
import re
import stat
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from sqlrag.errors import DocumentError, InputError, NotFoundError
from sqlrag.ingest.chunking import PAGE_BREAK
from sqlrag.ingest.front_matter import FrontMatter, split_front_matter
from sqlrag.ingest.pdf import extract_pages
from sqlrag.normalizing import normalize
from sqlrag.types import DEFAULT_COLLECTION, Document

MIME_OF_SUFFIX = {
    ".md": "text/markdown",
    ".markdown": "text/markdown",
    ".txt": "text/plain",
    ".pdf": "application/pdf",
}
MAX_BYTES = 64 * 2**20

PdfExtractor = Callable[[bytes], Sequence[str]]

# Longest first: the mark of UTF-32 LE begins with that of UTF-16 LE.
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
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
_BINARY_CHARACTERS = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
# One per script and platform: the detector's own hundred take "café" for Chinese and German for Croatian.
_LEGACY_ENCODINGS = [
    *("cp1252", "cp1250", "cp1251", "koi8_r", "iso8859_7", "cp1254", "cp1255", "cp1256"),
    *("shift_jis", "euc_jp", "gb18030", "big5", "euc_kr"),
]


class SkippedFile(NamedTuple):
    """A file that is not read. ``path`` is relative to the input folder, POSIX; ``reason`` is for a reader."""

    path: str
    reason: str


class FileState(NamedTuple):
    """What is known of a file without parsing it: the SHA-256 of its bytes, its kind, its time, where it lies."""

    checksum: str
    mime: str
    modified_at: dt.datetime
    file_path: str


def find_files(
    input_dir: str | os.PathLike[str], *, patterns: Sequence[str] | None = None
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

    Returns
    -------
    files, skipped : list of Path, list of SkippedFile
        Both sorted by POSIX path relative to ``input_dir``. The paths begin with ``input_dir`` as it was given.

    Raises
    ------
    NotFoundError
        There is no such folder.
    InputError
        It is a file, or blank.
    """
    root = _existing_folder(input_dir)
    wanted = [patterns] if isinstance(patterns, str) else patterns
    files: list[tuple[str, Path]] = []
    skipped: list[SkippedFile] = []
    seen: dict[str, str] = {}
    for relative, reason in sorted(_walk(root)):
        name = clean_path(relative)
        reason = reason or _unwanted(name, wanted)
        if not reason and name in seen:
            reason = f"same name as {seen[name]!a} after Unicode normalisation"
        if reason:
            skipped.append(SkippedFile(name, reason))
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
    absolute, base = _absolute(_expanded(path)), _absolute(_expanded(root))
    try:
        inside = Path(os.path.realpath(absolute)).is_relative_to(os.path.realpath(base))
        relative = absolute.relative_to(base).as_posix() if inside else ""
    except ValueError:
        relative = ""
    if not relative:
        raise DocumentError(clean_path(os.fspath(path)), f"is not inside the input folder {base}; it is not read")
    name = clean_path(relative)
    return name if collection == DEFAULT_COLLECTION else f"{collection}:{name}"


def file_state(
    path: str | os.PathLike[str],
    root: str | os.PathLike[str],
    *,
    collection: str = DEFAULT_COLLECTION,
    max_bytes: int = MAX_BYTES,
) -> FileState:
    """Return what the bytes of a file and the file system say; it fails as :func:`read_document` does."""
    path = _expanded(path)
    data, modified_at = _read_bytes(path, document_id(path, root, collection=collection), max_bytes)
    mime = MIME_OF_SUFFIX.get(path.suffix.lower(), "")
    return FileState(hashlib.sha256(data).hexdigest(), mime, modified_at, _stored_path(path))


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
    r"""Read one file into a Document.

    The suffix says which kind of file is meant, the content has to agree. Text is UTF-8, or UTF-16 and UTF-32 with
    a byte order mark; another encoding is guessed with a warning where ``charset_normalizer`` is installed.
    The pages of a PDF are joined by a blank line.

    Parameters
    ----------
    path, root : path
        The file and the input folder it is below.
    collection : str
        The folder of documents that it goes to; part of the id.
    max_bytes : int
        A larger file is not read (default 64 MiB).
    pdf_extractor : callable, optional
        ``(bytes) -> list[str]``, one string a page, in place of pypdf: for scans (OCR), or where words come out glued
        together. What it returns is normalised, never repaired.

    Returns
    -------
    Document
        ``modified_at`` is naive UTC; ``file_path`` is absolute, with links left as they are.

    Raises
    ------
    DocumentError
        The file cannot be used. ``status`` is "empty" for a file without any text, else "failed".
    """
    path = _expanded(path)
    doc_id = document_id(path, root, collection=collection)
    data, modified_at = _read_bytes(path, doc_id, max_bytes)
    mime = MIME_OF_SUFFIX.get(path.suffix.lower())
    if mime is None:
        raise DocumentError(doc_id, f"unsupported suffix {path.suffix!r}; supported are {', '.join(MIME_OF_SUFFIX)}")
    if not data.strip():
        raise DocumentError(doc_id, f"the file is empty ({len(data)} bytes, none of them text)", "empty")

    # Read the content: each kind gives the normalised text, what front matter said and where pages begin.
    page_starts: tuple[int, ...] = ()
    front = FrontMatter()
    if mime == "application/pdf":
        text, page_starts, warnings = _read_pdf(data, doc_id, pdf_extractor)
    else:
        text, warnings = _read_text(data, doc_id)
        front = split_front_matter(text, doc_id)
        if not text[front.body_start :].strip() and not isinstance(front.metadata.get("title"), str):
            what = "nothing but front matter" if front.body_start else "nothing but blank space"
            raise DocumentError(doc_id, f"the file is empty: it holds {what}", "empty")

    return Document(
        doc_id=doc_id,
        text=text,
        collection=collection,
        file_path=_stored_path(path),
        file_name=clean_path(path.name),
        checksum=hashlib.sha256(data).hexdigest(),
        mime=mime,
        size_bytes=len(data),
        modified_at=modified_at,
        tags=front.tags,
        metadata=front.metadata,
        body_start=front.body_start,
        page_starts=page_starts,
        warnings=(*warnings, *front.warnings),
    )


def _existing_folder(input_dir: str | os.PathLike[str]) -> Path:
    if not os.fspath(input_dir).strip():
        raise InputError("input_dir is blank; pass the folder that holds your documents ('.' for this one)")
    root = _expanded(input_dir)
    if root.is_dir():
        return root
    if root.exists():
        raise InputError(f"{root} is a file, not a folder; pass the folder that holds it: {root.parent}")
    raise NotFoundError(f"input folder {root} does not exist (looked for at {_absolute(root)})")


def _expanded(path: str | os.PathLike[str]) -> Path:
    """Return the path with ``~`` replaced; an unknown user stays as it is (``Path.expanduser`` raises RuntimeError)."""
    return Path(os.path.expanduser(path))  # noqa: PTH111


def _absolute(path: str | os.PathLike[str]) -> Path:
    """Return the path from the root of the disk without ``..``, links left as they are (``resolve`` follows them)."""
    return Path(os.path.abspath(path))  # noqa: PTH100


def _stored_path(path: Path) -> str:
    return clean_path(_absolute(path).as_posix())


def clean_path(path: str) -> str:
    """Return a path as it is stored: NFC, bytes of its name that are no UTF-8 as U+FFFD."""
    return unicodedata.normalize("NFC", re.sub("[\ud800-\udfff]", "\ufffd", path))


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
        return next((file for file in sorted(parent.iterdir()) if clean_path(file.name) == found.name), None)
    except OSError:  # a folder that cannot be read
        return None


def _walk(root: Path) -> Iterator[tuple[str, str]]:
    """Yield (relative POSIX path, reason not to read it or "") of every file."""
    real_root = os.path.realpath(root)
    pending = [("", False)]
    while pending:
        folder, hidden = pending.pop()
        try:
            with os.scandir(root / folder) as found:
                entries = list(found)
        except OSError as error:
            yield folder or ".", f"unreadable folder: {error.strerror or error}"
            continue
        for entry in entries:
            relative = f"{folder}/{entry.name}" if folder else entry.name
            is_hidden = hidden or entry.name.startswith(".")
            if entry.is_dir(follow_symlinks=False):
                pending.append((relative, is_hidden))
            else:
                yield relative, "hidden" if is_hidden else _reason_of_entry(entry, real_root)


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
    if suffix.lower() not in MIME_OF_SUFFIX:
        return f"unsupported suffix {suffix!a}" if suffix else "no suffix"
    return ""


def _unwanted(name: str, patterns: Sequence[str] | None) -> str:
    if patterns is None:
        return ""
    forms = [form for pattern in patterns for form in (pattern, pattern.removeprefix("**/"))]
    base = name.rpartition("/")[2]
    if any(fnmatch.fnmatchcase(name, form) or fnmatch.fnmatchcase(base, form) for form in forms):
        return ""
    return "matches none of the patterns"


def _read_bytes(path: Path, doc_id: str, max_bytes: int) -> tuple[bytes, dt.datetime]:
    try:
        status = path.stat()
        # Opening a pipe would wait for ever.
        if not stat.S_ISREG(status.st_mode):
            raise DocumentError(doc_id, "is not a regular file")
        with path.open("rb") as file:
            data = file.read(max_bytes + 1)
    except OSError as error:
        raise DocumentError(doc_id, f"unreadable: {error.strerror or error}") from error
    if len(data) > max_bytes:
        size = max(status.st_size, len(data))
        raise DocumentError(
            doc_id, f"too large: {size:,} bytes, the limit is {max_bytes:,}; split it or raise max_bytes"
        )
    return data, dt.datetime.fromtimestamp(status.st_mtime, dt.timezone.utc).replace(tzinfo=None)


def _kind_of(data: bytes) -> str:
    """Name what bytes are by their first ones; "" if unknown."""
    start = data[:512].lstrip().lower()
    if start.startswith((b"<!doctype html", b"<html")):
        return "an HTML page"
    return next((name for signature, name in _SIGNATURES if data.startswith(signature)), "")


def _read_pdf(
    data: bytes, doc_id: str, pdf_extractor: PdfExtractor | None
) -> tuple[str, tuple[int, ...], tuple[str, ...]]:
    # Viewers accept a PDF that begins within the first 1,024 bytes.
    if b"%PDF-" not in data[:1024]:
        raise DocumentError(doc_id, f"the content is not a PDF: it is {_kind_of(data) or 'something else'}")
    pages, warnings = extract_pages(data, doc_id, pdf_extractor)
    starts: list[int] = []
    offset = 0
    texts = [normalize(page).strip() for page in pages]
    for text in texts:
        starts.append(offset)
        offset += len(text) + len(PAGE_BREAK)
    if not any(texts):
        raise DocumentError(doc_id, "no extractable text; OCR needed")
    return PAGE_BREAK.join(texts), tuple(starts), warnings


def _read_text(data: bytes, doc_id: str) -> tuple[str, tuple[str, ...]]:
    kind = _kind_of(data)
    if kind and kind != "an HTML page":
        raise DocumentError(doc_id, f"the content is not text: it is {kind}; give the file its right suffix")
    text, warnings = _decode(data, doc_id)
    if 10 * len(_BINARY_CHARACTERS.findall(text)) > len(text):
        raise DocumentError(doc_id, "the content is not text: it is binary data (or UTF-16 without a byte order mark)")
    return normalize(text), warnings


def _decode(data: bytes, doc_id: str) -> tuple[str, tuple[str, ...]]:
    encoding = next((name for mark, name in _BYTE_ORDER_MARKS if data.startswith(mark)), "utf-8")
    try:
        return data.decode(encoding), ()
    except UnicodeDecodeError as error:
        if encoding not in {"utf-8", "utf-8-sig"}:
            raise DocumentError(doc_id, f"not valid {encoding.upper()}: {error}; save it as UTF-8") from error

    # A few wrong bytes among many right UTF-8 sequences are damage, not another encoding.
    text = data.decode("utf-8", "replace")
    wrong = text.count("\ufffd")
    if b"\x00" not in data and len(text) - len(text.encode("ascii", "ignore")) > 10 * wrong:
        return text, (f"{doc_id}: {wrong} wrong UTF-8 sequences were replaced by U+FFFD",)
    return _guess(data, doc_id)


def _guess(data: bytes, doc_id: str) -> tuple[str, tuple[str, ...]]:
    failure = DocumentError(doc_id, "not UTF-8 text and no known encoding fits; save it as UTF-8")
    if b"\x00" in data:
        raise DocumentError(doc_id, "the content is not text: it is binary data")
    try:
        from charset_normalizer import from_bytes
    except ImportError:
        raise failure from None
    found = list(from_bytes(data, cp_isolation=_LEGACY_ENCODINGS))
    if not found:
        raise failure
    # Of equally plausible ones the detector names the first of the alphabet; Windows-1252 is the commonest.
    best = next((m for m in found if m.encoding == "cp1252" and m.chaos <= found[0].chaos), found[0])
    return str(best), (f"{doc_id}: not UTF-8, read as {best.encoding} (a guess); save it as UTF-8 to be sure",)
