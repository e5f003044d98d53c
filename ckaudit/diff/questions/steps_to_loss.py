"""How many steps it takes to come as far down as both did."""

import numpy as np
from msgspec.structs import replace

from ckaudit.diff.questions.levels import broken
from ckaudit.diff.questions.question import PairAnswer, lower_is_better, missing, question
from ckaudit.diff.run_pair import Both, level
from ckaudit.metrics.loss import train_loss_raw
from ckaudit.run.series import Floats


@question(place=5, weighs="loss")
def steps_to_loss(both: Both) -> PairAnswer:
    """How many steps does it take to the same loss?

    The loss is the higher of the lowest levels that both reached. The noise of the level, over how fast the loss fell
    there, is that of the steps. A loss that ended as no number is at no level.
    """
    if answer := broken(both.in_training, train_loss_raw):
        return replace(answer, left=None, right=None, unit="steps")
    stretches = both.in_training.stretches(train_loss_raw)
    if stretches is None or len(stretches.first) < 4:
        return missing(both, "train_loss_raw")
    down = [np.minimum.accumulate(column) for column in (stretches.left, stretches.right)]
    aim = max(float(column[-1]) for column in down)
    middle = (stretches.first + stretches.last) / 2
    left, right = (_reached(middle, column, aim) for column in down)
    rows = np.searchsorted(middle, [min(left, right), max(left, right)])
    row = int(min(rows[1], len(middle) - 1))
    before = max(0, min(int(rows[0]), row) - 1)
    fall = (down[0][before] - down[0][row] + down[1][before] - down[1][row]) / 2
    pace = fall / max(1.0, middle[row] - middle[before])
    _, _, noise = level(stretches)
    here = noise / stretches.spread[-1] * float(stretches.spread[row])
    whole = float(middle[-1] - middle[0])
    band = min(whole, here / pace) if pace > 0 else whole
    word = lower_is_better(left, right, band)
    sentence = f"a loss of {aim:.4g} is reached at step {left:.0f} and at step {right:.0f}; noise explains {band:.0f} steps"
    return PairAnswer(word=word, sentence=sentence, left=round(left), right=round(right), band=band, unit="steps")


def _reached(steps: Floats, down: Floats, aim: float) -> float:
    """Return where a falling curve comes down to `aim`, between its points on a straight line."""
    row = int(np.argmax(down <= aim))
    if row == 0 or down[row - 1] == down[row]:
        return float(steps[row])
    above, goal, below = (value / 2 for value in (down[row - 1], aim, down[row]))  # halves: no difference overflows
    share = (above - goal) / (above - below)
    return float(steps[row - 1] + share * (steps[row] - steps[row - 1]))
