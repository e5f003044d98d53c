"""The meaning of a "bad" answer: a table from each question to the findings that make it bad, and its severity.

An answer is bad where a finding of `means` says so, or where the question's own numbers do. A bad answer without a finding
becomes a finding of its own, with the question's id as code: nothing is bad without a finding, and no run is both OK and bad.

Illnesses are sev2, unless a policy changes that. Answers that only mean "not yet", "not ready" or "look at it" are notes: a run
of a few hundred steps still falls steeply, no pretraining follows instructions, and in large models many heads rest on the first
token.
"""

from collections.abc import Mapping

from msgspec import Struct

from ckaudit.contract.schema.report import Severity


class BadAnswer(Struct, frozen=True):
    """The meaning of one question's bad answer.

    Attributes:
        name: The illness, named like a rule.
        severity: Severity of a finding of its own.
        says: The illness as the first half of a sentence; the question's numbers follow.
        means: Names of the rules of which any finding above a note makes the answer bad, whatever the numbers say.
        covered_by: Questions whose own finding says the same, so that this one needs none.
        covered_by_rules: Names of the rules whose finding says the same.
        judged_by_rules: Whether rules find everything that makes it bad, because the question is too expensive for every audit.
    """

    name: str
    severity: Severity
    says: str
    means: tuple[str, ...] = ()
    covered_by: tuple[str, ...] = ()
    covered_by_rules: tuple[str, ...] = ()
    judged_by_rules: bool = False


BAD: Mapping[str, BadAnswer] = {
    "D1.1": BadAnswer("not_training", "sev2", "it does not train", ("loss_not_falling", "loss_frozen"), ("D2.1",)),
    "D1.2": BadAnswer("gradient_stops_short", "sev2", "the gradient does not reach every layer", (), ("D4.2",)),
    "D1.3": BadAnswer("parameters_dead", "sev2", "parameters get no gradient"),
    "D1.4": BadAnswer("implementation_wrong", "sev1", "the implementation is not that of the reference", ("parity_broken",)),
    "D1.5": BadAnswer("weights_not_updated", "sev2", "weights are not updated"),
    "D1.6": BadAnswer("not_deterministic", "sev2", "the training is not deterministic", ("replay_differs",)),
    "D2.1": BadAnswer(
        "no_downward_trend",
        "sev2",
        "the loss has no downward trend",
        ("loss_not_falling", "loss_frozen", "loss_rises", "loss_oscillates"),
    ),
    "D2.2": BadAnswer("seen_text_not_learnt", "note", "what training sees is not learnt"),
    "D2.3": BadAnswer("no_early_fall", "note", "the loss does not fall at first", (), ("D2.1",)),
    "D2.4": BadAnswer(
        "plateau_above_frequencies", "sev2", "the loss stands above what word frequencies give", judged_by_rules=True
    ),
    "D2.5": BadAnswer("no_patterns_in_attention", "note", "attention follows no pattern"),
    "D2.6": BadAnswer("few_layers_move", "sev2", "a small part of the layers moves"),
    "D3.1": BadAnswer("heads_alike", "note", "the heads do not differ"),
    "D3.2": BadAnswer("heads_repeat_each_other", "note", "most heads have a twin"),
    "D3.3": BadAnswer("attention_by_position", "note", "attention follows positions alone"),
    "D3.4": BadAnswer("core_weights_stand_still", "sev2", "embeddings, norms and the head move, and the projections do not"),
    "D3.5": BadAnswer("neurons_do_not_specialize", "note", "the shape of the hidden activations does not change"),
    "D3.6": BadAnswer("embedding_stands_still", "sev2", "the embedding stands still while other weights move"),
    "D4.1": BadAnswer("spike_without_recovery", "sev2", "the loss spiked and did not recover"),
    "D4.2": BadAnswer("gradient_vanishes", "sev2", "the gradient vanishes on its way through the blocks"),
    "D4.3": BadAnswer("gradient_grows", "sev2", "the gradient norm has grown out of its size"),
    "D4.4": BadAnswer("clipping_at_every_step", "sev2", "clipping cuts every step to a fraction"),
    "D4.5": BadAnswer("activations_run_away", "sev2", "activations grow without bound", ("activation_drift",)),
    "D4.6": BadAnswer(
        "schedule_wrong",
        "sev2",
        "the learning-rate schedule does harm or no good",
        covered_by_rules=("loss_rises", "loss_not_falling", "nonfinite_values"),
    ),
    "D5.1": BadAnswer("does_not_generalize", "sev2", "the training loss falls and the held-out loss does not", ("overfitting",)),
    "D5.2": BadAnswer("pretraining_too_long", "note", "the time to stop was earlier", ("overfitting",), ("D5.1",)),
    "D5.3": BadAnswer("capacity_too_low", "sev2", "the loss is flat far above any floor", judged_by_rules=True),
    "D5.4": BadAnswer("data_ends_early", "note", "the record ends while the loss falls as fast as ever"),
    "D5.5": BadAnswer("earlier_text_forgotten", "sev2", "what was known before is forgotten", (), ("D5.1",)),
    "D6.1": BadAnswer("not_done_with_pretraining", "note", "pretraining has not come to a good end", ("overfitting",), ("D5.1",)),
    "D6.2": BadAnswer("language_not_fluent", "note", "the language is not fluent enough for fine-tuning"),
    "D6.3": BadAnswer("fine_tuning_fails", "note", "fine-tuning does not teach the format"),
    "D6.4": BadAnswer("format_not_kept", "note", "answers do not keep the format"),
    "D6.5": BadAnswer("seen_probes_not_continued", "note", "not even seen probes are continued"),
    "MP-4": BadAnswer("memory_without_generalization", "note", "seen text is known by heart, other text is not"),
    "MPC-1": BadAnswer("known_before_training", "note", "the probes were known before training"),
}
"""The remaining questions, MP-1 to MP-3 and MPC-2 to MPC-5, are at worst to be watched."""
