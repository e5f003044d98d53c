"""EXP-1: what a healthy training looks like."""

from collections.abc import Mapping

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.specs import experiment


class OtherSeed(Change):
    """The same training from other weights and on other sentences."""

    def plan(self, plan: Plan) -> Plan:
        """Take another seed."""
        return replace(plan, seed=plan.seed + 1)


@experiment(
    "EXP-1",
    look=(
        *("train_loss_raw", "val_loss", "grad_global_norm", "block_gradient_norm", "waterfall_ratio", "update_to_weight_global"),
        *("residual_rms", "normalized_attention_entropy"),
    ),
)
def stable_baseline() -> Mapping[str, Change]:
    """What a healthy training looks like, twice.

    Both arms are healthy; they differ by their seed alone, so that what differs between them is chance. Learn these numbers
    by heart: every other experiment is read against them.

    The first loss lies near the logarithm of the vocabulary, and the loss falls at once. The gradient reaches every block
    within a factor of ten, the first block getting most. An update moves the weights by about a hundredth of their size
    at the peak of the learning rate, and by a thousandth at its end. The stream grows from block to block, slowly. Attention
    starts even (near 1); the last block becomes choosy first, and in so short a training not by much.
    """
    return {"healthy": Change(), "another seed": OtherSeed()}
