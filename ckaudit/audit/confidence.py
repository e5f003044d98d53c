"""Confidence of causes: from their evidence, and from rival causes of the same findings."""

from collections.abc import Collection, Iterator, Sequence

import numpy as np
from msgspec import Struct

MIN_CONFIDENCE = 0.2
"""A cause below it is not named, not even as a guess."""


class CauseCandidate(Struct, frozen=True):
    """A cause that explains something.

    Attributes:
        cause: Its name.
        log_odds: Sum of its prior and its evidence.
        explains: Codes of the findings that it explains.
        is_supported: Whether any record supports it.
        recorded_share: Share of its inputs that are recorded, 0 to 1.
    """

    cause: str
    log_odds: float
    explains: Collection[str]
    is_supported: bool
    recorded_share: float = 1.0


class ConfidenceFit(Struct, frozen=True):
    r"""Parameters fitted on recordings with known causes (`python -m benchmarks.confidence`, docs/confidence.md).

    Attributes:
        base: Log odds of a cause whose prior and evidence sum to 0, with all inputs recorded.
        unrecorded: Reduction if none of its inputs is recorded; proportionally less if a part is.
        first: Factor of the log odds up to 1, one strong reason.
        beyond: Factor of the log odds beyond 1.
        rivals: Weight of rival causes, each by its own odds.
    """

    base: float = 1.4
    unrecorded: float = 2.8
    first: float = 1.35
    beyond: float = 1.15
    rivals: float = 0.15


def confidences(candidates: Sequence[CauseCandidate], fit: ConfidenceFit | None = None) -> list[float]:
    r"""Return the probability that each cause is the true one, 0 to 1.

    If few inputs of a cause are recorded, unseen evidence may contradict it. The fitted log odds \(z_i\) of cause i by itself are
    its prior and evidence, minus a share of `unrecorded`. With its rivals they are \(z_i - \ln(1 + \rho \sum_j e^{z_j})\): rivals
    are the supported causes that explain one of the same findings, and \(\rho\) is the strength of the competition. Without
    rivals the confidence is the logistic function of \(z_i\).

    Args:
        candidates: All causes that explain something in one run.
        fit: Fitted parameters; default: those of this version.
    """
    fit = fit or ConfidenceFit()
    alone = [
        fit.base
        - fit.unrecorded * (1.0 - candidate.recorded_share)
        + fit.first * min(candidate.log_odds, 1.0)
        + fit.beyond * max(candidate.log_odds - 1.0, 0.0)
        for candidate in candidates
    ]
    values = []
    for candidate, own in zip(candidates, alone, strict=True):
        rivals = [alone[place] for place in rivals_of(candidate, candidates)]
        taken = np.logaddexp(0.0, np.log(fit.rivals) + np.logaddexp.reduce(rivals)) if rivals else 0.0
        values.append(round(float(np.exp(-np.logaddexp(0.0, taken - own))), 3))
    return values


def rivals_of(candidate: CauseCandidate, candidates: Sequence[CauseCandidate]) -> Iterator[int]:
    """Yield the positions of the supported candidates that explain one of the same findings as this one."""
    own = set(candidate.explains)
    for place, other in enumerate(candidates):
        if other is not candidate and other.is_supported and not own.isdisjoint(other.explains):
            yield place
