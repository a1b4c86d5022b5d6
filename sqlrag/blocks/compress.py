"""Compresses results to the sentences that match: spans of the source, with their offsets."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlrag.arguments import not_blank, shown, texts, whole
from sqlrag.blocks.fuse import checked
from sqlrag.engines.duckdb.failures import public
from sqlrag.engines.duckdb.lexical import DEFAULT_STEMMER, check_stemmer, stems_of_query, terms_of
from sqlrag.engines.duckdb.rows import ChunkReader, Passage, as_row, passages_of
from sqlrag.errors import InputError
from sqlrag.ingest.sentences import sentence_spans
from sqlrag.ranking.fusion import DECIMALS
from sqlrag.ranking.results import Results
from sqlrag.ranking.terms import idf
from sqlrag.search.open import opened_for
from sqlrag.types import NO_CONTEXT
from sqlrag.visible import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlrag.search.open import AnyStores
    from sqlrag.types import Candidate

Span = tuple[int, int]

JOINER = "\n…\n"

"""The separator of two spans in ``text``."""

_K1, _B = 1.2, 0.75  # the BM25 parameters of the lexical index


@dataclass(frozen=True)
class CompressPolicy:
    """What :func:`sqlrag.compress` keeps.

    ``sentences`` is how many of the best-matching sentences are kept for each candidate, 1 or more; ``window`` how many
    sentences on each side of them, 0 or more. ``max_chars`` is the maximum length of ``text`` for each candidate,
    separators included; None is no limit. ``neighbours`` is how many chunks before and after each candidate are also
    searched, 0 or more; it needs a store. ``language`` ("de") selects the abbreviations that do not end a sentence;
    None detects the script, English for Latin letters. ``stemmer`` is that of the store's lexical index.

    Candidates that overlap, or whose neighbours touch, are merged into one row, with the limits of its candidates
    added up.
    """

    sentences: int = 3
    window: int = 1
    max_chars: int | None = None
    neighbours: int = 0
    language: str | None = None
    stemmer: str = DEFAULT_STEMMER


@public
def compress(
    query: str,
    candidates: Sequence[Candidate],
    policy: CompressPolicy | None = None,
    *,
    store: ChunkReader | AnyStores | None = None,
) -> Results:
    """Keep of each candidate the sentences that match the question, with those around them; pure without a store.

    Sentences are scored by BM25 over all sentences of the passages, with the words of the question as in the lexical
    index (stop words only if there is nothing else). No model is needed. Markdown (as the metadata ``mime`` says) is
    split by blocks: a code block or a row of a table is one sentence. If no sentence has a word of the question, as for
    a candidate that only its vector found, the whole text is kept, or as much of its beginning as ``max_chars`` allows.
    What a search read around a candidate, its ``context``, is not looked at: ``neighbours`` is.

    Parameters
    ----------
    query
        The question; not blank.
    candidates
        Best first.
    policy
        None is ``CompressPolicy()``.
    store
        The store to read neighbours from, as in :func:`sqlrag.hybrid_query`; only used with ``policy.neighbours``.

    Returns
    -------
    Results
        With the notices and timings of the candidates. The rows are in the order of their best candidates, each with
        the keys of that candidate's result and

        - ``text``: the texts of the spans, joined by a line with "…"; ``shown`` likewise;
        - ``spans``: in reading order, without overlap: ``start`` and ``end`` (characters of the source document:
          ``source_text[start:end] == text``; None if the candidate has no offsets that match its content), ``text``,
          ``score`` (0 or more, the highest of its sentences), and ``node_id``, ``page`` and ``heading_path`` of the
          chunk that it begins in;
        - ``i_start``, ``i_end``: the start of the first span and the end of the last;
        - ``node_ids``: the candidates in the row, best first;
        - ``terms``: the terms of the question in its sentences; empty if none matched;
        - ``left_out``: how many characters of the passage are not in the spans.

    Raises
    ------
    InputError
        The question is blank, the policy out of its range, ``neighbours`` is set without a store, or a candidate
        does not match the text of its document, which was changed after the search.

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
    not_blank("query", query)
    policy = _checked_policy(policy)
    if store is None and policy.neighbours:
        raise InputError("neighbours are read from a store: pass store=, or a policy with neighbours=0.")
    given = checked(candidates)
    with nullcontext() if store is None else opened_for(store, ("chunks_at", "sources")) as reader:
        passages = passages_of(given, policy.neighbours, reader)
    sentences = [
        sentence_spans(passage.text, markdown=passage.markdown, language=policy.language, longest=policy.max_chars)
        for passage in passages
    ]
    wanted = stems_of_query(query, policy.stemmer)
    scored = _score(wanted, passages, sentences, policy.stemmer)
    rows = [
        _row(passage, given, spans, matches, policy)
        for passage, spans, matches in zip(passages, sentences, scored, strict=True)
    ]
    return Results(rows, query_text=query, notices=given.notices, timings=given.timings)


class _Match(NamedTuple):
    """How a sentence matches the question: its BM25 score, 0 without a match, and the terms in it."""

    score: float
    terms: list[str]


def _score(
    wanted: list[str], passages: Sequence[Passage], sentences: Sequence[list[Span]], stemmer: str
) -> list[list[_Match]]:
    seen = [passage.shown for passage in passages]
    texts = [visible(text[start:end]) for text, spans in zip(seen, sentences, strict=True) for start, end in spans]
    bags = [Counter(terms) for terms in terms_of(texts, stemmer)]
    df = {term: sum(term in bag for bag in bags) for term in wanted}
    lengths = [bag.total() for bag in bags]
    average = sum(lengths) / max(1, len(lengths)) or 1.0
    matches = []
    for bag, length in zip(bags, lengths, strict=True):
        found = [term for term in wanted if term in bag]
        norm = _K1 * (1 - _B + _B * length / average)
        score = sum(idf(df[term], len(bags)) * bag[term] * (_K1 + 1) / (bag[term] + norm) for term in found)
        matches.append(_Match(round(score, DECIMALS), found))
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
    best, seen = given[passage.members[0]], passage.shown
    parts = [seen[sentences[first][0] : sentences[last][1]] for first, last in _runs(chosen)]
    terms = {term for i in chosen for term in matches[i].terms}
    return {
        **as_row(best, None),
        **NO_CONTEXT,
        "tags": list(best.tags),
        "text": JOINER.join(str(span["text"]) for span in spans),
        "shown": None if best.shown is None else JOINER.join(parts),
        "i_start": spans[0]["start"] if spans else best.i_start,
        "i_end": spans[-1]["end"] if spans else best.i_end,
        "spans": spans,
        "node_ids": [given[i].node_id for i in passage.members],
        "terms": sorted(terms),
        "left_out": len(passage.text) - sum(len(str(span["text"])) for span in spans),
    }


def _choose(sentences: list[Span], matches: list[_Match], policy: CompressPolicy, share: int) -> set[int]:
    """Return the positions of the sentences to keep, within the limit of characters: the best, then those around them.

    Those around a sentence come nearest first, and at equal distance the one before it first.
    """
    most = None if policy.max_chars is None else policy.max_chars * share
    ranked = sorted((i for i, match in enumerate(matches) if match.score > 0), key=lambda i: (-matches[i].score, i))
    order = _in_turn(ranked[: policy.sentences * share], policy.window, len(sentences)) or range(len(sentences))
    chosen: set[int] = set()
    length = -len(JOINER)
    for i in order:
        longer = length + _added(sentences, chosen, i)
        if most is None or longer <= most:
            chosen.add(i)
            length = longer
        elif not ranked:
            break  # a beginning, not a selection
    return chosen


def _in_turn(best: list[int], window: int, count: int) -> list[int]:
    """Return the positions of the best, then of those around each of them up to ``window`` away, each once."""
    order = dict.fromkeys(best)
    hops: dict[int, dict[int, int]] = {-1: {}, 1: {}}

    def free(i: int, sign: int) -> int:
        """Return the next position that is not in the order yet; passed positions are not visited again."""
        passed = []
        while i in order:
            passed.append(i)
            i = hops[sign].get(i, i + sign)
        hops[sign].update(dict.fromkeys(passed, i))
        return i

    for i in best:
        while True:
            before, after = free(i, -1), free(i, 1)
            near = [j for j in (before, after) if 0 <= j < count and abs(j - i) <= window]
            if not near:
                break
            order[min(near, key=lambda j: abs(j - i))] = None
    return list(order)


def _added(sentences: list[Span], chosen: set[int], i: int) -> int:
    """Return by how much the text grows with a sentence and its separators."""
    joined = (i - 1 in chosen) + (i + 1 in chosen)
    start = sentences[i - 1][1] if i - 1 in chosen else sentences[i][0]
    end = sentences[i + 1][0] if i + 1 in chosen else sentences[i][1]
    return end - start + len(JOINER) * (1 - joined)


def _runs(chosen: set[int]) -> list[tuple[int, int]]:
    """Return (first, last) of each run of neighbouring sentences."""
    runs: list[tuple[int, int]] = []
    for i in sorted(chosen):
        if runs and i == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], i)
        else:
            runs.append((i, i))
    return runs


def _checked_policy(policy: object) -> CompressPolicy:
    """Return the policy, or the default for None, with plain numbers."""
    policy = CompressPolicy() if policy is None else policy
    if not isinstance(policy, CompressPolicy):
        raise InputError(f"policy must be a sqlrag.CompressPolicy, not {shown(policy)}.")
    texts(language=policy.language)
    check_stemmer(policy.stemmer)
    return replace(
        policy,
        sentences=whole("sentences", policy.sentences, 1),
        window=whole("window", policy.window, 0),
        neighbours=whole("neighbours", policy.neighbours, 0),
        max_chars=None if policy.max_chars is None else whole("max_chars", policy.max_chars, 1),
    )
