"""Single numbers of a step: optimizer, perplexities, and values by catalogue name, compared with the rest of the file."""

import math
from collections.abc import Iterator, Sequence
from decimal import Decimal
from operator import mul

from msgspec import UNSET

from ckaudit.contract import contradictions as kinds
from ckaudit.contract.checks import CheckInput, PointerParts, check
from ckaudit.contract.schema.checkpoint import OptimizerState
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
    "samples_per_sec",
    "skipped_updates",
    "step_time",
    "steps_seen",
    "tokens_per_sec",
    "tokens_per_update",
    "tokens_seen",
    "update_to_weight",
)


@check(kinds.NEGATIVE, reads=("optimizer.groups[].learning_rate", "optimizer.groups[].weight_decay"))
def group(subject: CheckInput) -> Iterator[Finding]:
    """Learning rate and weight decay of a group are at least 0."""
    for index, parameters in enumerate(_state(subject).groups or []):
        for field in ("learning_rate", "weight_decay"):
            value = getattr(parameters, field)
            if isinstance(value, float) and value < 0:
                yield subject.find(kinds.NEGATIVE, ("optimizer", "groups", index, field), "at least 0", value, where=field)


def _state(subject: CheckInput) -> OptimizerState:
    """Return the optimizer's state in the file, or an empty state if it has none."""
    state = subject.document.optimizer
    return OptimizerState() if state is UNSET else state


@check(kinds.EMPTY_GROUPS, reads=("optimizer.groups[].tensors", "weight_deltas.*.norm"))
def group_tensors(subject: CheckInput) -> Iterator[Finding]:
    """If all groups are empty, no tensor moves."""
    groups = _state(subject).groups or []
    if groups and all(group.tensors == 0 for group in groups):
        moved = next((name for name, norm in subject.table("weight_deltas").rows("norm") if norm > 0), None)
        if moved is not None:
            place = ("optimizer", "groups", 0, "tensors")
            yield subject.find(kinds.EMPTY_GROUPS, place, f"at least 1: {moved} moved", 0, where="optimizer")


@check(
    kinds.CLIP_AND_NORM,
    kinds.CLIPPED_ABOVE_LIMIT,
    reads=("optimizer.clip_norm", "optimizer.clip_coefficient", "gradients.*.norm", "gradients_source", "scalars"),
)
def clipping(subject: CheckInput, *, precision: float = 5e-2) -> Iterator[Finding]:
    r"""Clipping by global norm scales gradients by a coefficient from limit and norm (Pascanu et al. 2013, algorithm 1).

    $$c = \min(1, \text{clip\_norm} / \lVert g \rVert)$$

    Args:
        subject: The checkpoint.
        precision: Relative error: norms in bfloat16 (0.4 %), and another summation order of sharded trainers.
    """
    state = _state(subject)
    limit, coefficient = state.clip_norm, state.clip_coefficient
    if not isinstance(limit, float) or limit == 0:
        return
    norm = (subject.document.scalars or {}).get("grad_global_norm")
    if isinstance(coefficient, float) and isinstance(norm, float) and norm > 0:
        expected = min(1.0, limit / norm)
        # A norm read after clipping is the limit itself and shows nothing.
        if abs(coefficient - expected) > precision and norm > limit * (1 + precision):
            place: PointerParts = ("optimizer", "clip_coefficient")
            yield subject.find(kinds.CLIP_AND_NORM, place, f"{expected:.6g}, clip_norm over grad_global_norm", coefficient)
    total = root_sum_square(subject)
    if subject.document.gradients_source == "post_clip" and total is not None and total > limit * (1 + precision):
        at_least = f"at least the {total:.6g} of the clipped gradients"
        yield subject.find(kinds.CLIPPED_ABOVE_LIMIT, ("optimizer", "clip_norm"), at_least, limit)


def root_sum_square(subject: CheckInput) -> float | None:
    """Return the norm of all gradients together; None if one is not recorded, not finite, or a shard."""
    table = subject.table("gradients")
    if "norm" not in table.plain or any(where != "replicated" for _, where in table.recorded("placement")):
        return None
    norms = table.columns["norm"]
    return math.sqrt(sum(map(mul, norms, norms)))


@check(kinds.PERPLEXITY_AND_LOSS, kinds.PERPLEXITY_BELOW_ONE, reads=("scalars",))
def validation(subject: CheckInput) -> Iterator[Finding]:
    """val_ppl is exp of val_loss (M54)."""
    values = subject.document.scalars or {}
    yield from _judged(subject, ("scalars", "val_ppl"), values.get("val_ppl"), (values.get("val_loss"),))


@check(kinds.PERPLEXITY_AND_LOSS, kinds.PERPLEXITY_BELOW_ONE, reads=("scalars", "loss"))
def training(subject: CheckInput, *, averaging: float = 0.1) -> Iterator[Finding]:
    """train_ppl is exp of train_loss_ema (M05); trainers also use the raw loss, or a mean over some steps.

    So it may lie anywhere between exp of the two. The rule CLM001 also sees the losses of other steps and is therefore stricter.
    Without the average, nothing bounds it.

    Args:
        subject: The checkpoint.
        averaging: How far a mean over other steps may lie outside both losses, relative above 1 and absolute below. Another base
            deviates more: 2 by 31 % of the loss, 10 by 130 %.
    """
    values = subject.document.scalars or {}
    average = values.get("train_loss_ema")
    raw = (values.get("train_loss_raw"), subject.document.loss) if isinstance(average, float) else ()
    yield from _judged(subject, ("scalars", "train_ppl"), values.get("train_ppl"), (average, *raw), beyond=averaging)


@check(kinds.PERPLEXITY_AND_LOSS, kinds.PERPLEXITY_BELOW_ONE, reads=("probes.*.perplexity", "probes.*.loss"))
def probe(subject: CheckInput) -> Iterator[Finding]:
    """A probe's perplexity is exp of its loss."""
    for name, stats in (subject.document.probes or {}).items():
        yield from _judged(subject, ("probes", name, "perplexity"), stats.perplexity, (stats.loss,))


def _judged(
    subject: CheckInput,
    place: PointerParts,
    value: object,
    losses: Sequence[object],
    *,
    beyond: float = 0.0,
    rounding: float = 1e-2,
) -> Iterator[Finding]:
    """A perplexity is at least 1, and exp of a loss between the lowest and the highest possible one.

    Args:
        subject: The checkpoint.
        place: Path of the perplexity.
        value: The perplexity.
        losses: In nats per token; other values than numbers are ignored.
        beyond: How far its loss may lie outside all of them, relative or absolute like `rounding`.
        rounding: Error of a loss, relative above 1 and absolute below: bfloat16 is good to 0.4 %. It is larger if fewer digits
            are written.
    """
    if not isinstance(value, float):
        return
    known = [loss for loss in losses if isinstance(loss, float)]
    if value < 1 - rounding:
        yield subject.find(kinds.PERPLEXITY_BELOW_ONE, place, "at least 1", value)
    elif known:
        low, high = min(known), max(known)
        below, above = (max(max(beyond, rounding) * max(1.0, abs(loss)), _half_step(loss)) for loss in (low, high))
        is_over = math.log(value - _half_step(value)) > high + above
        if is_over or math.log(value + _half_step(value)) < low - below:
            loss = f"the loss {low:.6g}" if low == high else f"a loss from {low:.6g} to {high:.6g}"
            expected = f"{math.exp(min(high if is_over else low, 700.0)):.6g}, exp of {loss}"
            yield subject.find(kinds.PERPLEXITY_AND_LOSS, place, expected, value)


def _half_step(value: float) -> float:
    """Return half a unit of a number's last decimal.

    >>> _half_step(3.3), _half_step(20.0)
    (0.05, 0.5)
    """
    exponent = Decimal(repr(value)).normalize().as_tuple().exponent
    return 0.5 * 10.0 ** min(int(exponent), 0)


def _values(subject: CheckInput) -> dict[str, float]:
    """Return the finite scalars; the name includes a label after a slash."""
    return {name: value for name, value in (subject.document.scalars or {}).items() if isinstance(value, float)}


@check(kinds.NEGATIVE, kinds.RATE_RANGE, kinds.RATIO_BELOW_ONE, reads=("scalars",))
def ranges(subject: CheckInput, *, percent: float = 100.5, rounding: float = 1e-6) -> Iterator[Finding]:
    """Sizes, times and counts are at least 0, rates at most 100 %, a maximum at least its median.

    Args:
        subject: The checkpoint.
        percent: Largest rate; the catalogue's unit is percent, and half a percent covers rounding.
        rounding: How far below its bound a float32 sum such as an entropy can be: a few units of 6e-8.
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
def mfu(subject: CheckInput, *, rounding: float = 1e-3) -> Iterator[Finding]:
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
def steps_seen(subject: CheckInput) -> Iterator[Finding]:
    """The number of applied updates is at most that of attempted ones."""
    seen = _values(subject).get("steps_seen", 0.0)
    if seen > subject.document.step:
        yield subject.find(kinds.STEPS_SEEN, ("scalars", "steps_seen"), f"at most step {subject.document.step}", seen)


@check(kinds.TOLD_TWICE, reads=("scalars", "loss", "optimizer.loss_scale", "attention.*.normalized_entropy_per_head"))
def told_twice(subject: CheckInput, *, precision: float = 1e-2) -> Iterator[Finding]:
    """One fact with two names has one value.

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
        lowest = min((share for share in shares if isinstance(share, float)), default=math.inf)
        if smallest > lowest + precision:
            expected = f"at most {lowest:.6g}, of a head in {layer}"
            yield subject.find(kinds.TOLD_TWICE, ("scalars", "min_normalized_entropy"), expected, smallest)
            break


@check(
    kinds.GLOBAL_NORM,
    kinds.GLOBAL_NORM_UNEXPLAINED,
    reads=("scalars", "gradients.*.norm", "gradients.*.placement", "gradients_source", "weights.*.tied_to", "left_out"),
)
def global_norm(subject: CheckInput, *, precision: float = 5e-2) -> Iterator[Finding]:
    r"""The global norm is the root sum of squares over all tensors (F4), so at least that over the recorded ones.

    $$\lVert g \rVert = \sqrt{\sum_p \lVert g_p \rVert^2}$$

    Args:
        subject: The checkpoint.
        precision: Relative error: norms in bfloat16 (0.4 %), and another summation order of sharded trainers.
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
    # A shared weight counts once or twice, and omitted tensors are not in the sum.
    whole = weights.names == subject.table("gradients").names and "tied_to" not in weights.columns and not document.left_out
    if whole and value > total * (1 + precision):
        expected = f"{total:.6g}, the root sum of squares of the tensors"
        yield subject.find(kinds.GLOBAL_NORM_UNEXPLAINED, place, expected, value)
