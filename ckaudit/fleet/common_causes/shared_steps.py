"""Runs with one order of the data that fall ill at the same step: their batch at that step is the suspect."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ckaudit.contract.schema.fleet import FleetRun
from ckaudit.fleet.common_causes.ill_runs import Illness
from ckaudit.fleet.common_causes.odds import MIN_HITS, Ints, Tables, binomial_tail, tables_of, upper_tail
from ckaudit.fleet.common_causes.shared_values import Bools

ROUND = 10
"""Checkpoints, evaluations and windows of rules end at multiples of this, whatever the data."""
APART, APART_IF_PLAIN = 0.001, 0.05
"""Maximum probability that ill runs with other data begin at the step as often; the second value is for a step that is not
round."""
OF_DATA = ("data", "batch_size", "train_batch", "per_device_batch", "sequence_length", "seq_len", "shuffle", "world_size")
"""Parts of the names of facts that, with the seed, decide the batch of a step."""
SUDDEN = ("NUM001", "LOSS001")
"""Codes that begin at the step of their event; findings of other rules may begin where a window ends, in every run alike."""
EARLY = 0.05
"""Share of the longest run within which findings may begin at one step because the rules cannot judge earlier."""
MANY_CELLS = 16
"""Minimum number of possible steps for a common step to be remarkable."""


class Orders(NamedTuple):
    """The orders of the data, by their identifying fact, and the order of each run.

    Attributes:
        fact: Name of the fact, or of the facts used instead.
        names: Names of the orders.
        of: Index of the order by run; -1 if not known.
    """

    fact: str
    names: list[str]
    of: Ints


class SharedStep(NamedTuple):
    """One question about a step: which runs begin there, with one order of the data and with others.

    Attributes:
        illness: The illness.
        order: Index of the order.
        step: The step.
        runs: The ill runs of that order that begin there.
        chance: Probability of this number by itself; None: use that of the table.
    """

    illness: Illness
    order: int
    step: int
    runs: Bools
    chance: float | None = None


def orders(runs: Sequence[FleetRun]) -> Orders:
    """Return the order of the data of each run: from its batches, else from the seed and the facts of the data."""
    hashed = [run.facts.get("data_order") for run in runs]
    fact = "data_order"
    if not any(hashed):
        hashed, fact = [_decided_by(run.facts) for run in runs], "seed and data"
    names = sorted({name for name in hashed if name})
    number: Mapping[str | None, int] = {name: place for place, name in enumerate(names)}
    return Orders(fact, names, np.array([number.get(name, -1) for name in hashed], np.int64))


def _decided_by(facts: Mapping[str, str]) -> str | None:
    seed = next((facts[name] for name in ("seed", "config.seed", "config.data_seed") if name in facts), None)
    if seed is None:
        return None
    parts = [
        f"{name.rpartition('.')[2]} {value}" for name, value in sorted(facts.items()) if any(part in name for part in OF_DATA)
    ]
    return ", ".join([f"seed {seed}", *parts])


def asked_of_steps(runs: Sequence[FleetRun], ill: Sequence[Illness], order: Orders) -> tuple[Tables, list[SharedStep]]:
    """Return a table for each step with enough runs of a code and each order, and the questions behind those with hits."""
    last = np.array([-1 if run.last_step is None else run.last_step for run in runs], np.int64)
    rows: list[tuple[int, int, int, int]] = []
    behind = []
    for illness in ill:
        known = illness.fair & (order.of >= 0)
        steps, counts = np.unique(illness.since[known & illness.ill & (illness.since >= 0)], return_counts=True)
        for step in steps[counts >= MIN_HITS].tolist():
            reached = known & ((last >= step) | (illness.since == step))
            begins = reached & illness.ill & (illness.since == step)
            having = np.bincount(order.of[reached], minlength=len(order.names))
            hits = np.bincount(order.of[begins], minlength=len(order.names))
            for number in np.flatnonzero((having >= MIN_HITS) & (having < reached.sum())).tolist():
                rows.append((int(hits[number]), int(begins.sum()), int(having[number]), int(reached.sum())))
                behind.append(SharedStep(illness, number, step, begins & (order.of == number)))
    return tables_of(rows), behind


def begins_elsewhere_with_other_data(shared: SharedStep, order: Orders) -> bool:
    """Return whether runs with other orders begin elsewhere: a step that all orders share is not caused by the data."""
    ill = shared.illness.ill & shared.illness.fair & (order.of >= 0) & (shared.illness.since >= 0)
    same = ill & (order.of == shared.order)
    plain = shared.step % ROUND != 0 and shared.step > MANY_CELLS
    if (ill & ~same).sum() < MIN_HITS:
        return plain
    begins = int((ill & (shared.illness.since == shared.step)).sum())
    table = tables_of([(int(shared.runs.sum()), begins, int(same.sum()), int(ill.sum()))])
    return bool(upper_tail(table)[0] <= (APART_IF_PLAIN if plain else APART))


def shared_steps_of_only_order(runs: Sequence[FleetRun], ill: Sequence[Illness], order: Orders) -> Iterator[SharedStep]:
    """Yield steps that runs share if all have one order of the data, so that there is no other to compare with.

    Some steps are special by themselves: the first that a rule can judge, an evaluation, the end of the warm-up. They must not be
    blamed on the data. So only sudden findings count, at steps that are not early, not round and no number of the configuration,
    and only if it is unlikely that as many begin there given the spread of the others.
    """
    known = order.of[order.of >= 0]
    if known.size < MIN_HITS or np.bincount(known).max() < known.size:
        return
    numbers = _whole_numbers(runs)
    late = EARLY * max(run.last_step or 0 for run in runs)
    for illness in ill:
        if illness.code not in SUDDEN:
            continue
        since = illness.since[illness.ill & (illness.since >= 0) & (order.of >= 0)]
        steps, counts = np.unique(since, return_counts=True)
        for step, count in zip(steps.tolist(), counts.tolist(), strict=True):
            plain = step % ROUND != 0 and not numbers & {step - 1, step, step + 1}
            if count >= MIN_HITS and plain and step > late:
                shared = illness.ill & (illness.since == step) & (order.of >= 0)
                yield SharedStep(illness, int(known[0]), step, shared, _chance_of_meeting(since, step, runs))


def _chance_of_meeting(since: Ints, step: int, runs: Sequence[FleetRun]) -> float:
    """Return an upper bound of the probability that as many runs begin at any one step, given the spread of the others."""
    others = np.sort(since[since != step])
    apart = np.unique(np.diff(np.unique(since)))
    cell = max(1, int(np.gcd.reduce(apart))) if apart.size else 1
    end = max([int(since.max()), *(run.last_step or 0 for run in runs)])
    cells = max(1, (end - int(since.min())) // cell)
    if cells < MANY_CELLS:
        return 1.0
    near = np.sort(np.abs(others - step))[: max(2, int(np.sqrt(others.size)))]
    width = max(1.0, 2.0 * float(near[-1]) / cell) if near.size else float(cells)
    share = min(1.0, max((near.size + 1) / ((others.size + 1) * width), 1.0 / cells))
    return min(1.0, cells * binomial_tail(int((since == step).sum()), since.size, share))


def _whole_numbers(runs: Sequence[FleetRun]) -> set[int]:
    texts = {text for run in runs for name, text in run.facts.items() if name.startswith("config.")}
    return {int(text) for text in texts if text.isdecimal() and len(text) < 12}
