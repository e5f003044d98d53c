"""Experts take fewer tokens than they are sent."""

from collections.abc import Iterator

import numpy as np

from ckaudit.causes.cause import Advice, Findings, cause, contradicts, supports
from ckaudit.contract.schema.report import Evidence
from ckaudit.metrics.routing import moe_drop_rate, moe_util_entropy
from ckaudit.rules.loss.loss_not_falling import loss_not_falling
from ckaudit.rules.moe.dropped_tokens import dropped_tokens
from ckaudit.rules.moe.router_imbalance import router_imbalance
from ckaudit.run.medians import median
from ckaudit.run.series import Series


@cause(
    prior=-0.5,
    good_checkpoint="newest",
    explains=[dropped_tokens],
    follows=[loss_not_falling],
    wants=[moe_drop_rate, moe_util_entropy],
    knob="Raise the capacity factor above 1 (1.25 is usual), or route without dropping.",
    inspect="Dropped tokens and tokens per expert, beside the capacity factor of the configuration.",
    runbook="Nothing is broken: raise the capacity at the next resume; the skipped tokens' share of the training is lost.",
)
def expert_capacity_too_small(
    findings: Findings,
    rate: Series | None,
    use: Series | None,
    *,
    even: float = 0.8,
    steady: float = 2.0,
    strong: float = 2.0,
    medium: float = 1.0,
) -> Iterator[Evidence | Advice]:
    """Experts take fewer tokens than they are sent, and drop the rest.

    The room is too small where a router spreads its tokens evenly (a utilisation entropy above `even`), and they are dropped all
    the same. The dropped share is then about 1 less the capacity factor. It stays so from the first step to the last, within a
    factor of `steady`. Log odds are first guesses, to be fitted on runs of known truth.
    """
    if uneven := findings.first(router_imbalance):
        yield contradicts(strong, f"the router overfills one expert: {uneven.message}", uneven)
    if use is not None and (level := _lowest(use)) is not None:
        if level > even:
            # An even router drops one less the capacity factor.
            dropped = None if rate is None else rate.late_median()
            if dropped is not None:
                yield Advice(
                    f"Raise the capacity factor from about {1 - dropped / 100:.2g}, which is what the experts take, "
                    "above 1 (1.25 is usual), or route without dropping."
                )
            yield supports(
                strong,
                f"the experts are used evenly, {level:.2g} of the possible entropy, and drop tokens all the same",
                use.name,
            )
        else:
            yield contradicts(medium, f"the experts are not used evenly: {level:.2g} of the possible entropy", use.name)
    known = rate.values[rate.finite] if rate is not None else np.empty(0)
    if rate is not None and len(known) >= 4:
        third = len(known) // 3 or 1
        first, last = median(known[:third]), median(known[-third:])
        if max(first, last) < steady * min(first, last):
            yield supports(
                medium, f"{first:.0f} % of the tokens are dropped at first and {last:.0f} % at last: it is the room", rate.name
            )


def _lowest(use: Series) -> float | None:
    """Return the median utilisation entropy of the second half, or the last value where that is lower."""
    usual = use.late_median()
    last = use.values[use.finite][-1:]
    return usual if usual is None or not last.size else min(usual, float(last[0]))
