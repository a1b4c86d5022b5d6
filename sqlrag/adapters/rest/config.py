"""The options of a REST server."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from sqlrag.errors import InputError
from sqlrag.network import origin_of
from sqlrag.settings import Settings

MIB = 2**20

_ABOVE_ZERO = ("threads", "answers", "seconds", "answer_seconds")


@dataclass(frozen=True)
class ServerOptions:
    """The options of a REST server.

    Parameters
    ----------
    write
        Whether requests may change the file. If so, no other process can open it while the server runs.
    api_key
        The key that every request must send, 16 or more visible ASCII characters. None: no key is needed.
    chat_model, chat_base_url
        The chat model of ``/answer`` and its server, as in :func:`sqlrag.answer`. None: ``/answer`` is
        refused.
    rerank_model
        The one cross-encoder that requests may name.
    input_dir
        The folder of ``/update_embeddings``. None: it is refused.
    keep_originals
        Whether the bytes of uploads are kept, in ``FILE.originals`` beside the file, until their document is removed.
    hosts
        Allowed names in the header ``Host``, in addition to those of this machine. "*" allows any.
    cors
        Origins, such as ``https://app.example.org``, whose pages may use the server. "*" allows any.
    threads
        How many requests run at once.
    waiting
        How many others may wait; more are refused (503).
    seconds, answer_seconds
        How long a request may take, in seconds, and how long an answer of the chat model, an export or a change.
    answers
        How many answers of the chat model run at once.
    max_body_bytes, max_upload_bytes
        The largest body of a request, and of one with documents.
    max_answer_bytes
        The largest response, except for downloads, streams and reports of changes; larger ones are refused (413).
    max_items
        How many entries a list and how many names an object of a request may have, and how many objects and lists all
        its lists may have together (422).
    max_question_chars
        How long a question may be, in characters (422).
    max_chunks
        Into how many chunks ``/chunk`` cuts a document (413).
    idle_seconds
        After how many seconds without a request the file is closed.
    resident_mb
        How much memory the file may take to be searched in memory, in MB, 0 for never; it stays there while the file is
        closed. None: as the settings say. Several files together are never searched in memory.

    Raises
    ------
    InputError
        The key is too short, a number is out of its range, or an origin is none; or pages of any origin could change
        the file, since ``cors`` has "*" and there is no key; or originals are to be kept without write access.
    """

    write: bool = False
    api_key: str | None = field(default=None, repr=False)
    chat_model: str | None = None
    chat_base_url: str | None = None
    rerank_model: str | None = None
    input_dir: str | os.PathLike[str] | None = None
    keep_originals: bool = False
    hosts: tuple[str, ...] = ()
    cors: tuple[str, ...] = ()
    threads: int = max(2, os.cpu_count() or 2)
    waiting: int = 200
    seconds: float = 30.0
    answer_seconds: float = 300.0
    answers: int = 16
    max_body_bytes: int = 4 * MIB
    max_upload_bytes: int = 64 * MIB
    max_answer_bytes: int = 64 * MIB
    max_items: int = 10_000
    max_question_chars: int = 10_000
    max_chunks: int = 20_000
    idle_seconds: float = 0.5
    resident_mb: int | None = None

    def __post_init__(self) -> None:
        key = self.api_key
        if key is not None and (len(key) < 16 or not key.isascii() or not key.isprintable() or " " in key):
            raise InputError("The API key must have 16 or more visible ASCII characters, without blanks.")
        object.__setattr__(self, "cors", tuple(map(origin_of, self.cors)))
        if "*" in self.cors and self.write and key is None:
            raise InputError(
                'With "*" pages of any site could change the file: name the origins, set a key, or serve without write.'
            )
        if self.keep_originals and not self.write:
            raise InputError("Originals are kept of uploads, which need write access: set write as well (--write).")
        if self.resident_mb is not None:
            Settings(resident_mb=self.resident_mb)
        for name in self.__dataclass_fields__:
            if (name.startswith("max_") or name in _ABOVE_ZERO) and not getattr(self, name) > 0:
                raise InputError(f"{name} must be above 0, not {getattr(self, name)!r}.")
        if self.waiting < 0 or self.idle_seconds < 0:
            raise InputError("waiting and idle_seconds must be 0 or more.")
