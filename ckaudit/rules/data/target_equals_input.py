"""DATA002: targets are the inputs."""

from collections.abc import Iterator

import numpy as np

from ckaudit.contract.schema.report import Severity
from ckaudit.metrics.data import embedded_shift_match, target_equals_embedded, target_shift_match
from ckaudit.metrics.data import target_equals_input as equal_share
from ckaudit.metrics.loss_function import explained_share
from ckaudit.rules.rule import Hit, Skip, needs_one_of, rule
from ckaudit.run.series import Series, at
from ckaudit.run.spans import spans


@rule(
    "DATA002",
    severity="sev0",
    needs=[],
    wants=[equal_share, target_shift_match, target_equals_embedded, embedded_shift_match, explained_share],
    unit="1",
)
def target_equals_input(
    equal: Series | None,
    match: Series | None,
    embedded: Series | None,
    embedded_match: Series | None,
    explained: Series | None,
    *,
    max_equal_share: float = 0.9,
    min_explained_share: float = 0.99,
) -> Iterator[Hit | Skip]:
    """Targets are the inputs.

    ## What it checks
    How many targets are what the model reads at their own place:

    - The share of targets that are their own input token is above `max_equal_share`: the shift by one is missing (playbook D5.1).
      In the lab's dev split it is at most 0.09 in all other runs, and 1 where the shift is left out.
    - The share of targets that an embedding reads at their own place is above `max_equal_share`: a decoder reads what it is to
      write, or nothing hides the words that are to be filled in (of BERT's a tenth are left as they are).
    - What an embedding reads is sev2, for reconstructing a text may be meant. It is a note where the model saves less than
      `min_explained_share` of what a constant guess costs: a model that may copy saves all of it.
    ## Why it matters
    The model learns to copy: the training loss goes to zero, and it predicts nothing.
    ## False alarms
    Where one token is repeated throughout, targets equal both their own and the next input: the rule is silent. It is silent too
    where another embedding reads the token before, as in the decoder of a model that puts a text together again.
    """
    if equal is None and embedded is None:
        yield needs_one_of(equal_share, target_equals_embedded)
        return
    missing = "{value:.1%} of the targets are the input token itself: the shift by one is missing"
    shown = "{value:.1%} of the targets are what an embedding reads at their place: the model need only copy them"
    yield from _copies(equal, match, "sev0", missing, max_equal_share)
    if equal is None or not (equal.values > max_equal_share).any():
        saved = explained.late_median() if explained is not None else None
        severity: Severity = "note" if saved is not None and saved < min_explained_share else "sev2"
        yield from _copies(embedded, embedded_match, severity, shown, max_equal_share)


def _copies(equal: Series | None, match: Series | None, severity: Severity, message: str, limit: float) -> Iterator[Hit]:
    """Yield where targets equal the input tokens at their own position, unless they also equal those at the next one."""
    if equal is None:
        return
    shifted = np.zeros(equal.values.shape) if match is None else np.nan_to_num(at(match, equal.steps).values[:, :1])
    for span in spans(equal, (equal.values > limit) & (shifted <= limit)):
        yield Hit.over(span, severity, message, badness=equal.values, limit=limit)
