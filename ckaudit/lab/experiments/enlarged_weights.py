"""EXP-5: all weights times five in the middle of a training, with and without clipping."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.story import experiment

if TYPE_CHECKING:
    from ckaudit.lab.training import Training


class Enlarged(Change):
    """The matrices of all blocks are multiplied by `strength` after step `onset`."""

    def updated(self, training: "Training") -> None:
        """Multiply once."""
        if training.step != self.onset:
            return
        for name, weight in training.model.named_parameters():
            if name.startswith("blocks.") and weight.dim() > 1:
                weight.data.mul_(self.strength)


class EnlargedUnclipped(Enlarged):
    """The same, and gradients are not clipped at all."""

    def plan(self, plan: Plan) -> Plan:
        """Take the limit away."""
        return replace(plan, optimizer=replace(plan.optimizer, clip=None))


@experiment(
    "EXP-5",
    look=(
        *("train_loss_raw", "val_loss", "grad_global_norm", "clip_coefficient", "update_to_weight_global"),
        *("weight_norm/blocks.1.*", "max_attn_logit"),
    ),
    steps=(50, 99, 100, 101, 102, 105, 110, 120),
)
def enlarged_weights() -> Mapping[str, Change]:
    """Weights times five: what the jump looks like, and who recovers.

    After the update of step 100 the matrices of all blocks are multiplied by five. The loss of step 101 is that of a
    stranger. Update over weight drops to a fifth at once, since the weights are larger and Adam's updates are not; the
    gradient norm jumps. With the limit at 1 the coefficient says how much is cut. Adam hides most of the
    difference between the arms: it divides by its own second moment, so that what one huge gradient does, with or without
    clipping, is mostly to make the following updates small.

    Look at the weight norms at step 100, the only series that name the cause: no optimizer moves a weight by four times its
    size in one step. Then compare how fast the two arms come back.
    """
    return {"healthy": Change(), "x5, clipped": Enlarged(100, 5), "x5, not clipped": EnlargedUnclipped(100, 5)}
