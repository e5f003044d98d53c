"""The evaluation is no longer the one that earlier values came from."""

from collections.abc import Iterator

import numpy as np

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.contract.schema.report import Evidence, Finding
from ckaudit.metrics.loss import train_loss_at_evals, val_loss
from ckaudit.rules.evaluation.benchmark_regression import benchmark_regression
from ckaudit.rules.evaluation.evaluation_artifact_changed import evaluation_artifact_changed
from ckaudit.rules.evaluation.slice_regression import slice_regression
from ckaudit.rules.files.contradicted_claim import contradicted_claim
from ckaudit.rules.loss.overfitting import overfitting
from ckaudit.rules.loss.train_val_inverted import train_val_inverted
from ckaudit.run.medians import median
from ckaudit.run.series import Series


@cause(
    prior=0.0,
    good_checkpoint="newest",
    explains=[evaluation_artifact_changed],
    follows=[benchmark_regression, contradicted_claim, overfitting, slice_regression, train_val_inverted],
    wants=[val_loss, train_loss_at_evals],
    knob="Fix the evaluation's files by hash in run.json, and refuse to evaluate with any other.",
    inspect="The file named and its history around the step of the change.",
    runbook="Keep both files; evaluate one checkpoint from before with the new one, to learn what the change alone costs.",
)
def evaluation_changed(
    findings: Findings, val: Series | None, train: Series | None, *, jump: float = 3.0, strong: float = 2.0, medium: float = 1.0
) -> Iterator[Evidence]:
    """The evaluation is no longer the one that earlier values came from.

    A file with another hash is another file: nothing else makes it. At the change the gap between held-out and training loss
    steps by more than `jump` times its usual step from one evaluation to the next. Where only such a step was seen, the evidence
    is weaker. Log odds are first guesses, to be fitted on runs of known truth.
    """
    first = findings.first(evaluation_artifact_changed)
    if first is None:
        return
    if first.where is not None and first.where.startswith("val_loss"):
        yield supports(medium, first.message, first)
        return
    yield supports(strong, f"{first.where} has another hash from step {first.first_step} on", first)
    if val is None or train is None or (step := _step(val, train, first)) is None:
        return
    size, usual = step
    if abs(size) > jump * usual:
        yield supports(
            medium, f"the held-out loss steps by {size:+.2g} there, against the training loss; {usual:.2g} is usual", val.name
        )
    else:
        yield contradicts(medium / 2, f"the held-out loss goes on as before, by {size:+.2g}", val.name)


def _step(val: Series, train: Series, first: Finding) -> tuple[float, float] | None:
    """Return the change of held-out less training loss at a step, and the usual change between evaluations."""
    rows = (
        np.flatnonzero(val.finite[:, 0] & train.finite[:, 0])
        if val.values.shape[0] == train.values.shape[0]
        else np.empty(0, int)
    )
    gap = val.values[rows, 0] - train.values[rows, 0]
    place = int(np.searchsorted(val.steps[rows], first.first_step or 0))
    if not 1 < place < len(gap):
        return None
    return float(gap[place] - gap[place - 1]), median(np.abs(np.diff(gap[:place])))
