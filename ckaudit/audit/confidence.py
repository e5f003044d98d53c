"""How likely causes are: by their evidence, and by what else accounts for the same."""

from collections.abc import Collection, Iterator, Sequence

import numpy as np
from msgspec import Struct

MIN_CONFIDENCE = 0.2
"""Below it a cause is not named, not even as a guess."""


class CauseCandidate(Struct, frozen=True):
    """A cause that accounts for something.

    Attributes:
        cause: Its name.
        log_odds: Its prior and its evidence together.
        explains: Codes of the findings that it accounts for.
        is_supported: Whether something recorded speaks for it.
        recorded_share: How much of what it looks at was recorded, 0 to 1.
    """

    cause: str
    log_odds: float
    explains: Collection[str]
    is_supported: bool
    recorded_share: float = 1.0


class ConfidenceFit(Struct, frozen=True):
    r"""What is likeliest on recordings whose truth is known (`python -m benchmarks.confidence`, docs/confidence.md).

    Attributes:
        base: Log odds of a cause whose prior and evidence come to 0, of all that it looks at.
        unrecorded: What it loses where nothing of that was recorded; where a part was, it loses as much of this.
        first: What each of these is worth up to 1, one strong reason.
        beyond: What each is worth beyond 1.
        rivals: What causes that account for the same take away, each by its own odds.
    """

    base: float = 1.4
    unrecorded: float = 2.8
    first: float = 1.35
    beyond: float = 1.15
    rivals: float = 0.15


def confidences(candidates: Sequence[CauseCandidate], fit: ConfidenceFit | None = None) -> list[float]:
    r"""Return how likely each cause is to be the true one, 0 to 1.

    A cause of which little was recorded may be spoken against by what nobody saw. The fitted log odds \(z_i\) of cause i by
    itself are its prior and evidence, less a share of `unrecorded`. Beside its rivals they are
    \(z_i - \ln(1 + \rho \sum_j e^{z_j})\): rivals are the supported causes that account for a finding that it accounts for too,
    and \(\rho\) says how much they compete. Without rivals the confidence is the logistic of \(z_i\).

    Args:
        candidates: All causes that account for something in one run.
        fit: What was learnt; default: what comes with this version.
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
    """Yield the places of the supported candidates that account for a finding that this one accounts for too."""
    own = set(candidate.explains)
    for place, other in enumerate(candidates):
        if other is not candidate and other.is_supported and not own.isdisjoint(other.explains):
            yield place
