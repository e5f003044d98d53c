"""runwise: a reader of runs for agents; its anomalies are asked for by its own function, as its summary of a run does."""

import json
from pathlib import Path

from benchmarks.peers.peer import Answer, Level, Peer

LEVELS: dict[str, Level] = {"critical": "fail", "warning": "warn"}
MEANS = (
    ("(nan|inf) detected", "nonfinite_operation"),
    ("gradient explosion|spike", "learning_rate_too_high"),
    ("vanishing gradients", "residual_path_broken"),
    ("overfitting", "too_little_data"),
    ("plateau", "learning_rate_too_low"),
    ("throughput drop", "hardware_throttled"),
)
SHOWS = (
    ("(nan|inf) detected", "nonfinite_values"),
    ("gradient explosion", "exploding_gradient"),
    ("loss spike", "loss_spike"),
    ("vanishing gradients", "vanishing_gradient"),
    ("overfitting", "overfitting"),
    ("plateau", "loss_not_falling"),
    ("throughput drop", "step_time_jump"),
)
SCRIPT = """
import json, sys
from runwise import detect_anomalies
rows = [json.loads(line) for line in open(sys.argv[1])]
for row in rows:
    row["_step"] = row["step"]
    if row.get("step_time"):
        row["steps_per_sec"] = 1 / row["step_time"]
print(json.dumps([[each.severity, each.message] for each in detect_anomalies(rows)]))
"""


def arguments(log: Path) -> list[str]:
    """Return its command line for a log."""
    return ["-c", SCRIPT, str(log)]


def read(printed: str) -> Answer:
    """Return the gravest severity and the messages, in its own order."""
    found = json.loads(printed)
    levels = [LEVELS[severity] for severity, _ in found]
    worst: Level = next((level for level in ("fail", "warn") if level in levels), "clean")
    return worst, [message for _, message in found]


RUNWISE = Peer(name="runwise", reads="log", arguments=arguments, read=read, means=MEANS, shows=SHOWS)
