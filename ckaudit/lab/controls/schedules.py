"""Learning rates and schedules that look wrong and are right."""

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.specs import control

if TYPE_CHECKING:
    from torch import nn

    from ckaudit.lab.training import Training


@control("constant_lr")
class ConstantLr(Change):
    """After warm-up the learning rate stays constant, at half of the usual peak.

    It looks ill because no schedule seems to act and the loss stays noisy. This is planned, and the rate is not too high.
    """

    def plan(self, plan: Plan) -> Plan:
        """Choose the schedule and lower the peak."""
        optimizer = replace(plan.optimizer, peak=plan.optimizer.peak / 2)
        return replace(plan, optimizer=optimizer, schedule=replace(plan.schedule, shape="constant"))


@control("cosine")
class Cosine(Change):
    """The learning rate follows a cosine down to a hundredth of its peak.

    It looks ill because updates shrink all the time and the loss flattens at the end. That is the plan.
    """

    def plan(self, plan: Plan) -> Plan:
        """Choose the schedule."""
        return replace(plan, schedule=replace(plan.schedule, shape="cosine", warmup=plan.steps // 10, final=0.01))


@control("lr_linear_to_zero")
class LrLinearToZero(Change):
    """The learning rate falls linearly and is zero at the last step.

    It looks ill because the last updates move nothing, and the very last is no update at all. That is the plan.
    """

    def plan(self, plan: Plan) -> Plan:
        """Choose the schedule."""
        return replace(plan, schedule=replace(plan.schedule, shape="linear", final=0.0))


@control("lr_stairs")
class LrStairs(Change):
    """The learning rate falls in three steps.

    It looks ill because the learning rate jumps twice, and the loss with it. The recorded plan says so.
    """

    def plan(self, plan: Plan) -> Plan:
        """Choose the schedule."""
        return replace(plan, schedule=replace(plan.schedule, shape="stairs", periods=3, final=0.1))


@control("warm_restarts")
class WarmRestarts(Change):
    """The learning rate follows a cosine down three times, and restarts from its peak (Loshchilov & Hutter 2017).

    It looks ill because the loss rises after each restart. It is lower at the end of each cosine than at the end of the one
    before.
    """

    def plan(self, plan: Plan) -> Plan:
        """Choose the schedule."""
        return replace(plan, schedule=replace(plan.schedule, shape="restarts", periods=3, final=0.03))


@control("wsd")
class Wsd(Change):
    """The learning rate stays at its peak and falls to zero in the last tenth of the steps.

    It looks ill because the loss seems to have stopped falling and then drops as if the data had changed. It drops because the
    learning rate does.
    """

    def plan(self, plan: Plan) -> Plan:
        """Choose the schedule."""
        return replace(plan, schedule=replace(plan.schedule, shape="plateau", tail=0.1, final=0.0))


@control("layerwise_lr")
class LayerwiseLr(Change):
    """The first block and the embeddings learn half as fast as the rest, which learns faster than usual.

    It looks ill because there are two learning rates, and a block and the embeddings move less than their neighbours.
    """

    def plan(self, plan: Plan) -> Plan:
        """Raise the learning rate of the rest."""
        return replace(plan, optimizer=replace(plan.optimizer, peak=1.5 * plan.optimizer.peak))

    def trained(self, model: "nn.Module") -> list[Any]:
        """Make two parameter groups."""
        slow = [weight for name, weight in model.named_parameters() if self._is_slow(name)]
        fast = [weight for name, weight in model.named_parameters() if not self._is_slow(name)]
        return [{"params": fast}, {"params": slow}]

    def update(self, training: "Training") -> None:
        """Slow one of the groups down."""
        training.optimizer.param_groups[1]["lr"] /= 2
        training.update()

    @staticmethod
    def _is_slow(name: str) -> bool:
        return name.startswith(("tokens.", "positions.", "blocks.0."))
