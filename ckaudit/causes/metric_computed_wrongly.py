"""A logged number is not what its formula gives."""

import math
from collections.abc import Iterator

import numpy as np

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.contract.report import Evidence, Finding
from ckaudit.metrics.contradictions import claimed_value, nearest_allowed_value
from ckaudit.metrics.speed import mfu
from ckaudit.rules.contradicted_claim import contradicted_claim
from ckaudit.rules.impossible_value import impossible_value
from ckaudit.rules.weights_jump import weights_jump
from ckaudit.run.series import Series

LOSSES = ("train_loss_raw", "val_loss")


@cause(
    prior=-0.5,
    explains=[contradicted_claim, impossible_value],
    wants=[claimed_value, nearest_allowed_value],
    knob="Compare the formula used with that of `ckaudit explain`: base of the logarithm, factor, percent, what is averaged.",
    inspect="The line that computes the number named; compute it by hand once from the raw numbers of one step.",
    runbook="The training itself may be well: decide nothing by this number, recompute it from the raw log.",
)
def metric_computed_wrongly(
    found: Findings, claimed: Series | None, allowed: Series | None, *,
    most: float = 0.8, alike: float = 0.05, strong: float = 2.0, medium: float = 1.0,
) -> Iterator[Evidence]:  # fmt: skip
    """A logged number is not what its formula gives.

    A wrong formula is wrong nearly always, at more than `most` of the points; a single point is an event. A factor, or a ratio
    of logarithms, that stays within `alike` says which slip it is. Weights follow the scale that all causes share.
    """
    claim = found.first(contradicted_claim)
    if claim is not None and claimed is not None and allowed is not None and claim.where in claimed.labels:
        column = claimed.labels.index(claim.where)
        known = claimed.finite[:, column] & allowed.finite[:, column]
        yield from _claim(claim, claimed.values[known, column], allowed.values[known, column], most, alike, strong, medium)
        if jump := found.first(weights_jump):
            yield contradicts(medium, f"something else happened: {jump.message}", jump)
    for each in found.of(impossible_value) if claim is None else ():
        if each.where in LOSSES or each.where == mfu.name:
            yield contradicts(strong, f"{each.message}: its formula is known, what goes into it is wrong", each)
        else:
            yield supports(strong, each.message, each)


def _claim(
    claim: Finding, said: np.ndarray, made: np.ndarray, most: float, alike: float, strong: float, medium: float
) -> Iterator[Evidence]:
    """Judge how often a claim is wrong, and whether by one factor or one base."""
    off = ~np.isclose(said, made, rtol=1e-6, atol=0)
    if off.mean() > most and len(off) > 1:
        yield supports(strong, f"{claim.where} is wrong at {int(off.sum())} of {len(off)} points: it is the formula", claim)
    else:
        yield contradicts(strong, f"{claim.where} is right at {int((~off).sum())} of {len(off)} points", claim)
    with np.errstate(all="ignore"):
        factor, power = said[off] / made[off], np.log(said[off]) / np.log(made[off])
    if off.sum() > 1 and _steady(factor, alike):
        yield supports(medium, f"it is always {np.median(factor):.3g} times what it should be", claim)
    elif off.sum() > 1 and _steady(power, alike):
        base = f", as with base {math.exp(np.median(power)):.3g}" if np.median(power) > 0 else ""
        yield supports(medium, f"its logarithm is always {np.median(power):.3g} times what it should be{base}", claim)


def _steady(values: np.ndarray, alike: float) -> bool:
    return bool(np.isfinite(values).all() and np.ptp(values) < alike * abs(np.median(values)))
