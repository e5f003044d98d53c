"""Ranks, loaders and hardware."""

from collections import deque
from copy import deepcopy
from random import Random
from statistics import median
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.specs import FaultStrength, fault

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ckaudit.lab.task import Batch
    from ckaudit.lab.training import Training


@fault(
    "dataloader_stall",
    group="system",
    truth="input_bound",
    symptoms=("slow_input",),
    consequences=("step_time_jump",),
    dev=FaultStrength(strength=2),
    test=FaultStrength(onset=80, strength=1),
    detectable=50,
)
class DataloaderStall(Change):
    """From the onset on each batch is late by `strength` times the rest of a step; the training is stopped early.

    The forward pass starts late in every step, so that two thirds of a step instead of a twentieth are spent on input, while the
    losses are those of the healthy run.
    """

    def __init__(self, onset: int = 0, strength: float = 1.0) -> None:
        super().__init__(onset, strength)
        self._ended = 0.0
        self._steps: deque[float] = deque(maxlen=10)

    def plan(self, plan: Plan) -> Plan:
        """Stop when there is enough to see."""
        return replace(plan, stop=min(plan.steps, self.onset + 120))

    def batch(self, training: "Training", batch: "Batch") -> "Batch":
        """Let the training wait."""
        if self._ended:
            self._steps.append(perf_counter() - self._ended)
        if training.step >= self.onset and self._steps:
            sleep(self.strength * median(self._steps))
        self._ended = perf_counter()
        return batch


@fault(
    "replica_desync",
    group="system",
    truth="replicas_diverged",
    symptoms=("rank_divergence",),
    dev=FaultStrength(onset=45, strength=4),
    test=FaultStrength(onset=130, strength=2),
    detectable=50,
)
class ReplicaDesync(Change):
    """Of two ranks, the second multiplies its gradients of norms by `strength` after clipping, from the onset on.

    This is what happens if one of the ranks clips and the other does not. The files of the ranks hash different weights from the
    next checkpoint on; the losses show nothing.
    """

    def plan(self, plan: Plan) -> Plan:
        """Train on two ranks, and stop when there is enough to see."""
        return replace(plan, ranks=2, stop=min(plan.steps, self.onset + 150))

    def clip(self, training: "Training") -> None:
        """Clip, but the norms of one rank differently."""
        training.clip()
        if training.rank and training.step >= self.onset:
            for name, weight in training.model.named_parameters():
                if "norm" in name and weight.grad is not None:
                    weight.grad *= self.strength


@fault(
    "step_time_cliff",
    group="system",
    truth="hardware_throttled",
    symptoms=("step_time_jump",),
    dev=FaultStrength(onset=150, strength=4),
    test=FaultStrength(onset=220, strength=2),
    detectable=50,
)
class StepTimeCliff(Change):
    """From the onset on each backward pass is repeated `strength` times in vain; the training is stopped 100 steps later.

    Step time trebles from one step to the next and stays there, and throughput falls to a third, at the same losses.
    """

    def plan(self, plan: Plan) -> Plan:
        """Stop when there is enough to see."""
        return replace(plan, stop=min(plan.steps, self.onset + 100))

    def backward(self, training: "Training", loss: "Tensor") -> None:
        """Repeat the backward pass."""
        if training.step >= self.onset:
            _repeat_backward(training, loss, int(self.strength))
        loss.backward()


def _repeat_backward(training: "Training", loss: "Tensor", times: int) -> None:
    """Compute the gradients of a loss and discard them."""
    import torch

    weights = [weight for weight in training.model.parameters() if weight.requires_grad]
    for _ in range(times):
        torch.autograd.grad(loss, weights, retain_graph=True, allow_unused=True)


@fault(
    "straggler_rank",
    group="system",
    truth="straggler",
    symptoms=("straggler",),
    consequences=("step_time_jump",),
    dev=FaultStrength(strength=3),
    test=FaultStrength(onset=60, strength=2),
    detectable=50,
)
class StragglerRank(Change):
    """Of two ranks, the second repeats each forward pass `strength` times from the onset on; the training is stopped early.

    The rank files show that the second takes three times as long by itself, and that the first waits for gradients.
    """

    def __init__(self, onset: int = 0, strength: float = 1.0) -> None:
        super().__init__(onset, strength)
        self._times = 0

    def plan(self, plan: Plan) -> Plan:
        """Train on two ranks, and stop when there is enough to see."""
        return replace(plan, ranks=2, stop=min(plan.steps, self.onset + 120))

    def model(self, model: "nn.Module") -> None:
        """Let a copy repeat the work at the beginning of each forward pass."""
        self._copy = deepcopy(model)
        model.tokens.register_forward_pre_hook(self._work)  # type: ignore[union-attr]

    def batch(self, training: "Training", batch: "Batch") -> "Batch":
        """Repeat the work on one rank."""
        self._times = int(self.strength) if training.rank and training.step >= self.onset else 0
        return batch

    def _work(self, _module: "nn.Module", inputs: Any) -> None:
        import torch

        with torch.no_grad():
            for _ in range(self._times):
                self._copy(*inputs)


@fault(
    "zero_comm",
    group="system",
    truth="gradients_lost_in_communication",
    symptoms=("zero_gradients", "dead_parameter"),
    dev=FaultStrength(strength=0.02),
    test=FaultStrength(onset=100, strength=0.015),
    detectable=150,
)
class ZeroComm(Change):
    """At each step from the onset on, each tensor's gradient is all zeros with probability `strength`.

    A checkpoint has a few tensors whose gradient is exactly zero, other ones each time, while the losses show nothing.
    """

    def plan(self, plan: Plan) -> Plan:
        """Train on two ranks: a single one exchanges nothing."""
        return replace(plan, ranks=2)

    def gradients(self, training: "Training") -> None:
        """Zero some gradients."""
        lost = Random(f"{training.plan.seed}/lost/{training.step}")
        for weight in training.model.parameters():
            if training.step >= self.onset and lost.random() < self.strength and weight.grad is not None:
                weight.grad.zero_()
