"""The model was pushed away from what it knew."""

from collections.abc import Iterator

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.contract.schema.report import Evidence
from ckaudit.run.series import Series
from ckaudit_guessing.metrics import loss_over_guessing
from ckaudit_guessing.rules import worse_than_guessing


@cause(
    prior=-1.0,
    explains=[worse_than_guessing],
    wants=[loss_over_guessing],
    knob="Go back to the checkpoint before the loss left the range of guessing, and halve the learning rate.",
    inspect="The loss against the logarithm of the vocabulary, and the first step above it.",
    runbook="Keep the checkpoint before that step; replay from there with the same batches.",
)
def thrown_back(found: Findings, ratio: Series | None, *, strong: float = 2.0, medium: float = 1.0) -> Iterator[Evidence]:
    """The model was better than guessing, and was thrown back.

    Weights are starting values.
    """
    first = found.first(worse_than_guessing)
    if ratio is None or first is None or first.first_step is None:
        return
    before = ratio.values[ratio.steps < first.first_step, 0]
    if len(before) and before.min() < 1:
        yield supports(strong, f"before, the loss was {before.min():.2g}x that of guessing", first)
    else:
        yield contradicts(medium, "it was never better than guessing", first)
