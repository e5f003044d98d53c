"""VALUE001: a number lies outside what is possible."""

import math
from collections.abc import Iterator

import numpy as np
from msgspec import UNSET

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.metrics.attention import max_attention, normalized_attention_entropy, upper_triangle_mass
from ckaudit.metrics.corpus import language_share, pad_fraction, source_mix_share
from ckaudit.metrics.data import (
    batch_duplicate_share,
    embedded_shift_match,
    target_equals_embedded,
    target_equals_input,
    target_shift_match,
)
from ckaudit.metrics.gradients import grad_global_norm
from ckaudit.metrics.hardware import comm_time_frac, compute_time_frac, dataloader_stall_frac, gpu_util
from ckaudit.metrics.loss import train_loss_raw, val_loss
from ckaudit.metrics.optimizer import grad_clip_rate, learning_rate, overflow_rate
from ckaudit.metrics.progress import steps_seen, tokens_seen
from ckaudit.metrics.routing import moe_drop_rate, moe_util_entropy
from ckaudit.metrics.speed import mfu
from ckaudit.rules.rule import FACTS, Hit, Skip, needs_one_of, rule
from ckaudit.run.series import Floats, Series
from ckaudit.run.spans import spans
from ckaudit.run.tensors import loss_vocabulary

SHARES = (
    max_attention,
    normalized_attention_entropy,
    upper_triangle_mass,
    language_share,
    pad_fraction,
    source_mix_share,
    batch_duplicate_share,
    target_equals_input,
    target_equals_embedded,
    target_shift_match,
    embedded_shift_match,
    comm_time_frac,
    compute_time_frac,
    dataloader_stall_frac,
    grad_clip_rate,
    moe_util_entropy,
    mfu,
)
PERCENT = (gpu_util, overflow_rate, moe_drop_rate)
POSITIVE = (grad_global_norm, learning_rate)
LOSSES = (train_loss_raw, val_loss)
COUNTS = (tokens_seen, steps_seen)


@rule("VALUE001", severity="sev1", needs=[], wants=[FACTS, *LOSSES, *SHARES, *PERCENT, *POSITIVE, *COUNTS], unit="1")
def impossible_value(
    facts: Manifest | None, *serieses: Series | None, max_rounding: float = 0.01, min_points: int = 1
) -> Iterator[Hit | Skip]:
    """A number lies outside what is possible.

    ## What it checks
    Numbers outside what their formulas allow (the catalogue's; for the utilisation of the hardware M41). Numbers that have bounds
    are judged at `min_points` points in a row:

    - Shares lie outside 0 to 1, or percentages outside 0 to 100, by more than `max_rounding` of that range.
    - Norms or learning rates are negative.
    - Losses are below zero where the vocabulary is known, for the loss is then a cross entropy.
    - Counts fall.
    ## Why it matters
    The number is computed wrongly, and so is all that is decided by it. A peak that is half of the truth makes a utilisation of
    130 % (flame, issue 7), and a training climbs a loss that is below zero.
    ## False alarms
    Losses of other kinds may be negative: without a vocabulary they are not judged. A count that begins anew with a session falls
    once, and is not judged where run.json lists the sessions.
    """
    if not any(series is not None for series in serieses):
        yield needs_one_of(*LOSSES, *POSITIVE, *COUNTS, *SHARES, *PERCENT)
        return
    named = {series.name: series for series in serieses if series is not None}
    is_entropy = loss_vocabulary(facts) is not None
    limits = {share.name: (0.0, 1.0) for share in SHARES} | {metric.name: (0.0, 100.0) for metric in PERCENT}
    limits |= {positive.name: (0.0, math.inf) for positive in (*POSITIVE, *(LOSSES if is_entropy else ()))}
    for name, (low, high) in limits.items():
        if name in named:
            room = max_rounding * high if math.isfinite(high) else 0.0
            yield from _outside(named[name], low - room, high + room, low, high, min_points)
    resumed = facts is not None and facts.sessions is not UNSET and len(facts.sessions) > 1
    for count in COUNTS:
        if count.name in named and not resumed:
            yield from _falling(named[count.name])


def _outside(series: Series, lowest: float, highest: float, low: float, high: float, min_points: int) -> Iterator[Hit]:
    for bad, limit, word in ((series.values > highest, high, "above"), (series.values < lowest, low, "below")):
        for span in spans(series, bad, min_points=min_points):
            yield Hit.over(
                span,
                "sev1" if series.name in ("train_loss_raw", "val_loss") else "sev2",
                f"{series.name} is {{value:.4g}}; it cannot be {word} {{limit:.4g}}",
                badness=np.abs(series.values - limit),
                value=series.values,
                limit=limit,
            )


def _falling(series: Series) -> Iterator[Hit]:
    known = np.flatnonzero(series.finite[:, 0])
    values: Floats = series.values[known, 0]
    falls = np.flatnonzero(np.diff(values) < 0) + 1
    if len(falls):
        row = int(falls[0])
        yield Hit.at(
            series.steps[known[falls]],
            "sev2",
            f"{series.name} falls from {{limit:.10g}} to {{value:.10g}}; a count only grows",
            where=series.name,
            value=float(values[row]),
            limit=float(values[row - 1]),
            worst=0,
        )
