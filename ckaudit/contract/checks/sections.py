"""The small sections: probes, parity, replay, history, ranks and cost, each checked for contradictions within itself."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from msgspec import UNSET, UnsetType

from ckaudit.contract import contradictions as kinds
from ckaudit.contract.checks import CheckInput, PointerParts, check
from ckaudit.contract.schema.checkpoint import History
from ckaudit.contract.schema.report import Finding


def _number(value: Any) -> float | None:
    """Return a recorded finite number; None for anything else."""
    return float(value) if isinstance(value, (int, float)) else None


@check(kinds.PROBE_SHIFT, reads=("probes.*.shift", "probes.*.shifted_by", "probes.*.entropy"))
def twin(subject: CheckInput) -> Iterator[Finding]:
    """A shifted probe records its shift and is named after another probe; both or neither have an entropy."""
    probes = subject.document.probes or {}
    for name, stats in probes.items():
        original = probes.get(name.removesuffix(".shifted"))
        if (stats.shift is UNSET) != (stats.shifted_by is UNSET):
            missing = "shift" if stats.shift is UNSET else "shifted_by"
            yield subject.find(kinds.PROBE_SHIFT, ("probes", name, missing), "recorded with the other", "not recorded")
        elif stats.shift is not UNSET and (original is None or original is stats):
            yield subject.find(kinds.PROBE_SHIFT, ("probes", name), "named after another probe of this file", name)
        elif stats.shift is not UNSET and original is not None and (stats.entropy is UNSET) != (original.entropy is UNSET):
            yield subject.find(kinds.PROBE_SHIFT, ("probes", name, "entropy"), "recorded of both or of neither", "of one")


@check(kinds.PARITY, reads=("parity.param_diff", "parity.relative_param_diff"))
def parity(subject: CheckInput) -> Iterator[Finding]:
    """Absolute and relative difference are either both zero or both positive."""
    stats = subject.document.parity
    if stats is UNSET:
        return
    absolute, relative = _number(stats.param_diff), _number(stats.relative_param_diff)
    if absolute is not None and relative is not None and (absolute == 0) != (relative == 0):
        expected = "0, as param_diff" if absolute == 0 else f"above 0, as param_diff {absolute:.6g}"
        yield subject.find(kinds.PARITY, ("parity", "relative_param_diff"), expected, relative)


@check(kinds.REPLAY, reads=tuple(f"replay.{name}" for name in ("identical", "steps", "first_difference", "loss_diff")))
def replay(subject: CheckInput) -> Iterator[Finding]:
    """An identical replay has no difference; a replay that differs has at least one step."""
    stats = subject.document.replay
    if stats is UNSET:
        return
    if stats.identical is True and stats.first_difference is not UNSET:
        yield subject.find(kinds.REPLAY, ("replay", "first_difference"), "absent: it was identical", stats.first_difference)
    if stats.identical is True and (_number(stats.loss_diff) or 0.0) > 0:
        yield subject.find(kinds.REPLAY, ("replay", "loss_diff"), "0: it was identical", stats.loss_diff)
    if stats.identical is False and stats.steps == 0:
        yield subject.find(kinds.REPLAY, ("replay", "steps"), "at least 1: it differed", 0)


@check(
    kinds.HISTORY_LENGTHS,
    kinds.HISTORY_ORDER,
    kinds.NEGATIVE,
    reads=tuple(f"history.{name}" for name in ("steps", "loss", "learning_rate", "batch_hash", "gradient_norms", "update_norms")),
)
def history(subject: CheckInput) -> Iterator[Finding]:
    """Columns of the black box have equal lengths, its steps ascend up to this one, and its norms and rates are at least 0."""
    box = subject.document.history
    if box is UNSET:
        return
    steps = box.steps
    if any(before >= after for before, after in pairwise(steps)):
        yield subject.find(kinds.HISTORY_ORDER, ("history", "steps"), "ascending, each step once", "not in order")
    elif steps and steps[-1] > subject.document.step:
        yield subject.find(kinds.HISTORY_ORDER, ("history", "steps"), f"up to step {subject.document.step}", steps[-1])
    for place, values in _columns(box):
        if len(values) != len(steps):
            yield subject.find(kinds.HISTORY_LENGTHS, place, f"{len(steps)} values, one per step", f"{len(values)} values")
        if place[1] != "loss":
            for index, value in enumerate(values):
                if isinstance(value, float) and value < 0:
                    yield subject.find(kinds.NEGATIVE, (*place, index), "at least 0", value)
                    break


def _columns(box: History) -> Iterator[tuple[PointerParts, list[Any]]]:
    """Yield path and values of each recorded column of the black box."""
    for name in ("loss", "learning_rate", "batch_hash"):
        if not isinstance(values := getattr(box, name), UnsetType):
            yield ("history", name), values
    for name in ("gradient_norms", "update_norms"):
        for tensor, values in (getattr(box, name) or {}).items():
            yield ("history", name, tensor), values


@check(kinds.RANK_TIME, reads=tuple(f"rank_facts.{name}" for name in ("step_time", "input_time", "compute_time", "comm_time")))
def rank_time(subject: CheckInput, *, precision: float = 1e-2) -> Iterator[Finding]:
    """No part of a step takes longer than the step; parts may overlap, so their sum is not checked.

    Args:
        subject: The checkpoint.
        precision: Relative error between the clocks of host and device.
    """
    facts = subject.document.rank_facts
    if facts is UNSET or (whole := _number(facts.step_time)) is None:
        return
    for field in ("input_time", "compute_time", "comm_time"):
        part = _number(getattr(facts, field))
        if part is not None and part > whole * (1 + precision):
            yield subject.find(kinds.RANK_TIME, ("rank_facts", field), f"at most step_time {whole:.6g} s", part)


@check(kinds.COST, reads=("cost.ms", "cost.step_share"))
def cost(subject: CheckInput) -> Iterator[Finding]:
    """The writing time and its share of a step are either both zero or both positive."""
    stats = subject.document.cost
    if stats is UNSET:
        return
    taken, part = _number(stats.ms), _number(stats.step_share)
    if taken is not None and part is not None and (taken == 0) != (part == 0):
        expected = "0, as ms" if taken == 0 else f"above 0, as ms {taken:.6g}"
        yield subject.find(kinds.COST, ("cost", "step_share"), expected, part)
