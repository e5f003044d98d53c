"""trainscope: a debugger of loss spikes, with early signs in gradients, outputs and routing.

Its README says what a loop does: attach, `step(loss)` between backward pass and optimizer, detach; and that the report of
`trainscope report` is the case file of a run. It has no severities: signals that fired are early warnings, and the
"objective explosion" of the report, a loss ten times what it was or not finite, is the end that they warn of.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.peers.in_loop import InLoopPeer, Spoken

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

MEANS = (
    ("^concentration crossed", "router_collapse"),
    ("^kurtosis crossed", "learning_rate_too_high"),
    ("^kurtosis crossed", "attention_logits_grow"),
    ("^(grad_norm|loss) crossed", "learning_rate_too_high"),
    ("^Objective explosion", "learning_rate_too_high"),
    ("^Objective explosion", "nonfinite_operation"),  # it does not say which of the two
)


class Trainscope:
    """A `TrainScope`, and the signals of its report, the earliest first."""

    def __init__(self, model: "nn.Module", optimizer: "Optimizer", folder: Path) -> None:
        from trainscope import TrainScope
        from trainscope.core.config import TrainScopeConfig

        self._run = folder / "run"
        self._scope = TrainScope(model, optimizer, config=TrainScopeConfig(run_dir=str(folder), run_name="run")).attach()

    def after_backward(self, loss: float) -> None:
        """Let it look."""
        self._scope.step(loss)

    def after_update(self, loss: float) -> None:
        """Do nothing."""

    def finish(self) -> list[Spoken]:
        """Return the signals in the order in which they fired, then the explosion."""
        from asyncio import run

        from trainscope.report import build_run_report

        self._scope.detach()
        signature = run(build_run_report(self._run))["signal_signature"]
        signals = [("signal", f"{name} crossed at step {signature['first_steps'][name]}") for name in signature["fired"]]
        step = signature["explosion_step"]
        return signals if step is None else [*signals, ("explosion", f"Objective explosion at step {step}")]


TRAINSCOPE = InLoopPeer(
    name="trainscope",
    package="trainscope",
    reads="in the loop",
    watch=Trainscope,
    levels={"explosion": "fail", "signal": "warn"},
    means=MEANS,
)
