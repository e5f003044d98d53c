"""Statistical tests: Fisher's exact test, one-sided, alone and stratified, and its correction for many questions.

The correction bounds the probability of any false report about a fleet (the family-wise error), not the share of false reports:
each report sends somebody to a node, and one in twenty in vain is too many. It is Bonferroni's with the values that a discrete
test can take (Westfall and Wolfinger 1997, The American Statistician 51:3), and holds whatever the dependence between questions.
A value that three runs have cannot reach a small p, and costs nothing.
"""

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

MIN_HITS = 3
"""Minimum number of ill runs that share a reported value."""
SMALL = 64
"""Number of runs up to which all values of a test are enumerated; beyond, they are so dense that any p is assumed possible."""
LEAST = 1e-300


class Tables(NamedTuple):
    """Two-by-two tables as columns, one table per question."""

    hits: Ints
    ill: Ints
    having: Ints
    total: Ints

    def where(self, chosen: NDArray[np.bool_] | Ints) -> "Tables":
        """Return a selection of the tables."""
        return Tables(*(column[chosen] for column in self))


def log_factorials(largest: int) -> Floats:
    """Return the logarithms of 0! to `largest`!.

    >>> np.exp(log_factorials(4)).round(6).tolist()
    [1.0, 1.0, 2.0, 6.0, 24.0]
    """
    return np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, largest + 1)))])


def log_chance(tables: Tables, logs: Floats) -> Floats:
    """Return the logarithm of the probability of exactly this number of hits (hypergeometric)."""
    hits, ill, having, total = tables
    ways = logs[ill] - logs[hits] - logs[ill - hits] + logs[total - ill] - logs[having - hits]
    chance: Floats = ways - logs[total - ill - having + hits] - (logs[total] - logs[having] - logs[total - having])
    return chance


def upper_tail(tables: Tables) -> Floats:
    """Return the probability of as many hits or more if illness and value are independent: Fisher's exact test.

    >>> upper_tail(Tables(*(np.array([count]) for count in (3, 3, 3, 10)))).round(6).tolist()
    [0.008333]
    """
    p = np.ones(tables.hits.size)
    few = tables.hits * tables.total <= tables.ill * tables.having
    p[~few] = _tail_beyond_the_average(tables.where(~few))
    few &= tables.hits > np.maximum(0, tables.ill + tables.having - tables.total)
    hits, ill, having, total = tables.where(few)
    p[few] = 1 - _tail_beyond_the_average(Tables(having - hits + 1, total - ill, having, total))
    return p


def _tail_beyond_the_average(tables: Tables) -> Floats:
    logs = log_factorials(int(tables.total.max(initial=0)))
    hits, ill, having, total = (column.astype(np.float64) for column in tables)
    term, beyond = np.ones_like(hits), np.ones_like(hits)
    going = np.arange(hits.size)
    while going.size:
        now = hits[going]
        term[going] *= (ill[going] - now) * (having[going] - now) / ((now + 1) * (total - ill - having + hits + 1)[going])
        beyond[going] += term[going]
        hits[going] += 1
        going = going[(term[going] > 1e-17 * beyond[going]) & (hits[going] < np.minimum(ill, having)[going])]
    return np.clip(np.exp(log_chance(tables, logs)) * beyond, LEAST, 1.0)


def stratified_tail(strata: Tables) -> float:
    """Return the upper tail of the total hits if each stratum is independent: the exact test for a common odds ratio."""
    logs = log_factorials(int(strata.total.max(initial=0)))
    spread = [_distribution(ill, having, total, logs) for _, ill, having, total in zip(*strata, strict=True)]
    lowest = int(np.maximum(0, strata.ill + strata.having - strata.total).sum())
    together = reduce(np.convolve, spread, np.ones(1))
    return float(np.clip(together[max(0, int(strata.hits.sum()) - lowest) :].sum(), LEAST, 1.0))


def _distribution(ill: int, having: int, total: int, logs: Floats) -> Floats:
    hits = np.arange(max(0, ill + having - total), min(ill, having) + 1)
    return np.exp(log_chance(Tables(hits, *(np.full(hits.size, count) for count in (ill, having, total))), logs))


class Correction:
    """The probability that any question of a family reaches some p under the null hypothesis."""

    def __init__(self, asked: Tables) -> None:
        counts = np.stack([asked.ill, asked.having, asked.total]) if asked.hits.size else np.zeros((3, 0), np.int64)
        alike, times = np.unique(counts, axis=1, return_counts=True)
        small = np.minimum(alike[0], alike[1]) <= SMALL
        self.any_value = int(times[~small].sum())
        self.values, self.reached = _values_taken(alike[:, small], times[small])

    def __call__(self, p: Floats) -> Floats:
        """Return an upper bound of that probability for each p."""
        place = np.searchsorted(self.values, np.asarray(p) * (1 + 1e-9), side="right")
        return self.any_value * np.asarray(p) + self.reached[place]


def _values_taken(counts: Ints, times: Ints) -> tuple[Floats, Floats]:
    """Return every p that a test can take, sorted, and the summed probability of all tests up to it."""
    hits = np.repeat(np.arange(SMALL + 1)[:, None], counts.shape[1], axis=1)
    ill, having, total = (np.broadcast_to(row, hits.shape) for row in counts)
    possible = (hits <= np.minimum(ill, having)) & (hits >= ill + having - total) & (hits >= MIN_HITS)
    chance = np.zeros(hits.shape)
    if possible.any():
        tables = Tables(hits[possible], ill[possible], having[possible], total[possible])
        chance[possible] = np.exp(log_chance(tables, log_factorials(int(total.max()))))
    tail = np.cumsum(chance[::-1], axis=0)[::-1]
    values = tail[possible]
    order = np.argsort(values)
    steps = (chance * times)[possible][order]
    return values[order], np.concatenate([[0.0], np.cumsum(steps)])


def binomial_tail(hits: int, of: int, share: float) -> float:
    """Return the probability of `hits` or more out of `of` if each has probability `share`.

    >>> round(binomial_tail(3, 3, 0.5), 6)
    0.125
    """
    if not 0 < share < 1:
        return 1.0 if share >= 1 or hits <= 0 else LEAST
    logs = log_factorials(of)
    count = np.arange(hits, of + 1)
    chance = logs[of] - logs[count] - logs[of - count] + count * np.log(share) + (of - count) * np.log1p(-share)
    return float(np.clip(np.exp(chance).sum(), LEAST, 1.0))


def in_words(p: float) -> str:
    """Return a probability as "one in N".

    >>> in_words(0.0004), in_words(3.1e-8), in_words(1e-30)
    ('one in 2,500', 'one in 32 million', 'less than one in a billion')
    """
    if p < 1e-9:
        return "less than one in a billion"
    times = 1 / p
    return f"one in {times / 1e6:,.0f} million" if times >= 1e6 else f"one in {float(f'{times:.2g}'):,.0f}"


def tables_of(rows: Sequence[tuple[int, int, int, int]]) -> Tables:
    """Return tables from rows of hits, ill, having, total."""
    columns = np.array(rows, np.int64).reshape(-1, 4).T
    return Tables(*columns)
