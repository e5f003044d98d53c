"""Embedding and head, meant to be one matrix, have become two."""

from collections.abc import Iterator

from msgspec import UNSET

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Evidence
from ckaudit.metrics.weights import weight_norm
from ckaudit.rules.files.contradicted_claim import contradicted_claim
from ckaudit.rules.resume.optimizer_state_reset import optimizer_state_reset
from ckaudit.rules.resume.seam_jump import seam_jump
from ckaudit.rules.rule import FACTS
from ckaudit.rules.updates.missing_in_optimizer import missing_in_optimizer
from ckaudit.rules.updates.update_out_of_band import update_out_of_band
from ckaudit.rules.weights.embedding_not_tied import embedding_not_tied
from ckaudit.rules.weights.parameter_count_changed import parameter_count_changed
from ckaudit.run.series import Series
from ckaudit.run.tensors import TensorTable, table_of

PAIR = {"head": "embedding", "embedding": "head"}


@cause(
    prior=-0.5,
    explains=[parameter_count_changed, embedding_not_tied],
    follows=[contradicted_claim, missing_in_optimizer, optimizer_state_reset, seam_jump, update_out_of_band],
    wants=[FACTS, weight_norm],
    knob="Tie the two again after the weights are loaded: head.weight = embedding.weight, before the optimizer is built.",
    inspect="Whether head and embedding are the same object after loading, casting and wrapping; the count of parameters.",
    runbook="Keep the checkpoint before the change and resume from it with the tie; two matrices that drifted cannot be merged.",
)
def weight_tying_lost(
    findings: Findings, facts: Manifest | None, norm: Series | None, *, strong: float = 2.0, medium: float = 1.0
) -> Iterator[Evidence]:
    """Embedding and head, meant to be one matrix, have become two.

    The model then has one tensor more, a head or an embedding, with the shape of the other one. Or it had both from the start,
    against what its configuration says. Log odds are on the common scale (`causes/cause.py`).
    """
    if untied := findings.first(embedding_not_tied):
        yield supports(2 * strong, untied.message, untied)
        return
    changed = findings.first(parameter_count_changed)
    if changed is None or changed.where is None or changed.value is None or changed.limit is None:
        return
    tensors, more = table_of(facts), float(changed.value) - float(changed.limit)
    partner = _partner(changed.where, tensors, norm.labels if norm is not None else ())
    if partner is not None:
        yield supports(
            strong, f"{changed.where} and {partner} may be one matrix, and are two from step {changed.first_step} on", changed
        )
    else:
        yield contradicts(strong, f"{changed.where} is neither a head nor an embedding that could be tied", changed)
    if more == 1:
        yield supports(medium, "one tensor is new and none is gone", changed)
    else:
        yield contradicts(medium, f"there are {more:+.0f} tensors, not one more", changed)
    seams = [session.resumed_from for session in (facts.sessions if facts and facts.sessions is not UNSET else ())]
    before = [step for step in seams if step is not UNSET and step < (changed.first_step or 0)]
    if before:
        yield supports(medium, f"the run was taken up again at step {before[-1]}: the tie may not have been made anew", changed)


def _partner(name: str, tensors: TensorTable, names: tuple[str, ...]) -> str | None:
    """Return the tensor that this one could be tied to: of the other kind, and of the same shape where both are known."""
    wanted = PAIR.get(tensors.kind(name))
    shape = tensors.facts[name].shape if name in tensors.facts else UNSET
    for other in names:
        if other == name or tensors.kind(other) != wanted:
            continue
        if other not in tensors.facts or shape in (UNSET, tensors.facts[other].shape):
            return other
    return None
