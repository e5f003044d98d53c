"""EXP-2: initial weights from tiny to huge."""

from collections.abc import Mapping

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Gpt, Plan
from ckaudit.lab.specs import experiment


class InitScale(Change):
    """All matrices start `strength` times as large as the healthy ones."""

    def plan(self, plan: Plan) -> Plan:
        """Scale the spread of the initial weights."""
        assert isinstance(plan.model, Gpt)
        return replace(plan, model=replace(plan.model, init_std=plan.model.init_std * self.strength))


@experiment(
    "EXP-2",
    look=(
        *("train_loss_raw", "initial_loss_excess", "residual_rms", "block_gradient_norm"),
        *("min_normalized_entropy", "relative_movement/blocks.1.*", "update_to_weight_global"),
    ),
)
def init_scale() -> Mapping[str, Change]:
    """Initial weights from tiny to huge: how far each layer drifts.

    The matrices start with 0.01, 1, 10 and 50 times the healthy spread of 0.02. Norms in front of every branch forgive much:
    tiny weights only learn late, since a product of small matrices has small gradients. Huge ones start with a loss far above
    the logarithm of the vocabulary, saturate attention before the first step, and hardly move relative to their own size:
    with Adam every weight moves by about the learning rate, however large it is.

    Look at the first loss, then at how the stream grows from block to block at one step, and at the relative movement: tiny
    weights move by many times their size, huge ones by a tenth of it or less.
    """
    return {"x0.01": InitScale(0, 0.01), "healthy": Change(), "x10": InitScale(0, 10), "x50": InitScale(0, 50)}
