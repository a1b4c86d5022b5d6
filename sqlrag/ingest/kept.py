"""Keeps the vectors that a run makes in a file beside its output, so that a run after an interrupted one reuses them.

``kb.duckdb.embedded`` begins with a line that names the model. A record of fixed length follows for each text: its
SHA-256, how many characters of it were embedded (0: all), the vector, and the CRC-32 of these. Every batch of the model
is appended in one write: a process that is killed leaves at most one incomplete record, at the end.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
import zlib
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from sqlrag.arguments import counted
from sqlrag.embedders.base import SAME_MODEL_COSINE
from sqlrag.engines.duckdb.database import kept_beside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import Self

    from sqlrag.types import ModelIdentity, Vectors

_MAGIC = b"sqlrag embedded texts 1 "

# What makes a model's vectors, beside its weights, which the fingerprint tells apart.
_OF_MODEL = ("provider", "model_name", "dimensions", "max_tokens", "query_prefix", "passage_prefix", "revision")

_LONGEST_HEAD = 1_000_000  # bytes

# An update that embeds no more texts at a time is not worth a file.
FEW = 128


def left_by_an_interrupted_run(output: Path) -> str:
    """Return that vectors are kept beside a file that is there, and what makes use of them; "" where none are."""
    path = kept_beside(output)
    try:
        with path.open("rb") as file:
            head = file.readline(_LONGEST_HEAD)
            size = os.fstat(file.fileno()).st_size - len(head)
        record = 40 + 4 * int(json.loads(head.removeprefix(_MAGIC))["dimensions"]) if head.startswith(_MAGIC) else 0
    except (OSError, ValueError, TypeError, KeyError):
        return ""
    if not record or size < record:
        return ""
    return (
        f"{path.name} has the vectors of {counted(size // record, 'text')} that an interrupted run embedded. The "
        "command that was interrupted, or an update of the same documents, goes on from there; if it is not "
        "wanted, delete that file."
    )


@contextmanager
def noting(say: Callable[[], str]) -> Iterator[None]:
    """Add what a function says to whatever ends the block early, unless that is ""."""
    try:
        yield
    except BaseException as error:
        if text := say():
            _add_note(error, text)
        raise


def _add_note(error: BaseException, text: str) -> None:
    """Add a line to what a traceback and the command line show of an error (PEP 678)."""
    if hasattr(error, "add_note"):
        error.add_note(text)
    else:  # Python 3.10 has no such method, and its tracebacks do not show them
        error.__notes__ = [*getattr(error, "__notes__", []), text]


class Kept:
    """The vectors that were made for an output, for the ``with`` block of the run that makes it.

    After an error they stay, and a note of it says how many there are; they are removed when the block has ended, but
    for those of an interrupted run of which an update has used none: another folder or table may need them. A file of
    another model is replaced, one that is something else is left as it is, and ``notes`` gets a sentence about
    it. Nothing is kept while another process does so for the same output.

    Parameters
    ----------
    output
        The file that the run makes.
    notes
        The warnings of its report.
    updating
        The run writes into its output as it goes on: it keeps only what it embeds many at a time, and leaves what is
        kept with another model to the run that goes on with that.
    """

    def __init__(self, output: Path, notes: list[str], *, updating: bool = False) -> None:
        self.output, self.path = output, kept_beside(output)
        self.notes = notes
        self.updating = updating
        # Nothing is kept of so few texts.
        self.few = FEW if updating else 0
        # The model, as soon as it is known.
        self.identity: ModelIdentity | None = None
        # How many texts the file has, and what the run says of them.
        self.count = 0
        self.how_far: Callable[[int], str] = lambda count: f"{counted(count, 'text')} are"
        self._used = 0
        # Where what an interrupted run has left ends; 0 where it has left nothing.
        self._end = 0
        self._is_damaged = False
        self._is_full = False
        self._file: BinaryIO | None = None
        self._is_opened = False
        self._record = np.dtype([])
        self._records: Any = np.empty(0, self._record)
        self._keys: Any = np.empty(0, np.uint64)
        self._order: Any = self._keys

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        file = self._opened() if self.path.exists() else self._file
        if file is None:
            return
        there = counted(len(self._records), "text")
        self._records = np.empty(0, self._record)  # Windows removes no file that is mapped, or open
        if error is not None and self.count:
            far = self.how_far(self.count)
            _add_note(error, f"{far} embedded and kept in {self.path}; the same command goes on from there.")
        elif error is None and self.updating and self._end and not self._used:
            with suppress(OSError):
                file.truncate(self._end)
            self.notes.append(left_by_an_interrupted_run(self.output))
        elif error is None or not self.count:
            if self._used:
                self.notes.append(
                    f"The vectors of {self._used:,} of {there}, kept in {self.path.name} by an interrupted run, "
                    "were used."
                )
            elif not isinstance(error, (Exception, type(None))):
                _add_note(error, "The first batch of the model was not finished, so nothing was kept.")
            if os.name == "nt":
                file.close()
            with suppress(OSError):
                self.path.unlink(missing_ok=True)
        file.close()

    def known(self, texts: Sequence[str]) -> tuple[dict[str, Vectors], dict[str, int]]:
        """Return the vectors of the texts that an earlier run has embedded.

        Also how many characters of a text were embedded, where it was too long for the model.
        """
        vectors: dict[str, Vectors] = {}
        cut_off: dict[str, int] = {}
        if not texts or self._opened() is None or not len(self._records):
            return vectors, cut_off
        digests = [_digest(text) for text in texts]
        places = np.searchsorted(self._keys, _first_bytes(b"".join(digests)))
        for text, digest, place in zip(texts, digests, places.tolist(), strict=True):
            if place == len(self._keys):
                continue
            record = self._records[self._order[place]]
            if record["text"].tobytes() != digest:
                continue
            if record["sum"] != _sum(record):
                if not self._is_damaged:
                    self.notes.append(f"{self.path.name} is damaged: what it had lost was embedded again.")
                self._is_damaged = True
                continue
            vectors[text] = np.array(record["vector"], np.float32)
            if record["characters"]:
                cut_off[text] = int(record["characters"])
        self._used += len(vectors)
        return vectors, cut_off

    def keep(self, texts: Sequence[str], vectors: Vectors, cut_off: Mapping[str, int]) -> None:
        """Append the vectors of a batch of texts, ``[len(texts), dimensions] float32``."""
        if self._is_full or (file := self._opened(make=True)) is None:
            return
        records = np.zeros(len(texts), self._record)
        records["text"] = np.frombuffer(b"".join(_digest(text) for text in texts), "V32")
        records["characters"] = [cut_off.get(text, 0) for text in texts]
        records["vector"] = vectors
        for record in records:
            record["sum"] = _sum(record)
        data = records.tobytes()
        try:
            if file.write(data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:  # it need not end the run
            self.notes.append(f"{self.path.name} could not be written, so an interruption would lose work: {error}")
            self._is_full = True
            return
        self.count += len(texts)

    def _opened(self, *, make: bool = False) -> BinaryIO | None:
        """Return the file, made or read at the first call that knows the model; None where it cannot be used."""
        if self.updating and not make and not self._is_opened and not self.path.exists():
            return None
        if not self._is_opened and self.identity is not None:
            self._is_opened = True
            try:
                self._file = self._open(self.identity)
            except OSError as error:
                self.notes.append(f"{self.path.name} cannot be used, so an interruption would lose work: {error}")
        return self._file

    def _open(self, identity: ModelIdentity) -> BinaryIO | None:
        model = {name: getattr(identity, name) for name in _OF_MODEL}
        self._record = np.dtype(
            [("text", "V32"), ("characters", "<i4"), ("vector", "<f4", (identity.dimensions,)), ("sum", "<u4")]
        )
        file = _locked(self.path)
        if file is None:
            return None
        data = file.read(_LONGEST_HEAD) or b""
        head, end_of_line, _ = data.partition(b"\n")
        head += end_of_line
        # Of zeros alone after power was lost before the head was on the disk.
        is_ours = head.startswith(_MAGIC) or _MAGIC.startswith(head) or not data.strip(b"\0")
        if not _is_of(head, model, identity.fingerprint):
            if not is_ours or (self.updating and end_of_line):
                # A file of the user's, or what another run goes on with, such as one that gives the file another model.
                file.close()
                if not is_ours:
                    self.notes.append(
                        f"{self.path} is not what an interrupted run keeps. It is left as it is, and not used: an "
                        "interruption would lose work. Rename it."
                    )
                return None
            if end_of_line:
                self.notes.append(f"{self.path.name} had vectors of another model, or was damaged: it begins anew.")
            head = _MAGIC + json.dumps({**model, "fingerprint": identity.fingerprint}).encode() + b"\n"
            file.seek(0)
            file.truncate()
            file.write(head)
            os.fsync(file.fileno())  # so that it is known for what it is, whatever is lost of the records
        self.count = (os.fstat(file.fileno()).st_size - len(head)) // self._record.itemsize
        end = len(head) + self.count * self._record.itemsize
        file.truncate(end)
        file.seek(end)
        if self.count:
            self._end = end
            self._records = np.memmap(file, self._record, "r", len(head), (self.count,))
            # The first of equal keys is found, so a text that was embedded twice has one vector.
            keys = np.ascontiguousarray(self._records["text"])
            firsts = _first_bytes(keys.tobytes())
            self._order = np.argsort(firsts, kind="stable")
            self._keys = firsts[self._order]
        return file


def _locked(path: Path) -> BinaryIO | None:
    """Open a file of this process alone, made where there is none; None while another one has it."""
    while True:
        # Neither through a link that another user may have made, nor to wait for who writes into a pipe.
        flags = sum(getattr(os, name, 0) for name in ("O_BINARY", "O_NOFOLLOW", "O_NONBLOCK"))
        number = os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o666)
        if not stat.S_ISREG(os.fstat(number).st_mode):
            os.close(number)
            raise OSError(errno.EINVAL, "it is no regular file")
        file = os.fdopen(number, "r+b", buffering=0)
        try:
            import fcntl

            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:
            return file
        except BlockingIOError:
            file.close()
            return None
        except OSError:
            pass  # a network file system may have no locks
        if os.fstat(number).st_nlink:
            return file
        file.close()  # it was removed meanwhile by the one that had it


def _is_of(head: bytes, model: Mapping[str, Any], fingerprint: tuple[float, ...] | None) -> bool:
    """Return whether the first line of a file names a model."""
    try:
        kept = json.loads(head[len(_MAGIC) :])
        cosine = float(np.dot(kept.pop("fingerprint"), np.asarray(fingerprint, np.float64)))
        return head.endswith(b"\n") and kept == model and cosine >= SAME_MODEL_COSINE
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
        return False


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _first_bytes(digests: bytes) -> Any:
    """Return the first eight bytes of each digest as a number."""
    return np.frombuffer(digests, np.dtype([("first", "<u8"), ("rest", "V24")]))["first"].copy()


def _sum(record: Any) -> int:
    """Return the CRC-32 of a record without its last field."""
    return zlib.crc32(record.tobytes()[:-4])
