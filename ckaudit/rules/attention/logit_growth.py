"""ATTN002: attention logits are too large, and grow."""

from collections.abc import Iterator
from functools import partial

import numpy as np

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.metrics.attention import max_attn_logit
from ckaudit.rules.rule import FACTS, Hit, Skip, is_written_by_ckaudit, lasting_spans, rule, too_few
from ckaudit.run.series import Floats, Series


@rule("ATTN002", severity="sev1", needs=[max_attn_logit], wants=[FACTS], unit="logit")
def logit_growth(
    logit: Series,
    facts: Manifest | None = None,
    *,
    sev1_logit: float = 1000.0,
    sev2_logit: float = 100.0,
    note_logit: float = 60.0,
    min_growth: float = 1.5,
    min_points: int = 2,
    few_points: int = 6,
) -> Iterator[Hit | Skip]:
    """Attention logits are too large.

    ## What it checks
    The rule judges each head's largest logit before softmax.

    - A logit over `sev1_logit` at `min_points` points in a row is sev1 (M19, SEV1-2).
    - A logit over `sev2_logit` (where Kimi K2 caps them) is sev2, and one over `note_logit` is a note (lab: healthy heads of full
      trainings at most 28, adapters 72).
    - Such a sev2 or a note also needs a logit of more than `min_growth` times what it was at first.
    - In a run of fewer than `few_points` points, the last point alone is enough.
    ## Why it matters
    The softmax of such logits picks one key and nothing else: no gradient comes back to queries and keys, and bfloat16 has no
    digits left for the difference of two logits.
    ## False alarms
    Logits that began high and come down, as under a cap, are no runaway. What the Recorder logs between checkpoints is the
    largest of a sample of the queries, a lower bound: above the limit it is a finding, below it says nothing of the other
    queries.
    """
    yield from too_few(logit, min_points)
    if is_written_by_ckaudit(facts) and logit.labels == ("max_attn_logit",):  # the lines between checkpoints
        yield Skip("too_few_points", "only a sample of the queries was looked at: a lower bound; checkpoints hold the maximum")
    values: Floats = np.abs(logit.values)
    far = values > sev1_logit
    lasting = partial(lasting_spans, logit, min_points=min_points, fewest=3, few=few_points)
    for span in lasting(far):
        yield Hit.over(
            span,
            "sev1",
            "attention logits of {where} reach {value:.4g}; over {limit:.0f} softmax is saturated",
            badness=values,
            limit=sev1_logit,
        )
    has_grown = values > min_growth * _first(logit)
    for span in lasting((values > sev2_logit) & ~far & has_grown):
        yield Hit.over(
            span,
            "sev2",
            "attention logits of {where} have grown to {value:.4g}; over {limit:.0f} softmax begins to saturate",
            badness=values,
            limit=sev2_logit,
        )
    for span in lasting((values > note_logit) & (values <= sev2_logit) & has_grown):
        yield Hit.over(
            span,
            "note",
            "attention logits of {where} have grown to {value:.4g}; {limit:.0f} and more saturates some heads",
            badness=values,
            limit=note_logit,
        )


def _first(logit: Series) -> Floats:
    """Return each head's first finite logit, shape (H,); infinite where there is none."""
    rows = logit.finite.argmax(axis=0)
    logits = np.abs(logit.values[rows, np.arange(len(logit.labels))])
    return np.where(logit.finite.any(axis=0), logits, np.inf)
