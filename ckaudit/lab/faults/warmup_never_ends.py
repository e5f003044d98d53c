"""A warm-up that goes on to the end of the run."""

from typing import TYPE_CHECKING

from ckaudit.lab.change import Change
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from ckaudit.lab.training import Training


@fault(
    group="optimization",
    truth="warmup_never_ends",
    acceptable=("learning_rate_too_high", "schedule_not_stepping"),
    symptoms=("schedule_off_plan", "logit_growth", "entropy_collapse", "update_out_of_band"),
    consequences=(
        "weights_grow",
        "activation_drift",
        "loss_spike",
        "loss_rises",
        "exploding_gradient",
        "frequent_clipping",
        "dead_units",
        "zero_gradients",
    ),
    dev=Amount(onset=31, strength=4.0),
    test=Amount(onset=26, strength=3.0),
    detectable=30,
)
class WarmupNeverEnds(Change):
    """After the warm-up the learning rate goes on rising, `strength` times as fast, until the run ends.

    Seen under seed 0: at step 100 the rate is 0.031 where 0.0028 is planned, logits reach 20 (healthy: 4) and the stream is
    ten times as large; the loss, at first the better for it, stops at 1.2 from step 250 on, where the healthy one ends at
    1.24 and still falls. At a strength of 1 it only helps, at 12 the loss stays at 2.0.
    """

    def rate(self, training: "Training", rate: float) -> float:
        """Give what lies on the line."""
        peak, warmup = training.plan.optimizer.peak, training.plan.schedule.warmup
        return rate if training.step <= warmup else peak * (1 + self.strength * (training.step - warmup) / warmup)
