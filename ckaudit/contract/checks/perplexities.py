"""Perplexities, each against the losses that it may be exp of."""

import math
from collections.abc import Iterator, Sequence
from decimal import Decimal

from ckaudit.contract import contradictions as kinds
from ckaudit.contract.checks import Place, Subject, check
from ckaudit.contract.schema.report import Finding


@check(kinds.PERPLEXITY_AND_LOSS, kinds.PERPLEXITY_BELOW_ONE, reads=("scalars",))
def validation(subject: Subject) -> Iterator[Finding]:
    """val_ppl is exp of val_loss (M54)."""
    values = subject.document.scalars or {}
    yield from _judged(subject, ("scalars", "val_ppl"), values.get("val_ppl"), (values.get("val_loss"),))


@check(kinds.PERPLEXITY_AND_LOSS, kinds.PERPLEXITY_BELOW_ONE, reads=("scalars", "loss"))
def training(subject: Subject, *, averaging: float = 0.1) -> Iterator[Finding]:
    """train_ppl is exp of train_loss_ema (M05); trainers also take it of the raw loss, or of a mean over some steps.

    So it may lie anywhere between exp of the two, as for the rule CLM001, which sees the losses of other steps as well and is
    stricter for that. Without the average, nothing bounds it.

    Args:
        subject: The checkpoint.
        averaging: How far a mean over other steps may lie beyond both losses, relative above 1 and absolute below. Another
            base is further off: 2 by 31 % of the loss, 10 by 130 %.
    """
    values = subject.document.scalars or {}
    average = values.get("train_loss_ema")
    raw = (values.get("train_loss_raw"), subject.document.loss) if isinstance(average, float) else ()
    yield from _judged(subject, ("scalars", "train_ppl"), values.get("train_ppl"), (average, *raw), beyond=averaging)


@check(kinds.PERPLEXITY_AND_LOSS, kinds.PERPLEXITY_BELOW_ONE, reads=("probes.*.perplexity", "probes.*.loss"))
def probe(subject: Subject) -> Iterator[Finding]:
    """A probe's perplexity is exp of its loss."""
    for name, stats in (subject.document.probes or {}).items():
        yield from _judged(subject, ("probes", name, "perplexity"), stats.perplexity, (stats.loss,))


def _judged(
    subject: Subject, place: Place, value: object, losses: Sequence[object], *, beyond: float = 0.0, rounding: float = 1e-2
) -> Iterator[Finding]:
    """A perplexity is at least 1, and exp of a loss from the lowest to the highest of those it may be of.

    Args:
        subject: The checkpoint.
        place: Where the perplexity stands.
        value: The perplexity.
        losses: In nats per token; what is no number says nothing.
        beyond: How far its loss may lie beyond all of them, as `rounding`.
        rounding: Error of a loss, relative above 1 and absolute below: one of bfloat16 is good to 0.4 %. It is more where
            fewer digits were written.
    """
    if not isinstance(value, float):
        return
    known = [loss for loss in losses if isinstance(loss, float)]
    if value < 1 - rounding:
        yield subject.find(kinds.PERPLEXITY_BELOW_ONE, place, "at least 1", value)
    elif known:
        low, high = min(known), max(known)
        least, most = (max(max(beyond, rounding) * max(1.0, abs(loss)), _half_step(loss)) for loss in (low, high))
        is_over = math.log(value - _half_step(value)) > high + most
        if is_over or math.log(value + _half_step(value)) < low - least:
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
