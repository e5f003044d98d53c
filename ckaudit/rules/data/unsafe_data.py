"""SAFE001: toxic text or personal data in the training data."""

from collections.abc import Iterator

import numpy as np

from ckaudit.metrics.safety import data_toxicity_rate, pii_hit_rate
from ckaudit.rules.rule import Hit, Skip, needs_one_of, rule
from ckaudit.run.robust import deviations_from_past
from ckaudit.run.series import Series
from ckaudit.run.spans import spans


@rule("SAFE001", severity="sev2", needs=[], wants=[data_toxicity_rate, pii_hit_rate], unit="%")
def unsafe_data(
    toxic: Series | None,
    personal: Series | None,
    *,
    min_percent: float = 0.5,
    min_relative_rise: float = 0.5,
    history: int = 5,
    k: float = 6.0,
    max_percent: float = 10.0,
) -> Iterator[Hit | Skip]:
    """Toxic text or personal data in the training data.

    ## What it checks
    The share of documents that a classifier calls toxic (M48), and of those with personal data (M51). A share is reported above
    `max_percent` percent. A share is also reported where it suddenly exceeds the median of all values before, once there are
    `history` of them, by more than `k` robust deviations, `min_percent` percent and `min_relative_rise` of that median.
    ## Why it matters
    The model learns to say what it reads; a spike is a shard that went past its filter.
    ## False alarms
    Classifiers err on fiction, medicine and law, evenly over time: only a change or a large share counts.
    """
    serieses = [(series, what) for series, what in ((toxic, "toxic"), (personal, "personal data")) if series is not None]
    if not serieses:
        yield needs_one_of(data_toxicity_rate, pii_hit_rate)
        return
    for series, what in serieses:
        away, _ = deviations_from_past(series, min_deviation=min_percent, relative=min_relative_rise, history=history, k=k)
        for span in spans(series, (series.values > max_percent) | (np.nan_to_num(away) > 1)):
            yield Hit.over(
                span, "sev2", f"{what}: {{value:.3g}} % of the documents of {{where}}", badness=series.values, limit=max_percent
            )
