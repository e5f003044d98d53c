"""DATA008: documents of the training data repeat."""

from collections.abc import Iterator

import numpy as np

from ckaudit.metrics.corpus import doc_repeat_hotspots, near_dup_rate
from ckaudit.rules.rule import Hit, Skip, needs_one_of, rule
from ckaudit.run.series import Series, Steps
from ckaudit.run.spans import spans


@rule("DATA008", severity="sev2", needs=[], wants=[near_dup_rate, doc_repeat_hotspots], unit="1")
def repeated_documents(
    rate: Series | None,
    clusters: Series | None,
    *,
    note_percent: float = 1.0,
    sev2_percent: float = 20.0,
    max_copies: float = 1000.0,
) -> Iterator[Hit | Skip]:
    """Documents of the training data repeat.

    ## What it checks
    How often documents repeat, exactly or nearly:

    - A share of near duplicates above `note_percent` percent is noted (M36; four public corpora have 0.4 to 13.6 %, Lee et al.
      2022).
    - A share above `sev2_percent` percent is sev2, and so is one that more than doubles, by at least a tenth of `sev2_percent`.
    - The largest cluster of equal documents above `max_copies` is sev2 (M38: one sentence of 61 words stood over 60,000 times in
      a public corpus).
    ## Why it matters
    A text that is seen a thousand times is learnt by heart and recited, and takes the place of other text (SEV2-4).
    ## False alarms
    A few duplicates are in every corpus: they are noted.
    """
    if rate is None and clusters is None:
        yield needs_one_of(near_dup_rate, doc_repeat_hotspots)
        return
    if rate is not None:
        for span in spans(rate, rate.values > note_percent):
            is_severe = bool(np.nanmax(rate.values[span.rows, span.column]) > sev2_percent) or _crosses(
                rate, span.column, span.rows, sev2_percent
            )
            yield Hit.over(
                span,
                "sev2" if is_severe else "note",
                "{value:.3g} % of the documents have a near duplicate",
                badness=rate.values,
                limit=sev2_percent if is_severe else note_percent,
            )
    if clusters is not None:
        for span in spans(clusters, clusters.values > max_copies):
            yield Hit.over(
                span,
                "sev2",
                "one document stands {value:.0f} times in the training data",
                badness=clusters.values,
                limit=max_copies,
            )


def _crosses(rate: Series, column: int, rows: Steps, limit: float) -> bool:
    """Tell whether a rate has more than doubled, beyond all of its values before, by at least a tenth of the higher limit."""
    before = rate.values[: rows[0], column]
    before = before[np.isfinite(before)]
    highest = float(np.nanmax(rate.values[rows, column]))
    return bool(len(before)) and highest > 2 * float(before.max()) and highest - float(before.max()) > limit / 10
