"""EXP-5: all weights times five in the middle of a training, with and without clipping."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.specs import experiment

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
    steps=(50, 75, 76, 77, 80, 90, 100, 125),
)
def enlarged_weights() -> Mapping[str, Change]:
    """Weights times five: what the jump looks like, and who recovers.

    After the update of step 75 the matrices of all blocks are multiplied by five. The loss of step 76 is that of a
    stranger, and the gradient norm is four times what it was. Afterwards updates are smaller beside the weights, since
    the weights have grown and Adam's updates have not. With the limit at 1 the coefficient says how much is cut. Adam hides
    most of the difference between the arms: it divides by its own second moment, so that what one huge gradient does, with
    or without clipping, is mostly to make the following updates small.

    Look at the weight norms at step 80, the only series that name the cause: no optimizer moves a weight by four times its
    size in one step. Then compare how fast the two arms come back.
    """
    return {"healthy": Change(), "x5, clipped": Enlarged(75, 5), "x5, not clipped": EnlargedUnclipped(75, 5)}
