"""PLAY001: a logged number takes the bad shape of its playbook."""

from collections.abc import Callable, Iterator

import numpy as np

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.metrics.hardware import compute_time_frac
from ckaudit.metrics.loss import learnt_since, train_loss_raw
from ckaudit.metrics.optimizer import learning_rate
from ckaudit.metrics.playbook import BAD_SHAPES, BadShape, playbook_numbers
from ckaudit.rules.rule import FACTS, Hit, Skip, rule
from ckaudit.run.curve_shapes import (
    Turn,
    hump,
    lasting_fall,
    lasting_rise,
    lasting_turn,
    shift,
    slide,
    spike,
    surge,
    warms_up_again,
)
from ckaudit.run.medians import median
from ckaudit.run.robust import ENOUGH_FOR_NOISE, difference_noise
from ckaudit.run.run_facts import is_reinforcement_learning
from ckaudit.run.series import Floats, Series, Steps, at, has_precedent

MIN_SHARE_OF_WAY = 0.2
"""A point holds the other level from this share of the way between both levels on; a slow rise has points in between."""


@rule("PLAY001", severity="sev2", needs=[playbook_numbers], wants=[train_loss_raw, learning_rate, FACTS], unit="1")
def off_its_playbook(
    numbers: Series,
    loss: Series | None,
    rate: Series | None,
    facts: Manifest | None,
    *,
    min_share_of_few: float = 0.3,
    learnt: float = 0.5,
    min_points: int = 3,
) -> Iterator[Hit | Skip]:
    """A logged number takes the bad shape of its playbook.

    ## What it checks
    The rule compares each logged number that no rule of its own judges, from `min_points` points on, with the bad shape that its
    playbook names. How far it must go is declared for each number.

    - A rise or fall of the level that lasts to the end: perplexities, probe loss, balance loss, duplicates, checkpoint time and
      size, tokens per update, clip rate, time spent computing.
    - A change of level up or down: residual of the scaling law.
    - A hump: noise scale.
    - A jump of a number that had settled: divergence of a probe's answers.
    - A slide that does not slow down: curvature, spectral norm, residual stream, outliers, entropy and top mass of a probe.
    - A second rise after the number had settled: update over weight.
    - A second warm-up of the learning rate, a phase that goes back, and a constant that changes.
    - A change must exceed five standard errors of the noise. With fewer than eight points the noise is unknown: a fall or rise
      must then come to a share of `min_share_of_few`.
    ## Why it matters
    Whoever logs such a number relies on somebody to look at it.
    ## False alarms
    Some changes are ordinary:

    - Warm-ups and what is learnt change fast at first and slow down: they are neither a slide nor a second rise.
    - A probe's answers become surer as the loss falls. Where the training loss fell by `learnt` of what the entropy fell by, the
      model learnt them.
    - Batches that grow as planned do not fall. A batch that is cut short is no level: two points of few, and most of the last
      three, must hold a level.
    - An update follows the learning rate: it must surge over that as well.
    - Where a plateau is left, the gradient grows under plain descent, and the update with it. Such a surge is left out where the
      loss has since fallen by `learnt` of itself.
    - A residual that comes to nothing is better.
    - A policy plays between updates, as long as its episodes last: its time spent computing is not judged.
    - A rate with restarts that has fewer than eight points may look like a second warm-up.
    """
    short = []
    if is_reinforcement_learning(facts):
        numbers = numbers.only(lambda name: name != compute_time_frac.name)
        if not numbers.labels:
            yield Skip("not_applicable", "a policy plays between updates")
            return
    for column, label in enumerate(numbers.labels):
        known = np.flatnonzero(numbers.finite_in(column))
        values = numbers.values[known, column]
        if len(values) < min_points:
            short += [label] if len(values) else []
            continue
        for shape in BAD_SHAPES[label.partition("/")[0]]:
            if shape.kind == "spikes":  # from one checkpoint to the next
                known = known[has_precedent(numbers.steps[known])]
                values = numbers.values[known, column]
            turn = _turn(values, shape, min_share_of_few)
            if turn is None or (shape.kind == "slides down" and _is_learnt(loss, numbers.steps[known], turn, learnt)):
                continue
            if shape.kind in ("surges", "spikes") and not _surges_per_rate(
                rate, numbers.steps[known], values, shape, min_share_of_few
            ):
                continue
            rows = known[turn.first : turn.last + 1]
            if shape.kind == "surges" and loss is not None and learnt_since(loss, int(numbers.steps[rows[0]])) > learnt:
                continue
            yield Hit.at(
                numbers.steps[rows],
                "note" if shape.note else "sev2",
                _SENTENCES[shape.kind],
                where=label,
                value=turn.after,
                limit=turn.before,
            )
            break
    if len(short) == int(numbers.finite.any(axis=0).sum()):
        yield Skip("too_few_points", f"fewer than {min_points} points of {', '.join(short) or 'any'}")


def _turn(values: Floats, shape: BadShape, few: float) -> Turn | None:
    """Return where values take a bad shape; a turn that ends below the shape's floor does not matter."""
    left = values if shape.top is None else np.maximum(shape.top - values, 1e-9)
    turn = _JUDGES[shape.kind](left, shape.size, few)
    if turn is None or not _is_held(left, turn, shape.kind):
        return None
    if shape.top is not None:
        turn = Turn(turn.first, turn.last, shape.top - turn.before, shape.top - turn.after)
    return turn if turn.after >= shape.floor else None


def _is_held(values: Floats, turn: Turn, kind: str) -> bool:
    """Tell whether enough points hold both levels of a turn, or a peak stands out of the noise on a log scale.

    A single first or last point, such as a truncated batch or a checkpoint without its optimizer, is not a level.
    """
    has_many = len(values) >= ENOUGH_FOR_NOISE
    if kind in _LEVELS:
        side = np.sign(turn.after - turn.before)
        is_after = side * (values - turn.before) > MIN_SHARE_OF_WAY * abs(turn.after - turn.before)
        return bool(not is_after[1:].all() and (is_after[-3:].sum() >= 2 if has_many else is_after[-2:].all()))
    if kind in _PEAKS:
        scatter = difference_noise(np.log(values)) if has_many and values.min() > 0 else 0.0
        return turn.after > turn.before * np.exp(3 * scatter) and (kind == "humps" or turn.first >= 2)
    return True


def _inverted(judge: Callable[[Floats, float], Turn | None], values: Floats, size: float) -> Turn | None:
    """Return the fall of a positive curve that a judge of rises finds in its inverse."""
    turn = judge(1 / values, size) if values.min() > 0 else None
    return turn and Turn(turn.first, turn.last, 1 / turn.before, 1 / turn.after)


def _leaves(values: Floats, min_shift: float) -> Turn | None:
    """Return where a difference from what is expected changes its level, and not towards zero."""
    turn = shift(values, min_change=min_shift)
    return turn if turn is not None and abs(turn.after) > abs(turn.before) else None


def _goes_back(values: Floats, share: float) -> Turn | None:
    """Return the first fall, by a share of the whole range, below the highest value before it."""
    behind = np.maximum.accumulate(values) - values
    far = np.flatnonzero(behind > share * float(np.ptp(values)))
    if not len(far) or values.max() <= 0:
        return None
    row = int(far[0])
    return Turn(row, len(values) - 1, float(values[:row].max()), float(values[row]))


def _differs(values: Floats, share: float) -> Turn | None:
    other = np.flatnonzero(np.abs(values - values[0]) > share * abs(values[0]))
    return Turn(int(other[0]), len(values) - 1, float(values[0]), float(values[other[0]])) if len(other) else None


def _stays_high(values: Floats, limit: float) -> Turn | None:
    late = values[len(values) // 3 :]
    return Turn(len(values) // 3, len(values) - 1, limit, median(late)) if median(late) > limit else None


_JUDGES: dict[str, Callable[[Floats, float, float], Turn | None]] = {
    "rises": lambda values, size, few: lasting_rise(values, share=size, share_alone=max(size, few)),
    "falls": lambda values, size, few: lasting_fall(values, share=size, share_alone=max(size, few)),
    "is never back": lambda values, size, _: lasting_turn(values, share=size),
    "is never back up": lambda values, size, _: _inverted(
        lambda inverse, share: lasting_turn(inverse, share=share), values, size
    ),
    "shifts": lambda values, size, _: _leaves(values, size),
    "humps": lambda values, size, _: hump(values, times=size),
    "slides up": lambda values, size, _: slide(values, times=size),
    "slides down": lambda values, size, _: _inverted(lambda inverse, times: slide(inverse, times=times), values, size),
    "surges": lambda values, size, _: surge(values, times=size),
    "spikes": lambda values, size, _: spike(values, times=size),
    "warms up again": lambda values, *_: warms_up_again(values) if len(values) >= ENOUGH_FOR_NOISE else None,
    "goes back": lambda values, size, _: _goes_back(values, size),
    "differs": lambda values, size, _: _differs(values, size),
    "stays high": lambda values, size, _: _stays_high(values, size),
}
_LEVELS = ("rises", "falls", "is never back", "is never back up")
_PEAKS = ("humps", "surges", "spikes")
_SENTENCES = {
    "rises": "{where} rises to {value:.4g} and stays there; it was {limit:.4g}",
    "falls": "{where} falls to {value:.4g} and stays there; it was {limit:.4g}",
    "is never back": "{where} is {value:.4g}, and {limit:.4g} was its lowest: it never came back",
    "is never back up": "{where} is {value:.4g}, and {limit:.4g} was its highest: it never came back",
    "shifts": "the level of {where} changes to {value:.4g} and stays there; it was {limit:.4g}",
    "humps": "{where} jumps to {value:.4g}; before and after it is {limit:.4g}",
    "slides up": "{where} grows and does not slow down: {value:.4g} at the end, {limit:.4g} in the middle of the run",
    "slides down": "{where} runs to one side and does not slow down: {value:.4g} at the end, {limit:.4g} in the middle",
    "spikes": "{where} jumps to {value:.4g}; it had settled at {limit:.4g}",
    "surges": "{where} rises to {value:.4g} after it had settled at {limit:.4g}",
    "warms up again": "{where} drops to {value:.3g} from its peak of {limit:.3g} and warms up a second time",
    "goes back": "{where} goes back to {value:.4g}, and had reached {limit:.4g}: a schedule is another one from there on",
    "differs": "{where} is {value:.6g} and was {limit:.6g}: what must not change has changed",
    "stays high": "{where} stays at {value:.3g}, above {limit:.3g}",
}


def _surges_per_rate(rate: Series | None, steps: Steps, values: Floats, shape: BadShape, few: float) -> bool:
    """Tell whether a number surges relative to the learning rate as well: an update, and what it changes, follow the schedule."""
    planned = at(rate, steps).values[:, 0] if rate is not None else np.full(len(steps), np.nan)
    known = planned > 0
    return known.sum() < len(steps) // 2 or _turn(values[known] / planned[known], shape, few) is not None


def _is_learnt(loss: Series | None, steps: Steps, turn: Turn, share: float) -> bool:
    """Tell whether the training loss fell over a slide by at least a share of what the entropy fell by, both in logs."""
    if loss is None or min(turn.before, turn.after) <= 0:
        return False
    inside = loss.values[(loss.steps >= steps[turn.first]) & loss.finite[:, 0], 0]
    third = len(inside) // 3
    if third < 1 or inside.min() <= 0:
        return False
    fallen = np.log(median(inside[:third]) / median(inside[-third:]))
    return bool(fallen > share * abs(np.log(turn.before / turn.after)))
