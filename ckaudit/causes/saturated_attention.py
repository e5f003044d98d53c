"""Attention logits have outgrown their scale."""

from collections.abc import Iterator

import numpy as np

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.contract.report import Evidence
from ckaudit.metrics.attention import max_attn_logit
from ckaudit.metrics.weights import update_to_weight_global
from ckaudit.rules.entropy_collapse import entropy_collapse
from ckaudit.rules.update_out_of_band import update_out_of_band
from ckaudit.run.series import Series


@cause(
    prior=-0.5,
    explains=[entropy_collapse],
    wants=[max_attn_logit, update_to_weight_global],
    knob="Check the 1/sqrt(d) scale and the QK-norm path; then the initial scale of query and key, then the learning rate.",
    inspect="Entropy of each head over time, largest logit, and the sampled QK grids of the layer named.",
    runbook="Save the checkpoint before the collapse; cap the logits (QK-clip) and resume from it on the same batches.",
)
def saturated_attention(
    found: Findings, logit: Series | None, update: Series | None, *, cap: float = 100.0, growth: float = 10.0,
    large_update: float = 0.03,
    strong: float = 2.0, medium: float = 1.0,
) -> Iterator[Evidence]:  # fmt: skip
    """Attention logits have outgrown their scale, so softmax saturates.

    A logit of 100 (`cap`) is where Kimi K2 clips; 1,000 is called unstable. A logit `growth` times its first value has grown.
    Updates above `large_update` of the weights move everything, not the attention alone. Other weights are starting values.
    """
    if logit is not None and logit.finite.any():
        highest = np.nanmax(np.where(logit.finite, logit.values, np.nan), axis=1)  # (T,)
        peak, start = float(np.nanmax(highest)), float(highest[np.isfinite(highest)][0])
        if peak > cap:
            yield supports(
                strong, f"the largest attention logit reaches {peak:.3g}; {cap:.0f} is where others clip it", logit.name
            )
        elif start > 0 and peak > growth * start:
            yield supports(medium, f"the largest attention logit grows from {start:.3g} to {peak:.3g}", logit.name)
        else:
            yield contradicts(medium, f"the largest attention logit stays at {peak:.3g}", logit.name)
    usual = update.late_median() if update is not None else None
    if too_fast := found.first(update_out_of_band):
        yield contradicts(medium, "all weights move too fast, not the attention alone", too_fast)
    elif usual is not None and usual > large_update:
        yield contradicts(
            strong,
            f"all weights move fast, {usual:.2g} of them at each update, not the attention alone",
            update_to_weight_global.name,
        )
    elif usual is not None:
        yield supports(medium / 2, f"updates are of ordinary size, {usual:.2g} of the weights", update_to_weight_global.name)
