"""Adaptive fusion: its weights by hand and against numpy, and every corner of them."""

from __future__ import annotations

import random

import numpy as np
import pytest

from sqlrag.ranking.fusion import LEAST_SAMPLE, NOISE, LegHit, Parts, Trust, fuse_legs, gap_of


def leg(*scores: float) -> list[LegHit]:
    """Hits whose rid, name and place is that of the score."""
    return [LegHit(rid, f"{rid:02}", 0, score) for rid, score in enumerate(scores)]


def fused(cosines, bm25s, parts=None, **options):
    """Fuse where every chunk with a score has both; BM25 0 is no hit of the lexical leg."""
    exact = dict(enumerate(zip(cosines, bm25s, strict=True)))
    lexical = [hit for hit in leg(*bm25s) if hit.score]
    return fuse_legs(leg(*cosines), lexical, fusion="adaptive", exact=exact, parts=parts, **options)


class TestTrust:
    def test_it_is_the_correlation_over_three_tenths(self):
        chance = np.random.default_rng(3)
        for shared in (0.1, 0.2, 0.4, 3):
            bm25 = chance.gamma(2, 3, 200).round(9)
            cosine = (0.02 * shared * bm25 + chance.normal(0.3, 0.2, 200)).clip(-1, 1).round(9)
            trust = Trust.of(zip(cosine.tolist(), bm25.tolist(), strict=True))
            rho = np.corrcoef(cosine, bm25)[0, 1]
            assert trust.rho == pytest.approx(rho, abs=1e-9)
            assert trust == (pytest.approx(min(1, max(0.01, rho / 0.3)), abs=1e-8), trust.rho, 200, 1)

    def test_the_order_of_the_chunks_changes_nothing(self):
        chance = random.Random(5)
        sample = [(chance.uniform(-1, 1), chance.uniform(0, 30)) for _ in range(300)]
        once = Trust.of(sample)
        assert all(Trust.of(chance.sample(sample, 300)) == once for _ in range(20))

    @pytest.mark.parametrize(
        ("sample", "expected"),
        [
            ([], (1.0, None, 0)),  # no words, or no chunk that holds one
            ([(0.5, 2.0)], (1.0, None, 1)),
            ([(-i / 50, i) for i in range(LEAST_SAMPLE - 1)], (1.0, None, 29)),  # too few to say anything
            ([(-i / 50, i) for i in range(LEAST_SAMPLE)], (0.01, -1.0, 30)),
            ([(i / 50, 2.0) for i in range(40)], (1.0, None, 40)),  # the words do not tell chunks apart
            ([(0.5, i) for i in range(40)], (0.01, 0.0, 40)),  # nor do the vectors
            ([(None, i) for i in range(40)], (1.0, None, 0)),  # damaged vectors
            ([(None, 9.0), *((i / 50, i) for i in range(40))], (1.0, 1.0, 40)),
        ],
    )
    def test_its_corners(self, sample, expected):
        assert Trust.of(sample) == (*expected, 1.0)

    @pytest.mark.parametrize(
        ("sample", "known", "value"),
        [
            ([(-i / 50, i) for i in range(40)], 0.4, 0.5),  # little of the question cannot speak against the vectors
            ([(0.5, i) for i in range(40)], 0.4, 0.5),
            ([(i / 50, i) for i in range(40)], 0.4, 1.0),  # but for them
            ([(-i / 50, i) for i in range(40)], 0.5, 0.01),
            ([(-i / 50, i) for i in range(10)], 0.4, 1.0),
        ],
    )
    def test_words_of_little_weight_leave_it_at_a_half(self, sample, known, value):
        trust = Trust.of(sample, known)
        assert (trust.value, trust.known) == (value, known)
        assert trust[1:3] == Trust.of(sample)[1:3]

    def test_below_a_tenth_it_is_noise(self):
        # Two values of each: rho is (n11 * n00 - n10 * n01) / 50**2 for equal shares, 0.04 and 0.02 here.
        for more, noise in ((26, False), (25.5, True)):
            n = round(4 * more)
            pairs = [(0.5, 2.0)] * n + [(0.1, 1.0)] * n + [(0.5, 1.0)] * (200 - n) + [(0.1, 2.0)] * (200 - n)
            assert (Trust.of(pairs).value < NOISE) is noise


class TestGap:
    @pytest.mark.parametrize(
        ("scores", "gap"),
        [
            ([], 1),
            ([3.0], 1),
            ([3.0] * 9, 1),
            ([3.0] * 10, 0.05),
            ([8.0, *[4.0] * 8, 2.0, 1.0], 0.75),
            ([2.0, *[4.0] * 8, 8.0, 1.0], 0.75),
            ([0.0] * 12, 1),
        ],
    )
    def test_by_hand(self, scores, gap):
        assert gap_of(scores) == gap


class TestFusion:
    def test_by_hand(self):
        # The best BM25 is 8 and the tenth 2: gap 0.75. The greatest cosine is 0.6.
        cosines = [0.2, 0.6, *[0.1] * 9]
        bm25s = [8.0, 4.0, *[3.0] * 7, 2.0, 0.0]
        parts: dict[int, Parts] = {}
        hits = {hit.rid: hit for hit in fused(cosines, bm25s, parts, trust=0.4)}
        assert parts[0] == pytest.approx((0.75 * 0.4 * 1.2 / 1.6, 0.5 * 0.75, 0))
        assert parts[1] == pytest.approx((0.75 * 0.4, 0.5 * 0.75 * 0.5, 0))
        assert parts[10] == pytest.approx((0.75 * 0.4 * 1.1 / 1.6, 0, 0))
        assert hits[0].score == 0.6
        assert all(hits[rid].score == pytest.approx(sum(part), abs=1e-9) for rid, part in parts.items())

    def test_without_words_the_vectors_order(self):
        hits = fused([0.1, 0.9, 0.5], [0.0] * 3)
        assert [hit.rid for hit in hits] == [1, 2, 0]
        assert hits[0].score == 0.75

    def test_without_vectors_the_words_order(self):
        exact = {rid: (None, score) for rid, score in enumerate((1.0, 3.0, 2.0))}
        hits = fuse_legs([], leg(1.0, 3.0, 2.0), fusion="adaptive", exact=exact)
        assert [(hit.rid, hit.score) for hit in hits] == [(1, 0.5), (2, 0.333333333), (0, 0.166666667)]

    def test_one_chunk(self):
        assert [hit.score for hit in fused([0.4], [2.0])] == [1.25]
        assert [hit.score for hit in fused([0.4], [0.0])] == [0.75]

    def test_neither_leg_says_anything_and_there_still_is_an_order(self):
        # Ten are equal by words, and noise by vectors: trust and gap are as small as they can be, and not 0.
        cosines = [i / 100 for i in range(20)]
        hits = fused(cosines, [4.0] * 10 + [2.0] * 5 + [0.0] * 5, trust=0.0)
        assert all(hit.score > 0 for hit in hits)
        assert [hit.rid for hit in hits] == [*range(9, -1, -1), *range(14, 9, -1), *range(19, 14, -1)]

    def test_noise_does_not_hide_the_words(self):
        chance = random.Random(7)
        for _ in range(50):
            cosines = [round(chance.uniform(0.2, 0.8), 9) for _ in range(60)]
            bm25s = [round(30 * 0.8**i, 9) for i in range(20)] + [0.0] * 40
            found = [hit.rid for hit in fused(cosines, bm25s, trust=0.01)]
            assert found[:5] == [0, 1, 2, 3, 4]

    @pytest.mark.parametrize(("tenth", "lifted"), [(3.75, True), (3.8, False)])
    def test_the_first_of_the_words_is_lifted_where_it_stands_out(self, tenth, lifted):
        # Ten chunks are near by vectors; the one that the words find is far.
        cosines, bm25s = [0.9 - i / 1000 for i in range(10)] + [-0.9], [0.0] * 10 + [5.0]
        cosines, bm25s = [*cosines, *[-0.9] * 11], [*bm25s, *[tenth] * 11]
        parts: dict[int, Parts] = {}
        found = fused(cosines, bm25s, parts)
        assert [hit.rid for hit in found[:5]] == [0, 1, 2, 3, 10 if lifted else 4]
        if not lifted:
            assert not any(part.lift for part in parts.values())
            return
        assert found[4].score == pytest.approx(found[5].score + 1e-9, abs=1e-12)
        assert parts[10].lift > 0.4
        assert found[4].score == pytest.approx(sum(parts[10]), abs=1e-9)
        assert {rid for rid, part in parts.items() if part.lift} == {10}

    @pytest.mark.parametrize(("trust", "lifted"), [(0.5, True), (0.49, False)])
    def test_that_of_the_vectors_only_where_they_are_trusted(self, trust, lifted):
        cosines = [0.1] * 8 + [0.3]
        bm25s = [9.0 - i / 10 for i in range(8)] + [0.0]
        found = [hit.rid for hit in fused(cosines, bm25s, trust=trust)]
        assert found[:5] == ([0, 1, 2, 3, 8] if lifted else [0, 1, 2, 3, 4])

    def test_both_firsts_are_among_the_first_five(self):
        chance, standing_out = random.Random(11), 0
        for _ in range(300):
            cosines = [round(chance.uniform(-0.2, 0.9), 2) for _ in range(40)]
            bm25s = [round(max(0.0, chance.uniform(-8, 9)), 1) for _ in range(40)]
            found = fused(cosines, bm25s, trust=chance.choice([0.5, 0.7, 1.0]))
            assert [hit.vector_rank for hit in found].index(1) < 5
            if gap_of(bm25s) >= 0.25:
                standing_out += 1
                assert [hit.lexical_rank for hit in found].index(1) < 5
        assert standing_out > 100
