"""A clipping limit far below the gradient norm, under SGD, where it is as good as a lower learning rate."""

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.story import Amount, fault


@fault(
    group="optimization",
    truth="clip_limit_too_low",
    acceptable=("learning_rate_too_low",),
    symptoms=("frequent_clipping", "update_out_of_band", "loss_not_falling"),
    consequences=("uniform_heads", "barely_moving"),
    dev=Amount(strength=0.02),
    test=Amount(strength=0.03),
)
class ClipLow(Change):
    """SGD with momentum at a rate that suits it, a hundred times Adam's, and the gradient norm limited to `strength`.

    Seen under seed 0: the clipping coefficient is 0.015 to 0.03, updates are 0.25 % of the weights at step 50 (limited to
    1: 1.0 %) and the loss is 3.01 (limited to 1: 2.24).
    """

    def plan(self, plan: Plan) -> Plan:
        """Take SGD and lower the limit."""
        healthy = plan.optimizer
        optimizer = replace(healthy, kind="sgd", peak=healthy.peak * 100, weight_decay=0.0, clip=self.strength)
        return replace(plan, optimizer=optimizer)
