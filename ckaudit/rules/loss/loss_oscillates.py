"""LOSS008: the loss goes up and down and gets nowhere."""

from collections.abc import Iterator

import numpy as np

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.metrics.loss import train_loss_raw
from ckaudit.metrics.optimizer import learning_rate
from ckaudit.rules.rule import FACTS, Hit, Skip, rule
from ckaudit.run.negligible_changes import SOLVED
from ckaudit.run.oscillation import MIN_POINTS, oscillation
from ckaudit.run.run_facts import why_loss_need_not_fall
from ckaudit.run.series import Floats, Series, Steps

MIN_SWING_POINTS = 4
"""Three points swing twice, as noise often does."""

LEAP, MAX_LEAP_SHARE, MIN_POINTS_OF_LEAPS = 100.0, 0.1, 20
"""Batches of one kind of data differ less: of 484 public logs none changes a hundredfold at more than 4.2 % of its points."""

RATE_RATIO = 1.5
"""Factor by which a learning rate that goes down and up again must change each way."""


@rule("LOSS008", severity="sev2", needs=[train_loss_raw], wants=[learning_rate, FACTS], unit="nats/token")
def loss_oscillates(
    loss: Series,
    rate: Series | None,
    facts: Manifest | None,
    *,
    min_swing: float = 0.2,
    min_power: float = 0.5,
    max_chance: float = 3e-3,
    max_progress: float = 0.5,
) -> Iterator[Hit | Skip]:
    """The loss goes up and down and gets nowhere.

    ## What it checks
    The rule looks at the loss after its first fall, at any number of points. From eight points on, all of the first four hold:

    - The loss swings by at least `min_swing` of its level.
    - One period holds at least `min_power` of the variance, over three cycles at least.
    - Chance gives so strong a period with a probability below `max_chance` (Fisher's g test, 1929).
    - From its first third to its last, the loss moves by less than `max_progress` of a swing; by less than half of that, where
      the means of five cycles or more fall steadily.
    - From 20 points on: the loss changes a hundredfold from one point to the next at a tenth of them.
    - With fewer than eight points: the last four points go up and down three times, each time by 0.85 of `min_swing`. In a curve
      of hardly any noise, the last four turning points may do so too, three quarters as far.
    ## Why it matters
    Steps that are too large, or two batches that pull against each other, cost all progress though nothing diverges (FX-1, D2.1).
    Batches whose losses lie decades apart are of different scales: the largest decide each update.
    ## False alarms
    A loss that swings with a learning rate that is restarted on purpose is a note, and so is a loss below a tenth of its first.
    Noise has no period, and neither has a generator's loss that wanders.
    """
    if why := why_loss_need_not_fall(facts):
        yield Skip("not_applicable", why)
        return
    steps, values = loss.finite_points()
    if len(values) < MIN_SWING_POINTS:
        yield Skip("too_few_points", f"{len(values)} finite points of the loss; {MIN_SWING_POINTS} are needed")
        return
    if hit := _leaps(steps, values):
        yield hit
        return
    swing = oscillation(values, min_swing=min_swing, min_power=min_power, max_chance=max_chance, max_progress=max_progress)
    if swing is None:
        return
    times = f"{swing.cycles:.0f} times" if len(values) >= MIN_POINTS else f"in the {len(values)} points that there are"
    why = ", as the learning rate does" if rate is not None and _is_cyclic(rate, swing.cycles) else ""
    if 0 < swing.high < SOLVED * values[0]:
        why = ", below a tenth of its first: what is left are single rows"
    yield Hit.at(
        steps[swing.first :],
        "note" if why else "sev2",
        f"the loss goes up and down between {{limit:.4g}} and {{value:.4g}}, {times}, and gets no lower{why}",
        where="loss",
        value=swing.high,
        limit=swing.low,
        worst=int(np.argmax(values[swing.first :])),
    )


def _leaps(steps: Steps, values: Floats) -> Hit | None:
    """Return the hit of a loss that changes a hundredfold again and again, above a tenth of its first value."""
    if (
        len(values) < MIN_POINTS_OF_LEAPS
        or values.min() <= 0
        or np.quantile(values[len(values) // 4 :], 0.9) < SOLVED * values[0]
    ):
        return None
    ratio = np.abs(np.diff(np.log(values))) > np.log(LEAP)
    if ratio.mean() <= MAX_LEAP_SHARE:
        return None
    message = f"the loss changes a hundredfold from one point to the next at {ratio.mean():.0%} of them: batches differ in scale"
    worst = int(np.argmax(values))
    return Hit.at(steps, "sev2", message, where="loss", value=float(values[worst]), limit=float(values.min()), worst=worst)


def _is_cyclic(rate: Series, cycles: float) -> bool:
    """Tell whether the learning rate goes down and up again at least half as often as the loss does; a warm-up only goes up."""
    values = rate.finite_points()[1]
    if len(values) < MIN_POINTS:
        return False
    turn, rises, is_down = float(values[0]), 0, False
    for value in values.tolist():
        if is_down and value > RATE_RATIO * turn:
            rises += 1
        if value > RATE_RATIO * turn if is_down else RATE_RATIO * value < turn:
            is_down, turn = not is_down, value
        turn = min(turn, value) if is_down else max(turn, value)
    return rises >= cycles / 2
