"""Attention sees the tokens that it is to predict."""

from collections.abc import Iterator

from ckaudit.causes.cause import Findings, cause, contradicts, places_of, supports
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Evidence
from ckaudit.metrics.attention import upper_triangle_mass
from ckaudit.rules.attention.entropy_collapse import entropy_collapse
from ckaudit.rules.attention.mask_leak import mask_leak
from ckaudit.rules.attention.redundant_heads import redundant_heads
from ckaudit.rules.loss.loss_below_floor import loss_below_floor
from ckaudit.rules.loss.overfitting import overfitting
from ckaudit.rules.loss.train_val_inverted import train_val_inverted
from ckaudit.rules.rule import FACTS
from ckaudit.run.attention_directions import may_be_causal
from ckaudit.run.series import Series


@cause(
    prior=-0.5,
    explains=[mask_leak, loss_below_floor],
    follows=[entropy_collapse, overfitting, redundant_heads, train_val_inverted],
    wants=[upper_triangle_mass, FACTS],
    knob="Set the causal mask in the attention of the layers named: before softmax, to minus infinity, above the diagonal.",
    inspect="The mask's shape, diagonal and dtype, and whether the fused kernel is called with is_causal.",
    runbook="Stop: the losses mean nothing. Change one late token of a fixed sequence; no earlier prediction may move.",
)
def causal_mask_leaks(
    findings: Findings,
    ahead: Series | None,
    facts: Manifest | None,
    *,
    decisive: float = 4.0,
    strong: float = 2.0,
    weak: float = 0.5,
    rounding: float = 1e-3,
) -> Iterator[Evidence]:
    """Attention sees tokens that it is to predict: the causal mask is missing, shifted or lost in a layer.

    Attention weight on later tokens decides for this cause: a causal mask leaves none above `rounding`. Recorded heads without
    such weight decide against it. Log odds are on the common scale (`causes/cause.py`).
    """
    ahead = may_be_causal(ahead, facts) if ahead is not None else None
    leak = findings.first(mask_leak)
    if leak is not None:
        heads = places_of(findings.of(mask_leak))
        yield supports(decisive, f"{leak.where} puts {leak.value:.2g} of its attention on later tokens", leak)
        layers = {head.partition("/")[0] for head in ahead.labels} if ahead is not None else set()
        hit = {head.partition("/")[0] for head in heads}
        extent = "every layer looks ahead" if hit == layers else f"{len(hit)} of {len(layers)} layers look ahead"
        yield supports(weak, f"{extent}, in {len(heads)} heads", leak)
    elif ahead is not None and ahead.labels and not (ahead.values[ahead.finite] > rounding).any():
        yield contradicts(decisive, "no recorded head looks ahead", ahead.name)
    low = findings.first(loss_below_floor)
    if low is None:
        return
    if low.value is not None and float(low.value) < 0:
        yield contradicts(decisive, "the loss is negative, which no leak makes it", low)
    elif low.where == "val_loss":
        yield supports(strong, f"the held-out loss falls to {low.value:.3g}, and cannot have been learnt by heart", low)
    elif leak is None:
        yield contradicts(strong, "only the training loss is so low, and may have been learnt by heart", low)
