"""DATA002: targets are the inputs."""

from collections.abc import Iterator

import numpy as np

from ckaudit.metrics.data import target_equals_input as equal_share
from ckaudit.metrics.data import target_shift_match
from ckaudit.rules.rule import Hit, Skip, rule
from ckaudit.run.series import Series, at
from ckaudit.run.spans import spans


@rule("DATA002", severity="sev0", needs=[equal_share], wants=[target_shift_match], unit="1")
def target_equals_input(equal: Series, match: Series | None, *, max_equal_share: float = 0.9) -> Iterator[Hit | Skip]:
    """Targets are the inputs.

    ## What it checks
    The share of targets that are their own input token. Above `max_equal_share` the shift by one is missing (playbook D5.1). In
    the lab's dev split it is at most 0.09 in all other runs, and 1 where the shift is left out.
    ## Why it matters
    The model learns to copy: the training loss goes to zero, and it predicts nothing.
    ## False alarms
    Where one token is repeated throughout, targets equal both their own and the next input: then it is silent.
    """
    shifted = np.zeros(equal.values.shape) if match is None else np.nan_to_num(at(match, equal.steps).values[:, :1])
    for span in spans(equal, (equal.values > max_equal_share) & (shifted <= max_equal_share)):
        yield Hit.over(
            span,
            "sev0",
            "{value:.1%} of the targets are the input token itself: the shift by one is missing",
            badness=equal.values,
            limit=max_equal_share,
        )
