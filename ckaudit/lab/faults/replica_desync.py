"""Ranks whose norms drift apart."""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from ckaudit.lab.training import Training


@fault(
    group="system",
    truth="replicas_diverged",
    symptoms=("rank_divergence",),
    dev=Amount(onset=45, strength=4),
    test=Amount(onset=130, strength=2),
    detectable=50,
)
class ReplicaDesync(Change):
    """Of two ranks, the second multiplies its gradients of norms by `strength` after clipping, from the onset on.

    This is what happens where one of the ranks clips and the other does not. The files of the ranks hash different
    weights from the next checkpoint on; the losses show nothing.
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
