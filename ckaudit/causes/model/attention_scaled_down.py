"""Attention logits are scaled down too far."""

from collections.abc import Iterator

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.causes.shared.attention import logits_over_expected
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Evidence
from ckaudit.metrics.attention import max_attn_logit
from ckaudit.metrics.weights import weight_std
from ckaudit.rules.attention.uniform_heads import uniform_heads
from ckaudit.rules.loss.loss_not_falling import loss_not_falling
from ckaudit.rules.rule import FACTS
from ckaudit.rules.weights.weight_scale_off import weight_scale_off
from ckaudit.run.series import Series
from ckaudit.run.tensors import table_of


@cause(
    prior=-1.5,
    explains=[uniform_heads],
    follows=[loss_not_falling],
    wants=[max_attn_logit, weight_std, FACTS],
    knob="Divide logits by sqrt(d) once: not by hand and in the fused kernel as well, and not by d.",
    inspect="Largest logit of each head at the first step, against the size of its queries and keys.",
    runbook="Correct the scale and begin again: weights that were learnt at one temperature are wrong at another.",
)
def attention_scaled_down(
    findings: Findings,
    logit: Series | None,
    std: Series | None,
    facts: Manifest | None,
    *,
    young: int = 20,
    few: float = 1.0,
    decisive: float = 4.0,
) -> Iterator[Evidence]:
    """Attention logits are scaled down so far that softmax cannot choose.

    In the first `young` steps the largest logit of a well scaled head is 3.4 to 6 times what query and key give by the size of
    their weights (lab's healthy runs). Below `few` times that size, the logits are divided by the scale a second time. Weights
    that are out of scale say nothing about the scale of the logits. Log odds are on the common scale (`causes/cause.py`).
    """
    if findings.first(uniform_heads) is None or logit is None or std is None or not len(logit.steps):
        return
    step = int(logit.steps[0])
    over = logits_over_expected(logit, std, table_of(facts)) if step <= young else None
    if over is None:
        return
    message = (
        f"at step {step} the largest logit is {over:.2g} times what query and key give by the size of their weights; 5 is usual"
    )
    if over >= few:
        yield contradicts(decisive, message, logit.name)
    elif scale := findings.first(weight_scale_off):
        yield contradicts(decisive, f"it is the weights that are out of scale: {scale.message}", scale)
    else:
        yield supports(decisive, message, logit.name)
