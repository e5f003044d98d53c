"""Element types, batch sizes, clipping and accumulation."""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.specs import control

if TYPE_CHECKING:
    from ckaudit.lab.training import Training


@control("bfloat16")
class Bfloat16(Change):
    """Forward and backward passes run in bfloat16, the weights are kept in float32.

    It looks ill because losses and gradients have three digits only.
    """

    def plan(self, plan: Plan) -> Plan:
        """Choose the precision."""
        return replace(plan, precision="bfloat16")


@control("float16_scaler")
class Float16Scaler(Change):
    """Forward and backward passes run in float16 with a loss scale that starts high.

    It looks ill because the first two or three updates overflow and are skipped while the scale comes down: none is later.
    """

    def plan(self, plan: Plan) -> Plan:
        """Choose the precision, and stop early, as processors are slow at it."""
        return replace(plan, precision="float16", stop=min(plan.steps, 120))

    def zero(self, training: "Training") -> None:
        """Start high."""
        if training.step == 1 and training.scaler is not None:
            training.scaler.load_state_dict(training.scaler.state_dict() | {"scale": 2.0**22})
        training.optimizer.zero_grad()


@control("accumulation")
class Accumulation(Change):
    """Four small batches make one update.

    It looks ill because a step has four forward passes, and the recorded batch is a quarter of what the update saw.
    """

    def plan(self, plan: Plan) -> Plan:
        """Accumulate."""
        return replace(plan, accumulate=4)


@control("clip_active_early")
class ClipActiveEarly(Change):
    """The limit of the gradient norm is low enough to act at the start and hardly ever later.

    It looks ill because every one of the first updates is clipped: gradients are large while nothing is learnt yet.
    """

    def plan(self, plan: Plan) -> Plan:
        """Choose the limit."""
        return replace(plan, optimizer=replace(plan.optimizer, clip=2.5))


@control("large_batch")
class LargeBatch(Change):
    """A batch has four times the usual rows, for half of the steps at a learning rate higher by half.

    It looks ill because the loss falls in few, large moves and hardly has any noise.
    """

    def plan(self, plan: Plan) -> Plan:
        """Make batches large and the learning rate with them."""
        optimizer = replace(plan.optimizer, peak=plan.optimizer.peak * 1.5)
        data = replace(plan.data, batch_size=4 * plan.data.batch_size)
        return replace(plan, data=data, optimizer=optimizer, steps=plan.steps // 2)


@control("tiny_batch")
class TinyBatch(Change):
    """A batch has four rows, for twice as many steps at half the learning rate.

    It looks ill because loss and gradients are noisy and clipping is common: the learning rate fits, and both losses fall.
    """

    def plan(self, plan: Plan) -> Plan:
        """Make batches small and the learning rate with them."""
        optimizer = replace(plan.optimizer, peak=plan.optimizer.peak / 2)
        data = replace(plan.data, batch_size=4)
        return replace(plan, data=data, optimizer=optimizer, steps=2 * plan.steps, eval_every=2 * plan.eval_every)
