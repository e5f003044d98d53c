"""Values by catalogue name: their ranges, and what the rest of the file says of them."""

import math
from collections.abc import Iterator

from msgspec import UNSET

from ckaudit.contract import contradictions as kinds
from ckaudit.contract.checks import Subject, check
from ckaudit.contract.checks.optimizer import root_sum_square
from ckaudit.contract.schema.report import Finding

PERCENTS = (
    "activation_outlier_rate",
    "filter_reject_rate",
    "gpu_util",
    "grad_clip_rate",
    "memorization_rate",
    "moe_drop_rate",
    "near_dup_rate",
    "overflow_rate",
)
NONNEGATIVE = (
    "attn_entropy",
    "bytes_per_token",
    "checkpoint_size",
    "checkpoint_time",
    "gpu_mem_used",
    "grad_global_norm",
    "learning_rate",
    "loss_scale",
    "mfu",
    "nan_inf_events",
    "residual_rms",
    "skipped_updates",
    "step_time",
    "steps_seen",
    "tokens_per_sec",
    "tokens_per_update",
    "tokens_seen",
    "update_to_weight",
)


def _values(subject: Subject) -> dict[str, float]:
    """Return the finite scalars; a label after a slash belongs to the name."""
    return {name: value for name, value in (subject.document.scalars or {}).items() if isinstance(value, float)}


@check(kinds.NEGATIVE, kinds.RATE_RANGE, kinds.RATIO_BELOW_ONE, reads=("scalars",))
def ranges(subject: Subject, *, percent: float = 100.5, rounding: float = 1e-6) -> Iterator[Finding]:
    """Sizes, times and counts are at least 0, rates at most all, a maximum at least its median.

    Args:
        subject: The checkpoint.
        percent: The largest rate; the catalogue has them in percent, and half a percent is left for rounding.
        rounding: How far below its bound a float32 sum such as an entropy can end: a few units of 6e-8.
    """
    for label, value in _values(subject).items():
        name, place = label.partition("/")[0], ("scalars", label)
        if name in NONNEGATIVE and value < -rounding:
            yield subject.find(kinds.NEGATIVE, place, "at least 0", value)
        elif name in PERCENTS and not -rounding <= value <= percent:
            yield subject.find(kinds.RATE_RANGE, place, "between 0 and 100 %", value)
        elif name == "straggler_ratio" and value < 1 - rounding:
            yield subject.find(kinds.RATIO_BELOW_ONE, place, "at least 1", value)


@check(kinds.MFU_PERCENT, kinds.MFU_ABOVE_PEAK, reads=("scalars",))
def mfu(subject: Subject, *, rounding: float = 1e-3) -> Iterator[Finding]:
    """Model FLOPs utilisation is a fraction of the peak (Chowdhery et al. 2022, appendix B).

    Args:
        subject: The checkpoint.
        rounding: Relative error of a number of four digits.
    """
    value = _values(subject).get("mfu", 0.0)
    if value > 100 * (1 + rounding):
        yield subject.find(kinds.MFU_ABOVE_PEAK, ("scalars", "mfu"), "at most 1", value)
    elif value > 1 + rounding:
        yield subject.find(kinds.MFU_PERCENT, ("scalars", "mfu"), "a fraction of at most 1", value)


@check(kinds.STEPS_SEEN, reads=("scalars", "step"))
def steps_seen(subject: Subject) -> Iterator[Finding]:
    """Updates applied are some of the updates attempted."""
    seen = _values(subject).get("steps_seen", 0.0)
    if seen > subject.document.step:
        yield subject.find(kinds.STEPS_SEEN, ("scalars", "steps_seen"), f"at most step {subject.document.step}", seen)


@check(kinds.TOLD_TWICE, reads=("scalars", "loss", "optimizer.loss_scale", "attention.*.normalized_entropy_per_head"))
def told_twice(subject: Subject, *, precision: float = 1e-2) -> Iterator[Finding]:
    """One fact under two names has one value.

    Args:
        subject: The checkpoint.
        precision: Relative error: one of the two may be bfloat16 (0.4 %) or printed with three digits (0.5 %).
    """
    values, document = _values(subject), subject.document
    pairs: list[tuple[str, object]] = [("train_loss_raw", document.loss)]
    if document.optimizer is not UNSET:
        pairs.append(("loss_scale", document.optimizer.loss_scale))
    for name, other in pairs:
        value = values.get(name, math.nan)
        if isinstance(other, float) and abs(value - other) > precision * max(abs(value), abs(other)):
            yield subject.find(kinds.TOLD_TWICE, ("scalars", name), f"{other:.6g}, as elsewhere in this file", value)
    smallest = values.get("min_normalized_entropy")
    if smallest is None:
        return
    for layer, shares in subject.table("attention").recorded("normalized_entropy_per_head"):
        found = min((share for share in shares if isinstance(share, float)), default=math.inf)
        if smallest > found + precision:
            expected = f"at most {found:.6g}, of a head in {layer}"
            yield subject.find(kinds.TOLD_TWICE, ("scalars", "min_normalized_entropy"), expected, smallest)
            break


@check(
    kinds.GLOBAL_NORM,
    kinds.GLOBAL_NORM_UNEXPLAINED,
    reads=("scalars", "gradients.*.norm", "gradients.*.placement", "gradients_source", "weights.*.tied_to", "left_out"),
)
def global_norm(subject: Subject, *, precision: float = 5e-2) -> Iterator[Finding]:
    r"""The global norm is the root sum of squares over all tensors (F4), so at least that over those recorded.

    $$\lVert g \rVert = \sqrt{\sum_p \lVert g_p \rVert^2}$$

    Args:
        subject: The checkpoint.
        precision: Relative error: norms in bfloat16 (0.4 %), and summed in another order by sharded trainers.
    """
    document = subject.document
    value = _values(subject).get("grad_global_norm")
    if value is None or document.gradients_source == "post_clip" or (total := root_sum_square(subject)) is None:
        return
    weights = subject.table("weights")
    place = ("scalars", "grad_global_norm")
    if value < total * (1 - precision):
        expected = f"at least {total:.6g}, the root sum of squares of the tensors"
        yield subject.find(kinds.GLOBAL_NORM, place, expected, value)
        return
    # A shared weight counts once or twice, and what was left out is not in the sum.
    whole = weights.names == subject.table("gradients").names and "tied_to" not in weights.columns and not document.left_out
    if whole and value > total * (1 + precision):
        expected = f"{total:.6g}, the root sum of squares of the tensors"
        yield subject.find(kinds.GLOBAL_NORM_UNEXPLAINED, place, expected, value)
