"""The vital checks: nine questions that every training must pass, and which of them a record allows to answer.

A run without findings is healthy only if each applicable vital check could judge. If one could not, the verdict is *limited*; it
names what is missing and the one line, for the program that wrote the run, that would let most of them judge.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

from ckaudit.audit.coverage.applicability import OUR_RECORDER, source_of, trainer_of, why_metric_not_applicable
from ckaudit.contract.schema.report import Check, Report, VitalCheck, VitalOutcome
from ckaudit.metrics import metrics
from ckaudit.run.run import Run
from ckaudit.wording import first_names

Writer = Literal["recorder", "huggingface", "lightning", "files", "log"]
Judged = Literal["all", "limited", "nothing"]

MAP_HINT = re.compile(r"--map .* would take .* for the training loss")
"""Text with which an importer offers an unused column as the loss."""

BY_SCORES = frozenset({"EVAL003", "EVAL004", "EVAL006"})
"""Rules that judge learning by accuracies and returns if no loss can."""

OF_POLICY = "of a policy, whose data and targets change with it"
"""Text with which an importer marks a loss by which no training can be judged."""

CALLBACK: Mapping[Writer, str] = {
    "huggingface": 'give the Trainer callbacks=[ckaudit.recorder.huggingface.RecorderCallback("run/")]',
    "lightning": 'give the Trainer callbacks=[ckaudit.recorder.lightning.RecorderCallback("run/")]',
}


class Vital(Struct, frozen=True, kw_only=True):
    """One vital check.

    Attributes:
        name: Short name, as in `ck.report.v1`.
        question: The question.
        material: Its input, in words.
        metrics: Metrics of which one must be recorded.
        rules: Codes of the rules that answer it; one that judged suffices.
        remedies: The line that records its input, by writer.
    """

    name: str
    question: str
    material: str
    metrics: tuple[str, ...]
    rules: tuple[str, ...]
    remedies: Mapping[Writer, str]


LOSS: Mapping[Writer, str] = {
    "recorder": "pass the loss: recorder.step(loss)",
    "huggingface": "set TrainingArguments(logging_steps=10)",
    "lightning": 'log it: self.log("train_loss", loss)',
    "files": 'write "train_loss_raw" in each line of scalars.jsonl, or "loss" in each checkpoint',
    "log": "log the training loss and name its column: --map loss=COLUMN",
}
INSIDE: Mapping[Writer, str] = {
    **CALLBACK,
    "recorder": "give the recorder the optimizer: Recorder(model, run, optimizer=optimizer)",
    "log": 'attach ckaudit.Recorder(model, "run/") to the training loop: a log holds no tensors',
}

VITAL: tuple[Vital, ...] = (
    Vital(
        name="loss_finite",
        question="Is the loss a number?",
        material="training loss",
        metrics=("train_loss_raw",),
        rules=("NUM001",),
        remedies=LOSS,
    ),
    Vital(
        name="loss_falls",
        question="Does the loss fall?",
        material="training loss",
        metrics=("train_loss_raw",),
        rules=("LOSS003", "LOSS004", "LOSS007"),
        remedies=LOSS,
    ),
    Vital(
        name="loss_steady",
        question="Is the loss free of jumps and spikes?",
        material="training loss",
        metrics=("train_loss_raw",),
        rules=("LOSS001",),
        remedies=LOSS,
    ),
    Vital(
        name="validation",
        question="Does the validation loss keep up?",
        material="validation loss",
        metrics=("val_loss",),
        rules=("LOSS002",),
        remedies={
            "recorder": "log each evaluation: recorder.log_after(val_loss=...)",
            "huggingface": 'set TrainingArguments(eval_strategy="steps", eval_steps=...)',
            "lightning": 'log it in validation_step: self.log("val_loss", loss)',
            "files": 'write "val_loss" in the lines of scalars.jsonl that have an evaluation',
            "log": "log the validation loss: a column val_loss",
        },
    ),
    Vital(
        name="gradient_size",
        question="Are gradients neither exploding nor vanishing?",
        material="gradient norm",
        metrics=("grad_global_norm", "gradient_norm"),
        rules=("GRAD001", "GRAD002", "GRAD003"),
        remedies={
            **CALLBACK,
            "recorder": "call recorder.after_backward() before clipping",
            "files": 'write "gradients": {TENSOR: {"norm": ...}} in the checkpoints',
            "log": "log the gradient norm: a column grad_norm",
        },
    ),
    Vital(
        name="weights_move",
        question="Do the weights move?",
        material="movement of the weights",
        metrics=("update_norm", "update_to_weight", "relative_movement", "weight_statistics_change"),
        rules=("MOVE001", "MOVE002", "MOVE004"),
        remedies={**INSIDE, "files": 'write "weight_deltas": {TENSOR: {"norm": ..., "relative": ...}} in the checkpoints'},
    ),
    Vital(
        name="attention",
        question="Does attention keep from collapsing?",
        material="attention entropy",
        metrics=("normalized_attention_entropy", "attn_entropy"),
        rules=("ATTN001", "ATTN003"),
        remedies={**INSIDE, "files": 'write "attention": {LAYER: {"entropy_per_head": [...], "keys": ...}} in the checkpoints'},
    ),
    Vital(
        name="updates_applied",
        question="Is every update applied?",
        material="count of applied updates",
        metrics=("skipped_updates", "overflow_rate", "loss_scale", "steps_seen"),
        rules=("AMP001", "AMP002"),
        remedies={
            **CALLBACK,
            "recorder": "give the recorder the optimizer: Recorder(model, run, optimizer=optimizer)",
            "files": 'write "steps_seen", the updates applied so far, in scalars.jsonl',
            "log": "log steps_seen, the updates applied so far",
        },
    ),
    Vital(
        name="throughput",
        question="Does the speed hold?",
        material="throughput",
        metrics=("mfu", "tokens_per_sec", "samples_per_sec", "step_time"),
        rules=("SYS006", "SYS002"),
        remedies={
            **CALLBACK,
            "recorder": "call recorder.step() once per update: it times the steps",
            "files": 'write "step_time" in seconds, or "tokens_per_sec", in scalars.jsonl',
            "log": "log step_time in seconds, or tokens_per_sec",
        },
    ),
)


def vital_checks(run: Run, checks: Sequence[Check]) -> list[VitalCheck]:
    """Return each vital check with its outcome.

    Args:
        run: The run.
        checks: Outcome of each rule.
    """
    by_code = {check.code: check for check in checks}
    writer = writer_of(run)
    return [_vital_check(vital, run, [by_code[code] for code in vital.rules if code in by_code], writer) for vital in VITAL]


def judged(vital: Sequence[VitalCheck], checks: Sequence[Check]) -> Judged:
    """Return whether all applicable vital checks could judge, only some, or nothing.

    "nothing" means that no rule could judge; or that no applicable vital check could, no rule found anything, and no score shows
    learning.
    """
    outcomes = {check.outcome for check in checks}
    asked = {check.outcome for check in vital if check.outcome in ("judged", "not_judged")}
    by_scores = any(check.code in BY_SCORES and check.outcome == "passed" for check in checks)
    if not outcomes & {"passed", "failed"} or (asked == {"not_judged"} and "failed" not in outcomes and not by_scores):
        return "nothing"
    return "limited" if "not_judged" in asked else "all"


def limits(vital: Sequence[VitalCheck], *, shown: int = 3) -> str:
    """Return how many vital checks could not judge and what is missing, as the second half of a sentence.

    Args:
        vital: All vital checks.
        shown: Number of missing inputs to name.
    """
    open_checks = [check for check in vital if check.outcome == "not_judged"]
    asked = [check for check in vital if check.outcome in ("judged", "not_judged")]
    missing = list(dict.fromkeys(check.missing or "" for check in open_checks))
    return f"{len(open_checks)} of {len(asked)} vital checks could not judge: {first_names(missing, shown)}"


def limited(report: Report) -> str:
    """Return how much of a run could not be judged, as the second half of a sentence; empty if everything applicable was."""
    if report.judged == "limited":
        return limits(report.vital)
    return "nothing could be judged" if report.judged == "nothing" else ""


def is_nothing_vital_judged(report: Report) -> bool:
    """Tell whether rules could judge, but no applicable vital check could, and nothing was found."""
    return report.judged == "nothing" and any(check.outcome in ("passed", "failed") for check in report.checks)


def to_judge_more(run: Run, vital: Sequence[VitalCheck]) -> str | None:
    """Return the one line that would let most of the open vital checks judge; None if none is open or no line helps.

    The loss comes first, because little can be judged without it. The loss of a policy would not help, so others count there.
    """
    open_checks = [check for check in vital if check.outcome == "not_judged" and check.remedy]
    if not open_checks:
        return None
    if run.scalar("train_loss_raw"):
        return Counter(check.remedy for check in open_checks).most_common(1)[0][0]
    if any(OF_POLICY in note for note in run.notes):
        others = Counter(check.remedy for check in open_checks if check.remedy != LOSS[writer_of(run)])
        return others.most_common(1)[0][0] if others else None
    offered = next((match[0] for note in run.notes if (match := MAP_HINT.search(note))), None)
    return offered or LOSS[writer_of(run)]


def writer_of(run: Run) -> Writer:
    """Return who wrote the run, which selects the remedy's form: ckaudit's recorder, a trainer, contract files, or a log."""
    source, trainer = source_of(run), trainer_of(run)
    if source.startswith(OUR_RECORDER):
        return trainer or "recorder"
    if trainer:
        return trainer
    return "files" if not source or source.startswith("ckaudit") else "log"


def _vital_check(vital: Vital, run: Run, checks: Sequence[Check], writer: Writer) -> VitalCheck:
    outcome, missing = _judgement(vital, run, checks)
    remedy = vital.remedies.get(writer) if missing and missing.startswith("no ") else None
    return VitalCheck(name=vital.name, question=vital.question, outcome=outcome, missing=missing, remedy=remedy)


def _judgement(vital: Vital, run: Run, checks: Sequence[Check]) -> tuple[VitalOutcome, str | None]:
    """Return the outcome of a vital check, and what is missing if it could not judge."""
    recorded = any(bool(metrics()[name](run)) for name in vital.metrics)
    if recorded and any(check.outcome in ("passed", "failed") for check in checks):
        return "judged", None
    skips = {check.reason for check in checks if check.outcome == "skipped"}
    if checks and skips == {"disabled"}:
        return "disabled", None
    foreign = skips - {"disabled"} == {"not_applicable"} or all(why_metric_not_applicable(run, name) for name in vital.metrics)
    if foreign and not recorded:
        return "not_applicable", None
    if "too_few_points" in skips:
        return "not_judged", f"too few points of the {vital.material}"
    if foreign:
        return "not_judged", f"a {vital.material} whose course says nothing"
    return "not_judged", f"no {vital.material}"
