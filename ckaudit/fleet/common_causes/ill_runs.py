"""Illnesses of a fleet: the runs with each code, their first steps, and the runs in which as much could be judged."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ckaudit.contract.schema.fleet import FleetRun
from ckaudit.fleet.common_causes.odds import MIN_HITS, Ints
from ckaudit.fleet.common_causes.shared_values import Bools

NOT_JUDGED = ("not_judged", "not_applicable", "disabled")
MIN_JUDGED_SHARE = 0.9
"""A vital check belongs to an illness if this share of its runs could judge the check."""


class Illness(NamedTuple):
    """One code in a fleet.

    Attributes:
        code: Code of the finding.
        name: The illness in words_with_underscores.
        ill: Which runs have the illness.
        fair: Which runs it is compared with.
        since: First step by run; -1 if there is none.
    """

    code: str
    name: str
    ill: Bools
    fair: Bools
    since: Ints


def comparable(runs: Sequence[FleetRun]) -> list[FleetRun]:
    """Return the runs that count: audited, with anything judged, and copies of a run only once."""
    audited = (run for run in runs if run.status == "audited" and (run.findings or run.judged != "nothing"))
    seen: set[object] = set()
    distinct = []
    for run in audited:
        itself = _itself(run)
        if itself is None or itself not in seen:
            distinct.append(run)
            seen.add(itself)
    return distinct


def _itself(run: FleetRun) -> object:
    """Return a key that copies of a run share and different runs do not; None if too little is known."""
    if run.loss is None or len(run.loss.values) < 3:
        return None
    return tuple(run.facts.items()), tuple(run.loss.steps), tuple(run.loss.values), tuple(run.state.items()), len(run.findings)


def illnesses(runs: Sequence[FleetRun]) -> list[Illness]:
    """Return each code that enough runs have, but not all; notes do not count."""
    since: dict[str, dict[int, int]] = {}
    names = {}
    for place, run in enumerate(runs):
        for finding in run.findings:
            if finding.severity != "note":
                step = -1 if finding.first_step is None else finding.first_step
                steps = since.setdefault(finding.code, {})
                steps[place] = step if steps.get(place, -1) < 0 else min(steps[place], step if step >= 0 else steps[place])
                names[finding.code] = finding.name
    judged = _judged(runs)
    frequent = [_illness(code, names[code], since[code], judged) for code in sorted(since) if len(since[code]) >= MIN_HITS]
    return [illness for illness in frequent if MIN_HITS <= illness.ill.sum() < illness.fair.sum()]


def _illness(code: str, name: str, steps: dict[int, int], judged: Bools) -> Illness:
    ill = np.zeros(len(judged), bool)
    ill[list(steps)] = True
    since = np.full(len(judged), -1)
    since[list(steps)] = list(steps.values())
    needed = judged[ill].mean(axis=0) >= MIN_JUDGED_SHARE
    fair: Bools = np.asarray(judged[:, needed].all(axis=1))
    return Illness(code, name, ill & fair, fair, since)


def _judged(runs: Sequence[FleetRun]) -> Bools:
    """Return whether each vital check could judge each run, shape (runs, checks)."""
    checks = sorted({check for run in runs for check in run.vital})
    rows = [[run.vital.get(check, "not_judged") not in NOT_JUDGED for check in checks] for run in runs]
    return np.array(rows, bool).reshape(len(runs), len(checks))
