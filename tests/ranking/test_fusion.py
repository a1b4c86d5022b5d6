"""Fusion of two legs: the formulas by hand, the order by property tests, bad input by its error."""

from __future__ import annotations

import doctest
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlrag.errors import InputError
from sqlrag.ranking import fusion
from sqlrag.ranking.fusion import FusedHit, LegHit, fuse_legs, reciprocal_rank_fusion

MODES = ("adaptive", "rrf", "weighted", "convex")


def leg(*ids_and_scores: tuple[str, float]) -> list[LegHit]:
    """Hits of one-chunk documents named by one letter, which also gives the rid."""
    return [LegHit(ord(name), name, 0, score) for name, score in ids_and_scores]


def names(hits: list[FusedHit]) -> list[str]:
    return [hit.doc_id for hit in hits]


def fuse(vector: list[LegHit], lexical: list[LegHit], mode: str, **options) -> list[FusedHit]:
    """Fuse with exact scores made up from the legs: cosine -0.5 and BM25 0 where a leg lacks the candidate."""
    if mode in ("adaptive", "convex"):
        cosines, bm25 = {hit.rid: hit.score for hit in vector}, {hit.rid: hit.score for hit in lexical}
        options["exact"] = {rid: (cosines.get(rid, -0.5), bm25.get(rid, 0.0)) for rid in cosines | bm25}
    return fuse_legs(vector, lexical, fusion=mode, **options)


def test_the_examples_of_the_docstrings_hold():
    outcome = doctest.testmod(fusion)
    assert outcome.attempted >= 3
    assert outcome.failed == 0


# ---- Reciprocal Rank Fusion


def test_case_G2_rrf_formula():
    fused = reciprocal_rank_fusion([["X", "a", "Y"], ["b", "c", "Y"]], k=60)
    # Ranks from 1: Y is third twice, X and b are first once, a and c second once; ties by id ascending.
    expected = [("Y", 2 / 63), ("X", 1 / 61), ("b", 1 / 61), ("a", 1 / 62), ("c", 1 / 62)]
    assert [item for item, _ in fused] == [item for item, _ in expected]
    assert [score for _, score in fused] == pytest.approx([score for _, score in expected], abs=5e-10)


def test_case_G2_rrf_formula_of_the_legs():
    vector = leg(("X", 0.9), ("a", 0.8), ("Y", 0.7))
    fused = fuse_legs(vector, leg(("b", 9.0), ("c", 8.0), ("Y", 7.0)))
    assert names(fused) == ["Y", "X", "b", "a", "c"]
    assert fused[0] == FusedHit(ord("Y"), "Y", 0, round(2 / 63, 9), 0.7, 3, 7.0, 3)
    assert fused[1] == FusedHit(ord("X"), "X", 0, round(1 / 61, 9), 0.9, 1, None, None)


def test_case_G2_weights_multiply():
    rankings = [["X", "Y"], ["Y"]]
    # By hand, k = 60: X = 2/61; Y = 2/62 + 0.5/61.
    fused = dict(reciprocal_rank_fusion(rankings, weights=[2, 0.5]))
    assert fused == {"X": round(2 / 61, 9), "Y": round(2 / 62 + 0.5 / 61, 9)}
    hits = fuse_legs(leg(("X", 0.9), ("Y", 0.8)), leg(("Y", 5.0)), weights=(2, 0.5))
    assert {hit.doc_id: hit.score for hit in hits} == fused


@pytest.mark.parametrize(("k", "expected"), [(0, 1 + 1 / 2), (60, 1 / 61 + 1 / 62), (0.5, 1 / 1.5 + 1 / 2.5)])
def test_k_is_added_to_the_rank(k, expected):
    assert dict(reciprocal_rank_fusion([["a"], ["b", "a"]], k))["a"] == pytest.approx(expected, abs=5e-10)
    hits = fuse_legs(leg(("a", 1.0)), leg(("b", 2.0), ("a", 1.0)), rrf_k=k)
    assert {h.doc_id: h.score for h in hits}["a"] == pytest.approx(expected, abs=5e-10)


def test_a_duplicate_counts_once_at_its_better_rank():
    # a is first; b keeps its place, the third.
    assert reciprocal_rank_fusion([["a", "a", "b"]]) == [("a", round(1 / 61, 9)), ("b", round(1 / 63, 9))]
    hits = fuse_legs(leg(("a", 0.9), ("a", 0.8), ("b", 0.7)), [])
    assert [(hit.doc_id, hit.vector_rank, hit.vector_score) for hit in hits] == [("a", 1, 0.9), ("b", 3, 0.7)]


def test_nothing_to_fuse():
    assert reciprocal_rank_fusion([]) == []
    assert reciprocal_rank_fusion([], weights=[]) == []
    assert reciprocal_rank_fusion([[], []]) == []


def test_one_list_or_many():
    assert [item for item, _ in reciprocal_rank_fusion([["b", "a"]])] == ["b", "a"]
    assert reciprocal_rank_fusion([["a"]] * 5) == [("a", round(5 / 61, 9))]


@pytest.mark.parametrize(
    ("rankings", "options", "message"),
    [
        ([["a"]], {"k": -1}, "k must be a number of 0 or more, not -1"),
        ([["a"]], {"k": math.nan}, "k must be .*not nan"),
        ([["a"]], {"k": math.inf}, "k must be .*not inf"),
        ([["a"], ["b"]], {"weights": [1]}, r"weights must be 2 finite numbers.*not \[1\]"),
        ([["a"]], {"weights": [1, 1]}, "weights must be 1 finite"),
        ([["a"], ["b"]], {"weights": [1, -1]}, r"not \[1, -1\]"),
        ([["a"], ["b"]], {"weights": [1, math.nan]}, r"not \[1, nan\]"),
        ([["a"], ["b"]], {"weights": [1, math.inf]}, r"not \[1, inf\]"),
        ([["a"], ["b"]], {"weights": [0, 0]}, r"not \[0, 0\]"),
        (["abc", "b"], {}, "rankings must be a list.*not 'abc'"),
        ("abc", {}, "rankings must be a list.*not 'abc'"),
        (5, {}, "rankings must be a list.*not 5"),
        ([5], {}, "rankings must be a list.*not 5"),
        ([[["a"]]], {}, "ids in rankings must be strings"),
        ([["a"], [1]], {}, "ids in rankings must be strings"),
        ([["a"]], {"k": "x"}, "k must be"),
        ([["a"]], {"k": True}, "k must be"),
        ([["a"]], {"weights": 5}, "weights must be 1 finite"),
        ([["a"]], {"weights": "1"}, "weights must be 1 finite"),
    ],
)
def test_wrong_arguments_of_rrf(rankings, options, message):
    with pytest.raises(InputError, match=message):
        reciprocal_rank_fusion(rankings, **options)


# ---- weighted


def test_case_G8_a_high_cosine_beats_a_low_one_without_words():
    # A holds the maximum of both legs: 0.5·1 + 0.5·1. B holds the minimum of the vector leg and is absent in the other.
    fused = fuse_legs(leg(("A", 0.95), ("B", 0.10)), leg(("A", 9.0)), fusion="weighted")
    assert [(hit.doc_id, hit.score) for hit in fused] == [("A", 1.0), ("B", 0.0)]


def test_case_G8_scaled_per_leg():
    vector, lexical = leg(("A", 0.9), ("B", 0.7), ("C", 0.5)), leg(("B", 12.0), ("D", 6.0), ("C", 3.0))
    fused = fuse_legs(vector, lexical, fusion="weighted", vector_weight=0.75)
    # By hand: v = A 1, B .5, C 0; l = B 1, D 1/3, C 0; score = .75·v + .25·l.
    assert [(h.doc_id, h.score) for h in fused] == [("A", 0.75), ("B", 0.625), ("D", round(0.25 / 3, 9)), ("C", 0.0)]


@pytest.mark.parametrize("score", [0.0, 0.5, -1.0])
def test_case_G8_an_all_equal_leg_is_one_without_division_by_zero(score):
    fused = fuse_legs(leg(("B", score), ("A", score)), [], fusion="weighted", vector_weight=0.75)
    assert [(hit.doc_id, hit.score) for hit in fused] == [("A", 0.75), ("B", 0.75)]


def test_the_last_bits_of_a_float_are_not_blown_up_by_scaling():
    # 0.1 + 0.2 differs from 0.3 in its last bit; scaled without rounding first, the one would be 1 and the other 0.
    fused = fuse_legs(leg(("A", 0.3), ("B", 0.1 + 0.2)), [], fusion="weighted", vector_weight=1)
    assert [(hit.doc_id, hit.score) for hit in fused] == [("A", 1.0), ("B", 1.0)]


# ---- convex


def test_convex_by_hand():
    vector, lexical = leg(("A", 0.6), ("B", 0.2)), leg(("B", 8.0), ("C", 4.0))
    exact = {ord("A"): (0.6, 2.0), ord("B"): (0.2, 8.0), ord("C"): (-0.2, 4.0)}
    fused = fuse_legs(vector, lexical, fusion="convex", alpha=0.75, exact=exact)
    # max cos + 1 = 1.6, max bm25 = 8. A = .75·1.6/1.6 + .25·2/8; B = .75·1.2/1.6 + .25; C = .75·.8/1.6 + .25·4/8.
    assert fused == [
        FusedHit(ord("A"), "A", 0, 0.8125, 0.6, 1, 2.0, None),
        FusedHit(ord("B"), "B", 0, 0.8125, 0.2, 2, 8.0, 1),
        FusedHit(ord("C"), "C", 0, 0.5, -0.2, None, 4.0, 2),
    ]


def test_convex_takes_its_maxima_over_the_union_only():
    exact = {ord("A"): (0.0, 1.0), ord("B"): (1.0, 100.0)}
    assert [hit.score for hit in fuse_legs(leg(("A", 0.0)), [], fusion="convex", exact=exact)] == [1.0]


@pytest.mark.parametrize(
    ("cosine", "bm25", "expected"),
    [
        (-1.0, 0.0, 0.0),
        (-1.0000001, 0.0, 0.0),  # a float may stray below the theoretical minimum
        (-1.0, 3.0, 0.25),
        (0.5, 0.0, 0.75),
        (None, 3.0, 0.25),
        (0.5, None, 0.75),
        (None, None, 0.0),
    ],
)
def test_convex_without_one_part(cosine, bm25, expected):
    fused = fuse_legs(leg(("A", 0.5)), [], fusion="convex", alpha=0.75, exact={ord("A"): (cosine, bm25)})
    assert [hit.score for hit in fused] == [expected]


@pytest.mark.parametrize("exact", [None, {}, {ord("A"): (0.5, 0.0)}])
def test_convex_needs_the_exact_scores_of_all(exact):
    with pytest.raises(InputError, match=r"exact scores of every candidate.*66"):
        fuse_legs(leg(("A", 0.5), ("B", 0.4)), [], fusion="convex", exact=exact)


# ---- all modes


@pytest.mark.parametrize("mode", MODES)
def test_case_G1_an_empty_leg_changes_no_shape(mode):
    hits = leg(("A", 0.9), ("B", 0.8))
    assert fuse([], [], mode) == []
    only_vector, only_lexical = fuse(hits, [], mode), fuse([], hits, mode)
    assert names(only_vector) == names(only_lexical) == ["A", "B"]
    assert [(hit.vector_rank, hit.lexical_rank) for hit in only_vector] == [(1, None), (2, None)]
    assert [(hit.vector_rank, hit.lexical_rank) for hit in only_lexical] == [(None, 1), (None, 2)]


def test_case_G6_ties_by_document_then_chunk():
    hits = [LegHit(rid, doc, chunk, 0.5) for rid, doc, chunk in [(1, "b", 0), (2, "a", 10), (3, "a", 9), (4, "A", 0)]]
    # By code point, as DuckDB orders text: "A" before "a"; chunk 9 before 10 because they are numbers.
    for mode in MODES:
        assert [hit.rid for hit in fuse(hits, hits, mode)] == [4, 3, 2, 1], mode


def test_case_G9_the_raw_scores_and_ranks_stay_with_the_fused_score():
    hopeless = fuse_legs(leg(("A", 0.01)), [])
    good = fuse_legs(leg(("A", 0.99)), [])
    assert hopeless[0].score == good[0].score  # RRF cannot tell them apart …
    assert (hopeless[0].vector_score, good[0].vector_score) == (0.01, 0.99)  # … the raw scores can
    both = fuse_legs(leg(("A", 0.9), ("B", 0.8)), leg(("C", 7.5), ("B", 3.5)))
    assert {chr(hit.rid): (hit.vector_score, hit.vector_rank, hit.lexical_score, hit.lexical_rank) for hit in both} == {
        "A": (0.9, 1, None, None),
        "B": (0.8, 2, 3.5, 2),
        "C": (None, None, 7.5, 1),
    }


@pytest.mark.parametrize("mode", MODES)
def test_plain_tuples_will_do(mode):
    hits, exact = leg(("A", 0.9), ("B", 0.8)), {ord("A"): (0.9, 0.0), ord("B"): (0.8, 0.0)}
    assert fuse_legs([tuple(hit) for hit in hits], [], fusion=mode, exact=exact) == fuse(hits, [], mode)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fusion": "borda"}, "fusion must be one of 'adaptive', 'rrf', 'weighted', 'convex', not 'borda'"),
        ({"rrf_k": -1}, "rrf_k must be"),
        ({"weights": (1, 1, 1)}, "weights must be 2 finite"),
        ({"weights": (0, 0)}, r"not \(0, 0\)"),
        ({"vector_weight": 1.1}, "vector_weight must be a number from 0 to 1, not 1.1"),
        ({"vector_weight": math.nan}, "vector_weight must be"),
        ({"alpha": -0.1}, "alpha must be"),
        ({"trust": 1.1}, "trust must be a number from 0 to 1, not 1.1"),
    ],
)
@pytest.mark.parametrize("hits", [[], leg(("A", 0.9))])
def test_wrong_options_are_refused_with_or_without_hits(hits, options, message):
    with pytest.raises(InputError, match=message):
        fuse_legs(hits, [], **options)


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("mode", MODES)
def test_a_score_that_is_no_number_is_refused(mode, score):
    with pytest.raises(InputError, match="finite"):
        fuse(leg(("A", score)), [], mode)


# ---- properties

# Scores on a coarse grid, so that ties happen and scaled differences stay far above the 1e-9 of rounding.
_cosines = st.integers(-1000, 1000).map(lambda i: i / 1000)
_bm25 = st.integers(1, 3000).map(lambda i: i / 100)


def _leg_of(scores: st.SearchStrategy[float]) -> st.SearchStrategy[list[LegHit]]:
    # rid fixes doc_id and chunk_index; documents have several chunks and rids do not follow their order.
    hits = st.dictionaries(st.integers(0, 30), scores, max_size=20)
    return hits.map(lambda d: [LegHit(rid, f"doc{rid % 5}", 30 - rid, score) for rid, score in d.items()])


_shares = st.floats(0, 1)
_options = st.fixed_dictionaries(
    {
        "mode": st.sampled_from(MODES),
        "rrf_k": st.integers(0, 200),
        "weights": st.tuples(st.floats(0.1, 10), st.floats(0.1, 10)),
        "vector_weight": _shares,
        "alpha": _shares,
        "trust": _shares,
    }
)


@given(_leg_of(_cosines), _leg_of(_bm25), _options)
def test_case_G4_first_in_both_legs_is_first(vector, lexical, options):
    # Added to both legs with the best score of each; its rid is the last and its name the first of all,
    # so where it ties with a leg's best it is first there by the order of ties.
    # Its cosine is not below 0: what only the lexical leg found has a cosine as well, and that must not be higher.
    best = 99
    vector = [*vector, LegHit(best, "a", 0, max([0.0, *(hit.score for hit in vector)]))]
    lexical = [*lexical, LegHit(best, "a", 0, max([hit.score for hit in lexical], default=1.0))]
    winner = fuse(vector, lexical, **options)[0]
    assert (winner.rid, winner.vector_rank, winner.lexical_rank) == (best, 1, 1)


@given(_leg_of(_cosines), _leg_of(_bm25), _options)
def test_case_G4_strictly_better_in_both_legs_is_strictly_ahead(vector, lexical, options):
    # Named last of all: here nothing but the score can bring it to the front.
    vector, lexical = [*vector, LegHit(99, "z", 0, 1.001)], [*lexical, LegHit(99, "z", 0, 31.0)]
    winner, *rest = fuse(vector, lexical, **options)
    assert winner.rid == 99
    assert all(winner.score > hit.score for hit in rest)


@pytest.mark.slow
@given(_leg_of(_cosines), _leg_of(_bm25), _options, st.randoms(use_true_random=False))
def test_case_G6_the_order_of_the_input_does_not_matter(vector, lexical, options, random):
    expected = fuse(vector, lexical, **options)
    shuffled = random.sample(vector, len(vector)), random.sample(lexical, len(lexical))
    assert fuse(*shuffled, **options) == expected


@given(_leg_of(_cosines), _leg_of(_bm25), _options)
def test_the_order_is_total_and_every_candidate_is_there_once(vector, lexical, options):
    fused = fuse(vector, lexical, **options)
    keys = [(-hit.score, hit.doc_id, hit.chunk_index) for hit in fused]
    assert keys == sorted(set(keys))
    assert {hit.rid for hit in fused} == {hit.rid for hit in vector} | {hit.rid for hit in lexical}
    assert len(fused) == len({hit.rid for hit in fused})
    assert all(hit.score == round(hit.score, 9) for hit in fused)
    if options["mode"] != "rrf":
        assert all(0 <= hit.score <= (1.25 if options["mode"] == "adaptive" else 1) for hit in fused)


@given(_leg_of(_cosines), _leg_of(_bm25), _options)
def test_the_ranks_are_those_of_the_legs(vector, lexical, options):
    fused = fuse(vector, lexical, **options)
    for hits, rank in ((vector, "vector_rank"), (lexical, "lexical_rank")):
        ordered = [hit.rid for hit in sorted(hits, key=lambda hit: (-hit.score, hit.doc_id, hit.chunk_index))]
        given_ranks = {getattr(hit, rank): hit.rid for hit in fused if getattr(hit, rank) is not None}
        assert [given_ranks[n] for n in range(1, len(given_ranks) + 1)] == ordered


@given(_leg_of(_cosines), _leg_of(_bm25), st.floats(0.1, 10), st.floats(0.1, 10), st.sampled_from([0.25, 2, 4]))
def test_weights_multiply(vector, lexical, vector_weight, lexical_weight, factor):
    plain = {hit.rid: hit for hit in fuse_legs(vector, lexical, weights=(vector_weight, lexical_weight))}
    scaled = fuse_legs(vector, lexical, weights=(factor * vector_weight, factor * lexical_weight))
    assert all(abs(hit.score - factor * plain[hit.rid].score) <= 1e-9 * (1 + factor) for hit in scaled)


@given(_leg_of(_cosines), _leg_of(_bm25))
def test_the_public_function_and_the_legs_agree(vector, lexical):
    # Ids that sort as (doc_id, chunk_index) do, so that both break ties alike.
    def ids(hits):
        ordered = sorted(hits, key=lambda hit: (-hit.score, hit.doc_id, hit.chunk_index))
        return [f"{hit.doc_id}#{hit.chunk_index:03}" for hit in ordered]

    fused = [(f"{hit.doc_id}#{hit.chunk_index:03}", hit.score) for hit in fuse_legs(vector, lexical)]
    assert reciprocal_rank_fusion([ids(vector), ids(lexical)]) == fused
