"""Response plan: what to do about a finding without a cause, and about all findings of a run."""

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from ckaudit.audit.coverage.applicability import OUR_RECORDER, source_of, trainer_of
from ckaudit.audit.diagnose import of_record
from ckaudit.audit.playbook import ACTIONS, CANARY, FIRST_LOOK, NEWEST, NO_BEFORE, OF_RECORDS, WITH_CAUSE, part_of
from ckaudit.causes import causes
from ckaudit.causes.cause import GoodCheckpoint
from ckaudit.contract.schema.report import SEVERITIES, Diagnosis, Finding, Severity
from ckaudit.metrics.catalogue import entries, entry_of
from ckaudit.metrics.loss import val_loss
from ckaudit.metrics.probes import fixed_probe_loss
from ckaudit.rules import rules
from ckaudit.rules.evaluation.benchmark_regression import benchmark_regression
from ckaudit.rules.loss.overfitting import overfitting
from ckaudit.rules.rule import Rule
from ckaudit.run.run import Run
from ckaudit.run.run_facts import counts_updates
from ckaudit.run.series import Floats, Steps

BATCHES = ("batch_id", "batch_hash")
REPLAY_OF_START = "replay: the first steps once more with the same seed; what comes again is in the code or the configuration"


def response(
    run: Run,
    findings: Sequence[Finding],
    diagnoses: Sequence[Diagnosis] = (),
    *,
    around: int = 50,
    batches: int = 4,
    sure: float = 0.5,
) -> list[str]:
    """Return what to do, in order (WF-1 to WF-4); empty if no finding is more than a note.

    Args:
        run: The run.
        findings: Findings of the rules.
        diagnoses: Their causes, likeliest first: the knob of a likely cause is better than a general action.
        around: Steps on either side of the first bad one whose numbers to save.
        batches: Number of batches before it to name.
        sure: Smallest confidence of a cause to act on.
    """
    ill = [finding for finding in findings if finding.severity != "note"]
    if not ill:
        return []
    training = [finding for finding in ill if not of_record(finding)]
    severity = min((finding.severity for finding in training or ill), key=SEVERITIES.index)
    if not training:
        return [f"{severity}: {OF_RECORDS}", _parts(ill)]
    since = min((finding.first_step for finding in training if finding.first_step is not None), default=None)
    likely = next((diagnosis for diagnosis in diagnoses[:1] if diagnosis.confidence >= sure), None)
    action = (WITH_CAUSE if likely else ACTIONS)[severity]
    if not counts_updates(run.manifest):  # A canary counted in updates is meaningless if a step is an epoch.
        action = action.replace(CANARY, "a short canary")
    is_old = _is_old(run, training) or _good_checkpoint(likely) == "none"
    lines = [f"{severity}: {action}{_goal(run, training, since, likely, severity)}", _parts(ill)]
    if since is not None:
        lines += [_evidence(run, since, around, batches), REPLAY_OF_START if is_old else _replay(run, since)]
    return [*lines, *_benchmarks(run, ill)]


def from_the_start(run: Run, step: int | None, codes: Iterable[str] = (), *, worth: int = 10) -> bool:
    """Tell whether a problem first seen at `step` may be as old as the run: at its first checkpoint, or within `worth` steps.

    Args:
        run: The run.
        step: Step at which it was first seen; None if unknown.
        codes: Codes of the findings. Overfitting is never as old as the run, because validation was lowest before it.
        worth: Number of steps that count as the start.
    """
    if step is None or {*codes} == {overfitting.code}:
        return False
    later = run.checkpoint_steps[run.checkpoint_steps > 0]
    return step <= worth or step == next(iter(later.tolist()), None)


def _is_old(run: Run, training: Sequence[Finding]) -> bool:
    """Tell whether any problem may be as old as the run."""
    return any(from_the_start(run, finding.first_step, [finding.code]) for finding in training)


def _good_checkpoint(diagnosis: Diagnosis | None) -> GoodCheckpoint:
    """Return which checkpoint is good according to a likely cause; "before" if there is no cause of this version."""
    known = causes().get(diagnosis.cause) if diagnosis else None
    return known.good_checkpoint if known else "before"


def _leaves_weights_sound(diagnosis: Diagnosis, training: Sequence[Finding]) -> bool:
    """Tell whether a cause does not harm the weights and explains all problems."""
    return _good_checkpoint(diagnosis) == "newest" and {finding.code for finding in training} <= {*diagnosis.explains}


def _goal(run: Run, training: Sequence[Finding], since: int | None, likely: Diagnosis | None, severity: Severity) -> str:
    """Return from where the training can go on, as the end of the first line; the effect of a likely cause takes precedence."""
    if likely and _leaves_weights_sound(likely, training):
        return f"; {NEWEST}"
    if _good_checkpoint(likely) == "none":
        return f"; {NO_BEFORE}"
    if _is_old(run, training):
        return f"{' to the start: ' if severity == 'sev1' else '; '}{_nothing_good(run, training)}"
    return "" if since is None else f"; {_good(run, training, since)}"


def _nothing_good(run: Run, training: Sequence[Finding]) -> str:
    """Return that nothing is known to be good, and where validation is lowest if the model has overfitted."""
    text = "nothing written so far is known to be good"
    steps, lowest = _validation(run)
    if _has_overfitted(training) and np.isfinite(lowest).any():
        return f"{text}; validation is lowest at step {steps[np.argmin(lowest)]}"
    return text


def _good(run: Run, training: Sequence[Finding], since: int) -> str:
    """Return up to where the run is good, with the lowest validation loss there and the one at the end."""
    text = f"checkpoints before step {since} are good"
    steps, lowest = _validation(run)
    before, after = lowest[steps < since], lowest[steps >= since]
    if not np.isfinite(before).any() or (np.isfinite(before).sum() < 2 and not _has_overfitted(training)):
        return text
    best = steps[np.argmin(lowest)]
    if best < since:
        return f"{text} (validation is lowest at step {best})"
    if after[-1] < before.min():
        return f"{text}; going back loses the validation gain from {before.min():.4g} to {after[-1]:.4g}"
    return f"{text}; validation is lowest later, at step {best}"


def _has_overfitted(training: Sequence[Finding]) -> bool:
    return any(finding.code == overfitting.code for finding in training)


def _validation(run: Run) -> tuple[Steps, Floats]:
    """Return the steps of evaluations (T,), and the lowest validation loss at each (T,), infinite if it is not a number."""
    held = val_loss(run)
    evaluated = held.recorded.any(axis=1)  # (T,)
    lowest = np.where(held.finite, held.values, np.inf).min(axis=1, initial=np.inf)
    return held.steps[evaluated], lowest[evaluated]


def _parts(ill: Sequence[Finding]) -> str:
    """Return which parts of the stack have problems and since when, earliest first (WF-2)."""
    parts: dict[str, list[Finding]] = {}
    for finding in sorted(ill, key=lambda finding: -1 if finding.first_step is None else finding.first_step):
        parts.setdefault(part_of(finding.code), []).append(finding)
    return f"look at: {'; '.join(_part(name, members) for name, members in parts.items())}"


def _part(name: str, findings: Sequence[Finding]) -> str:
    first = next((finding.first_step for finding in findings if finding.first_step is not None), None)
    since = "" if first is None else f" since step {first}"
    return f"{name}{since} ({', '.join(dict.fromkeys(finding.code for finding in findings))})"


def _evidence(run: Run, since: int, around: int, batches: int) -> str:
    """Return what to save in time: numbers, batches, the black box, logs (WF-1)."""
    last = since + around if run.last_step is None else min(since + around, run.last_step)
    parts = [f"the numbers of steps {max(0, since - around)} to {last}", _batches(run, since, batches)]
    event = next((event.event_step for event in run.events if since <= event.event_step <= since + around), None)
    if event is not None:
        parts.append(f"the black box (ckaudit triage {shlex.quote(run.name)} --event {event})")
    alone = run.manifest is not None and run.manifest.world_size == 1
    return f"save: {', '.join([*parts, 'and the logs of these minutes' + ('' if alone else ' from every rank')])}"


def _batches(run: Run, since: int, batches: int) -> str:
    """Return the last batches up to the first bad step, with the run's ids; for the start, the first batch."""
    since = max(1, since)
    for name in BATCHES:
        known = [labelled for labels in run.words(name).values() for labelled in zip(labels.steps, labels.values, strict=True)]
        if last := [(step, word) for step, word in sorted(known) if step <= since][-batches:]:
            return _named(last)
    first = max(1, since - batches + 1)
    return f"the batches of steps {first} to {since}" if first < since else f"the batch of step {since}"


def _named(batches: Sequence[tuple[int, str]]) -> str:
    """Return batches with the run's ids; as a range if the ids count with the steps.

    >>> _named([(7, "7/0"), (8, "8/0"), (9, "9/0")]), _named([(7, "ab"), (8, "cd")])
    ('the batches of steps 7 to 9 (ids 7/0 to 9/0)', 'the batches ab at step 7, cd at step 8')
    """
    (first, id_of_first), (last, id_of_last) = batches[0], batches[-1]
    counted = [re.sub(rf"(?<!\d)0*{step}(?!\d)", "#", word, count=1) for step, word in batches]
    steps = [step for step, _ in batches]
    if "#" in counted[0] and len(set(counted)) == 1 and steps == list(range(first, last + 1)):
        if first == last:
            return f"the batch of step {first} (id {id_of_first})"
        return f"the batches of steps {first} to {last} (ids {id_of_first} to {id_of_last})"
    names = ", ".join(f"{word} at step {step}" for step, word in batches)
    return f"the batch{'' if len(batches) == 1 else 'es'} {names}"


def _replay(run: Run, since: int) -> str:
    """Return what to repeat, and the expected value (WF-3)."""
    probe = fixed_probe_loss(run)
    rows = [row for row, step in enumerate(probe.steps.tolist()) if step < since and probe.finite[row].any()]
    again = f"replay: from the last checkpoint before step {since}, with the same batches and nothing changed"
    if not rows:
        pinned = f"a fixed batch{_call_that_pins(run)} would show that the checkpoint is the one that was saved"
        return f"{again}; {pinned}"
    column = int(probe.finite[rows[-1]].argmax())
    value = float(probe.values[rows[-1], column])
    return f"{again}; the fixed batch must cost {value:.4g} nats/token, as at step {int(probe.steps[rows[-1]])}"


def _call_that_pins(run: Run) -> str:
    """Return the call that records a fixed batch, in brackets; empty if the tool that wrote the run has none."""
    if not source_of(run).startswith(OUR_RECORDER):
        return ""
    return " (callback.pin)" if trainer_of(run) else " (recorder.pin)"


def _benchmarks(run: Run, ill: Sequence[Finding]) -> Iterator[str]:
    """Yield the way to explain a score that fell (WF-4)."""
    if any(finding.code == benchmark_regression.code for finding in ill):
        yield f"a benchmark fell: ckaudit triage {shlex.quote(run.name)} --benchmark-drop asks why, in order"


# The playbook's advice for a finding without a cause: what to change first, and where to look.
class PlaybookAdvice(Struct, frozen=True):
    """Advice of a row of the playbook.

    Attributes:
        knob: What to change first, one sentence.
        inspect: Where to look, one sentence.
    """

    knob: str
    inspect: str

    @property
    def sentence(self) -> str:
        """Both parts in one line."""
        return f"First: {self.knob} Where to inspect: {self.inspect}"


KNOBS = {
    "activation_drift": "Correct the scale of the first layer that leaves its level, or put a norm before it.",
    "batches_of_one_kind": "Shuffle all samples before batches are made, and anew in each epoch.",
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
    "loss_inputs_wrong": "Give the loss function what its documentation asks for: logits, log-probabilities, or outputs of the "
    "targets' own shape.",
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
    "return_stands": "Let it learn the smallest task of this kind first, with a reward that comes at each step.",
    "return_lost": "Lower the learning rate, or bound how far one update may move the policy.",
    "posterior_collapse": "Raise the weight of the divergence from zero over the first epochs, or leave a few nats of it free.",
    "discriminator_wins": "Lower the discriminator's learning rate, or train it less often than the generator.",
    "score_stands": "Train on a single batch until its score rises, then change the learning rate by factors of three.",
    "seam_jump": "Restore weights, optimizer, scheduler, random state and position in the data together.",
    "skipped_updates": "Find why updates are left out: values that are not finite, a scale that overflows, or a condition around "
    "the optimizer's step.",
    "slice_gap_off": "Show the hard slice more often, or compare it with held-out samples of its kind; then a larger model.",
    "target_equals_input": "Shift the targets by one position, in one place only.",
    "unsure_though_right": "Give the loss logits: take the softmax out of the head, or use a loss of log-probabilities.",
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
    "updates_rounded_away": "Keep a float32 copy of the weights for the optimizer, or round stochastically.",
    "validation_spike": "Compare the training loss and the update sizes at that step; then lower the peak learning rate, or look "
    "at what evaluations alone use.",
    "weight_scale_off": "Set the initial standard deviation that the layer's width asks for.",
    "weights_alike": "Draw the initial weights at random, each on its own.",
    "weights_grow": "Lower the learning rate, or add weight decay.",
    "weights_jump": "Load the checkpoint strictly, and see that nothing but the optimizer writes to the weights.",
    "weights_not_as_saved": "Load the checkpoint strictly, then compare a checksum with the one of the saved file.",
    "decay_outweighs_learning": "Lower the weight decay.",
    "weights_shrink": "Lower the weight decay.",
    "zero_gradients": "Follow the gradient from the loss back to the first tensor that gets none.",
}
"""Knobs of rules whose first metric has a playbook on another topic."""

PLACES = {
    "activation_drift": "The layer that is named, its norm, and the scale of what enters it.",
    "batches_of_one_kind": "The loader's shuffle and sampler, and the labels of one batch.",
    "gap_widens": "The training loss and the held-out loss as one plot, and how many rows the training set has.",
    "initial_loss_off": "The last layer's scale, the loss's reduction, and the number of classes or tokens.",
    "input_scale_off": "One batch as the model gets it: its mean, its deviation and its largest value.",
    "learning_rate_zero": "The schedule's number of steps beside the run's, and how often the scheduler is stepped.",
    "loss_below_floor": "The line that makes the loss, and one batch's inputs beside its targets.",
    "loss_frozen": "The optimizer's parameters, whether the loss has a gradient, and the variable that is logged as the loss.",
    "loss_inputs_wrong": "The line that calls the loss function, and the shape and values of what it is given.",
    "loss_not_falling": "The optimizer's parameters, the learning rate in use, and one batch's inputs beside its targets.",
    "loss_oscillates": "The learning rate in use, and the order in which batches come.",
    "missing_in_optimizer": "The line that makes the optimizer, and what is built or replaced after it.",
    "nonfinite_values": "The operation that anomaly detection names, and the batch of that step.",
    "overfitting": "The training loss and the held-out loss as one plot, and how many times each row was seen.",
    "repeated_batch": "The loader's shuffle, its seed in each epoch and on each rank, and the ids in two batches.",
    "schedule_off_plan": "The scheduler's arguments, and how often it is stepped.",
    "return_stands": "The policy's entropy, how often a reward comes at all, and whether its weights move.",
    "return_lost": "The sign of the advantage, the policy's entropy and the distance between old and new policy.",
    "posterior_collapse": "The divergence of each dimension of the code, and what the decoder writes for two inputs.",
    "discriminator_wins": "What the discriminator answers for real inputs and for products, and the generator's gradient.",
    "score_stands": "The optimizer's parameters, the learning rate in use, and one batch's inputs beside its targets.",
    "seam_jump": "What the checkpoint holds, and what the resumed session loads of it.",
    "skipped_updates": "The condition around the optimizer's step, and the log of the loss scaler.",
    "target_equals_input": "One batch: its inputs beside its targets.",
    "target_misalignment": "One batch: its inputs beside its targets.",
    "unsure_though_right": "What the head puts out, what the loss function expects, and how far labels are smoothed.",
    "throughput_drop": "The times of loading, computing and communication at a step before it and at one after.",
    "train_val_inverted": "The code of the evaluation: its mode, its weights, its reduction, and the rows that it takes.",
    "validation_noise": "How many samples an evaluation takes, and whether they are the same each time.",
    "validation_spike": "The checkpoint of that evaluation, evaluated again, and the learning rate around it.",
    "zero_gradients": "The graph between the loss and the first tensor that gets no gradient: detach, no_grad, masks.",
}
"""Where to look in a training, for rules that judge its curves."""


def advice_on(rule: Rule) -> PlaybookAdvice | None:
    """Return the advice for a rule: its row of the first look, else its own knob, else the playbook of its first metric.

    Without a row or a place of its own, the place to look is the rule's inputs. None for a plugin's rule without any of these.
    """
    look = next((look for look in FIRST_LOOK if rule.name in look.rules), None)
    if look is not None:
        return PlaybookAdvice(look.knob, look.inspect)
    named = [metric.name for metric in rule.metrics]
    entry = next((name for name in map(entry_of, named) if name is not None), None)
    knob = KNOBS.get(rule.name) or (entries()[entry].mitigations[0] if entry is not None else None)
    if knob is None:
        return None
    measures = f"{', '.join(named[:3])} (ckaudit metrics)." if named else "what run.json says."
    return PlaybookAdvice(knob, PLACES.get(rule.name, measures))


def advised(findings: Iterable[Finding], diagnoses: Iterable[Diagnosis], *, sure: float = 0.5) -> list[Finding]:
    """Return findings, with the playbook's advice as help for those that no cause of at least `sure` confidence explains.

    Notes need no help, and existing help stays.
    """
    explained = {code for diagnosis in diagnoses if diagnosis.confidence >= sure for code in diagnosis.explains}
    by_code = {rule.code: rule for rule in rules().values()}
    return [
        finding
        if finding.help or finding.severity == "note" or finding.code in explained
        else _with_help(finding, by_code.get(finding.code))
        for finding in findings
    ]


def _with_help(finding: Finding, rule: Rule | None) -> Finding:
    row = advice_on(rule) if rule is not None else None
    if rule is not None and rule.name == "off_its_playbook" and (number := entry_of((finding.where or "").partition("/")[0])):
        row = PlaybookAdvice(entries()[number].mitigations[0], f"{number} (ckaudit explain {number}).")
    return finding if row is None else replace(finding, help=row.sentence)
