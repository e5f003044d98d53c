"""trainproof: a linter of training logs; `epoch` is its verdict on one."""

import json
from pathlib import Path

from benchmarks.peers.peer import Answer, Level, Peer

LEVELS: dict[str, Level] = {"FAIL": "fail", "WARN": "warn"}
MEANS = (
    ("TP-ZERO-LR", "learning_rate_is_zero"),
    ("TP-NAN ", "nonfinite_operation"),
    ("TP-ZERO-GRAD", "gradient_path_cut"),
    ("TP-ZERO-LOSS-ONSET", "nan_hidden_by_logger"),
    ("TP-DIVERGE", "learning_rate_too_high"),
    ("TP-GRAD-SPIKE", "learning_rate_too_high"),
    ("TP-DEAD-RUN|TP-FLAT", "learning_rate_too_low"),
    ("TP-OVERFIT", "too_little_data"),
    ("TP-LOADER-BOUND", "input_bound"),
    ("TP-STEP-CLIFF", "hardware_throttled"),
)
SHOWS = (
    ("TP-ZERO-LR", "learning_rate_zero"),
    ("TP-ZERO-LR", "schedule_off_plan"),
    ("TP-NAN", "nonfinite_values"),
    ("TP-NAN-GRAD", "hidden_nonfinite"),
    ("TP-NAN-GRAD", "overflow"),
    ("TP-ZERO-GRAD", "zero_gradients"),
    ("TP-ZERO-GRAD", "dead_parameter"),
    ("TP-ZERO-LOSS-ONSET", "hidden_nonfinite"),
    ("TP-DIVERGE", "loss_rises"),
    ("TP-DIVERGE", "loss_spike"),
    ("TP-GRAD-SPIKE", "exploding_gradient"),
    ("TP-DEAD-RUN|TP-FLAT", "loss_not_falling"),
    ("TP-DEAD-RUN|TP-FLAT", "barely_moving"),
    ("TP-OVERFIT", "overfitting"),
    ("TP-LOADER-BOUND", "slow_input"),
    ("TP-STEP-CLIFF", "step_time_jump"),
)


def arguments(log: Path) -> list[str]:
    """Return its command line for a log."""
    return ["-m", "trainproof", "epoch", str(log), "--json"]


def read(printed: str) -> Answer:
    """Return its verdict, and its findings as "ID message", failures first."""
    report = json.loads(printed)["reports"][0]
    found = [each for level in LEVELS for each in report["findings"] if each["level"] == level]
    return LEVELS.get(report["verdict"], "clean"), [f"{each['id']} {each['message']}" for each in found]


TRAINPROOF = Peer(name="trainproof", reads="log", arguments=arguments, read=read, means=MEANS, shows=SHOWS)
