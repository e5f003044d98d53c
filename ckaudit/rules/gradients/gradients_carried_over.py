"""GRAD010: gradients of earlier steps are left in those of this one."""

from collections.abc import Iterator

from ckaudit.metrics.gradients import grad_carried_over
from ckaudit.rules.rule import Hit, Skip, rule
from ckaudit.run.series import Series
from ckaudit.run.spans import spans


@rule("GRAD010", severity="sev1", needs=[grad_carried_over], unit="1", memory=2)
def gradients_carried_over(carried: Series, *, max_carried_share: float = 0.05, min_points: int = 2) -> Iterator[Hit | Skip]:
    """Gradients of earlier steps are left in those of this one.

    ## What it checks
    The rule measures the share of the gradient that stood there before the step's own backward passes. Where gradients are
    cleared it is exactly 0 in any precision, for nothing is computed from nothing: any other value is a gradient that was not
    cleared.

    - A share over `max_carried_share` is sev1 at `min_points` points in a row, and sev2 at fewer. It turns the update by up to 3
      degrees (the arc sine of 0.05 / 0.95).
    - A smaller share is a note.
    - In the lab the share is 0.3 to 0.8 where gradients are not cleared.
    ## Why it matters
    Each update repeats those before it, with a step size that nobody chose. Where clipping cuts the sum down in place, norm and
    loss look only somewhat worse than they should.
    ## False alarms
    A loop may keep a part of the old gradient on purpose. Accumulation over several passes is not reported: the rule looks
    between two updates only.
    """
    high = carried.values > max_carried_share
    for span in spans(carried, high):
        yield Hit.over(
            span,
            "sev1" if span.points >= min_points else "sev2",
            "{value:.0%} of the gradient was there before the backward pass of the step: it is not cleared",
            badness=carried.values,
            limit=max_carried_share,
        )
    for span in spans(carried, (carried.values > 0) & ~high):
        yield Hit.over(
            span,
            "note",
            "{value:.2g} of the gradient was there before the backward pass of the step: it is not cleared",
            badness=carried.values,
            limit=0.0,
        )
