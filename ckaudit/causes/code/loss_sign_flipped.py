"""The training climbs the loss."""

import math
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.causes.shared.loss_curves import mirrored_held_out_loss
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Evidence
from ckaudit.metrics.loss import train_loss_raw, val_loss
from ckaudit.metrics.loss_function import loss_to_function_ratio
from ckaudit.metrics.optimizer import learning_rate
from ckaudit.metrics.trend import theil_sen
from ckaudit.rules.activations.activation_drift import activation_drift
from ckaudit.rules.attention.entropy_collapse import entropy_collapse
from ckaudit.rules.attention.logit_growth import logit_growth
from ckaudit.rules.attention.uniform_heads import uniform_heads
from ckaudit.rules.gradients.dead_parameter import dead_parameter
from ckaudit.rules.gradients.exploding_gradient import exploding_gradient
from ckaudit.rules.gradients.frequent_clipping import frequent_clipping
from ckaudit.rules.loss.initial_loss_off import initial_loss_off
from ckaudit.rules.loss.loss_below_floor import loss_below_floor
from ckaudit.rules.loss.loss_inputs_wrong import loss_inputs_wrong
from ckaudit.rules.loss.loss_not_falling import loss_not_falling
from ckaudit.rules.loss.loss_rises import loss_rises
from ckaudit.rules.loss.overfitting import overfitting
from ckaudit.rules.loss.train_val_inverted import train_val_inverted
from ckaudit.rules.precision.impossible_value import impossible_value
from ckaudit.rules.precision.nonfinite_values import nonfinite_values
from ckaudit.rules.rule import FACTS
from ckaudit.rules.updates.update_out_of_band import update_out_of_band
from ckaudit.rules.weights.weights_grow import weights_grow
from ckaudit.run.medians import median
from ckaudit.run.robust import MEDIAN_STANDARD_ERROR_FACTOR, difference_noise, typical_move
from ckaudit.run.series import Floats, Series, at
from ckaudit.run.tensors import loss_vocabulary

MADE_BY_WRONG_SIGN = (impossible_value, initial_loss_off, loss_below_floor, loss_rises)
"""Illnesses that a wrong sign makes by itself; a held-out loss that climbs away has many causes."""


MAX_CLIMB = 1000.0
"""How many times its first a loss may climb to and still tell a wrong sign: steps that overshoot multiply a loss without end."""

FEW_POINTS = 27
"""With fewer points the course of a climb hardly tells an ascent from steps that are too long, on held-out data neither."""

MAX_ERRORS = 2.0
"""Standard errors of their medians by which a part of a climb may lie below the part before."""


@cause(
    prior=-1.0,
    good_checkpoint="none",
    explains=[*MADE_BY_WRONG_SIGN, nonfinite_values, overfitting],
    follows=[
        activation_drift,
        dead_parameter,
        entropy_collapse,
        exploding_gradient,
        frequent_clipping,
        logit_growth,
        loss_not_falling,
        train_val_inverted,
        uniform_heads,
        update_out_of_band,
        weights_grow,
    ],
    wants=[train_loss_raw, val_loss, learning_rate, loss_to_function_ratio, FACTS],
    knob="Turn the sign: minimise the negative log-likelihood, and see that no maximize flag of the optimizer is set.",
    inspect="The line that makes the loss, and the optimizer's options.",
    runbook="Stop; no weight of this run is of use. Take one step on one batch and see whether the loss of that batch falls.",
)
def loss_sign_flipped(
    findings: Findings,
    train: Series | None,
    val: Series | None,
    rate: Series | None,
    ratio: Series | None,
    facts: Manifest | None,
    *,
    alike: float = 0.1,
    decisive: float = 4.0,
    strong: float = 2.0,
    medium: float = 1.0,
) -> Iterator[Evidence]:
    """The training climbs the loss: its sign is wrong.

    A wrong sign shows in where the losses come from and where they go:

    - An untrained model has the cross entropy of a guess, log V. A first loss within `alike` of -log V is that of a guess with
      the wrong sign.
    - Rewards, densities and advantages may be below zero, so that a loss below zero alone says nothing. A loss that falls through
      zero without bound is a sign, and so is a held-out loss that climbs meanwhile.
    - A held-out loss that ends as far above zero as the training loss ends below, within `alike`, is the same quantity with the
      other sign.
    - Where the log shows no wrong sign, the loss climbs past a guess, where no descent leads.
    - Where the cost of a guess is not known, the loss climbs from start to end and does not come to rest. A rate that is too high
      throws a loss about instead.
    - A climb to over `MAX_CLIMB` times the first loss may come from either.
    - Where the loss function was seen, what it returned tells all of this.
    - Log odds are on the common scale (`causes/cause.py`).
    """
    if wrong := findings.first(loss_inputs_wrong):
        yield contradicts(2 * decisive, wrong.message, wrong)
        return
    if train is None or not train.finite.any():
        yield contradicts(decisive, "no loss below zero is recorded", train_loss_raw.name)
        return
    if ratio is not None and ratio.finite.any() and np.allclose(ratio.values[ratio.finite][:3], -1, atol=alike):
        yield supports(1.5 * decisive, "what is trained on is what the loss function returned, with the other sign", ratio.name)
        return
    vocabulary = loss_vocabulary(facts)
    guess = None if vocabulary is None else math.log(vocabulary)
    yield from _by_course(findings, train, val, rate, guess, alike, decisive, strong, medium)


def _by_course(
    findings: Findings,
    train: Series,
    val: Series | None,
    rate: Series | None,
    guess: float | None,
    alike: float,
    decisive: float,
    strong: float,
    medium: float,
) -> Iterator[Evidence]:
    """Judge by where the losses come from and where they go."""
    losses = train.values[train.finite]
    first, last = float(losses[0]), median(losses[-20:])
    explodes = last > MAX_CLIMB * abs(first)
    mirrored = guess is not None and abs(first + guess) < alike * guess
    if (twin := mirrored_held_out_loss(train, val, alike=alike)) is not None:
        yield supports(
            decisive, f"the held-out loss ends at {twin:.3g}, the training loss at {last:.3g}: one has a sign", val_loss.name
        )
    elif not findings.of(*MADE_BY_WRONG_SIGN) and not (last < 0 and _only_rises(val)):
        yield contradicts(decisive, f"the loss ends at {last:.3g}, and the held-out loss is not its mirror image", train.name)
        return
    if last < 0 and (mirrored or _falls_without_bound(losses) or _worsens(val, guess)):
        yield supports(decisive, f"the loss goes from {first:.3g} to {last:.3g}, and nothing holds it below zero", train.name)
    elif last < 0:
        yield contradicts(
            decisive, f"the loss goes from {first:.3g} to {last:.3g}: it may be below zero, and does not run away", train.name
        )
    elif (rise := findings.first(loss_rises)) and _fell_before(train, rise.first_step, first):
        yield contradicts(decisive, f"the loss had fallen from {first:.3g} before it climbed: it was descended", rise)
    elif rise and guess is not None and last > guess:
        yield supports(strong, f"the loss climbs to {last:.3g}, past the {guess:.3g} of a guess", rise)
    elif rise and guess is None and _climbs_throughout(train, rate):
        climb = f"from its start at {first:.3g} on the loss does nothing but climb"
        as_well = explodes or len(losses) < FEW_POINTS
        weight = medium / 2 if explodes else medium if as_well else strong
        yield supports(weight, climb + ", as it does where steps are far too long" * as_well, rise)
    else:
        yield contradicts(decisive, f"the loss goes from {first:.3g} to {last:.3g}, as a loss that is descended", train.name)
    if mirrored:
        yield supports(strong, f"the first loss, {first:.3g}, is that of a guess with the other sign", train.name)
    if val is not None and _worsens(val, guess) and not explodes and len(losses) >= FEW_POINTS:
        values = val.values[val.finite]
        yield supports(medium, f"the held-out loss climbs from {values[0]:.3g} to {values[-1]:.3g}", val.name)


def _only_rises(val: Series | None) -> bool:
    """Tell whether a held-out loss, whose sign is its own, rises at every one of its three or more evaluations."""
    values = val.values[val.finite] if val is not None else np.empty(0)
    return len(values) >= 3 and bool((np.diff(values) > 0).all())


def _fell_before(train: Series, step: int | None, first: float, *, share: float = 0.2) -> bool:
    """Tell whether the loss had fallen by a share of its first value before a step: the median of the last points there."""
    before = train.values[train.finite[:, 0] & (train.steps < (step or 0)), 0]
    return len(before) >= 3 and median(before[-3:]) < (1 - share) * first


def _climbs_throughout(train: Series, rate: Series | None, *, used_up: float = 0.95) -> bool:
    """Tell whether a loss does nothing but climb: to its end, or until the sum of all rates is `used_up`.

    A rate that has decayed moves nothing any more, up or down.
    """
    rows = np.flatnonzero(train.finite[:, 0])
    steps, losses = train.steps[rows].astype(float), train.values[rows, 0]
    if rate is None:
        return _climbs(steps, losses, None)
    used = np.nan_to_num(at(rate, train.steps[rows]).values.max(axis=1), nan=0.0)
    count = int(np.searchsorted(np.cumsum(used), used_up * used.sum())) + 1
    return _climbs(steps, losses, used) or _climbs(steps[:count], losses[:count], used[:count])


def _climbs(
    steps: Floats, losses: Floats, used: Floats | None, *, parts: int = 9, pace: float = 0.5, max_chance: float = 0.01
) -> bool:
    """Tell whether no part of a loss lies below the one before, from the second on, and the climb does not come to rest.

    With fewer than three points a part, the first point must be the lowest, and the rise at most `max_chance` likely by chance
    (Mann-Kendall). A loss that runs away does not count: it is a descent whose steps are too long. Where the rate is not known,
    such a short climb may come to rest, as its rate may have done.
    """
    if len(losses) < 3 * parts:
        trend = theil_sen(steps, losses)
        rises = len(losses) > 2 and trend.slope > 0 and trend.p < max_chance and losses[0] == losses.min()
        return rises and not _runs_away(losses) and (used is None or _goes_on(losses, used, 3, pace))
    levels = [median(part) for part in np.array_split(losses, parts)]
    scatter = MAX_ERRORS * MEDIAN_STANDARD_ERROR_FACTOR * difference_noise(losses) / math.sqrt(len(losses) / parts)
    never_falls = all(later > earlier - scatter for earlier, later in pairwise(levels[1:]))
    # Parts that stand still within their noise never fall either: the climb as a whole must stand out.
    climbs = never_falls and levels[-1] - levels[0] > parts * scatter / 2
    return climbs and _goes_on(losses, np.ones(len(losses)) if used is None else used, parts, pace)


def _goes_on(losses: Floats, used: Floats, parts: int, pace: float) -> bool:
    """Tell whether the loss climbs in its last third by over `pace` of its climb in the middle one, per sum of learning rates.

    Weights that a rate has thrown about come to rest near a guess; an ascent knows no end.
    """
    levels = [median(part) for part in np.array_split(losses, parts)]
    ways = [float(part.sum()) for part in np.array_split(used, parts)]
    third = parts // 3
    middle, end = levels[2 * third - 1] - levels[third - 1], levels[-1] - levels[2 * third - 1]
    return end * sum(ways[third : 2 * third]) > pace * middle * sum(ways[2 * third :])


def _runs_away(losses: Floats, *, times: float = 4.0) -> bool:
    """Tell whether the logarithm of a loss climbs more than `times` as far in its second half as in its first."""
    if losses[0] <= 0:
        return False
    first, middle, last = np.log(losses[[0, len(losses) // 2, -1]])
    return bool(last - middle > times * max(middle - first, 1.0))


def _worsens(val: Series | None, guess: float | None) -> bool:
    """Tell whether the held-out loss, which is measured with its own sign, ends above its start and above a guess."""
    if val is None or not val.finite.any():
        return False
    values = val.values[val.finite]
    return bool(values[-1] > max(values[0], guess or 0.0) and values[-1] > 0)


def _falls_without_bound(losses: Floats, *, noise: float = 10.0, pace: float = 0.5) -> bool:
    """Tell whether a loss ends further below zero than it began above, and does not slow down.

    The loss falls by over `noise` times the usual difference of neighbouring points, and in its second half by over `pace` times
    its fall in the first. A loss that has a lower bound, such as a reward or a density, comes to rest.
    """
    if len(losses) < 3:
        return False
    width = max(1, len(losses) // 10)
    middle = len(losses) // 2
    start, halfway, end = (median(part) for part in (losses[:width], losses[middle:][:width], losses[-width:]))
    usual = typical_move(losses)
    # Neighbouring points of a smooth curve differ by its slope: what is left without the slope is noise.
    usual = min(usual, median(np.abs(np.diff(losses, n=2))))
    return end < -abs(start) and start - end > noise * usual and halfway - end > pace * (start - halfway) > 0
