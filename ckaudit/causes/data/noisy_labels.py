"""A share of the targets is random."""

from collections.abc import Iterator

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.causes.shared.loss_curves import first_and_last, train_over_held_out
from ckaudit.contract.schema.report import Evidence
from ckaudit.metrics.data import target_shift_match
from ckaudit.metrics.loss import train_loss_raw, train_val_gap, val_loss
from ckaudit.rules.attention.uniform_heads import uniform_heads
from ckaudit.rules.data.input_drift import input_drift
from ckaudit.rules.data.source_drift import source_drift
from ckaudit.rules.data.split_overlap import split_overlap
from ckaudit.rules.data.target_equals_input import target_equals_input
from ckaudit.rules.data.target_misalignment import target_misalignment
from ckaudit.rules.data.token_drift import token_drift
from ckaudit.rules.loss.initial_loss_off import initial_loss_off
from ckaudit.rules.loss.loss_not_falling import loss_not_falling
from ckaudit.rules.loss.train_val_inverted import train_val_inverted
from ckaudit.run.medians import median
from ckaudit.run.series import Series


@cause(
    prior=-1.0,
    good_checkpoint="newest",
    explains=[target_misalignment, train_val_inverted, loss_not_falling],
    follows=[uniform_heads],
    wants=[target_shift_match, train_val_gap, train_loss_raw, val_loss],
    knob="Look at a hundred samples with the highest loss: wrong labels stand out there; mend or drop them.",
    inspect="The share of targets that are the next token, per source, and the samples whose loss does not come down.",
    runbook="Keep the last checkpoint: what it learnt is right, if blurred; go on from it on targets that were cleaned.",
)
def noisy_labels(
    findings: Findings,
    match: Series | None,
    gap: Series | None,
    train: Series | None,
    val: Series | None,
    *,
    max_first_gap: float = 3.0,
    min_match: float = 0.5,
    well: float = 0.95,
    steady: float = 0.1,
    strong: float = 2.0,
    medium: float = 1.0,
) -> Iterator[Evidence]:
    """A share of the targets is random, so that the training loss stays above the held-out one.

    Noise leaves most of the targets right, and its share does not change:

    - Since the finding began, between `min_match` and `well` of the targets follow their inputs. The share is about the same at
      each checkpoint: its spread is below `steady`.
    - Where most targets are wrong, the cause is a shift or another text, not noise.
    - Held-out text with right targets is cheaper than training text with random ones.
    - A guess costs as much with random targets as with right ones. The training loss is therefore at most `max_first_gap` times
      the held-out loss at the first evaluation, and ends no further above where it began.
    - Where the inputs changed by then, the training data are no longer of the kind that is held out, which costs more by itself.
    - Log odds are first guesses, to be fitted on runs of known truth.
    """
    wrong = findings.first(target_misalignment)
    since = wrong.first_step or 0 if wrong else 0
    if match is not None and (values := match.values[match.finite & (match.steps >= since)[:, None]]).size:
        usual = median(values)
        if min_match <= usual < well:
            some = f"{usual:.0%} of the targets are the next token, {1 - usual:.0%} are something else"
            yield supports(strong, some, match.name)
            if values.std() < steady:
                yield supports(medium, "it is the same share at every checkpoint", match.name)
        else:
            none = f"{usual:.0%} of the targets are the next token: no share of them is random"
            yield contradicts(strong + 1, none, match.name)
    if val is not None and (off := _not_evaluated(val)):
        message = f"the validation loss is exactly 0 at {off:.0%} of its points: nothing was evaluated there"
        yield contradicts(2 * strong, message, val.name)
    if gap is not None and (level := gap.late_median()) is not None:
        if level < 0 and (inverted := findings.first(train_val_inverted)):
            yield supports(strong, f"what is held out, with targets of its own, does better by {-level:.2g}", inverted)
        elif level > 0:
            yield contradicts(medium, "the training loss is the lower of the two", gap.name)
    if (times := train_over_held_out(train, val)) is not None and times[0] > max_first_gap:
        yield contradicts(
            2 * strong,
            f"the training loss is {times[0]:.3g} times the held-out one from the first evaluation on: no "
            "noise makes a guess dearer",
            val_loss.name,
        )
    if train is not None and (two := first_and_last(train)) is not None and two[1] > max_first_gap * two[0] > 0:
        message = f"the loss ends at {two[1]:.3g}, having begun at {two[0]:.3g}: random targets cost twice a guess at most"
        yield contradicts(2 * strong, message, train.name)
    inverted = findings.first(train_val_inverted)
    if inverted and (moved := findings.before((inverted.first_step or 0) + 1).first(input_drift, token_drift, source_drift)):
        yield contradicts(strong, f"the training data are of another kind than the held-out data: {moved.message}", moved)
    if other := findings.first(initial_loss_off, split_overlap, target_equals_input):
        yield contradicts(strong + 1, f"the loss is off for another reason: {other.message}", other)


def _not_evaluated(val: Series, *, max_evaluated_share: float = 0.05) -> float | None:
    """Return the share of held-out losses that are exactly 0, as trainers log without an evaluation; None where it is small."""
    known = val.values[val.finite]
    share = float((known == 0).mean()) if known.size else 0.0
    return share if share > max_evaluated_share else None
