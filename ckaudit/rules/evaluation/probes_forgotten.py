"""PRB001: what was learnt early is forgotten again."""

from collections.abc import Iterator

from ckaudit.metrics.memorization import forgetting
from ckaudit.rules.rule import Hit, Skip, rule, too_few
from ckaudit.run.series import Series
from ckaudit.run.spans import spans


@rule("PRB001", severity="sev2", needs=[forgetting], unit="1")
def probes_forgotten(
    ratio: Series, *, sev2_ratio: float = 1.5, note_ratio: float = 1.2, min_points: int = 3
) -> Iterator[Hit | Skip]:
    """What was learnt early is forgotten again.

    ## What it checks
    The rule divides each probe's perplexity by its lowest so far. Over `sev2_ratio` at `min_points` checkpoints in a row, the
    probe is forgotten; over `note_ratio`, it is a note (D5.5: low on early slices is good, rising is bad; half more perplexity is
    0.4 nats per token).
    ## Why it matters
    New data pushes out what older data taught: the mixture or the learning rate does not suit further training (SR-2).
    ## False alarms
    After a restart of the learning rate, single checkpoints forget for a moment; three in a row do not.
    """
    yield from too_few(ratio, min_points)
    for span in spans(ratio, ratio.values > sev2_ratio, min_points=min_points):
        yield Hit.over(
            span,
            "sev2",
            "the perplexity of probe {where} is {value:.3g} times its lowest; over {limit:.2g} it is forgotten",
            badness=ratio.values,
            limit=sev2_ratio,
        )
    for span in spans(ratio, (ratio.values > note_ratio) & (ratio.values <= sev2_ratio), min_points=min_points):
        yield Hit.over(
            span,
            "note",
            "the perplexity of probe {where} is {value:.3g} times its lowest",
            badness=ratio.values,
            limit=note_ratio,
        )
