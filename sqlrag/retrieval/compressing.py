"""Shorten what was found to the sentences that answer: spans of the source, with their offsets."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlrag.errors import InputError
from sqlrag.retrieval.fusion import DECIMALS
from sqlrag.retrieval.ordering import checked
from sqlrag.retrieval.passages import ChunkReader, Passage, passages_of
from sqlrag.retrieval.results import Results
from sqlrag.retrieval.rows import as_row
from sqlrag.retrieval.sentences import Span, sentence_spans
from sqlrag.retrieval.terms import idf
from sqlrag.retrieval.words import query_terms, terms_of
from sqlrag.store.lexical import DEFAULT_STEMMER, check_stemmer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlrag.types import Candidate

JOINER = "\n…\n"
"""What stands between two spans in ``text``."""

_K1, _B = 1.2, 0.75  # the parameters of BM25, as the lexical index has them


@dataclass(frozen=True)
class CompressPolicy:
    """What :func:`sqlrag.compress` keeps.

    ``sentences`` is how many of the best-matching sentences are kept for each candidate, 1 or more; ``window`` how many
    sentences on each side of them, 0 or more. ``max_chars`` is the greatest length of ``text`` for each candidate,
    with what joins its spans; None is no limit. ``neighbours`` is how many chunks before and after each candidate are
    looked through as well, 0 or more; it needs a store. ``language`` ("de") says whose abbreviations end no sentence;
    None goes by the script, English for Latin letters. ``stemmer`` is that of the store's lexical index.

    Where candidates overlap, or their neighbours meet, they come as one row, which may hold as many sentences and
    characters as its candidates together.
    """

    sentences: int = 3
    window: int = 1
    max_chars: int | None = None
    neighbours: int = 0
    language: str | None = None
    stemmer: str = DEFAULT_STEMMER


def compress(
    query: str,
    candidates: Sequence[Candidate],
    policy: CompressPolicy | None = None,
    *,
    store: ChunkReader | None = None,
) -> Results:
    """Keep of each candidate the sentences that match the question, with those around them; pure without a store.

    A sentence scores by BM25 over all sentences that are looked through, by the words of the question as the lexical
    index has them (stop words only where there is nothing else). No model is needed. Markdown (metadata ``mime``
    "text/markdown") is taken block by block: a code block or a row of a table counts as one sentence. Where no sentence
    has a word of the question, as with a candidate that only its vector found, all is kept, or the beginning of it that
    ``max_chars`` allows.

    Parameters
    ----------
    query
        The question; not blank.
    candidates
        Best first.
    policy
        None is ``CompressPolicy()``.
    store
        Where neighbours are read from; needed with ``policy.neighbours`` and used for nothing else.

    Returns
    -------
    Results
        With the notices and timings of the candidates. The rows are in the order of their best candidates, each with
        the keys of a result of that candidate and

        - ``text``: the texts of the spans, joined by a line with "…";
        - ``spans``: in reading order, without overlap: ``start`` and ``end`` (characters of the source document:
          ``source_text[start:end] == text``; None where the candidate has no offsets that fit its content), ``text``,
          ``score`` (0 or more, the greatest of its sentences), and ``node_id``, ``page`` and ``heading_path`` of the
          chunk that it begins in;
        - ``i_start``, ``i_end``: where the first span begins and the last one ends;
        - ``node_ids``: the candidates in it, best first;
        - ``terms``: the terms of the question that its sentences hold; empty where none matched;
        - ``left_out``: how many characters of the passage are not in the spans.

    Raises
    ------
    InputError
        The question is blank, the policy out of its range, ``neighbours`` is asked for without a store, or a candidate
        does not fit the text of its document: it was changed after the search.

    References
    ----------
    Robertson, Zaragoza: The Probabilistic Relevance Framework: BM25 and Beyond, 2009, section 3.

    Examples
    --------
    >>> from sqlrag.types import Candidate
    >>> text = "Cats sleep. Dogs bark at night. Fish swim. Birds fly."
    >>> found = [Candidate("pets.txt", 0, text, i_start=0, i_end=len(text))]
    >>> compress("Why do dogs bark?", found, CompressPolicy(window=0))[0]["spans"][0]["text"]
    'Dogs bark at night.'
    """
    policy = policy or CompressPolicy()
    _check(query, policy, store)
    given = checked(candidates)
    passages = passages_of(given, policy.neighbours, store)
    sentences = [
        sentence_spans(passage.text, markdown=passage.markdown, language=policy.language, longest=policy.max_chars)
        for passage in passages
    ]
    wanted = query_terms(query, policy.stemmer)
    scored = _score(wanted, passages, sentences, policy.stemmer)
    rows = [
        _row(passage, given, spans, matches, policy)
        for passage, spans, matches in zip(passages, sentences, scored, strict=True)
    ]
    return Results(rows, query_text=query, notices=given.notices, timings=given.timings)


class _Match(NamedTuple):
    """How a sentence matches the question: its BM25 score, 0 without a word of it, and the terms that it holds."""

    score: float
    terms: list[str]


def _score(
    wanted: list[str], passages: Sequence[Passage], sentences: Sequence[list[Span]], stemmer: str
) -> list[list[_Match]]:
    texts = [
        passage.text[start:end] for passage, spans in zip(passages, sentences, strict=True) for start, end in spans
    ]
    bags = [Counter(terms) for terms in terms_of(texts, stemmer)]
    df = {term: sum(term in bag for bag in bags) for term in wanted}
    lengths = [bag.total() for bag in bags]
    average = sum(lengths) / max(1, len(lengths)) or 1.0
    matches = []
    for bag, length in zip(bags, lengths, strict=True):
        held = [term for term in wanted if term in bag]
        norm = _K1 * (1 - _B + _B * length / average)
        score = sum(idf(df[term], len(bags)) * bag[term] * (_K1 + 1) / (bag[term] + norm) for term in held)
        matches.append(_Match(round(score, DECIMALS), held))
    rest = iter(matches)
    return [[next(rest) for _ in spans] for spans in sentences]


def _row(
    passage: Passage, given: Sequence[Candidate], sentences: list[Span], matches: list[_Match], policy: CompressPolicy
) -> dict[str, Any]:
    chosen = _choose(sentences, matches, policy, len(passage.members))
    spans = []
    for first, last in _runs(chosen):
        start, end = sentences[first][0], sentences[last][1]
        chunk = passage.chunk_at(start)
        spans.append(
            {
                "start": passage.offset(start),
                "end": passage.offset(end),
                "text": passage.text[start:end],
                "score": max(matches[i].score for i in range(first, last + 1)),
                "node_id": chunk.node_id,
                "page": chunk.page,
                "heading_path": list(chunk.heading_path),
            }
        )
    best = given[passage.members[0]]
    held = {term for i in chosen for term in matches[i].terms}
    return {
        **as_row(best, None),
        "tags": list(best.tags),
        "text": JOINER.join(str(span["text"]) for span in spans),
        "i_start": spans[0]["start"] if spans else best.i_start,
        "i_end": spans[-1]["end"] if spans else best.i_end,
        "spans": spans,
        "node_ids": [given[i].node_id for i in passage.members],
        "terms": sorted(held),
        "left_out": len(passage.text) - sum(len(str(span["text"])) for span in spans),
    }


def _choose(sentences: list[Span], matches: list[_Match], policy: CompressPolicy, share: int) -> set[int]:
    """Return the positions of the sentences to keep, as far as the characters go: the best, then what is around them.

    Those around a sentence come nearest first, those before it before those after it.
    """
    most = None if policy.max_chars is None else policy.max_chars * share
    ranked = sorted((i for i, match in enumerate(matches) if match.score > 0), key=lambda i: (-matches[i].score, i))
    if not ranked:
        order = list(range(len(sentences)))
    else:
        best = ranked[: policy.sentences * share]
        reach = min(policy.window, len(sentences))
        around = (i + step * sign for i in best for step in range(1, reach + 1) for sign in (-1, 1))
        order = list(dict.fromkeys([*best, *(i for i in around if 0 <= i < len(sentences))]))
    chosen: set[int] = set()
    for i in order:
        if most is None or _length(sentences, chosen | {i}) <= most:
            chosen.add(i)
        elif not ranked:
            break  # a beginning, not a selection
    return chosen


def _runs(chosen: set[int]) -> list[tuple[int, int]]:
    """Return (first, last) of each run of neighbouring sentences."""
    runs: list[tuple[int, int]] = []
    for i in sorted(chosen):
        if runs and i == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], i)
        else:
            runs.append((i, i))
    return runs


def _length(sentences: list[Span], chosen: set[int]) -> int:
    runs = _runs(chosen)
    return sum(sentences[last][1] - sentences[first][0] for first, last in runs) + len(JOINER) * (len(runs) - 1)


def _check(query: str, policy: CompressPolicy, store: ChunkReader | None) -> None:
    if not isinstance(query, str) or not query.strip():
        raise InputError(f"query must be a text that is not blank, not {query!r}.")
    limits = [("sentences", policy.sentences, 1), ("window", policy.window, 0), ("neighbours", policy.neighbours, 0)]
    if policy.max_chars is not None:
        limits.append(("max_chars", policy.max_chars, 1))
    for name, value, least in limits:
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise InputError(f"{name}={value!r} is out of range; use a whole number of {least} or more.")
    if policy.language is not None and not isinstance(policy.language, str):
        raise InputError(f"language must be a code such as 'de', not {policy.language!r}.")
    check_stemmer(policy.stemmer)
    if policy.neighbours and store is None:
        raise InputError("neighbours are read from a store: pass store=, or a policy with neighbours=0.")
