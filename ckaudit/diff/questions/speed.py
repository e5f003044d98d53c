"""How long a step takes."""

import numpy as np

from ckaudit.diff.both import Both
from ckaudit.diff.questions.question import Said, lower_is_better, missing, question
from ckaudit.metrics.speed import step_time, tokens_per_sec


@question(place=10, weighs="cost")
def speed(both: Both, *, noise: float = 0.05, grave: float = 0.2) -> Said:
    """How long does a step take?

    The median, which no checkpoint and no evaluation moves; tokens per second where no step was timed.

    Args:
        both: The runs.
        noise: Share by which a machine that does nothing else differs from itself from one start to the next.
        grave: Share from which the pair as a whole is better or worse: a fifth is what a busy neighbour does to the same
            training on a shared machine (docs/diff-calibration.md).
    """
    times = [step_time(side.run) for side in (both.left, both.right)]
    if all(times):
        left, right = (float(np.median(series.values[series.finite])) for series in times)
        said = f"a step takes {left:.3g} s and {right:.3g} s"
        word, unit = lower_is_better(left, right, noise * left), "s"
    else:
        rates = [tokens_per_sec(side.run) for side in (both.left, both.right)]
        if not all(rates):
            return missing(both, "step_time", "tokens_per_sec")
        left, right = (float(np.median(series.values[series.finite])) for series in rates)
        said = f"{left:.4g} and {right:.4g} tokens per second"
        word, unit = lower_is_better(-left, -right, noise * left), "tokens/s"
    sentence = f"{said}, {right / left - 1:+.0%}; below {noise:.0%} is noise"
    return Said(
        word=word, sentence=sentence, left=left, right=right, band=noise * left, unit=unit, grave=abs(right / left - 1) > grave
    )
