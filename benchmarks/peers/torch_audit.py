"""torch-audit: a linter of the loop, which checks model, optimizer, batches, gradients and weights by rules with a number.

Its README begins with `autopatch`, which needs no change of the loop: it looks when the model is called and when the
optimizer takes its step. By default it looks at every thousandth step, which in trainings as short as these is the first
one alone; so it is run a second time at every step, as the README proposes.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.peers.in_loop import InLoopPeer, Spoken
from benchmarks.peers.peer import Level

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

LEVELS: dict[str, Level] = {"FATAL": "fail", "ERROR": "fail", "WARN": "warn", "INFO": "clean"}
MEANS = (
    ("^TA100 ", "nonfinite_operation"),
    ("^TA100 ", "learning_rate_too_high"),
    ("^TA100 ", "loss_scale_too_high"),
    ("^TA102 ", "learning_rate_too_high"),
    ("^TA103 ", "dead_units"),
    ("^TA104 ", "frozen_by_mistake"),
    ("^TA104 ", "dead_path"),
    ("^TA105 ", "dead_units"),
    ("^TA301 ", "inputs_not_normalized"),
    ("^TA30[235] ", "bad_batch"),
    ("^TA304 ", "batch_too_small"),
    ("^TA405 ", "dead_units"),
    ("^TA500 ", "dead_path"),
)


class TorchAudit:
    """An auditor that patches itself in, as often as it does by default."""

    options: dict[str, Any] = {}  # noqa: RUF012  read only

    def __init__(self, model: "nn.Module", optimizer: "Optimizer", folder: Path) -> None:
        from torch_audit import autopatch

        self._auditor = autopatch(model, optimizer=optimizer, **self.options)

    def after_backward(self, loss: float) -> None:
        """Do nothing."""

    def after_update(self, loss: float) -> None:
        """Do nothing."""

    def finish(self) -> list[Spoken]:
        """Return each finding once, as it was at the first step that had it; the gravest first."""
        self._auditor.unpatch()
        once: dict[str, Any] = {}
        for finding in self._auditor.finish().findings:
            once.setdefault(finding.get_fingerprint(), finding)
        found = sorted(once.values(), key=lambda each: list(LEVELS).index(each.severity.value))
        return [(each.severity.value, f"{each.rule_id} {each.message}") for each in found]


class TorchAuditEveryStep(TorchAudit):
    """One that looks at every step."""

    options = {"every_n_steps": 1}  # noqa: RUF012  read only


TORCH_AUDIT = InLoopPeer(
    name="torch-audit", package="torch-audit", reads="in the loop", watch=TorchAudit, levels=LEVELS, means=MEANS
)
TORCH_AUDIT_EVERY_STEP = InLoopPeer(
    name="torch-audit (every step)",
    package="torch-audit",
    reads="in the loop",
    watch=TorchAuditEveryStep,
    levels=LEVELS,
    means=MEANS,
)
