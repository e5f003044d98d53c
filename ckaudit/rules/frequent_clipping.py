"""CLIP001: gradient clipping acts at almost every step."""

from collections.abc import Iterator

from ckaudit.metrics.optimizer import clip_coefficient, grad_clip_rate
from ckaudit.rules.rule import Hit, Skip, rule
from ckaudit.run.series import Series, at
from ckaudit.run.spans import spans


@rule("CLIP001", severity="sev2", needs=[grad_clip_rate, clip_coefficient], unit="1", memory=100)
def frequent_clipping(
    rate: Series, coefficient: Series, *, warmup: int = 100, note_rate: float = 0.5, max_rate: float = 0.9, deep: float = 0.1
) -> Iterator[Hit | Skip]:
    """Clipping acts at almost every step and takes most of the gradient away.

    ## What it checks
    The share of clipped steps in the last hundred (M10), not in the first `warmup` steps. Above `max_rate`, while clipping
    leaves less than `deep` of the gradient, it hides a cause (playbook D4.4); above `note_rate` it is noted.
    ## Why it matters
    Clipping that never rests is a second learning rate, set by whichever tensor is largest (TRI-3).
    ## False alarms
    Many healthy recipes clip at nearly every step but mildly: the norm hovers around the limit. That stays a note.
    """
    late = rate.steps > warmup
    if not late.any():
        yield Skip("too_few_points", f"the first {warmup} steps are not judged, and the run has no more")
        return
    left = at(coefficient, rate.steps).values  # (T, 1)
    high = (rate.values > max_rate) & (left < deep) & late[:, None]
    for span in spans(rate, high):
        yield Hit.over(
            span, "sev2", "clipping leaves {value:.2g} of the gradient, at nearly every step; below {limit:.1g} it hides a cause",
            badness=-left, value=left, limit=deep,
        )  # fmt: skip
    for span in spans(rate, (rate.values > note_rate) & ~high & late[:, None]):
        yield Hit.over(
            span, "note", "{value:.0%} of the last hundred steps were clipped, mildly", badness=rate.values, limit=note_rate
        )
