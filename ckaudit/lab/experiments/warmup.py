"""EXP-7: with and without warm-up."""

from collections.abc import Mapping

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.specs import experiment


class Warmup(Change):
    """The peak is ten times the healthy one, after a warm-up of `strength` steps."""

    def plan(self, plan: Plan) -> Plan:
        """Change peak and warm-up, and let gradients pass unclipped."""
        optimizer = replace(plan.optimizer, peak=plan.optimizer.peak * 10, clip=None)
        return replace(plan, optimizer=optimizer, schedule=replace(plan.schedule, warmup=int(self.strength)))


@experiment(
    "EXP-7",
    look=(
        *("train_loss_raw", "learning_rate", "grad_global_norm", "update_to_weight_global", "min_normalized_entropy"),
        *("relative_movement/blocks.*.attn.q.weight", "val_loss"),
    ),
    steps=(1, 2, 5, 10, 20, 50, 100, 125),
)
def warmup() -> Mapping[str, Change]:
    """Warm-up, and how the first steps go without it.

    The learning rate is ten times the healthy one and gradients are not clipped, so that the warm-up is all that protects the
    first steps: none, 30 steps and 100 steps. Adam's second moment knows one gradient after the first step; its update then
    has the size of the learning rate in every element, in whatever direction that one batch pointed.

    Look at update over weight and at the gradient norm of the first ten steps, and at how far the queries have come at step
    10. Then see what is left of it at the end: without a warm-up the loss falls fastest for five steps and then stays where it
    is, and the longer the warm-up, the lower the loss ends.
    """
    return {"healthy": Change(), "none": Warmup(0, 0), "30 steps": Warmup(0, 30), "100 steps": Warmup(0, 100)}
