"""How much memory a training takes."""

import numpy as np

from ckaudit.diff.questions.question import PairAnswer, lower_is_better, missing, question
from ckaudit.diff.run_pair import Both
from ckaudit.metrics.hardware import gpu_mem_used


@question(place=11, weighs="cost")
def memory(both: Both, *, noise: float = 0.02, grave: float = 0.2) -> PairAnswer:
    """How much memory does it take?

    The most that any device had in use.

    Args:
        both: The runs.
        noise: Share that an allocator keeps or gives back as it likes.
        grave: Share from which the pair as a whole is better or worse, as for speed.
    """
    used = [gpu_mem_used(side.run) for side in (both.left, both.right)]
    if not all(series.finite.any() for series in used):
        return missing(both, "gpu_mem_used")
    left, right = (float(np.max(series.values[series.finite])) for series in used)
    change = right / left - 1 if left else np.inf
    return PairAnswer(
        word=lower_is_better(left, right, noise * left),
        left=left,
        right=right,
        band=noise * left,
        unit="bytes",
        sentence=f"{left / 2**30:.3g} GiB and {right / 2**30:.3g} GiB at most, {change:+.0%}; below {noise:.0%} is noise",
        grave=abs(change) > grave,
    )
