"""The loader gives the same batch again and again."""

from collections.abc import Iterator

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.causes.shared.batches import repeated_share
from ckaudit.causes.shared.loss_curves import lost_batch_noise
from ckaudit.contract.schema.report import Evidence
from ckaudit.metrics.data import batch_duplicate_share, batch_repeat_distance, batch_reused
from ckaudit.metrics.loss import train_loss_raw
from ckaudit.rules.attention.entropy_collapse import entropy_collapse
from ckaudit.rules.attention.logit_growth import logit_growth
from ckaudit.rules.data.input_scale_off import input_scale_off
from ckaudit.rules.data.repeated_batch import is_array_reused, repeated_batch
from ckaudit.rules.evaluation.benchmark_regression import benchmark_regression
from ckaudit.rules.evaluation.memorization_rising import memorization_rising
from ckaudit.rules.evaluation.off_its_playbook import off_its_playbook
from ckaudit.rules.evaluation.probe_jump import probe_jump
from ckaudit.rules.evaluation.probes_forgotten import probes_forgotten
from ckaudit.rules.evaluation.slice_regression import slice_regression
from ckaudit.rules.gradients.exploding_gradient import exploding_gradient
from ckaudit.rules.gradients.frequent_clipping import frequent_clipping
from ckaudit.rules.gradients.vanishing_gradient import vanishing_gradient
from ckaudit.rules.loss.loss_below_floor import loss_below_floor
from ckaudit.rules.loss.overfitting import overfitting
from ckaudit.rules.updates.update_out_of_band import update_out_of_band
from ckaudit.run.medians import median
from ckaudit.run.series import Series


@cause(
    prior=-0.5,
    explains=[repeated_batch, overfitting],
    follows=[
        entropy_collapse,
        exploding_gradient,
        frequent_clipping,
        logit_growth,
        loss_below_floor,
        memorization_rising,
        probe_jump,
        probes_forgotten,
        off_its_playbook,
        benchmark_regression,
        slice_regression,
        update_out_of_band,
        vanishing_gradient,
    ],
    wants=[batch_repeat_distance, batch_duplicate_share, train_loss_raw, batch_reused],
    knob="Make the iterator once, outside the training loop, and draw the next batch at each step.",
    inspect="Hashes of the batches from the first repeated step on, and where the loader's iterator is made.",
    runbook="Keep the last checkpoint before the first repeat; resume from it with a loader that is seen to move.",
)
def loader_stuck(
    findings: Findings,
    distance: Series | None,
    duplicates: Series | None,
    loss: Series | None,
    reused: Series | None,
    *,
    min_repeat_share: float = 0.9,
    max_left: float = 0.5,
    decisive: float = 4.0,
    strong: float = 2.0,
    medium: float = 1.0,
) -> Iterator[Evidence]:
    """The loader gives the same batch again and again.

    Nearly all batches, `min_repeat_share` of them or more, are then equal to one of a few steps before. Workers that share a seed
    repeat only some. Two cases differ:

    - Where the program passes the very same array from the start on, no loader made it.
    - Where every step from the first on has the same batch, and the training loss keeps more than `max_left` of what it began
      with, it is no batch of a loader, which would be learnt by heart: all data may be in it, as of a graph.
    - Where batches were not compared, their losses tell: those of different samples never agree to the last digit.
    - Log odds are first guesses, to be fitted on runs of known truth.
    """
    if distance is None and duplicates is not None:
        yield contradicts(decisive, "batches were told apart by what is in them, and none came twice", duplicates.name)
        return
    if distance is None:
        yield from _by_noise(loss, strong, medium)
        return
    first = findings.first(repeated_batch)
    if first is None:
        yield contradicts(decisive, "no batch is like one of those just before", distance.name)
        return
    if first.first_step is None or loss is None:
        return
    from_the_start = first.first_step <= loss.steps[min(1, len(loss.steps) - 1)]  # the second step is the first that can repeat
    if from_the_start and is_array_reused(reused, distance):
        yield contradicts(decisive, "the program holds one array in hand, and asks no loader for another", batch_reused.name)
        return
    share = repeated_share(distance, loss, first.first_step, first.last_step)
    if from_the_start and share >= min_repeat_share and (left := _share_left(loss)) > max_left:
        what = f"one batch from the first step on would be learnt by heart, and {left:.0%} of the training loss is left"
        yield contradicts(decisive, what, loss.name)
    if share >= min_repeat_share:
        yield supports(
            decisive, f"{share:.0%} of the batches from step {first.first_step} on are repeats of those just before", first
        )
    else:
        yield contradicts(strong + 1, f"only {share:.0%} of the batches repeat those just before: the loader moves on", first)
    empty = findings.first(input_scale_off)
    if empty is not None and empty.value == 0:
        yield contradicts(decisive, f"batches are alike because nothing is in them: {empty.message}", empty)
    if heart := findings.since(first.first_step).first(overfitting, loss_below_floor):
        yield supports(medium, f"it is learnt by heart from then on: {heart.message}", heart)


def _share_left(loss: Series) -> float:
    """Return the training loss at the end as a share of what it began with; 0 where it is not positive."""
    _, values = loss.finite_points()
    return median(values[-3:]) / float(values[0]) if len(values) and values.min() > 0 else 0.0


def _by_noise(loss: Series | None, strong: float, medium: float) -> Iterator[Evidence]:
    """Judge a run whose batches have no hashes by how losses of neighbouring steps differ."""
    alike = lost_batch_noise(loss)
    if alike is None:
        yield contradicts(strong, "losses of neighbouring steps differ as those of different samples do", train_loss_raw.name)
    else:
        yield supports(
            strong + medium,
            f"in the end losses of neighbouring steps differ by {alike:.2%} only: every step sees the same samples",
            train_loss_raw.name,
        )
