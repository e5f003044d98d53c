"""Learning rates that are too high, too low, or zero."""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.specs import FaultStrength, fault

if TYPE_CHECKING:
    from ckaudit.lab.training import Training


@fault(
    "lr_too_high",
    group="optimization",
    truth="learning_rate_too_high",
    acceptable=("missing_warmup",),
    symptoms=(
        "initialization_lost",
        "loss_spike",
        "exploding_gradient",
        "entropy_collapse",
        "update_out_of_band",
        "logit_growth",
        "loss_not_falling",
    ),
    consequences=(
        "schedule_wrong",
        "activation_drift",
        "vanishing_gradient",
        "weights_grow",
        "dead_units",
        "dead_parameter",
        "nonfinite_values",
        "starved_branch",
        "zero_gradients",
    ),
    dev=FaultStrength(strength=100),
    test=FaultStrength(strength=60),
)
class LrTooHigh(Change):
    """The peak learning rate is `strength` times the healthy one, and gradients are not clipped.

    Seen under seed 0: attention saturates while the rate still warms up: at step 20 the sharpest head's entropy is 0.04 of
    its maximum (healthy: 1.0), at step 50 logits reach 5,000 (2); the loss does not explode but stops near 2.5 (1.6 at step
    200).
    """

    def plan(self, plan: Plan) -> Plan:
        """Raise the peak and remove the clip norm."""
        optimizer = replace(plan.optimizer, peak=plan.optimizer.peak * self.strength, clip=None)
        return replace(plan, optimizer=optimizer)


@fault(
    "lr_high",
    group="optimization",
    truth="learning_rate_too_high",
    acceptable=("missing_warmup",),
    symptoms=(
        "initialization_lost",
        "update_out_of_band",
        "entropy_collapse",
        "logit_growth",
        "loss_spike",
        "loss_not_falling",
        "weights_grow",
    ),
    consequences=(
        "schedule_wrong",
        "activation_drift",
        "exploding_gradient",
        "frequent_clipping",
        "vanishing_gradient",
        "dead_parameter",
        "dead_units",
        "zero_gradients",
    ),
    dev=FaultStrength(strength=30),
    test=FaultStrength(strength=20),
)
class LrHigh(Change):
    """The peak learning rate is `strength` times the healthy one; gradients are clipped as usual.

    Seen under seed 0: at step 20 updates are 9 % of the weights (healthy: 1 %), at step 50 the sharpest head's entropy is 0.007
    of its maximum (0.96) and logits reach 343 (2); the loss curve looks merely mediocre, 1.61 at the end (1.24).
    """

    def plan(self, plan: Plan) -> Plan:
        """Raise the peak."""
        return replace(plan, optimizer=replace(plan.optimizer, peak=plan.optimizer.peak * self.strength))


@fault(
    "lr_mildly_high",
    group="optimization",
    truth="learning_rate_too_high",
    acceptable=("missing_warmup",),
    symptoms=("update_out_of_band", "entropy_collapse", "logit_growth", "loss_spike", "loss_not_falling"),
    consequences=(
        "schedule_wrong",
        "activation_drift",
        "exploding_gradient",
        "frequent_clipping",
        "weights_grow",
        "vanishing_gradient",
    ),
    dev=FaultStrength(strength=6),
    test=FaultStrength(strength=5),
    harmless=True,
)
class LrMildlyHigh(Change):
    """The peak learning rate is `strength` times the healthy one.

    Seen under seed 0: at step 100 logits reach 30 (healthy: 3), the sharpest head's entropy is 0.37 of its maximum (0.91)
    and the stream is 17 times as large; yet the loss ends at 0.69 (1.24), so in so short a run the rate helps.
    """

    def plan(self, plan: Plan) -> Plan:
        """Raise the peak."""
        return replace(plan, optimizer=replace(plan.optimizer, peak=plan.optimizer.peak * self.strength))


@fault(
    "lr_low",
    group="optimization",
    truth="learning_rate_too_low",
    symptoms=("update_out_of_band", "loss_not_falling", "barely_moving"),
    consequences=("uniform_heads",),
    dev=FaultStrength(strength=1 / 50),
    test=FaultStrength(strength=1 / 30),
)
class LrLow(Change):
    """The peak learning rate is `strength` times the healthy one.

    Seen under seed 0: updates are 0.05 % of the weights at step 50 (healthy: 1 %), and the loss is 4.2 and falls slowly
    (2.3).
    """

    def plan(self, plan: Plan) -> Plan:
        """Lower the peak."""
        return replace(plan, optimizer=replace(plan.optimizer, peak=plan.optimizer.peak * self.strength))


@fault(
    "lr_too_low",
    group="optimization",
    truth="learning_rate_too_low",
    acceptable=("learning_rate_is_zero",),
    symptoms=("update_out_of_band", "barely_moving", "loss_not_falling"),
    consequences=("uniform_heads",),
    dev=FaultStrength(strength=1e-4),
    test=FaultStrength(strength=3e-4),
)
class LrTooLow(Change):
    """The peak learning rate is `strength` times the healthy one.

    Seen under seed 0: updates are 3e-6 of the weights at step 20 (healthy: 1e-2), the gradient norm is as ever, and the
    loss stays at 4.56.
    """

    def plan(self, plan: Plan) -> Plan:
        """Lower the peak."""
        return replace(plan, optimizer=replace(plan.optimizer, peak=plan.optimizer.peak * self.strength))


@fault(
    "lr_zero",
    group="optimization",
    truth="learning_rate_is_zero",
    acceptable=("updates_not_applied",),
    symptoms=("learning_rate_zero", "schedule_off_plan", "barely_moving", "update_out_of_band"),
    consequences=("loss_not_falling", "uniform_heads", "frozen_parameter"),
)
class LrZero(Change):
    """The learning rate is zero from the first step on, whatever is planned.

    Seen under seed 0: every update is exactly zero while the gradient norm is 1.25, and the loss stays at 4.56.
    """

    def rate(self, training: "Training", rate: float) -> float:
        """Return zero."""
        return 0.0


@fault(
    "lr_zero_late",
    group="optimization",
    truth="learning_rate_is_zero",
    acceptable=("schedule_horizon_wrong", "updates_not_applied"),
    symptoms=("learning_rate_zero", "schedule_off_plan", "barely_moving", "update_out_of_band"),
    consequences=("loss_not_falling", "learning_rate_jump", "frozen_parameter"),
    dev=FaultStrength(onset=200),
    test=FaultStrength(onset=320),
)
class LrZeroLate(Change):
    """The learning rate is as planned before step `onset`, and zero from then on.

    Seen under seed 0: from step 200 on every update is exactly zero, and the validation loss stays at 1.65 (healthy at the
    end: 1.24).
    """

    def rate(self, training: "Training", rate: float) -> float:
        """Return zero from the onset on."""
        return rate if training.step < self.onset else 0.0
