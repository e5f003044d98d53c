"""What each severity asks for, and the conditions that call for it."""

from msgspec import Struct

from ckaudit.contract.schema.report import Severity

ACTIONS: dict[Severity, str] = {
    "sev0": "stop the training, see that nothing overwrites the last good checkpoint, and save the evidence before a restart",
    "sev1": "contain it: lower the learning rate or turn guards on, record more often, and make a rollback ready",
    "sev2": "investigate: find the shard, rank or layer, and try the remedy on a canary of 200 to 2,000 steps",
    "note": "nothing has to be done now",
}
"""Where nobody knows the cause yet."""

WITH_CAUSE: dict[Severity, str] = {
    **ACTIONS,
    "sev1": "contain it: turn the first knob of cause 1, record more often, and make a rollback ready",
    "sev2": "investigate: try the first knob of cause 1 on a canary of 200 to 2,000 steps",
}
"""Where a likely cause names what to turn."""


OF_RECORDS = "mend the record, or what writes it; nothing that could be read says that the training itself is ill"
"""Where all that is grave is about files that could not be read as they should."""


class Condition(Struct, frozen=True, kw_only=True):
    """One condition that calls for a severity.

    Attributes:
        row: SEV0-1 and so on.
        name: In words_with_underscores.
        title: One sentence.
        severity: What it calls for.
        rules: Names of the rules that judge it.
    """

    row: str
    name: str
    title: str
    severity: Severity
    rules: tuple[str, ...]


def _of(row: str, name: str, title: str, *rules: str) -> Condition:
    severity: dict[str, Severity] = {"SEV0": "sev0", "SEV1": "sev1", "SEV2": "sev2"}
    return Condition(row=row, name=name, title=title, severity=severity[row.partition("-")[0]], rules=rules)


CONDITIONS = (
    _of("SEV0-1", "numbers_not_finite", "A number that is NaN or infinite, once.", "nonfinite_values", "hidden_nonfinite"),
    _of("SEV0-2", "checkpoint_not_whole", "A checkpoint that was not written whole.", "broken_checkpoint"),
    _of("SEV0-3", "nobody_watches", "Training goes on and nothing is logged.", "monitoring_blackout"),
    _of("SEV0-4", "overflow_storm", "The loss scale overflows again and again, for long.", "overflow"),
    _of("SEV1-1", "repeated_spikes", "The loss spikes repeatedly, or does not come back.", "loss_spike"),
    _of("SEV1-2", "logits_run_away", "The largest attention logit goes beyond 1,000.", "logit_growth"),
    _of("SEV1-3", "attention_collapses", "The entropy of attention goes to zero in most heads.", "entropy_collapse"),
    _of("SEV1-4", "utilization_collapses", "The hardware does half of the work that it did.", "throughput_drop"),
    _of("SEV1-5", "tokens_turned_away", "Experts drop tokens and go on doing so.", "dropped_tokens", "router_imbalance"),
    _of(
        "SEV2-1",
        "mixture_drifts",
        "The training data comes from elsewhere than before.",
        "source_drift",
        "token_drift",
        "text_statistics_drift",
    ),
    _of(
        "SEV2-2",
        "evaluations_regress",
        "Held-out text, or a slice of it, or a benchmark gets worse.",
        "overfitting",
        "slice_regression",
        "benchmark_regression",
    ),
    _of(
        "SEV2-3",
        "safety_gets_worse",
        "Toxicity, personal data or recitation increase.",
        "toxicity_rising",
        "memorization_rising",
        "unsafe_data",
    ),
    _of("SEV2-4", "duplicates_increase", "Clusters of near duplicates grow.", "repeated_documents"),
)
