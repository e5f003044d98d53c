"""ACT001: units never fire."""

from collections.abc import Iterator

import numpy as np

from ckaudit.metrics.activations import activation_sparsity, dead_unit_fraction
from ckaudit.rules.rule import Hit, Skip, needs_one_of, rule, too_few
from ckaudit.run.series import Series
from ckaudit.run.spans import spans


@rule("ACT001", severity="sev2", needs=[], wants=[dead_unit_fraction, activation_sparsity], unit="1")
def dead_units(
    dead: Series | None,
    sparsity: Series | None,
    *,
    max_dead_share: float = 0.8,
    note_dead_share: float = 0.1,
    min_points: int = 2,
    max_firing: float = 0.02,
    max_left_share: float = 0.25,
) -> Iterator[Hit | Skip]:
    """Units never fire.

    ## What it checks
    The rule takes the share of each module's units that stay below 1e-3 over a whole batch (F8).

    - A share of silent units over `max_dead_share` at `min_points` checkpoints in a row is sev2, and one over `note_dead_share`
      is a note.
    - Where a module's units were not counted, the share of its outputs that are not zero counts: at most `max_firing`, and at
      most `max_left_share` of what it was, up to the last checkpoint, is sev2.
    - A module whose outputs are nothing but zeros throughout is a note.
    ## Why it matters
    A unit that never fires gets no gradient and cannot come back: the model is narrower than was paid for.
    ## False alarms
    Some healthy modules are mostly silent:

    - Sparse units fire on some token of a large batch, and are not dead.
    - A fully connected layer behind a ReLU loses 30 to 70 % of its units in the first steps of Adam, and the model learns all the
      same (textbook CNNs of seven seeds).
    - Some layers of large language models have more than 70 % dead units (Voita et al. 2023).
    - In the first steps of a tiny initialization all units are below the limit.
    - Half of the outputs of a ReLU are zero, and nearly all outputs are where the largest are chosen or experts are routed to:
      from the start, and so they stay.
    - Wide layers of ReLU that were trained for long come to one output in thirty (Li et al. 2023). Their units fire on other
      tokens, which a count of units shows.
    """
    if dead is None and sparsity is None:
        yield needs_one_of(dead_unit_fraction, activation_sparsity)
        return
    if dead is not None:
        yield from too_few(dead, min_points)
        silent = np.where(dead.finite, dead.values, np.nan)
        ill = silent > max_dead_share
        for span in spans(dead, ill, min_points=min_points):
            yield Hit.over(
                span,
                "sev2",
                "{value:.0%} of the units of {where} never fire; the limit is {limit:.0%}",
                badness=dead.values,
                limit=max_dead_share,
            )
        for span in spans(dead, (silent > note_dead_share) & ~ill, min_points=min_points):
            yield Hit.over(
                span,
                "note",
                "{value:.0%} of the units of {where} are silent over a whole batch",
                badness=dead.values,
                limit=note_dead_share,
            )
    if sparsity is not None:
        counted = set(dead.labels) if dead is not None else set()
        yield from _by_zeros(sparsity.only(lambda name: name not in counted), max_firing, max_left_share, min_points)


def _by_zeros(sparsity: Series, max_firing: float, max_left: float, min_points: int) -> Iterator[Hit | Skip]:
    """Judge modules by the share of their outputs that are zero; in a run of few points the last point alone is enough."""
    if not sparsity.labels:
        return
    yield from too_few(sparsity, 3)
    firing = np.where(sparsity.finite, 1 - sparsity.values, np.nan)
    before = np.fmax.accumulate(firing, axis=0)
    is_low = (firing <= max_firing) & (firing <= max_left * before) & (before > 0)
    last = {label: sparsity.steps[np.flatnonzero(sparsity.finite_in(place))[-1:]] for place, label in enumerate(sparsity.labels)}
    for span in spans(sparsity, is_low, min_points=min_points if sparsity.points > 5 else 1):
        if span.last in last[span.label]:
            yield Hit.over(
                span,
                "sev2",
                "{value:.1%} of the outputs of {where} are zero up to the last checkpoint; earlier, fewer were",
                badness=sparsity.values,
                limit=1 - max_firing,
            )
    for span in spans(sparsity, (firing == 0) & (before == 0), min_points=3):
        if span.last in last[span.label]:
            yield Hit.over(span, "note", "all outputs of {where} are zero", badness=sparsity.values, limit=1 - max_firing)
