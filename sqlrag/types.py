"""The plain values that flow between the stages: documents, chunks, policies, model identities."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, SupportsIndex, TypeAlias, overload

from sqlrag.normalize import single_spaced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    import numpy as np
    from numpy.typing import NDArray

    Vectors = NDArray[np.float32]
    # What callers may pass as an embedder: a llama-index BaseEmbedding is callable, too.
    AnyEmbedder: TypeAlias = "Embedder | Callable[..., Any]"

DEFAULT_COLLECTION = "default"

PAD = "\u00ad"

"""The soft hyphen, which no reader sees: in the text that is shown it fills the places of markup."""


class Printable:
    """What a notebook shows as a terminal does."""

    def _repr_mimebundle_(self, **_which: Any) -> dict[str, str]:
        return {"text/plain": str(self)}


# The types of a document that is a row of a table.
ROW = "application/vnd.sqlrag.row"

ROW_MARKDOWN = f"{ROW}+markdown"

# Fields of the metadata that every document has.
FILE_FIELDS = ("file_name", "file_path", "mime")

SPEC_VERSION = "2.0.0"

"""The version of what the conformance suite pins: chunks, ids, rankings and tie-breaks."""

# The share of the vector leg in convex fusion, chosen on public collections; hybrid_query.sql has the same.
DEFAULT_ALPHA = 0.75

# The share of the best chunks' vectors in a question's vector after feedback, chosen in the same way.
DEFAULT_FEEDBACK_WEIGHT = 0.4

# Of a chunk with what stands around it: half a page.
DEFAULT_CONTEXT_CHARS = 2000

TextKind = Literal["document", "query"]

ChunkUnit = Literal["tokens", "chars"]

Fusion = Literal["adaptive", "rrf", "weighted", "convex"]

Around = Literal["chunk", "neighbours", "section"]

Progress = Literal["auto", "on", "off"]

Engine = Literal["local", "ray"]


@dataclass(frozen=True)
class Document:
    """A source document after reading and normalising.

    ``doc_id`` is the path relative to the input folder in POSIX form, prefixed ``{collection}:`` outside the
    default collection, so that it is unique in a file. ``text`` is the whole normalised text, front matter
    included; every offset elsewhere counts characters of it. ``body_start`` is where the text after the front
    matter begins. ``page_starts[i]`` is the offset of page ``i + 1`` (empty where a format has no pages).
    ``modified_at`` is UTC without its zone. ``checksum`` is the SHA-256 of the bytes that were read, in hex.
    ``warnings`` are problems that did not stop the reading, such as front matter that is not YAML. ``links`` are those
    of its Markdown, as :func:`sqlrag.links.markdown_links` returns them; None where they are not known yet.
    """

    doc_id: str
    text: str
    collection: str = DEFAULT_COLLECTION
    file_path: str = ""
    file_name: str = ""
    checksum: str = ""
    mime: str = "text/plain"
    size_bytes: int = 0
    modified_at: datetime | None = None
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    body_start: int = 0
    page_starts: tuple[int, ...] = ()
    warnings: tuple[str, ...] = ()
    links: Sequence[Any] | None = None


@dataclass(frozen=True)
class Chunk:
    """A slice of a document: ``content == document.text[i_start:i_end]``.

    ``chunk_index`` counts from 0 in reading order. ``heading_path`` holds the titles above the slice, outermost
    first, its own included; where it holds several sections, those that they share. ``page`` is 1-based, None where
    the format has no pages. ``given_id`` is the key of a chunk that has one of its own, such as a node of llama-index;
    ``node`` is that node as a JSON object, without its text.
    ``shown`` is the slice as a reader of the page sees it, as :func:`sqlrag.visible.shown_slice` gives it; None where
    that is not known.
    """

    doc_id: str
    chunk_index: int
    content: str
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    collection: str = DEFAULT_COLLECTION
    i_start: int = 0
    i_end: int = 0
    page: int | None = None
    heading_path: tuple[str, ...] = ()
    given_id: str = ""
    node: str = ""
    shown: str | None = None

    @property
    def visible(self) -> str:
        """The text that is indexed and shown, and embedded by :meth:`embedding_text`: the slice without its markup."""
        return self.content if self.shown is None else self.shown.replace(PAD, "")

    @property
    def node_id(self) -> str:
        """The key of the row: ``given_id``, or ``{doc_id}#{chunk_index}`` where that is empty."""
        return self.given_id or f"{self.doc_id}#{self.chunk_index}"

    def embedding_text(self, include_headers: bool = True) -> str:
        """The text that is embedded: the heading path (with ``include_headers``), then the visible text.

        Runs of blank space are made one, see :func:`sqlrag.normalize.single_spaced`; ``content`` is as it was written.
        """
        return single_spaced(self.headed_text(include_headers))

    def headed_text(self, include_headers: bool = True) -> str:
        """The same with the blank space of the source, by which a file finds the vector that it has of a text.

        ``include_headers`` is as in :meth:`embedding_text`.
        """
        path = " > ".join(self.heading_path) + "\n\n" if include_headers and self.heading_path else ""
        return path + self.visible


@dataclass(frozen=True)
class Candidate:
    """A chunk that a search has found.

    The first fields are those of :class:`Chunk`. ``score`` is what the results are ordered by, ``score_type`` its
    kind: "vector" (cosine, -1..1), "bm25", "adaptive", "rrf", "weighted", "convex", "rerank" or "mmr".
    ``vector_score`` is a cosine, ``lexical_score`` a BM25 score; the ranks count from 1 within their leg; all four are
    None where the leg did not return the chunk. ``node_id`` is the key of the row, ``{doc_id}#{chunk_index}`` unless
    given. ``created_at`` is when the document was stored, in ISO 8601 (UTC). ``context`` is the part of the document
    with the chunk in it that the search was asked to read, ``document.text[context_start:context_end]``, and
    ``context_shown`` that as a reader of the page sees it, as ``shown`` is of the chunk; None where it was not asked.
    ``row_key`` is that of the row which :func:`sqlrag.index_rows` made the document of, in its own type.
    """

    doc_id: str
    chunk_index: int
    content: str
    score: float = 0.0
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    collection: str = DEFAULT_COLLECTION
    i_start: int | None = None
    i_end: int | None = None
    page: int | None = None
    heading_path: tuple[str, ...] = ()
    score_type: str = ""
    vector_score: float | None = None
    vector_rank: int | None = None
    lexical_score: float | None = None
    lexical_rank: int | None = None
    node_id: str = ""
    shown: str | None = None
    checksum: str = ""
    created_at: str = ""
    context: str | None = None
    context_start: int | None = None
    context_end: int | None = None
    context_shown: str | None = None
    row_key: Any = None

    @property
    def visible(self) -> str:
        """The content without its markup."""
        return self.content if self.shown is None else self.shown.replace(PAD, "")

    def __post_init__(self) -> None:
        if isinstance(self.node_id, str) and not self.node_id:
            object.__setattr__(self, "node_id", f"{self.doc_id}#{self.chunk_index}")


# The fields of a candidate, and keys of a result, that say what is around it.
NO_CONTEXT: dict[str, Any] = dict.fromkeys(("context", "context_start", "context_end", "context_shown"))


class Candidates(list[Candidate]):
    """Candidates, best first, with the circumstances of their search.

    ``notices`` says what was missing, ``timings`` are seconds by stage, and ``dropped`` maps the ``node_id`` of a
    candidate to those of the near-identical ones that were left out for it. Slices keep all three.
    """

    def __init__(
        self,
        candidates: Iterable[Candidate] = (),
        *,
        notices: Iterable[str] = (),
        timings: Mapping[str, float] | None = None,
        dropped: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        super().__init__(candidates)
        self.notices = list(notices)
        self.timings = dict(timings or {})
        self.dropped = {kept: list(others) for kept, others in (dropped or {}).items()}

    def holding(self, candidates: Iterable[Candidate]) -> Candidates:
        """Return ``candidates`` with the notices, timings and dropped ones of these."""
        return Candidates(candidates, notices=self.notices, timings=self.timings, dropped=self.dropped)

    @overload
    def __getitem__(self, key: SupportsIndex) -> Candidate: ...
    @overload
    def __getitem__(self, key: slice) -> Candidates: ...
    def __getitem__(self, key: SupportsIndex | slice) -> Candidate | Candidates:
        if isinstance(key, slice):
            return self.holding(super().__getitem__(key))
        return super().__getitem__(key)


@dataclass(frozen=True)
class RetrievePlan:
    """The options of :func:`sqlrag.retrieve` beside the question.

    ``mode`` is "hybrid", "vector" or "lexical"; ``k`` how many candidates are returned, ``candidate_pool`` how many
    each leg passes to the fusion (never fewer than ``k``). ``rrf_k`` is the constant of Reciprocal Rank Fusion,
    ``alpha`` the share of the vector leg in "convex" fusion, ``vector_weight`` that in "weighted". ``fusion`` is "rrf"
    here, unlike in :func:`sqlrag.hybrid_query`, whose "adaptive" has to be asked for. A chunk passes if it
    is in one of the collections, has one of ``tags_any`` and all of ``tags_all``, and its metadata equal ``metadata``.
    ``context`` is what to read around each candidate, ``"neighbours"`` or its ``"section"``, in at most
    ``context_chars`` characters.
    """

    mode: Literal["hybrid", "vector", "lexical"] = "hybrid"
    k: int = 12
    candidate_pool: int = 50
    rrf_k: float = 60
    tags_any: tuple[str, ...] = ()
    tags_all: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    collection: str | tuple[str, ...] | None = None
    fusion: Fusion = "rrf"
    rrf_weights: tuple[float, float] = (1.0, 1.0)
    alpha: float = DEFAULT_ALPHA
    vector_weight: float = 0.5
    min_similarity: float | None = None
    exact: bool = False
    context: Around = "chunk"
    context_chars: int = DEFAULT_CONTEXT_CHARS


@dataclass(frozen=True)
class ChunkPolicy:
    """How a document is split into chunks.

    ``chunk_size`` and ``chunk_overlap`` count ``chunk_unit``: tokens of the embedding model or characters.
    ``strategy`` "markdown" cuts at headings first and splits what is still too long; "size" uses windows only.
    ``include_headers`` puts the heading path before the slice when it is embedded (never into the stored text).
    """

    strategy: Literal["markdown", "size"] = "markdown"
    chunk_size: int = 512
    chunk_overlap: int = 64
    chunk_unit: ChunkUnit = "tokens"
    include_headers: bool = True


class Embedder(Protocol):
    """The interface of an embedding provider: one method, one tokenizer and a few plain attributes.

    ``dimensions`` is the length of a vector, ``max_tokens`` the model's window with its special tokens,
    ``special_tokens`` how many of them each text adds. The prefixes are put before the text by
    :func:`sqlrag.embedders.embed_texts`, not by the provider.

    A provider may also have ``batch_size`` (texts in one call), ``batch_bytes`` (UTF-8 bytes in one call), ``revision``
    and ``options``, as in :class:`ModelIdentity`; and ``is_python``, True where it computes in Python alone, so that a
    thread which reads the next files would only wait for it.

    Both methods may be called from several threads at once: a build counts the tokens of some texts while others are
    embedded.
    """

    provider: str
    model_name: str
    dimensions: int
    max_tokens: int
    special_tokens: int
    query_prefix: str
    passage_prefix: str

    def embed(self, texts: Sequence[str], *, kind: TextKind) -> Vectors:
        """Return one row for each of ``texts``, in order, ``[n, dimensions] float32``; unit norm is not required.

        ``kind`` says whether they are documents or questions, for models that distinguish them.
        """
        ...

    def token_offsets(self, text: str) -> Sequence[tuple[int, int]]:
        """Return ``(start, end)`` in characters of every token of ``text``, special tokens and truncation left out."""
        ...


@dataclass(frozen=True)
class ModelIdentity:
    """What a file records about the embedding model of its vectors.

    ``fingerprint`` is ``[dimensions] float32``, unit norm: the vector of :data:`sqlrag.embedders.PROBE_TEXT`
    embedded as a document. None for precomputed vectors. ``revision`` is the hash of the weights or the
    version of their repository, "" where the provider does not report it. ``options`` are the arguments of
    :func:`sqlrag.load_embedder` that load it again, beside name and provider, such as ``base_url``; never a key.
    """

    provider: str
    model_name: str
    dimensions: int
    max_tokens: int = 0
    query_prefix: str = ""
    passage_prefix: str = ""
    fingerprint: tuple[float, ...] | None = None
    revision: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
