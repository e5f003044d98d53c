"""torchmortem: hooks that gather norms and outputs at every step, and detectors that read them when the training is over.

Its README says what a loop does: attach, `step(loss=...)` after the optimizer's step, detach. What its findings mean is
taken from the causes and remedies in their own text.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.peers.in_loop import InLoopPeer, Spoken

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

MEANS = (
    ("^Instability feedback loop", "learning_rate_too_high"),
    ("^Instability feedback loop", "normalization_missing"),
    ("^Instability feedback loop", "init_too_large"),
    ("^Gradient starvation", "dead_units"),  # it is said of dead units alone
    ("^Gradient starvation", "residual_path_broken"),
    ("^Representation bottleneck", "capacity_too_small"),
    ("^Representation bottleneck", "weight_decay_too_high"),
    ("^Vanishing gradients", "residual_path_broken"),
    ("^Vanishing gradients", "saturating_activation"),
    ("^Exploding gradients", "learning_rate_too_high"),
    ("^Exploding gradients", "init_too_large"),
    ("^Gradient stalling", "gradient_path_cut"),
    ("^Gradient stalling", "dead_path"),
    ("^High gradient noise", "batch_too_small"),
    ("^Training divergence", "learning_rate_too_high"),
    ("^Loss plateau", "learning_rate_too_low"),
    ("^Rank collapse", "weight_decay_too_high"),
    ("^Rank collapse", "learning_rate_too_high"),
    ("^Rank collapse", "capacity_too_small"),
    ("^Activation saturation", "saturating_activation"),
    ("^Dead units", "dead_units"),
    ("^Update ratio too low", "learning_rate_too_low"),
    ("^Update ratio too low", "frozen_by_mistake"),
    ("^Update ratio too high", "learning_rate_too_high"),
    ("^Update ratio too high", "missing_warmup"),
    ("^Weight norm explosion", "learning_rate_too_high"),
    ("^Stagnant weight norms", "learning_rate_too_low"),
    ("^Stagnant weight norms", "dead_path"),
    ("^Inter-layer weight norm imbalance", "init_too_large"),
)


class Torchmortem:
    """An `Autopsy`, and its findings behind what it concludes from several of them."""

    def __init__(self, model: "nn.Module", optimizer: "Optimizer", folder: Path) -> None:
        from torchmortem import Autopsy

        self._autopsy = Autopsy(model, optimizer=optimizer)
        self._autopsy.attach()

    def after_backward(self, loss: float) -> None:
        """Do nothing."""

    def after_update(self, loss: float) -> None:
        """Let it look."""
        self._autopsy.step(loss=loss)

    def finish(self) -> list[Spoken]:
        """Return insights, which name root causes, then findings, which it sorts by severity."""
        self._autopsy.detach()
        report = self._autopsy.get_report()
        insights = [("insight", f"{insight.title}: {insight.summary}") for insight in report.insights]
        return insights + [(finding.severity.name.lower(), f"{finding.title}: {finding.summary}") for finding in report.findings]


TORCHMORTEM = InLoopPeer(
    name="torchmortem",
    package="torchmortem",
    reads="in the loop",
    watch=Torchmortem,
    levels={"critical": "fail", "warning": "warn", "insight": "warn", "info": "clean"},
    means=MEANS,
)
