"""The memorization curve: continuation of reserved passages of both groups over the training, and the playbook's expectation."""

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from ckaudit.metrics.memorization import memorization_stage
from ckaudit.metrics.probes import HELD_OUT, TRAIN, probe_accuracy
from ckaudit.run.run import Run

STAGES = ("untrained", "token statistics", "patterns", "strong memorization", "mostly memorised")
# Rows MPC-1 to MPC-5: a small corpus, repeated many times.
EXPECTED = ((0, "about 0 %"), (100, "5-15 %"), (500, "30-50 %"), (2000, "70-90 %"), (5000, "90 % and more"))


class MemorizationPoint(Struct, frozen=True, kw_only=True):
    """One step of the curve.

    Attributes:
        step: The step.
        train: Share of tokens continued exactly, for passages of the training data; None: not recorded.
        held_out: The same for passages that are never trained on.
        stage: Stage of memorization of the first, in words.
        expected: The playbook's value at the last of its steps up to here, on repeated data.
    """

    step: int
    train: float | None
    held_out: float | None
    stage: str
    expected: str


def curve_of(run: Run) -> list[MemorizationPoint]:
    """Return the points of the curve, in the order of steps."""
    return list(_points(run))


def _points(run: Run) -> Iterator[MemorizationPoint]:
    accuracy = probe_accuracy(run)
    stages = memorization_stage(run)
    reached = dict(zip(stages.steps.tolist(), stages.values[:, 0].tolist() if stages else [], strict=False))
    for row, step in enumerate(accuracy.steps.tolist()):
        known = {
            label: float(accuracy.values[row, column])
            for column, label in enumerate(accuracy.labels)
            if accuracy.finite[row, column]
        }
        if known:
            stage = reached.get(step, np.nan)
            yield MemorizationPoint(
                step=step,
                train=known.get(TRAIN),
                held_out=known.get(HELD_OUT),
                stage=STAGES[int(stage)] if np.isfinite(stage) else "",
                expected=expected_at(step),
            )


def expected_at(step: int) -> str:
    """Return the playbook's value at the last of its steps up to this one.

    >>> expected_at(99), expected_at(2000)
    ('about 0 %', '70-90 %')
    """
    return next(words for first, words in reversed(EXPECTED) if step >= first)
