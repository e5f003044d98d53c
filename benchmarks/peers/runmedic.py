"""runmedic: a doctor of training logs, which names likely causes in sentences."""

import json
from pathlib import Path

from benchmarks.peers.peer import Answer, Level, Peer

LEVELS: dict[str, Level] = {"critical": "fail", "warning": "warn", "info": "clean"}
MEANS = (
    ("never stops increasing", "warmup_never_ends"),
    ("learning rate is zero", "learning_rate_is_zero"),
    ("learning rate (is )?too high", "learning_rate_too_high"),
    ("no warmup", "missing_warmup"),
    ("learning rate far too low", "learning_rate_too_low"),
    ("bad batch|outlier batches", "bad_batch"),
    ("unstable op|log\\(0\\)", "nonfinite_operation"),
    ("bad initialization", "init_too_large"),
    ("fp16 overflow", "loss_scale_too_high"),
    ("unshuffled data", "data_not_shuffled"),
    ("new data source", "data_distribution_shift"),
    ("no normalization", "normalization_missing"),
    ("attention logits growing", "attention_logits_grow"),
    ("`optimizer.step\\(\\)` missing", "updates_not_applied"),
    ("not passed to the optimizer", "not_in_optimizer"),
    ("requires_grad=False", "frozen_by_mistake"),
    ("not connected to the loss", "dead_path"),
    ("labels are misaligned", "targets_misaligned"),
    ("memorizes the training set", "too_little_data"),
    ("duplicates, leakage", "validation_leaks_into_training"),
    ("dataloader workers|slow storage", "input_bound"),
    ("throttling", "hardware_throttled"),
)
SHOWS = (
    ("never stops increasing", "schedule_off_plan"),
    ("learning rate is zero", "learning_rate_zero"),
    ("learning rate too high or no warmup|outlier batches", "exploding_gradient"),
    ("bad batch|single steps overshoot", "loss_spike"),
    ("later phase of training", "loss_rises"),
    ("blow-up|fp16 overflow|NaN from", "nonfinite_values"),
    ("fp16 overflow", "overflow"),
    ("same prediction|not updated|far too low|labels are misaligned", "loss_not_falling"),
    ("not updated", "barely_moving"),
    ("not updated", "skipped_updates"),
    ("memorizes", "overfitting"),
    ("duplicates, leakage", "train_val_inverted"),
    ("dataloader workers|slow storage", "slow_input"),
    ("throttling", "step_time_jump"),
)


def arguments(log: Path) -> list[str]:
    """Return its command line for a log."""
    return ["-m", "runmedic", "diagnose", str(log), "--json"]


def read(printed: str) -> Answer:
    """Return the gravest severity, and the causes named by the findings that count, gravest first."""
    findings = json.loads(printed)[0]["findings"]
    levels = [LEVELS[finding["severity"]] for finding in findings]
    found = [finding for severity in ("critical", "warning") for finding in findings if finding["severity"] == severity]
    worst: Level = next((level for level in ("fail", "warn") if level in levels), "clean")
    return worst, [cause for each in found for cause in (each["likely_causes"] or [each["title"]])]


RUNMEDIC = Peer(name="runmedic", reads="log", arguments=arguments, read=read, means=MEANS, shows=SHOWS)
