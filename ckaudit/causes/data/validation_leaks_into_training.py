"""What is held out is also trained on."""

from collections.abc import Iterator

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.contract.schema.report import Evidence
from ckaudit.metrics.data import held_out_rows_trained_on, target_shift_match
from ckaudit.metrics.loss import train_val_gap
from ckaudit.rules.attention.mask_leak import mask_leak
from ckaudit.rules.data.repeated_batch import repeated_batch
from ckaudit.rules.data.split_overlap import split_overlap
from ckaudit.rules.data.target_equals_input import target_equals_input
from ckaudit.rules.data.target_misalignment import target_misalignment
from ckaudit.rules.evaluation.benchmark_regression import benchmark_regression
from ckaudit.rules.evaluation.memorization_rising import memorization_rising
from ckaudit.rules.loss.initial_loss_off import initial_loss_off
from ckaudit.rules.loss.loss_below_floor import loss_below_floor
from ckaudit.rules.loss.train_val_inverted import train_val_inverted
from ckaudit.run.medians import median
from ckaudit.run.series import Series


@cause(
    prior=-1.5,
    explains=[split_overlap, train_val_inverted],
    follows=[loss_below_floor, memorization_rising, repeated_batch, benchmark_regression],
    wants=[train_val_gap, target_shift_match, held_out_rows_trained_on],
    knob="Split by document or source before anything else, and deduplicate the training data against what is held out.",
    inspect="Documents of the held-out set that have a near duplicate in the training data, and the code that splits.",
    runbook="Keep the checkpoints, discard the evaluations: judge the model on text that is younger than the training data.",
)
def validation_leaks_into_training(
    findings: Findings,
    gap: Series | None,
    match: Series | None,
    rows: Series | None,
    *,
    well: float = 0.99,
    many: int = 5,
    decisive: float = 4.0,
    strong: float = 2.0,
    medium: float = 1.0,
) -> Iterator[Evidence]:
    """What is held out is also trained on, so that the validation loss is partly memory.

    Duplicates across the split are the leak itself. Other signs say less:

    - No duplicate in `many` batches speaks against this cause, but is no proof: text that is packed otherwise, or images that are
      augmented, are other rows.
    - A validation loss that falls further and further below the training loss is a sign of learning by heart, if the loss is
      right and more than `well` of the targets are.
    - Dropout and smoothing burden the training loss too, but from the first step on.
    - Log odds are first guesses, to be fitted on runs of known truth.
    """
    overlap = findings.first(split_overlap)
    if overlap is not None:
        # Losses that are the same may also be one number that was logged under both names.
        yield supports(strong if overlap.where == "val_loss" else decisive, overlap.message, overlap)
    elif rows is not None and rows.points >= many and rows.finite.any() and not rows.values[rows.finite].max():
        yield contradicts(strong, "no row that is held out was met, whole, in the batches looked at", rows.name)
    if other := findings.first(target_misalignment, target_equals_input, initial_loss_off, mask_leak):
        yield contradicts(decisive, f"the two losses differ for another reason: {other.message}", other)
    right = match is not None and match.finite.any() and float(match.values[match.finite].min()) > well
    if right:
        yield supports(medium, "the targets are right: they are not what raises the training loss", target_shift_match.name)
    if overlap is None and gap is not None and (course := _course(gap)):
        before, after = course
        if after < before and after < 0:
            yield supports(
                strong if right else medium,
                f"the held-out loss falls further below the training loss, from {-before:.2g} to {-after:.2g}",
                gap.name,
            )
        else:
            yield contradicts(
                medium, f"the held-out loss lies {-after:.2g} below the training loss and no further than before", gap.name
            )


def _course(gap: Series) -> tuple[float, float] | None:
    """Return the gap in the second and in the last quarter of the evaluations; in the first quarter it still comes down."""
    known = gap.finite_points()[1]
    quarter = len(known) // 4
    return (median(known[quarter : 2 * quarter]), median(known[-quarter:])) if quarter else None
