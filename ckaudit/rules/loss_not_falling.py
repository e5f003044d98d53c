"""LOSS003: after a good part of the run, the loss is still that of a model that has learnt no order."""

import math
from collections.abc import Iterator

import numpy as np
from msgspec import UNSET

from ckaudit.contract.manifest import Manifest
from ckaudit.metrics.loss import train_loss_raw, val_loss
from ckaudit.metrics.scaling import unigram_entropy
from ckaudit.rules.rule import FACTS, Hit, Skip, rule
from ckaudit.run.robust import begins_with_its_run, fall_of
from ckaudit.run.series import Floats, Series, Steps
from ckaudit.run.standstill import WHOLE, is_whole, standstill
from ckaudit.run.tensors import loss_vocabulary, table_of

GUESSES = (math.log(400), math.log(1_200_000))
"""What a uniform guess among the tokens of the smallest and the largest vocabularies in use costs, in nats."""

BUCKETS = 256
"""A histogram of so many buckets holds one token each where the vocabulary is no larger."""


@rule(
    "LOSS003", severity="sev2", needs=[train_loss_raw], wants=[unigram_entropy, val_loss, FACTS], facts=[["vocabulary"]],
    unit="nats/token",
)  # fmt: skip
def loss_not_falling(
    loss: Series, entropy: Series | None, val: Series | None, facts: Manifest | None, *,
    least: int = 50, steps_least: int = 200, share: float = 0.5, tail: float = 0.1, margin: float = 0.98, guess: float = 0.9,
    other: float = 10.0, fell: float = 0.01, apart: float = 0.25, rest: float = 0.03,
    channels: float = 2.0, half: float = 0.5,
) -> Iterator[Hit | Skip]:  # fmt: skip
    """The loss does not fall, or has stopped far too high.

    ## What it checks
    The median loss of the last `tail` of the points, once there are `least` of them, `steps_least` steps and `share` of
    the plan are done. Above `margin` of the entropy of the tokens (PAN-1; where the vocabulary is small enough for it to
    be counted) the model knows how often each token occurs and nothing of their order; above `guess` of the log of the
    vocabulary it knows nothing. A stream of fewer than `channels` per bit of a token has no room for what came before, and a
    loss above `half` of either bound shows that it would be needed. Where that does not tell, the curve of a log that starts
    with the run: it ends as high as it began, to `fell` of that; or it fell by less than a tenth while the held-out loss
    moved by `apart` of it; or it has stayed within `rest` of its first fall since the first quarter, without a trend, and
    above half of what it began with.
    ## Why it matters
    A loss that rests there says that nothing reaches the weights, or that targets have nothing to do with inputs (D1.1,
    D2.4).
    ## False alarms
    A plateau at that height before heads form that look back is left behind before half of the plan (lab: a third). A
    loss that rests lower than this may be as low as model and data allow, which cannot be told from the loss alone. A
    loss over `other` times the bound is no mean over tokens, which is another illness. Healthy runs whose curve stands still for
    three quarters of their steps are at a third of their first loss by then (public logs), or are fine-tunings, which fall by
    less than a nat and never by less than 5 %; where the noise hides as much, nothing is said.
    """
    known = np.flatnonzero(loss.finite[:, 0])
    steps, values = loss.steps[known], loss.values[known, 0]
    planned = facts.planned_steps if facts else UNSET
    if len(known) < least:
        done = planned is UNSET or not len(known) or steps[-1] >= share * planned
        yield from _in_few_points(steps, values) if done else [Skip("too_few_points", f"{share:.0%} of the plan are needed")]
        return
    if steps[-1] < steps_least:
        yield Skip("too_few_points", f"the loss is finite up to step {steps[-1]}; it is judged from step {steps_least} on")
        return
    if planned is not UNSET and steps[-1] < share * planned:
        yield Skip("too_few_points", f"step {steps[-1]} of {planned}; {share:.0%} of the plan are needed")
        return
    bound, told = _bound(entropy, facts, margin, guess)
    if bound is not None and (width := _narrow(facts, channels)) is not None:
        bound, told = bound * half, f"{width} channels have no room for more"
    level = float(np.median(values[-max(10, int(tail * len(values))) :]))
    if bound is not None and bound < level <= other * bound:
        first = _since(values, bound)
        yield _hit(steps, first, level, bound, "the loss has come to {value:.4g} and no lower; " + told)
    elif (still := standstill(steps, values, val, fell=fell, apart=apart, rest=rest)) is not None:
        yield _hit(steps, still.row, still.level, still.limit, still.message)
    elif bound is None and len(steps) < WHOLE:
        yield from _in_few_points(steps, values)
    elif bound is None and not is_whole(steps):
        yield Skip("not_recorded", "needs vocabulary")


def _hit(steps: Steps, row: int, level: float, limit: float, message: str) -> Hit:
    first, last = int(steps[row]), int(steps[-1])
    return Hit(
        severity="sev2", where="loss", first=first, last=last, worst=last, value=level, limit=limit, points=len(steps) - row,
        message=message,
    )  # fmt: skip


def _in_few_points(steps: Steps, values: Floats, *, fewest: int = 5, horizon: int = 100) -> Iterator[Hit | Skip]:
    """Yield a loss that has not fallen from its first third to its last, where so few points can tell.

    They can where a fall of one part in a hundred would be seen, or where the loss rests at what a guess among hundreds to a
    million tokens costs (GUESSES): no model that has learnt anything is there.
    """
    if len(values) < fewest or steps[-1] < horizon:
        last = int(steps[-1]) if len(steps) else 0
        yield Skip("too_few_points", f"{len(values)} points up to step {last}; {fewest} and {horizon} steps are needed")
        return
    if not begins_with_its_run(steps):
        yield Skip("not_recorded", "needs the first steps of the run")
        return
    fall = fall_of(values)
    level = abs(fall.last)
    guessing = GUESSES[0] < fall.last < GUESSES[1]
    if not fall.is_none:
        return
    if guessing or fall.error <= 0.005 * level:
        message = "the loss stands at {value:.4g}, having begun at {limit:.4g}, in the " + f"{len(values)} points that there are"
        yield _hit(steps, 0, fall.last, fall.first, message)
    else:
        yield Skip("too_few_points", f"{len(values)} points are too noisy to tell a flat loss from one that falls a little")


def _bound(entropy: Series | None, facts: Manifest | None, margin: float, guess: float) -> tuple[float | None, str]:
    vocabulary = loss_vocabulary(facts)
    if vocabulary is None or vocabulary < 2:
        return None, ""
    if entropy is not None and entropy.finite.any() and vocabulary <= BUCKETS:
        bits = float(np.median(entropy.values[entropy.finite]))
        return margin * bits, f"who knows only how often each token occurs has {bits:.4g}"
    return guess * math.log(vocabulary), f"a guess has {math.log(vocabulary):.4g}"


def _narrow(facts: Manifest | None, channels: float) -> int | None:
    """Return the channels of a stream that has too few to tell tokens apart and to hold anything else; None: it has enough."""
    vocabulary, width = loss_vocabulary(facts), table_of(facts).width()
    if vocabulary is None or width is None:
        return None
    return width if width < channels * math.log2(max(2, vocabulary)) else None


def _since(values: Floats, bound: float, *, smooth: int = 9) -> int:
    """Return the row since which the running median of a loss stays above a bound."""
    padded = np.concatenate([np.full(smooth - 1, values[0]), values])
    middle = np.median(np.lib.stride_tricks.sliding_window_view(padded, smooth), axis=1)
    below = np.flatnonzero(middle <= bound)
    return int(below[-1]) + 1 if len(below) else 0
