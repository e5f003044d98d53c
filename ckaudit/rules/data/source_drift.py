"""DATA006: the sources of the batches change their shares."""

from collections.abc import Iterator

import numpy as np

from ckaudit.metrics.corpus import language_share, source_mix_share
from ckaudit.rules.rule import Hit, Skip, needs_one_of, rule
from ckaudit.run.curve_shapes import lasting_change
from ckaudit.run.robust import deviations_from_past
from ckaudit.run.series import Series
from ckaudit.run.spans import spans

MIN_POINTS = 3


@rule("DATA006", severity="sev2", needs=[], wants=[source_mix_share, language_share], unit="1")
def source_drift(
    sources: Series | None,
    languages: Series | None,
    *,
    min_change: float = 0.05,
    min_relative_change: float = 0.25,
    history: int = 5,
    k: float = 6.0,
    min_points: int = 2,
) -> Iterator[Hit | Skip]:
    """The sources of the batches change their shares.

    ## What it checks
    The share of every source and language against the median of all its values before, once there are `history` of them (M29,
    M30, SEV2-1). A share has changed where one of these holds:

    - The share is further away than `k` robust deviations, than `min_change` and than `min_relative_change` of that median, at
      `min_points` points in a row.
    - The share changes slowly and to the end, by twice `min_relative_change` and two fifths of `min_change`.
    ## Why it matters
    Another mixture teaches another model, and the loss may hardly move: the commonest silent regression.
    ## False alarms
    Shares wander with sampling, and sources of a hundredth double by chance: neither leaves the limits. A planned curriculum
    does.
    """
    serieses = [series for series in (sources, languages) if series is not None]
    if not serieses:
        yield needs_one_of(source_mix_share, language_share)
        return
    for series in serieses:
        if series.points <= MIN_POINTS:
            yield Skip("too_few_points", f"{series.points} points of {series.name}; more than {MIN_POINTS} are needed")
            continue
        away, usual = deviations_from_past(series, min_deviation=min_change, relative=min_relative_change, history=history, k=k)
        seen = set()
        for span in spans(series, np.abs(np.nan_to_num(away)) > 1, min_points=min_points):
            seen.add(span.column)
            message = "{where} makes {value:.1%} of the tokens; it was {limit:.1%}"
            yield Hit.off_usual(span, series, np.abs(away), usual, message)
        for column in sorted(set(range(len(series.labels))) - seen):
            yield from _slid(series, column, 2 * min_relative_change, min_change)


def _slid(series: Series, column: int, share: float, min_change: float) -> Iterator[Hit]:
    """Yield the slow change of a share that lasts to the end: by two fifths of `min_change`, and to half or to double."""
    rows = np.flatnonzero(series.finite_in(column))
    values = series.values[rows, column]
    turn = lasting_change(values, share=share)
    if turn is not None and abs(turn.after - turn.before) > 0.4 * min_change:
        yield Hit.at(
            series.steps[rows[turn.first :]],
            "sev2",
            "{where} makes {value:.1%} of the tokens; it was {limit:.1%}",
            where=series.labels[column],
            value=turn.after,
            limit=turn.before,
            worst=-1,
        )
