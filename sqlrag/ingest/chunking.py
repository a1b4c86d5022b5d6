"""Cut a document into chunks: at headings first, what is still too long at the best borders inside."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, Any, get_args

from sqlrag.errors import InputError
from sqlrag.ingest.sections import Section, markdown_sections, plain_sections, title_sections
from sqlrag.ingest.splitting import Limits, Splitter
from sqlrag.options import items, text
from sqlrag.stopping import checkpoint
from sqlrag.types import DEFAULT_COLLECTION, Chunk, ChunkPolicy, ChunkUnit, Document

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    TokenOffsets = Callable[[str], Sequence[tuple[int, int]]]

DEFAULT_POLICY = ChunkPolicy()
MARKDOWN = "text/markdown"
PAGE_BREAK = "\n\n"
CHARS_PER_TOKEN = 32  # no language comes near it; encoded data, which some tokenizers take for one token, does


def check_policy(policy: ChunkPolicy) -> None:
    """Raise if a policy cannot be followed; cheap, to be called before anything is read.

    Raises
    ------
    InputError
        ``chunk_size`` is not a whole number above 0, ``chunk_overlap`` is below 0 or not below ``chunk_size``,
        ``strategy`` or ``chunk_unit`` is unknown.
    """
    size, overlap = policy.chunk_size, policy.chunk_overlap
    for name, value in (("chunk_size", size), ("chunk_overlap", overlap)):
        if not isinstance(value, int) or isinstance(value, bool):
            raise InputError(f"{name} must be a whole number, not {value!r}")
    if size <= 0:
        raise InputError(f"chunk_size must be above 0, not {size}")
    if not 0 <= overlap < size:
        raise InputError(f"chunk_overlap must be at least 0 and below chunk_size ({size}), not {overlap}")
    if policy.strategy not in ("markdown", "size"):
        raise InputError(f"strategy must be 'markdown' or 'size', not {policy.strategy!r}")
    if policy.chunk_unit not in get_args(ChunkUnit):
        raise InputError(f"chunk_unit must be 'tokens' or 'chars', not {policy.chunk_unit!r}")


def chunk(
    document: Document | str | Sequence[str],
    policy: ChunkPolicy = DEFAULT_POLICY,
    *,
    token_offsets: TokenOffsets | None = None,
    window: int | None = None,
) -> list[Chunk]:
    r"""Cut a document into chunks in reading order; pure.

    - Every chunk is a slice of ``document.text`` without blank space at its ends; together they hold every non-blank
      character after ``body_start``.
    - "markdown" and ``text/markdown``: a chunk never spans two headings, save that a heading without text of its own
      goes with a heading of the same level or below that follows it, where both fit. Else windows; a chunk never
      spans two pages.
    - The ``title`` of the front matter heads every path where the body has no heading of level 1.
    - A page that is nothing but front matter gives its title, if it has one there.
    - What does not fit is cut at a blank line, else a line end, a sentence end, a word, and repeats up to
      ``chunk_overlap`` of the piece before, half of it at most. A code fence is kept whole up to the limit, else
      cut at line ends.
    - The limit is ``chunk_size``, and what ``window`` leaves beside the heading path. The path may take a third of the
      window: beyond it the outer titles are left out, and the chunk's own title ends in "…". A title of
      more than 200 characters always does.
    - Borders depend on text, path of headings, policy and tokenizer only, never on metadata or the file's path.

    Parameters
    ----------
    document
        A string is taken as a document without a name, Markdown if the strategy is "markdown"; it is not normalised.
        A list of strings is taken as the pages of one, joined by blank lines: no chunk spans two, and ``page`` counts
        them from 1.
    policy
        Sizes in ``policy.chunk_unit``.
    token_offsets
        ``(text) -> [(start, end)]`` in characters, as in :class:`sqlrag.types.Embedder`. Needed for "tokens", and for
        ``window``.
    window
        The greatest number of tokens that may be embedded for one chunk, special tokens and passage prefix already
        taken off; kept in both units.

    Returns
    -------
    list of Chunk
        Their metadata is the document's, with ``file_name``, ``file_path`` (relative to the input folder) and
        ``mime``, which win over front matter of these names.

    Raises
    ------
    InputError
        The policy is wrong, ``window`` is below 1, ``token_offsets`` is missing, or the document is of another type.

    Examples
    --------
    >>> policy = ChunkPolicy(chunk_size=200, chunk_overlap=0, chunk_unit="chars")
    >>> [(c.heading_path, c.content) for c in chunk("intro\n\n# T\n\nbody", policy)]
    [((), 'intro'), (('T',), '# T\n\nbody')]
    """
    return list(iter_chunks(document, policy, token_offsets=token_offsets, window=window))


def iter_chunks(
    document: Document | str | Sequence[str],
    policy: ChunkPolicy = DEFAULT_POLICY,
    *,
    token_offsets: TokenOffsets | None = None,
    window: int | None = None,
) -> Iterator[Chunk]:
    """Yield the chunks of :func:`chunk` one by one."""
    check_policy(policy)
    if token_offsets is None and (policy.chunk_unit == "tokens" or window is not None):
        raise InputError("token_offsets is needed to count tokens; pass the embedder's, or chunk_unit='chars' alone")
    if window is not None and window < 1:
        raise InputError(f"window must be at least 1 token, not {window}")
    document = _as_document(document, policy)
    markdown = policy.strategy == "markdown" and document.mime == MARKDOWN and not document.page_starts
    if not document.text[document.body_start :].strip():
        sections = title_sections(document)
    else:
        sections = markdown_sections(document) if markdown else plain_sections(document)
    metadata = chunk_metadata(document)
    for index, (start, end, path) in enumerate(_slices(document.text, sections, policy, token_offsets, window)):
        yield Chunk(
            doc_id=document.doc_id,
            chunk_index=index,
            content=document.text[start:end],
            tags=document.tags,
            metadata=dict(metadata),
            collection=document.collection,
            i_start=start,
            i_end=end,
            page=bisect_right(document.page_starts, start) or None,
            heading_path=path,
        )


def _as_document(given: Document | str | Sequence[str], policy: ChunkPolicy) -> Document:
    if isinstance(given, Document):
        return given
    if isinstance(given, str):
        return Document("", given, mime=MARKDOWN if policy.strategy == "markdown" else "text/plain")
    pages = [text("document", page) for page in items("document", given, "['page 1', 'page 2']")]
    starts = accumulate((len(page) + len(PAGE_BREAK) for page in pages[:-1]), initial=0)
    return Document("", PAGE_BREAK.join(pages), page_starts=tuple(starts) if pages else ())


def chunk_metadata(document: Document) -> dict[str, Any]:
    """Return what every chunk of a document has as its metadata."""
    relative = document.doc_id
    if document.collection != DEFAULT_COLLECTION:
        relative = relative.removeprefix(f"{document.collection}:")
    own = {"file_name": document.file_name, "file_path": relative, "mime": document.mime} if document.doc_id else {}
    return {**document.metadata, **own}


def _slices(
    text: str,
    sections: list[Section],
    policy: ChunkPolicy,
    token_offsets: TokenOffsets | None,
    window: int | None,
) -> Iterator[tuple[int, int, tuple[str, ...]]]:
    """Yield (start, end, heading path) of every chunk."""
    budget = _Budget(policy, token_offsets, window)
    # Headings without text that wait for the section below them, from this offset on.
    waiting: tuple[Splitter, tuple[str, ...], Limits] | None = None
    for i, section in enumerate(sections):
        checkpoint()
        path, limits = budget.of(section.heading_path)
        splitter = Splitter(text, waiting[0].start if waiting else section.start, section.end, token_offsets)
        # A title is not worth cutting a section that would fit without it.
        if waiting and not splitter.fits(splitter.start, limits) and splitter.fits(section.start, limits):
            yield from ((*piece, waiting[1]) for piece in waiting[0].pieces(waiting[2]))
            splitter = Splitter(text, section.start, section.end, token_offsets)
        waiting = None
        following = sections[i + 1] if i + 1 < len(sections) else None
        is_bare = section.level > 0 and not text[section.body : section.end].strip()
        if is_bare and following and following.level >= section.level:
            waiting = (splitter, path, limits)
            continue
        for piece in splitter.pieces(limits, section.fences):
            checkpoint()
            yield (*piece, path)


class _Budget:
    """What a chunk may hold, given the heading path that is embedded with it."""

    def __init__(self, policy: ChunkPolicy, token_offsets: TokenOffsets | None, window: int | None) -> None:
        self.policy, self.window = policy, window
        self._token_offsets = token_offsets
        self._known: dict[tuple[str, ...], tuple[tuple[str, ...], Limits]] = {}

    def of(self, path: tuple[str, ...]) -> tuple[tuple[str, ...], Limits]:
        """Return the path as it is kept, and the limits beside it."""
        if path not in self._known:
            self._known[path] = self._compute(path)
        return self._known[path]

    def _compute(self, path: tuple[str, ...]) -> tuple[tuple[str, ...], Limits]:
        left = self.window
        if left is not None and self.policy.include_headers:
            path = self._shortened(path, left // 3)
            left -= self._cost(path)
        size, overlap = self.policy.chunk_size, self.policy.chunk_overlap
        if self.policy.chunk_unit == "chars":
            return path, Limits(left, size, overlap)
        tokens = size if left is None else min(size, left)
        return path, Limits(tokens, None, overlap, most=CHARS_PER_TOKEN * tokens)

    def _cost(self, path: tuple[str, ...]) -> int:
        if not path or self._token_offsets is None:
            return 0
        return len(self._token_offsets(" > ".join(path) + "\n\n"))

    def _shortened(self, path: tuple[str, ...], most: int) -> tuple[str, ...]:
        while len(path) > 1 and self._cost(path) > most:
            path = path[1:]
        while path and self._cost(path) > most:
            title = path[0].removesuffix("…")
            title = title[: len(title) * 3 // 4].rstrip()
            path = (title + "…",) if title else ()
        return path
