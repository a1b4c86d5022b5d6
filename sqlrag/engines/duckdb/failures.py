"""Turns what DuckDB and the operating system raise over a file into errors of sqlrag, with a remedy that is true."""

from __future__ import annotations

import errno
import functools
import inspect
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import duckdb

from sqlrag.arguments import guessed, refuse_unknown_names
from sqlrag.errors import NotAStoreError, NotFoundError, SchemaVersionError, StoreError
from sqlrag.network import is_remote, shown_address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

F = TypeVar("F", bound="Callable[..., Any]")

# DuckDB quotes the system's words for these; an OSError has the number.
_REMEDIES = {
    errno.ENOSPC: "The disk is full: make room on it and try again.",
    errno.EDQUOT: "Your quota on this disk is used up: make room and try again.",
    errno.EFBIG: "A file may not become larger here: raise the limit (ulimit -f), or use another file system.",
    errno.EROFS: "The file system can only be read: name a file on one that can be written to.",
    errno.EACCES: "Give yourself the right to write to the file and its folder, or name another file.",
    errno.EPERM: "Give yourself the right to write to the file and its folder, or name another file.",
    errno.EIO: "The disk or the connection to it fails: copy the file to another disk, and see the system's log.",
    errno.EMFILE: "Too many files are open in this process: close some, or raise the limit (ulimit -n).",
    errno.ENFILE: "Too many files are open on this machine: close some.",
}

_LOG_WORDS = ("replaying WAL", "WAL file", "WAL version", "the WAL")


# The last is what DuckDB 1.3 says.
_CLOSED_WORDS = (
    "Connection already closed",
    "Connection has already been closed",
    "No open result set",
    "bad_weak_ptr",
)


def failure(path: object, error: BaseException, consequence: str = "", temporary: object = None) -> StoreError:
    """Return the StoreError for an error of DuckDB or the system that concerns a file.

    ``consequence`` says what became of the work, as a sentence without its period. ``temporary`` is the hidden file
    that is written in the place of the file, which the message does not name.
    """
    if is_remote(path) and isinstance(error, (duckdb.IOException, UnicodeDecodeError)):
        return unreadable(path, error)
    text = (error.strerror if isinstance(error, OSError) else None) or said_by(error) or type(error).__name__
    named = path
    if isinstance(error, OSError) and isinstance(error.filename, (str, os.PathLike)):
        named = os.fspath(error.filename)
    if temporary is not None:
        text, named = (str(one).replace(str(temporary), str(path)) for one in (text, named))
    text = text.strip().removesuffix(".")
    after = f"{consequence}. " if consequence else ""
    if isinstance(error, duckdb.OutOfMemoryException):
        return out_of_memory(path, error, consequence or "No answer was given")
    hint = remedy(error)
    if hint or isinstance(error, OSError) or "Cannot open file" in text:
        verb = "written" if consequence else "used"
        return StoreError(path, f"{named} could not be {verb}: {text}. {after}{hint}".rstrip())
    if any(words in text for words in _LOG_WORDS):
        return damaged_log(path, error)
    if isinstance(error, duckdb.ConstraintException):
        return StoreError(path, f"{path}: rows have keys that other rows have: {text}. {after}Run: sqlrag check {path}")
    if isinstance(error, duckdb.InterruptException):
        return StoreError(path, f"{path}: the work was interrupted. {after}".rstrip())
    if any(words in text for words in _CLOSED_WORDS):
        return was_closed(path, consequence)
    if isinstance(error, duckdb.TransactionException):
        return StoreError(path, f"{path} could not be written: {text}. {after}Try again.")
    if is_damage(error):
        return StoreError(
            path,
            f"{path} cannot be read, it may be damaged or cut short: {text}. {after}Copy it again, or rebuild it "
            "(prepare_embeddings; index_rows for rows of tables).",
        )
    return StoreError(
        path,
        f"{path} does not answer as a store of sqlrag does: {text}. {after}sqlrag check {path} names what is amiss.",
    )


def was_closed(path: object, consequence: str = "") -> StoreError:
    """Return the error for work in a store that this or another thread has closed."""
    after = f"{consequence}. " if consequence else ""
    return StoreError(path, f"{path} has been closed. {after}Open it again with Store({str(path)!r}).")


def said_by(error: BaseException) -> str:
    """Return the message of an error, without the addresses of functions that DuckDB appends to some."""
    return str(error).partition("Stack Trace:")[0].rstrip()


def remedy(error: BaseException) -> str:
    """Return what helps against a disk that is full, failing or not to be written to; empty for other errors."""
    if isinstance(error, OSError):
        return _REMEDIES.get(error.errno or 0, "")
    text = str(error) if isinstance(error, duckdb.Error) else ""
    return next((hint for number, hint in _REMEDIES.items() if os.strerror(number) in text), "")


def is_damage(error: BaseException) -> bool:
    """Return whether DuckDB's error says that a file cannot be read as it is."""
    kinds = (duckdb.IOException, duckdb.SerializationException, duckdb.FatalException, duckdb.InternalException)
    return isinstance(error, kinds) or any(words in str(error) for words in ("Corrupt", *_LOG_WORDS))


def damaged(path: object, error: BaseException) -> NotAStoreError:
    """Return the error for a file that DuckDB cannot open."""
    if any(words in str(error) for words in _LOG_WORDS):
        return damaged_log(path, error)
    return NotAStoreError(
        path,
        f"{path} is damaged or cut short: {said_by(error)}. Copy a backup over it; without one, delete it and build it "
        "again.",
    )


def damaged_log(path: object, error: BaseException) -> NotAStoreError:
    """Return the error for a file that cannot be opened because of the log beside it."""
    log = f"{path}.wal"
    said = str(error).splitlines()[0].rstrip(".")
    if "match database" in said:
        return NotAStoreError(
            path,
            f"{path} cannot be opened: the log beside it is of another file or of another copy of this one: {said}. "
            "Neither need be damaged. Put the log back beside its own file, or set it aside, and check this one: "
            f"mv {log} {log}.other; sqlrag check {path}",
        )
    return NotAStoreError(
        path,
        f"{path} cannot be opened: the log beside it, which a killed process left, is damaged or of another file: "
        f"{said}. The file itself may be whole, without the last change. Set the log aside, "
        f"check the file, and repeat the last update: mv {log} {log}.damaged; sqlrag check {path}",
    )


def unusable(path: object, error: duckdb.IOException) -> StoreError:
    """Return the error for a file that DuckDB does not open, for another reason than a lock."""
    text = said_by(error)
    if "version number" in text and "WAL" not in text:
        return SchemaVersionError(
            path,
            f"{path} was written by a DuckDB that this one ({duckdb.__version__}) cannot read: {text}. "
            "Install that version of duckdb.",
        )
    if "Could not read enough bytes" in text or any(words in text for words in _LOG_WORDS):
        return damaged(path, error)
    hint = remedy(error)
    return StoreError(path, f"{path} cannot be opened: {text}{'. ' * bool(hint)}{hint}")


def out_of_memory(path: object, error: duckdb.Error, consequence: str = "No answer was given") -> StoreError:
    """Return the error for work that does not fit into ``memory_limit``."""
    return StoreError(
        path,
        f"{path}: DuckDB ran out of the memory that memory_limit allows. {consequence}. Pass a greater memory_limit, "
        f"such as '1GB'. (DuckDB: {str(error).splitlines()[0]})",
    )


def unreadable(path: object, error: duckdb.Error | UnicodeDecodeError) -> StoreError:
    """Return the error for a file on a server that cannot be read, and remove from DuckDB's what is secret.

    DuckDB 1.5 raises UnicodeDecodeError over an answer that it refuses, such as one with another ETag.
    """
    if isinstance(error, UnicodeDecodeError) or "ETag" in str(error):
        return replaced(path)
    text, status = shown_address(said_by(error)), getattr(error, "status_code", None)
    error.args = (text,)  # tracebacks show it
    if status in (0, 401, 403):  # 0: DuckDB 1.5 leaves out why both HEAD and GET were refused
        return StoreError(
            path,
            f"{path} may not be read: {text}. Check the address, and give DuckDB credentials: CREATE PERSISTENT "
            "SECRET, or AWS_… variables of the environment, see the handbook's page 'A corpus in a lake'.",
        )
    if "not a valid DuckDB" in text:
        return NotAStoreError(path, f"{path} is not a DuckDB database. Name a file made by prepare_embeddings.")
    if "version number" in text and isinstance(error, duckdb.IOException):
        return unusable(path, error)
    return StoreError(path, f"{path} cannot be read: {text}. Check the address and the network, and try again.")


def replaced(path: object) -> StoreError:
    """Return the error for a file on a server that is no longer the one that was opened."""
    return StoreError(
        path, f"{path} has been replaced on its server since it was opened, and no answer was given. Open it again."
    )


@contextmanager
def reported(path: object, consequence: str = "", temporary: object = None) -> Iterator[None]:
    """Turn errors of DuckDB and the system into those of :func:`failure`.

    So are StoreErrors for the temporary file, which say what became of that one.
    """
    try:
        yield
    except BrokenPipeError:
        raise  # the output of the program, not a file
    except (duckdb.Error, OSError) as error:
        raise failure(path, error, consequence, temporary) from error
    except UnicodeDecodeError as error:
        if not is_remote(path):
            raise
        raise unreadable(path, error) from error
    except StoreError as error:
        cause = error.__cause__
        if temporary is None or error.path != str(temporary) or not isinstance(cause, (duckdb.Error, OSError)):
            raise
        raise failure(path, cause, consequence, temporary) from cause


_SUBJECTS = ("self", "store", "db_path", "where", "path", "output_db", "source", "target", "input_dir")


def public(what: F) -> F:
    """Make a public function, or the public methods of a class, raise errors of sqlrag in place of those of files.

    ``cursor()`` is left out: what programs do with DuckDB's own connection raises DuckDB's own errors.
    """
    if not isinstance(what, type):
        return _guarded(what)
    for name, value in list(vars(what).items()):
        if name in ("__init__", "_repr_html_") or not (name.startswith("_") or name == "cursor"):
            if isinstance(value, (classmethod, staticmethod)):
                setattr(what, name, type(value)(_guarded(value.__func__)))
            elif inspect.isfunction(value):
                setattr(what, name, _guarded(value))
    return what


def _guarded(function: F) -> F:
    code = function.__code__
    known = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    positional = code.co_varnames[: code.co_argcount]
    takes_any = bool(code.co_flags & inspect.CO_VARKEYWORDS)  # what else they may be is checked by the function

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = [name for name in kwargs if not takes_any or (name not in known and guessed(name, positional))]
        refuse_unknown_names(function.__qualname__, known, given)
        try:
            return function(*args, **kwargs)
        except BrokenPipeError:
            raise
        except (duckdb.Error, OSError) as error:
            raise failure(_subject(function, args, kwargs), error) from error
        except UnicodeDecodeError as error:
            if not is_remote(subject := _subject(function, args, kwargs)):
                raise
            raise unreadable(subject, error) from error
        except NotFoundError as error:
            if message := _swapped(function, args, kwargs):
                raise NotFoundError(message) from error
            raise

    return call  # type: ignore[return-value]


def _swapped(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Return the message for a file that is not there where the question is a file that is, else ""."""
    given = inspect.signature(function).bind_partial(*args, **kwargs).arguments
    question = given.get("query_text", given.get("question"))
    if not isinstance(question, str) or "db_path" not in given or not os.path.isfile(question):  # noqa: PTH113 - False for what is no path
        return ""
    return (
        f"There is no file {given['db_path']!r}, and the question {question!r} is one. The question comes first, then "
        f"the file: {function.__qualname__}('…', {question!r})."
    )


def _subject(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Return the file that a call is about."""
    given = inspect.signature(function).bind_partial(*args, **kwargs).arguments
    for name in _SUBJECTS:
        value = getattr(given.get(name), "path", given.get(name))
        if is_remote(value):
            return shown_address(str(value))
        if isinstance(value, (str, Path)) and "://" not in str(value):
            return str(value)
    return "The store"
