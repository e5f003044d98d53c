"""A common cause in words: the runs with it, the others, the probability by chance, and indistinguishable values."""

from collections.abc import Sequence

import numpy as np

from ckaudit.contract.schema.fleet import CommonCause, FleetRun
from ckaudit.fleet.common_causes.candidates import Asked, Candidate
from ckaudit.fleet.common_causes.odds import in_words
from ckaudit.fleet.common_causes.shared_steps import Orders, SharedStep
from ckaudit.wording import first_names, plural

MAX_BESIDE = 4
MIN_SHARE_OF_STEP = 0.8
Counts = tuple[int, int, int, int]


def told(
    first: Candidate, beside: Sequence[Candidate], codes: Sequence[str], runs: Sequence[FleetRun], asked: Asked
) -> CommonCause:
    """Return a common cause with its sentence.

    Args:
        first: The reported candidate.
        beside: Candidates that counts cannot tell from it.
        codes: Other findings that the same value explains.
        runs: The runs that count.
        asked: All questions of the fleet.
    """
    shared = first.shared_step
    counts = first.table() if shared is None else _of_step(shared, asked.orders)
    parts = [
        _of_value_in_words(first, counts) if shared is None else _of_step_in_words(shared, counts, asked.orders),
        _since(first) if shared is None else "",
        f"By chance alone {in_words(first.adjusted)} fleets would show as much, with {plural(asked.count, 'question')} counted.",
        f"The same runs have {first_names(codes, 3)} too." if codes else "",
        _beside(first, beside, asked),
        _first_commit(first, runs),
    ]
    return CommonCause(
        field=first.field,
        name=first.name,
        value=first.value,
        code=first.illness.code,
        sentence=" ".join(filter(None, parts)),
        runs=[runs[place].run for place in np.flatnonzero(first.members & first.illness.ill).tolist()],
        ill_with=counts[0],
        all_with=counts[1],
        ill_without=counts[2],
        all_without=counts[3],
        p_value=first.p,
        adjusted_p=first.adjusted,
        tested=asked.count,
    )


def _of_value_in_words(first: Candidate, counts: Counts) -> str:
    ill_with, all_with, ill_without, all_without = counts
    what = {"node": "on node {1}", "device": "on device {1}", "commit": "of commit {1}", "start": "started {1}"}
    value = what.get(first.field, "with {0} {1}").format(first.name, first.value)
    with_value = f"{first.illness.code} ({first.illness.name}): {ill_with:,} of {plural(all_with, 'run')} {value}"
    return f"{with_value}, {ill_without:,} of {all_without:,} others."


def _since(first: Candidate) -> str:
    """Return a sentence on the step at which most of the ill runs begin; empty if they share none."""
    since = first.illness.since[first.members & first.illness.ill]
    steps, counts = np.unique(since[since >= 0], return_counts=True)
    if not counts.size or counts.max() < max(2, MIN_SHARE_OF_STEP * since.size):
        return ""
    return f"{'All' if counts.max() == since.size else counts.max()} of them begin at step {steps[counts.argmax()]}."


def _of_step(shared: SharedStep, order: Orders) -> Counts:
    """Return how many runs begin at the step, among those with its order of the data and among the others."""
    known = shared.illness.fair & (order.of >= 0)
    begins, own = shared.illness.ill & known & (shared.illness.since == shared.step), order.of == shared.order
    return tuple(int(part.sum()) for part in (begins & own, known & own, begins & ~own, known & ~own))  # type: ignore[return-value]


def _of_step_in_words(shared: SharedStep, counts: Counts, order: Orders) -> str:
    ill_with, all_with, ill_without, all_without = counts
    begins = f"{shared.illness.code} ({shared.illness.name}) begins at step {shared.step}"
    of_order = f"with {order.fact} {order.names[shared.order]}"
    if not all_without:
        return f"{begins} in {ill_with:,} of {plural(all_with, 'run')}, which all have one order of the data."
    return f"{begins} in {ill_with:,} of {plural(all_with, 'run')} {of_order}, in {ill_without:,} of {all_without:,} others."


def _beside(first: Candidate, beside: Sequence[Candidate], asked: Asked) -> str:
    same = {(first.name, first.value)}
    words = []
    for name, value in [*asked.values.alike(first.members, first.known), *((one.name, one.value) for one in beside)]:
        if (name, value) not in same:
            same.add((name, value))
            words.append(f"{name} {value}")
    return f"Nearly the same runs share {first_names(words, MAX_BESIDE)}: counting cannot tell these apart." if words else ""


def _first_commit(first: Candidate, runs: Sequence[FleetRun]) -> str:
    """Return a sentence on the commit at the start of a time window, if no earlier run had it."""
    if first.field != "start":
        return ""
    dated = sorted((float(run.facts["start"]), place) for place, run in enumerate(runs) if first.known[place])
    place = next(place for _, place in dated if first.members[place])
    commit = runs[place].facts.get("git.commit")
    before = {runs[earlier].facts.get("git.commit") for start, earlier in dated if start < float(runs[place].facts["start"])}
    return (
        f"The first of them ran commit {commit}, which no earlier run had." if commit and before and commit not in before else ""
    )
