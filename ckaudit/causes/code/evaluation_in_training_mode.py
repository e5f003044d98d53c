"""Evaluations run with dropout."""

from collections.abc import Iterator
from typing import Any

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Evidence
from ckaudit.metrics.evaluation import eval_in_training_mode
from ckaudit.rules.evaluation.evaluated_in_training_mode import evaluated_in_training_mode
from ckaudit.rules.evaluation.evaluation_artifact_changed import evaluation_artifact_changed
from ckaudit.rules.loss.validation_noise import validation_noise
from ckaudit.rules.rule import FACTS
from ckaudit.run.series import Series


@cause(
    prior=0.0,
    good_checkpoint="newest",
    explains=[evaluated_in_training_mode, validation_noise],
    wants=[FACTS, eval_in_training_mode],
    knob="Call model.eval() before each evaluation and model.train() after it.",
    inspect="The model's training flag inside the evaluation, and whether the evaluation draws its samples anew each time.",
    runbook="Evaluate one checkpoint twice on the same data: the two must agree. Curves so far are too high, and not comparable.",
)
def evaluation_in_training_mode(
    findings: Findings,
    facts: Manifest | None,
    share: Series | None,
    *,
    large: float = 1e-3,
    decisive: float = 4.0,
    strong: float = 2.0,
    medium: float = 1.0,
) -> Iterator[Evidence]:
    """Evaluations run with dropout, so that they are noisy and too high.

    A recorder that saw the mode of the evaluations is decisive either way. Dropout changes a loss of the same weights by more
    than `large` of its value, arithmetic in another order by far less. Where the mode was not recorded, a model without dropout
    speaks against this cause. Log odds are on the common scale (`causes/cause.py`).
    """
    seen, noise = findings.first(evaluated_in_training_mode), findings.first(validation_noise)
    if noise is not None and noise.value is not None and float(noise.value) > large:
        yield supports(medium, f"the same weights give losses that differ by {float(noise.value):.2g} of their value", noise)
    if seen is not None:
        yield supports(decisive, seen.message, seen)
        return
    if share is not None and share.points:
        yield contradicts(decisive, "evaluations ran in evaluation mode", share.name)
        return
    if changed := findings.first(evaluation_artifact_changed):
        yield contradicts(strong, changed.message, changed)
    rates = [*_dropouts(facts.config if facts is not None else None)]
    if facts is not None and isinstance(facts.dropout, float):
        rates.append(facts.dropout)  # the largest of the modules, where the recorder looked
    if any(rates):
        yield supports(strong, f"the model has a dropout of {max(rates):g}", "run.json")
    elif rates:
        yield contradicts(strong, "the model has no dropout", "run.json")
    else:
        yield contradicts(medium, "nothing says that the model has dropout", "run.json")


def _dropouts(config: Any) -> Iterator[float]:
    """Yield every number in a configuration whose key speaks of dropout."""
    for key, value in config.items() if isinstance(config, dict) else ():
        if isinstance(value, dict):
            yield from _dropouts(value)
        elif ("dropout" in key or "pdrop" in key) and isinstance(value, (int, float)):
            yield float(value)
