"""All questions about a fleet, and the answers that are unlikely by chance."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ckaudit.contract.schema.fleet import CommonField, FleetRun
from ckaudit.fleet.common_causes.ill_runs import Illness, illnesses
from ckaudit.fleet.common_causes.odds import MIN_HITS, Correction, Floats, Ints, Tables, log_chance, log_factorials, upper_tail
from ckaudit.fleet.common_causes.shared_steps import (
    SharedStep,
    asked_of_steps,
    begins_elsewhere_with_other_data,
    orders,
    shared_steps_of_only_order,
)
from ckaudit.fleet.common_causes.shared_values import Bools, Values

MAX_CHANCE = 0.001
"""Accepted family-wise error: one fleet in a thousand without a common cause gets one reported."""
TELLING: tuple[CommonField, ...] = ("step", "node", "device", "commit", "config", "start")
"""Order of fields: of values that the same runs have, the first is reported, with the others beside it."""


class Candidate(NamedTuple):
    """A value or a step that ill runs share more often than by chance.

    Attributes:
        field: Kind of the fact.
        name: Name of the fact.
        value: Value in words.
        illness: The illness of those runs.
        members: The runs that have the value; for a step, the ill runs that begin at it.
        known: The runs that count and whose value is known.
        hits: Ill runs among the members.
        p: p-value of the test.
        adjusted: p-value after correction.
        ranged: Whether it is a threshold or a window, which has neighbours that are nearly the same.
        shared_step: The step, if the candidate is one.
    """

    field: CommonField
    name: str
    value: str
    illness: Illness
    members: Bools
    known: Bools
    hits: int
    p: float
    adjusted: float
    ranged: bool = False
    shared_step: SharedStep | None = None

    def table(self) -> tuple[int, int, int, int]:
        """Return counts: ill runs with the value, all with it, ill runs without it, all without it."""
        ill, having = self.illness.ill & self.known, self.members & self.known
        return self.hits, int(having.sum()), int((ill & ~having).sum()), int((self.known & ~having).sum())


class Asked:
    """All questions about a fleet, and the correction that the questions of each field share."""

    def __init__(self, runs: Sequence[FleetRun]) -> None:
        self.ill = illnesses(runs)
        self.values = Values(runs)
        self.orders = orders(runs)
        self.tables: dict[CommonField, list[Tables]] = {}
        self.which: dict[CommonField, list[tuple[Illness, Ints]]] = {}
        self.steps, self.behind = asked_of_steps(runs, self.ill, self.orders)
        self.only = list(shared_steps_of_only_order(runs, self.ill, self.orders))
        self._ask_values()
        if self.steps.hits.size:
            self.tables["step"] = [self.steps]
        self.together = {field: Tables(*map(np.concatenate, zip(*some, strict=True))) for field, some in self.tables.items()}
        self.corrections = {field: Correction(tables) for field, tables in self.together.items()}
        self.count = sum(tables.hits.size for tables in self.together.values()) + len(self.only)
        self.fields = max(1, len(self.tables) + (bool(self.only) and "step" not in self.tables))

    def _ask_values(self) -> None:
        fields = np.array([TELLING.index(question.field) for question in self.values.questions], np.int64)
        asked_of: dict[bytes, tuple[Ints, Ints, Ints]] = {}
        for illness in self.ill:
            of = illness.fair.tobytes()
            if of not in asked_of:
                asked_of[of] = self._different(illness.fair, fields)
            chosen, having, total = asked_of[of]
            hits, ill = self.values.having(illness.ill)[chosen], self.values.known_of(illness.ill)[chosen]
            for number in np.unique(fields[chosen]).tolist():
                own = fields[chosen] == number
                field = TELLING[number]
                self.tables.setdefault(field, []).append(Tables(hits, ill, having, total).where(own))
                self.which.setdefault(field, []).append((illness, chosen[own]))

    def _different(self, fair: Bools, fields: Ints) -> tuple[Ints, Ints, Ints]:
        """Return the questions that split the runs differently; of those that split them alike, the most informative one."""
        having, total = self.values.having(fair), self.values.known_of(fair)
        able = np.flatnonzero((having >= MIN_HITS) & (having < total))
        able = able[np.argsort(fields[able], kind="stable")]
        parts = np.stack([self.values.marks(fair)[able], total[able]])
        first = np.unique(parts, axis=1, return_index=True)[1]
        chosen = np.sort(able[np.sort(first)])
        return chosen, having[chosen], total[chosen]

    def adjusted(self, field: CommonField, p: Floats) -> Floats:
        """Return corrected p-values: fields share the error equally, because some have a thousand times more questions."""
        reached = self.corrections[field](p) if field in self.corrections else np.zeros_like(p)
        return np.minimum(1.0, self.fields * (reached + len(self.only) * p * (field == "step")))


def candidates(asked: Asked) -> list[Candidate]:
    """Return the values that ill runs share more often than by chance, after correction for all questions."""
    accepted = list(_step_candidates(asked))
    for field, which in asked.which.items():
        for table, (illness, questions) in zip(asked.tables[field], which, strict=True):
            likely = _worth_a_test(table)
            p = upper_tail(table.where(likely))
            adjusted = asked.adjusted(field, p)
            for at in np.flatnonzero(adjusted <= MAX_CHANCE).tolist():
                hits = int(table.hits[likely[at]])
                accepted.append(_candidate(asked, illness, int(questions[likely[at]]), hits, (float(p[at]), float(adjusted[at]))))
    return accepted


def _candidate(asked: Asked, illness: Illness, number: int, hits: int, chances: tuple[float, float]) -> Candidate:
    values, question = asked.values, asked.values.questions[number]
    return Candidate(
        field=question.field,
        name=question.fact,
        value=values.shown(number),
        illness=illness,
        members=values.members(number) & illness.fair,
        known=values.known[values.fact_of[number]] & illness.fair,
        hits=hits,
        p=chances[0],
        adjusted=chances[1],
        ranged=question.kind != "is",
    )


def _worth_a_test(tables: Tables) -> Ints:
    """Return the tables with more hits than expected by chance, and enough for a small p-value."""
    some = np.flatnonzero((tables.hits >= MIN_HITS) & (tables.hits * tables.total > tables.ill * tables.having))
    if not some.size:
        return some
    chosen = tables.where(some)
    likely: Ints = some[log_chance(chosen, log_factorials(int(chosen.total.max()))) <= np.log(MAX_CHANCE)]
    return likely


def _step_candidates(asked: Asked) -> list[Candidate]:
    likely = _worth_a_test(asked.steps)
    chances = upper_tail(asked.steps.where(likely))
    shared = [(asked.behind[at], float(p)) for at, p in zip(likely.tolist(), chances, strict=True)]
    shared += [(only, only.chance) for only in asked.only if only.chance is not None]
    of_steps = []
    for one, p in shared:
        adjusted = float(asked.adjusted("step", np.array([p]))[0])
        if adjusted <= MAX_CHANCE and (one.chance is not None or begins_elsewhere_with_other_data(one, asked.orders)):
            known = one.illness.fair & (asked.orders.of >= 0)
            counted = (int(one.runs.sum()), p, adjusted)
            of_steps.append(Candidate("step", "step", str(one.step), one.illness, one.runs, known, *counted, shared_step=one))
    return of_steps
