"""The words of the lab's labels for what our own commands find."""

from ckaudit.contract.report import Finding
from ckaudit.lab.labels import SYMPTOMS
from ckaudit.questions.bad_answer_table import BAD

MISSING = ("cadence_gap", "rank_without_merged_file")
# Violations of the contract that are a named illness besides.
ALSO = {
    "tensor_dtype_changed": "dtype_changed",
    "tensor_set_changed": "parameter_count_changed",
    "tensor_shape_changed": "parameter_count_changed",
    "loss_mismatch": "contradicted_claim",
    "grad_norm_mismatch": "contradicted_claim",
    "mfu_in_percent": "impossible_value",
    "mfu_above_peak": "impossible_value",
    "rate_out_of_range": "impossible_value",
    "share_outside_0_1": "impossible_value",
    "entropy_out_of_range": "impossible_value",
    "similarity_outside": "impossible_value",
    "negative_value": "impossible_value",
    "perplexity_below_one": "impossible_value",
    "ratio_below_one": "impossible_value",
}


def words(finding: Finding) -> tuple[str, ...]:
    """Return the words that a finding answers to: the name of its rule or of its answer, or for a violation what it is of."""
    if finding.name in SYMPTOMS or finding.code in BAD:
        return (finding.name,)
    if finding.name in MISSING:
        return ("missing_checkpoint",)
    also = ALSO.get(finding.name)
    return (also, "contract_violation") if also else ("contract_violation",)
