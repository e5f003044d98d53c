"""ACT001: units never fire."""

from collections.abc import Iterator

from ckaudit.metrics.activations import dead_unit_fraction
from ckaudit.rules.rule import Hit, Skip, rule, too_few
from ckaudit.run.series import Series
from ckaudit.run.spans import spans


@rule("ACT001", severity="sev2", needs=[dead_unit_fraction], unit="1", memory=2)
def dead_units(dead: Series, *, most: float = 0.5, note: float = 0.1, min_points: int = 2) -> Iterator[Hit | Skip]:
    """Units never fire.

    ## What it checks
    The share of each module's units that stay below 1e-3 over a whole batch (F8): over `most` at `min_points` checkpoints
    in a row is sev2, over `note` is noted (lab: healthy modules at most 0.04 after the first steps, ill ones 0.9 and
    more).
    ## Why it matters
    A unit that never fires gets no gradient and cannot come back: the model is narrower than was paid for.
    ## False alarms
    Sparse units fire on some token of a large batch, and are not dead. In the first steps of a tiny initialization all
    are below the limit.
    """
    yield from too_few(dead, min_points)
    for span in spans(dead, dead.values > most, min_points=min_points):
        yield Hit.over(
            span,
            "sev2",
            "{value:.0%} of the units of {where} never fire; the limit is {limit:.0%}",
            badness=dead.values,
            limit=most,
        )
    for span in spans(dead, (dead.values > note) & (dead.values <= most), min_points=min_points):
        yield Hit.over(
            span, "note", "{value:.0%} of the units of {where} are silent over a whole batch", badness=dead.values, limit=note
        )
