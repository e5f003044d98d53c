"""The odds against chance, held against exact fractions."""

from fractions import Fraction
from itertools import product
from math import comb

import numpy as np

from ckaudit.fleet.common_causes.odds import MIN_HITS, Correction, Tables, binomial_tail, stratified_tail, tables_of, upper_tail


def dealt(hits: int, ill: int, having: int, total: int) -> Fraction:
    return Fraction(comb(ill, hits) * comb(total - ill, having - hits), comb(total, having))


def tail(hits: int, ill: int, having: int, total: int) -> Fraction:
    ways = sum(comb(ill, more) * comb(total - ill, having - more) for more in range(hits, min(ill, having) + 1))
    return Fraction(ways, comb(total, having))


def random_tables(count: int, largest: int) -> list[tuple[int, int, int, int]]:
    rng = np.random.default_rng(5)
    rows = []
    while len(rows) < count:
        total = int(rng.integers(2, largest))
        ill, having = (int(number) for number in rng.integers(1, total + 1, 2))
        hits = int(rng.integers(max(0, ill + having - total), min(ill, having) + 1))
        rows.append((hits, ill, having, total))
    return rows


def test_fishers_test_is_exact() -> None:
    rows = [
        *random_tables(300, 200),
        (60, 900, 300, 9_000),
        (900, 1000, 8_000, 9_000),
        (10, 10, 10, 10),
        (0, 5, 5, 100),
        (40, 40, 60, 10_000),
    ]
    for found, row in zip(upper_tail(tables_of(rows)), rows, strict=True):
        assert np.isclose(found, max(float(tail(*row)), 1e-300), rtol=1e-8), row


def test_a_tail_far_below_what_a_float_holds_is_no_error() -> None:
    assert upper_tail(tables_of([(900, 900, 900, 10_000)]))[0] == 1e-300


def test_strata_are_dealt_each_for_itself() -> None:
    strata = [(4, 6, 5, 20), (1, 3, 10, 30), (2, 2, 9, 12)]
    exact = Fraction(0)
    for several in product(*(range(max(0, i + h - n), min(i, h) + 1) for _, i, h, n in strata)):
        if sum(several) >= 7:
            chances = [dealt(hits, *row[1:]) for hits, row in zip(several, strata, strict=True)]
            exact += chances[0] * chances[1] * chances[2]
    assert np.isclose(stratified_tail(tables_of(strata)), float(exact), rtol=1e-9)
    assert np.isclose(stratified_tail(tables_of(strata[:1])), float(tail(*strata[0])), rtol=1e-9)


def test_a_stratum_in_which_all_have_the_value_says_nothing() -> None:
    assert np.isclose(stratified_tail(tables_of([(8, 8, 10, 10), (0, 1, 0, 50)])), 1.0)


def test_correction_counts_what_each_question_can_reach() -> None:
    rows = [row for row in random_tables(80, 60) if min(row[1], row[2]) <= 64]
    correct = Correction(tables_of(rows))
    for p in (1e-9, 1e-5, 0.001, 0.01, float(tail(*rows[3])), 0.3):
        reached = Fraction(0)
        for _, ill, having, total in rows:
            values = [tail(hits, ill, having, total) for hits in range(MIN_HITS, min(ill, having) + 1)]
            reached += max((value for value in values if value <= p * (1 + 1e-9)), default=Fraction(0))
        assert np.isclose(float(correct(np.array([p]))[0]), float(reached), rtol=1e-7), p


def test_correction_of_no_question_and_of_large_ones() -> None:
    assert Correction(tables_of([]))(np.array([0.5])).tolist() == [0.0]
    large = Correction(Tables(*(np.full(7, count) for count in (10, 500, 400, 5_000))))
    assert np.isclose(large(np.array([1e-6]))[0], 7e-6)


def test_binomial_tail_is_exact() -> None:
    for hits, of, share in ((3, 10, Fraction(1, 7)), (1, 1, Fraction(1, 2)), (0, 4, Fraction(1, 3)), (40, 60, Fraction(1, 10))):
        exact = sum(comb(of, k) * share**k * (1 - share) ** (of - k) for k in range(hits, of + 1))
        assert np.isclose(binomial_tail(hits, of, float(share)), float(exact), rtol=1e-9)
    assert binomial_tail(2, 5, 1.0) == 1.0
    assert binomial_tail(2, 5, 0.0) < 1e-200
