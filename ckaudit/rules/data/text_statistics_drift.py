"""DATA007: what the texts are like changes: rejects, bytes per token, lengths, padding."""

from collections.abc import Iterator

import numpy as np

from ckaudit.metrics.corpus import bytes_per_token, filter_reject_rate, pad_fraction, seq_len_p50_p95
from ckaudit.rules.rule import Hit, Skip, needs_one_of, rule
from ckaudit.run.curve_shapes import lasting_change
from ckaudit.run.robust import deviations_from_past
from ckaudit.run.series import Series
from ckaudit.run.spans import spans

MIN_DEVIATIONS = {"filter_reject_rate": 2.0, "bytes_per_token": 0.1, "seq_len_p50_p95": 8.0, "pad_fraction": 0.05}


@rule("DATA007", severity="sev2", needs=[], wants=[filter_reject_rate, bytes_per_token, seq_len_p50_p95, pad_fraction], unit="1")
def text_statistics_drift(
    rejected: Series | None,
    density: Series | None,
    length: Series | None,
    padding: Series | None,
    *,
    min_relative_change: float = 0.25,
    history: int = 5,
    k: float = 6.0,
    min_points: int = 2,
    max_padding: float = 0.5,
) -> Iterator[Hit | Skip]:
    """What the texts are like changes: rejects, bytes per token, lengths, padding.

    ## What it checks
    The share that each filter refuses (M31: a sudden change of yield), bytes per token (M32), lengths (M33) and padding (M34),
    each against the median of all its values before, once there are `history` of them:

    - A number has changed where it is further away than `k` robust deviations, than `min_relative_change` of that median and than
      a least amount of its own, at `min_points` points in a row.
    - A slow change by as much that lasts to the end counts too.
    - Padding above `max_padding`, half of all positions, is reported by itself.
    ## Why it matters
    A filter that lets everything through, text decoded wrongly, rows cut or padded: the shards are not what they were.
    ## False alarms
    Numbers that wander are within their own deviations. A curriculum over lengths changes them by intention.
    """
    serieses = [series for series in (rejected, density, length, padding) if series is not None]
    if not serieses:
        yield needs_one_of(filter_reject_rate, bytes_per_token, seq_len_p50_p95, pad_fraction)
        return
    for series in serieses:
        away, usual = deviations_from_past(
            series, min_deviation=MIN_DEVIATIONS[series.name], relative=min_relative_change, history=history, k=k
        )
        sudden = list(spans(series, np.abs(np.nan_to_num(away)) > 1, min_points=min_points))
        message = f"{series.name} of {{where}} is {{value:.4g}}; it was {{limit:.4g}}"
        yield from (Hit.off_usual(span, series, np.abs(away), usual, message) for span in sudden)
        for column in sorted(set(range(len(series.labels))) - {span.column for span in sudden}):
            yield from _slid(series, column, min_relative_change)
    if padding is not None:
        for span in spans(padding, padding.values > max_padding, min_points=min_points):
            yield Hit.over(
                span,
                "sev2",
                "{value:.0%} of the positions are padding: more than half of the work is for nothing",
                badness=padding.values,
                limit=max_padding,
            )


def _slid(series: Series, column: int, relative: float) -> Iterator[Hit]:
    """Yield the slow change of one column that lasts to the end."""
    rows = np.flatnonzero(series.finite_in(column))
    turn = lasting_change(series.values[rows, column], share=relative)
    if turn is not None and abs(turn.after - turn.before) > MIN_DEVIATIONS[series.name]:
        yield Hit.at(
            series.steps[rows[turn.first :]],
            "sev2",
            f"{series.name} of {{where}} is {{value:.4g}}; it was {{limit:.4g}}",
            where=series.labels[column],
            value=turn.after,
            limit=turn.before,
            worst=-1,
        )
