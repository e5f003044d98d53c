"""The playbook's row for a finding that no cause explains: what to change first, and where to look."""

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from ckaudit.audit.playbook.first_look import FIRST_LOOK
from ckaudit.contract.schema.report import Diagnosis, Finding
from ckaudit.metrics.catalogue import entries, entry_of
from ckaudit.rules import rules
from ckaudit.rules.rule import Rule


class Advised(Struct, frozen=True):
    """What a row of the playbook advises.

    Attributes:
        knob: What to change first, one sentence.
        inspect: Where to look, one sentence.
    """

    knob: str
    inspect: str

    @property
    def sentence(self) -> str:
        """Both in one line."""
        return f"First: {self.knob} Where to inspect: {self.inspect}"


KNOBS = {
    "activation_drift": "Correct the scale of the first layer that leaves its level, or put a norm before it.",
    "curvature_jump": "Lower the learning rate from here on.",
    "dropout_rate_high": "Lower the dropout rate to what the recipe says, and none for a single pass over large data.",
    "dtype_changed": "Set the same precision in every session, and convert nothing when a checkpoint is loaded.",
    "evaluation_artifact_changed": "Evaluate the old checkpoint with the new data and code before comparing any two scores.",
    "exploding_gradient": "Lower the learning rate, or clip by the global norm before each step.",
    "gradient_noise_too_high": "Use a larger batch, or a lower learning rate.",
    "hidden_nonfinite": "Have the logger write NaN as it is, and stop at the first one.",
    "initial_loss_off": "Evaluate one batch before the first step and compare with the log of the number of classes; then check "
    "the reduction of the loss and the scale of the last layer.",
    "initialization_lost": "Lower the learning rate, or make the warm-up longer.",
    "input_scale_off": "Normalise the inputs to mean 0 and variance 1.",
    "late_metrics": "Send metrics in batches outside the training loop.",
    "loss_below_floor": "Check that no input contains its target, and that the loss has the sign and the mean that are meant.",
    "loss_frozen": "Check that the optimizer steps on the parameters that the loss depends on, and that each batch is new.",
    "loss_not_falling": "Train on a single batch until its loss falls, then change the learning rate by factors of three.",
    "missing_checkpoint": "Have the writer wait until a checkpoint is complete, and check disk space and permissions.",
    "missing_in_optimizer": "Give the optimizer every parameter that is to be trained.",
    "nonfinite_values": "Go back to the last finite checkpoint; run the next batch with anomaly detection to find the operation.",
    "optimizer_state_reset": "Restore the optimizer's state together with the weights; without it, warm up again.",
    "overfitting": "Keep the checkpoint with the lowest validation loss; then use more data or regularise more.",
    "parameter_count_changed": "Build the model from the configuration that was saved with the checkpoint.",
    "parity_broken": "Compare layer by layer on one batch, in evaluation mode and float32, and mend the first that differs.",
    "rank_divergence": "Stop, broadcast the weights of one rank that is known to be good, and check how gradients are reduced.",
    "repeated_batch": "Shuffle anew in each epoch, and give every rank its own part of the data.",
    "replay_differs": "Set every seed and ask for deterministic kernels; then see whether a resume restores all of its state.",
    "saturated_units": "Lower the scale of the inputs or the initial weights of that layer.",
    "schedule_off_plan": "Call the scheduler once for each optimizer step, and hold its plan against the one that was meant.",
    "seam_jump": "Restore weights, optimizer, scheduler, random state and position in the data together.",
    "skipped_updates": "Find why updates are left out: values that are not finite, a scale that overflows, or a condition around "
    "the optimizer's step.",
    "slice_gap_off": "Show the hard slice more often, or compare it with held-out samples of its kind; then a larger model.",
    "target_equals_input": "Shift the targets by one position, in one place only.",
    "throughput_drop": "Take a step apart into waiting for data, communication and computing, and compare the ranks; mend the "
    "part that grew.",
    "train_val_inverted": "Measure both losses in evaluation mode on the same weights, and check that the two sets are disjoint.",
    "update_out_of_band": "Change the learning rate until an update is about a thousandth of the weights.",
    "updates_held_back": "Lower the optimizer's epsilon, or raise the limit of clipping.",
    "uniform_heads": "Check the scale of the attention logits and the learning rate of the query and key matrices.",
    "validation_noise": "Evaluate on more samples, always the same ones.",
    "impossible_value": "Correct the code that computes or logs the number; until then, trust nothing that rests on it.",
    "off_its_playbook": "Read what its playbook says of the number: ckaudit explain NAME.",
    "undecided_unit": "Say with --unit which of the two it is, and log it in the catalogue's unit from then on.",
    "weight_scale_off": "Set the initial standard deviation that the layer's width asks for.",
    "weights_alike": "Draw the initial weights at random, each on its own.",
    "weights_grow": "Lower the learning rate, or add weight decay.",
    "weights_jump": "Load the checkpoint strictly, and see that nothing but the optimizer writes to the weights.",
    "weights_not_as_saved": "Load the checkpoint strictly, then compare a checksum with the one of the saved file.",
    "weights_shrink": "Lower the weight decay.",
    "zero_gradients": "Follow the gradient from the loss back to the first tensor that gets none.",
}
"""For rules whose first metric has a playbook about something else."""


def advice_on(rule: Rule) -> Advised | None:
    """Return the row for a rule: that of the first look, else its own knob, else the playbook of its first metric.

    Where to look is, without a row of the first look, what the rule judges by. None: a plugin's rule without any of these.
    """
    look = next((look for look in FIRST_LOOK if rule.name in look.rules), None)
    if look is not None:
        return Advised(look.knob, look.inspect)
    named = [metric.name for metric in rule.metrics]
    entry = next((name for name in map(entry_of, named) if name is not None), None)
    knob = KNOBS.get(rule.name) or (entries()[entry].mitigations[0] if entry is not None else None)
    return None if knob is None else Advised(knob, _judged_by(named))


def _judged_by(metrics: Sequence[str], *, max_metrics: int = 3) -> str:
    return f"{', '.join(metrics[:max_metrics])} (ckaudit metrics)." if metrics else "what run.json says."


def advised(findings: Iterable[Finding], diagnoses: Iterable[Diagnosis], *, sure: float = 0.5) -> list[Finding]:
    """Return findings, with the playbook's row as help for each that no cause of at least `sure` confidence explains.

    Notes need no help, and help that a finding has already stays.
    """
    explained = {code for diagnosis in diagnoses if diagnosis.confidence >= sure for code in diagnosis.explains}
    by_code = {rule.code: rule for rule in rules().values()}
    return [
        finding
        if finding.help or finding.severity == "note" or finding.code in explained
        else _helped(finding, by_code.get(finding.code))
        for finding in findings
    ]


def _helped(finding: Finding, rule: Rule | None) -> Finding:
    row = advice_on(rule) if rule is not None else None
    if rule is not None and rule.name == "off_its_playbook" and (number := entry_of((finding.where or "").partition("/")[0])):
        row = Advised(entries()[number].mitigations[0], f"{number} (ckaudit explain {number}).")
    return finding if row is None else replace(finding, help=row.sentence)
