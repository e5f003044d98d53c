"""EXP-3: the learning rate too high and too low."""

from collections.abc import Mapping

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.specs import experiment


class PeakRate(Change):
    """The peak of the learning rate is `strength` times the healthy one."""

    def plan(self, plan: Plan) -> Plan:
        """Scale the peak."""
        return replace(plan, optimizer=replace(plan.optimizer, peak=plan.optimizer.peak * self.strength))


@experiment(
    "EXP-3",
    look=(
        *("train_loss_raw", "val_loss", "learning_rate", "grad_global_norm", "update_to_weight_global", "clip_coefficient"),
        *("min_normalized_entropy", "relative_movement/blocks.1.*"),
    ),
)
def learning_rates() -> Mapping[str, Change]:
    """The learning rate from far too low to far too high.

    The peak is 0.01, 1, 10 and 100 times the healthy one. Update over weight tells the four apart from the first steps on,
    long before the loss does: about 1e-4, 1e-2, 5e-2 and 1e-1 at step 10. Too low is a slow but
    steady loss and weights that stay where they started. Too high is a loss that falls faster than any other for ten steps
    and then stays on a plateau, with heads that look at one key only. Ten times is not too high for so short a training: its
    loss is the lowest, while its sharpest head is on the way to collapse.

    Look at update over weight at step 10, then at the loss at the end of the warm-up.
    """
    return {"x0.01": PeakRate(0, 0.01), "healthy": Change(), "x10": PeakRate(0, 10), "x100": PeakRate(0, 100)}
