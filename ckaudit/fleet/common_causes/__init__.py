"""Common causes: values that ill runs share far more often than by chance: a node, a commit, a setting, a time, a step.

Every value of every fact is tested for every code (`shared_values`), and every step for every order of the data (`shared_steps`).
The p-value of a test is corrected for all of these questions (`odds`). Then the value is compared with those already reported. A
setting that only correlates with a bad node is not reported. A setting of exactly the same runs is named beside it, because
counts cannot tell the two apart.
"""

from collections.abc import Sequence

import numpy as np

from ckaudit.contract.schema.fleet import CommonCause, FleetRun
from ckaudit.fleet.common_causes.candidates import MAX_CHANCE, TELLING, Asked, Candidate, candidates
from ckaudit.fleet.common_causes.ill_runs import comparable
from ckaudit.fleet.common_causes.odds import Ints, stratified_tail, tables_of
from ckaudit.fleet.common_causes.sentences import told

MAX_CAUSES = 20
ALIKE = 0.8
"""Two values that share this part of their runs, and explain each other, cannot be told apart."""


def common_causes(runs: Sequence[FleetRun]) -> list[CommonCause]:
    """Return the values that ill runs share far more often than by chance, the least likely first.

    A run that could not be audited, or in which nothing could be judged, does not count. Copies of a run count once. A value that
    all runs share says nothing.

    Args:
        runs: The rows of a fleet, in any order.
    """
    counted = sorted(comparable(runs), key=lambda run: run.run)
    asked = Asked(counted)
    left = candidates(asked)
    strata = np.zeros(len(counted), np.int64)
    causes: list[tuple[float, CommonCause]] = []
    while left and len(causes) < MAX_CAUSES:
        first = min(left, key=_strongest)
        strata = np.unique(2 * strata + first.members, return_inverse=True)[1].astype(np.int64)
        explained = [one for one in left if _says_the_same(one, first) or _explained(one, strata, asked)]
        beside = [one for one in explained if _inseparable(one, first, asked)]
        also = {one.illness.code for one in explained if np.array_equal(one.members, first.members)}
        causes.append((first.adjusted, told(first, beside, sorted(also - {first.illness.code}), counted, asked)))
        gone = set(map(id, explained))
        left = [one for one in left if id(one) not in gone]
    return [cause for _, cause in sorted(causes, key=lambda pair: pair[0])]


def _strongest(one: Candidate) -> tuple[bool, float, float, int, str, str]:
    """Return the sort key: a step comes first, because the order of the data that it belongs to correlates with it."""
    return one.shared_step is None, one.adjusted, one.p, TELLING.index(one.field), one.name, one.value


def _explained(one: Candidate, strata: Ints, asked: Asked) -> bool:
    """Return whether ill runs share a value no more often than by chance among runs with the same reported values."""
    ill, having = one.illness.ill & one.known, one.members & one.known
    rows = []
    for number in np.unique(strata[having]).tolist():
        in_stratum = one.known & (strata == number)
        rows.append(tuple(int((in_stratum & part).sum()) for part in (ill & having, ill, having, one.known)))
    p = stratified_tail(tables_of([(row[0], row[1], row[2], row[3]) for row in rows]))
    return float(asked.adjusted(one.field, np.array([p]))[0]) > MAX_CHANCE


def _says_the_same(one: Candidate, first: Candidate) -> bool:
    """Return whether a candidate is the first itself or similar: only the best threshold or window of a fact is reported."""
    of_one = one.name == first.name and one.illness.code == first.illness.code
    return one is first or (of_one and one.ranged and first.ranged)


def _inseparable(one: Candidate, first: Candidate, asked: Asked) -> bool:
    """Return whether the runs of two candidates overlap so much that counts cannot tell them apart."""
    if one.illness.code != first.illness.code or _says_the_same(one, first):
        return False
    both, either = (one.members & first.members).sum(), (one.members | first.members).sum()
    return bool(both >= ALIKE * either) and _explained(first, one.members.astype(np.int64), asked)
