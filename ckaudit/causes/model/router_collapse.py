"""A router sends nearly all tokens to one expert."""

from collections.abc import Iterator

from ckaudit.causes.cause import Findings, cause, contradicts, places_of, supports
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Evidence
from ckaudit.metrics.routing import moe_load_balance_loss
from ckaudit.rules.gradients.dead_parameter import dead_parameter
from ckaudit.rules.gradients.zero_gradients import zero_gradients
from ckaudit.rules.loss.loss_not_falling import loss_not_falling
from ckaudit.rules.moe.dropped_tokens import dropped_tokens
from ckaudit.rules.moe.router_imbalance import router_imbalance
from ckaudit.rules.rule import FACTS
from ckaudit.rules.updates.barely_moving import barely_moving
from ckaudit.rules.updates.layer_not_contributing import layer_not_contributing
from ckaudit.run.series import Series
from ckaudit.run.tensors import table_of

UNEVEN: float = router_imbalance.thresholds["sev2_entropy"]


@cause(
    prior=-0.5,
    explains=[router_imbalance, dead_parameter],
    follows=[barely_moving, dropped_tokens, layer_not_contributing, loss_not_falling, zero_gradients],
    wants=[moe_load_balance_loss, FACTS],
    knob="Raise the coefficient of the load-balance loss, or add noise to the router's logits; look at the router's bias.",
    inspect="Tokens per expert and layer over time, and the router's logits at the step where the spread breaks.",
    runbook="Resume from before the collapse with a higher coefficient; experts that starved long are copied from the busy one.",
)
def router_collapse(
    findings: Findings,
    balance: Series | None,
    facts: Manifest | None,
    *,
    uneven: float = 1.5,
    decisive: float = 4.0,
    strong: float = 2.0,
    medium: float = 1.0,
) -> Iterator[Evidence]:
    """A router sends nearly all tokens to one expert, so that the others learn nothing.

    Experts without tokens have no gradient, whether their tokens were counted or not. The busy expert drops the tokens that it
    has no room for. The load-balance loss is 1 for an even spread; a router that balances stays below `uneven`. Log odds are
    first guesses.
    """
    uneven_use = findings.first(router_imbalance)
    dead = places_of(findings.of(dead_parameter))
    are_of_experts = bool(dead) and all(map(table_of(facts).is_expert, dead))
    if uneven_use is None and not are_of_experts:
        yield contradicts(decisive, "no router was found to prefer one expert", "router_imbalance")
        return
    if uneven_use is not None and any(finding.severity == "sev1" for finding in findings.of(router_imbalance)):
        yield supports(strong, uneven_use.message, uneven_use)
    elif uneven_use is not None and float(uneven_use.value or 0.0) < UNEVEN:  # one that only falls may follow its data
        yield supports(medium, uneven_use.message, uneven_use)
    if are_of_experts:
        weight = medium if uneven_use else strong  # without tokens per expert it is the only sign
        yield supports(weight, f"{len(dead)} tensors get no gradient, all of them of experts", "dead_parameter")
    if dropped := findings.first(dropped_tokens):
        yield supports(medium, f"the busy expert has no room: {dropped.message}", dropped)
    if balance is not None and (level := balance.late_median()) is not None and level > uneven:
        yield supports(medium, f"the load-balance loss is {level:.2g}; 1 is even", balance.name)
