"""Mixtures of experts: what was routed, received and dropped, and the load-balance loss of it."""

from collections.abc import Iterator
from typing import Any

from ckaudit.contract import contradictions as kinds
from ckaudit.contract.checks import Subject, check
from ckaudit.contract.schema.checkpoint import MoeStats
from ckaudit.contract.schema.report import Finding


@check(kinds.MOE_COUNTS, reads=("moe.*.counts", "moe.*.routed", "moe.*.dropped"))
def counts(subject: Subject, *, rounding: float = 1e-3) -> Iterator[Finding]:
    """Experts received all that was routed, or all that was not dropped; no more is dropped than routed.

    Args:
        subject: The checkpoint.
        rounding: Relative error: counts averaged over micro-batches or ranks may be rounded to four digits.
    """
    for name, layer in (subject.document.moe or {}).items():
        routed, dropped = layer.routed, layer.dropped
        if not isinstance(routed, float):
            continue
        slack, lost = rounding * routed, dropped if isinstance(dropped, float) else None
        if lost is not None and lost > routed + slack:
            yield subject.find(kinds.MOE_COUNTS, ("moe", name, "dropped"), f"at most routed {routed:.6g}", lost)
        elif received := _numbers(layer.counts):
            total = sum(received)
            least = 0.0 if lost is None else routed - lost
            if not least - slack <= total <= routed + slack:
                expected = f"{least:.6g} to {routed:.6g} in sum"
                yield subject.find(kinds.MOE_COUNTS, ("moe", name, "counts"), expected, total)


@check(kinds.ROUTER_PROBABILITY, reads=("moe.*.router_probability", "moe.*.counts"))
def probabilities(subject: Subject, *, rounding: float = 2e-2) -> Iterator[Finding]:
    """A router gives each expert that is counted a probability, all of them 1 in sum.

    Args:
        subject: The checkpoint.
        rounding: Error of the sum: probabilities in bfloat16 are good to 0.4 % each.
    """
    for name, layer in (subject.document.moe or {}).items():
        place = ("moe", name, "router_probability")
        if layer.router_probability and layer.counts and len(layer.router_probability) != len(layer.counts):
            wanted = f"{len(layer.counts)} numbers, as many as counts"
            yield subject.find(kinds.ROUTER_PROBABILITY, place, wanted, f"{len(layer.router_probability)} numbers")
        elif (shares := _numbers(layer.router_probability)) and abs(sum(shares) - 1) > rounding:
            yield subject.find(kinds.ROUTER_PROBABILITY, place, "1 in sum", sum(shares))


@check(
    kinds.NEGATIVE,
    kinds.LOAD_BALANCE,
    reads=("moe.*.aux_loss", "moe.*.counts", "moe.*.router_probability", "moe.*.routed", "moe.*.dropped"),
)
def load_balance(subject: Subject, *, precision: float = 5e-2) -> Iterator[Finding]:
    r"""A load-balance loss is a sum of products of shares, at least 0 (Fedus et al. 2021, equation 4).

    $$E \sum_i f_i P_i$$

    Where each token has k experts, some count the share of tokens in f, which makes it k times as large.

    Args:
        subject: The checkpoint.
        precision: Relative error: a loss in bfloat16 is good to 0.4 %, and so is each of its factors.
    """
    for name, layer in (subject.document.moe or {}).items():
        value, place = layer.aux_loss, ("moe", name, "aux_loss")
        if not isinstance(value, float):
            continue
        if value < 0:
            yield subject.find(kinds.NEGATIVE, place, "at least 0", value)
        elif found := _load_balance(layer):
            low, high = found
            if not low * (1 - precision) <= value <= high * (1 + precision):
                yield subject.find(kinds.LOAD_BALANCE, place, f"between {low:.6g} and {high:.6g}", value)


def _load_balance(layer: MoeStats) -> tuple[float, float] | None:
    """Return the loss with shares of assignments, and with shares of tokens at most; None where it cannot be told.

    A token's experts are all different, so that no expert has more assignments than there are tokens: that bounds k.
    """
    received, shares = _numbers(layer.counts), _numbers(layer.router_probability)
    total = sum(received)
    if not total or len(received) != len(shares):
        return None
    if isinstance(layer.dropped, float) and layer.dropped > 0 and layer.routed != total:  # counted after drops
        return None
    loss = len(received) * sum(count * share for count, share in zip(received, shares, strict=True)) / total
    return loss, loss * total / max(received)


def _numbers(values: Any) -> list[float]:
    """Return a list of finite numbers; an empty one where it is not recorded, or where one of them is a word."""
    return [] if not values or any(isinstance(value, str) for value in values) else values
