"""Loader workers share one seed."""

from collections.abc import Iterator

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.causes.shared.batches import repeated_share
from ckaudit.contract.schema.report import Evidence
from ckaudit.metrics.data import batch_duplicate_share, batch_repeat_distance
from ckaudit.metrics.loss import train_loss_raw
from ckaudit.rules.data.repeated_batch import repeated_batch
from ckaudit.rules.evaluation.memorization_rising import memorization_rising
from ckaudit.rules.loss.loss_below_floor import loss_below_floor
from ckaudit.rules.loss.overfitting import overfitting
from ckaudit.run.medians import median
from ckaudit.run.series import Series


@cause(
    prior=-0.5,
    good_checkpoint="newest",
    explains=[repeated_batch],
    follows=[loss_below_floor, memorization_rising, overfitting],
    wants=[batch_repeat_distance, train_loss_raw, batch_duplicate_share],
    knob="Seed each loader worker with its own number, and give each its own part of the data.",
    inspect="Hashes of the batches of a hundred steps, and the worker's initialization.",
    runbook="Nothing is broken: mend the loader at the next resume, and count the tokens again that were really seen.",
)
def batches_repeated(
    findings: Findings,
    distance: Series | None,
    loss: Series | None,
    duplicates: Series | None,
    *,
    often: float = 0.2,
    max_repeat_share: float = 0.9,
    strong: float = 3.0,
) -> Iterator[Evidence]:
    """Loader workers share one seed, so that each batch comes several times.

    With W workers of one seed, all but one in W batches are repeats: a share between `often` and `max_repeat_share`. More repeats
    mean that the loader stands still. Fewer repeats of batches just before mean that it began anew. Sequences that come several
    times in one batch are a sign by themselves. Log odds are first guesses, to be fitted on runs of known truth.
    """
    if duplicates is not None and len(shares := duplicates.values[duplicates.finite]) and (usual := median(shares)) > often:
        yield supports(strong, f"{usual:.0%} of the rows of a batch are equal to another one of it", duplicates.name)
        return
    first = findings.first(repeated_batch)
    if first is None or first.first_step is None or distance is None or loss is None:
        return
    share = repeated_share(distance, loss, first.first_step, first.last_step)
    if often < share < max_repeat_share:
        times = 1 / (1 - share)
        yield supports(
            strong, f"{share:.0%} of the batches are repeats of those just before: each comes about {times:.1f} times", first
        )
    else:
        yield contradicts(strong, f"{share:.0%} of the batches repeat those just before", first)
