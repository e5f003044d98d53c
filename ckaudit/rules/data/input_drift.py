"""DATA012: the inputs change their scale for good."""

from collections.abc import Iterator

import numpy as np
from msgspec import UNSET

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.metrics.data import input_kl_drift, token_kl_drift
from ckaudit.rules.rule import FACTS, Hit, Skip, is_written_by_ckaudit, needs_one_of, rule, too_few
from ckaudit.run.series import Series


@rule("DATA012", severity="sev2", needs=[], wants=[input_kl_drift, token_kl_drift, FACTS], unit="nats")
def input_drift(
    drift: Series | None,
    tokens: Series | None,
    facts: Manifest | None,
    *,
    max_divergence: float = 0.5,
    min_ratio: float = 5.0,
    min_before: int = 2,
    min_after: int = 2,
) -> Iterator[Hit | Skip]:
    """The inputs change their scale for good.

    ## What it checks
    The divergence of each batch's inputs from those of the first batch, by mean and deviation, where inputs are numbers. The
    inputs have changed for good where all of these hold:

    - All divergences from some checkpoint on, `min_after` and more, are beyond `max_divergence` nats.
    - All divergences from that checkpoint on are also beyond `min_ratio` times the largest before it, of `min_before` and more.
    - For scale: a mean that moves by one deviation is 0.5 nats, a scale that doubles 0.81, one that halves 0.32. Batches of one
      source differ by one over twice the number of their elements.
    ## Why it matters
    The model is trained on something else than before, or the same data is normalized in another way.
    ## False alarms
    What an agent sees drifts as it learns, and sources that take turns come back: neither goes so far at once and stays there.
    """
    if drift is None:
        is_text = tokens is not None or facts is None or facts.vocabulary is not UNSET
        no_numbers = Skip("not_applicable", "no batch of numbers is recorded, and tokens have no scale")
        yield no_numbers if is_text or not is_written_by_ckaudit(facts) else needs_one_of(input_kl_drift)
        return
    yield from too_few(drift, min_before + min_after)
    values = drift.values[:, 0]
    for row in range(min_before, len(values) - min_after + 1):
        before, after = values[:row].max(), values[row:]
        if after.min() > max(max_divergence, min_ratio * before):
            yield Hit.at(
                drift.steps[row:],
                "sev2",
                f"the inputs are {{value:.2g}} nats from those of the first batch, to the end; {before:.2g} before",
                where="inputs",
                value=float(after.max()),
                limit=max_divergence,
                worst=int(np.argmax(after)),
            )
            return
