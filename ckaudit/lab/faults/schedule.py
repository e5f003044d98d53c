"""Warm-ups that are missing or never end, decays that come early, schedules that do not step."""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.specs import FaultStrength, fault

if TYPE_CHECKING:
    from ckaudit.lab.training import Training


@fault(
    "no_warmup",
    group="optimization",
    truth="missing_warmup",
    acceptable=("learning_rate_too_high",),
    symptoms=(
        "initialization_lost",
        "update_out_of_band",
        "loss_spike",
        "entropy_collapse",
        "logit_growth",
        "exploding_gradient",
        "loss_not_falling",
    ),
    consequences=(
        "schedule_wrong",
        "activation_drift",
        "frequent_clipping",
        "weights_grow",
        "vanishing_gradient",
        "dead_parameter",
        "dead_units",
    ),
    dev=FaultStrength(strength=10),
    test=FaultStrength(strength=8),
)
class NoWarmup(Change):
    """The first step is taken at the peak learning rate, which is `strength` times the healthy one.

    Seen under seed 0: at step 20 the sharpest head's entropy is 0.04 of its maximum (healthy: 1.0), logits reach 123 (0.3)
    and the stream is 400 times as large; the loss ends at 1.81 (1.24).
    """

    def plan(self, plan: Plan) -> Plan:
        """Remove the warm-up and raise the peak."""
        optimizer = replace(plan.optimizer, peak=plan.optimizer.peak * self.strength)
        return replace(plan, optimizer=optimizer, schedule=replace(plan.schedule, warmup=0))


@fault(
    "no_warmup_mild",
    group="optimization",
    truth="missing_warmup",
    acceptable=("learning_rate_too_high",),
    symptoms=(
        "initialization_lost",
        "update_out_of_band",
        "loss_spike",
        "entropy_collapse",
        "logit_growth",
        "exploding_gradient",
    ),
    consequences=("schedule_wrong", "activation_drift", "frequent_clipping", "weights_grow", "vanishing_gradient"),
    dev=FaultStrength(strength=3),
    test=FaultStrength(strength=4),
)
class NoWarmupMild(Change):
    """The first step is taken at the peak learning rate, `strength` times the healthy one.

    Seen under seed 0: at step 10 the stream is 50 times as large as in the healthy run, at step 50 the sharpest head's
    entropy is 0.18 of its maximum (healthy: 0.96); the loss ends at 1.45 (1.24).
    """

    def plan(self, plan: Plan) -> Plan:
        """Remove the warm-up and raise the peak a little."""
        optimizer = replace(plan.optimizer, peak=plan.optimizer.peak * self.strength)
        return replace(plan, optimizer=optimizer, schedule=replace(plan.schedule, warmup=0))


@fault(
    "warmup_never_ends",
    group="optimization",
    truth="warmup_never_ends",
    acceptable=("learning_rate_too_high", "schedule_not_stepping"),
    symptoms=("schedule_off_plan", "logit_growth", "entropy_collapse", "update_out_of_band"),
    consequences=(
        "schedule_wrong",
        "weights_grow",
        "activation_drift",
        "loss_spike",
        "loss_rises",
        "exploding_gradient",
        "frequent_clipping",
        "dead_units",
        "zero_gradients",
    ),
    dev=FaultStrength(onset=31, strength=4.0),
    test=FaultStrength(onset=26, strength=3.0),
    detectable=30,
)
class WarmupNeverEnds(Change):
    """After the warm-up the learning rate keeps rising, `strength` times as fast, until the run ends.

    Seen under seed 0: at step 100 the rate is 0.031 where 0.0028 is planned, logits reach 20 (healthy: 4) and the stream is ten
    times as large; the loss, at first the better for it, stops at 1.2 from step 250 on, where the healthy one ends at 1.24 and
    still falls. At a strength of 1 it only helps, at 12 the loss stays at 2.0.
    """

    def rate(self, training: "Training", rate: float) -> float:
        """Return the value on the line."""
        peak, warmup = training.plan.optimizer.peak, training.plan.schedule.warmup
        return rate if training.step <= warmup else peak * (1 + self.strength * (training.step - warmup) / warmup)


@fault(
    "scheduler_stuck",
    group="optimization",
    truth="schedule_not_stepping",
    symptoms=("schedule_off_plan",),
    consequences=("schedule_wrong", "learning_rate_jump", "update_out_of_band", "logit_growth"),
    dev=FaultStrength(onset=41),
    test=FaultStrength(onset=51),
    detectable=60,
    harmless=True,
)
class SchedulerStuck(Change):
    """After the warm-up the learning rate stays at its peak, although it is planned to fall.

    Seen under seed 0: at step 200 the rate is 0.003 in place of 0.0018, and neither loss nor tensors tell it from the healthy
    run.
    """

    def rate(self, training: "Training", rate: float) -> float:
        """Return the peak from the onset on."""
        return rate if training.step < self.onset else training.plan.optimizer.peak


@fault(
    "scheduler_stuck_in_warmup",
    group="optimization",
    truth="schedule_not_stepping",
    acceptable=("learning_rate_too_low",),
    symptoms=("schedule_off_plan", "update_out_of_band", "loss_not_falling"),
    consequences=("schedule_wrong", "uniform_heads", "barely_moving"),
)
class SchedulerStuckInWarmup(Change):
    """Every step is taken at the learning rate of the first, whatever is planned.

    Seen under seed 0: the rate is 0.0001 at step 50 in place of 0.003, updates are 8e-4 of the weights (healthy: 1e-2), and
    the loss is 4.0 (2.3).
    """

    def rate(self, training: "Training", rate: float) -> float:
        """Return the first step's rate."""
        return training.plan.rate(1)


@fault(
    "lr_decay_early",
    group="optimization",
    truth="schedule_horizon_wrong",
    acceptable=("learning_rate_is_zero",),
    symptoms=("schedule_off_plan", "learning_rate_zero", "barely_moving", "update_out_of_band", "loss_not_falling"),
    consequences=("schedule_wrong", "uniform_heads", "frozen_parameter"),
    dev=FaultStrength(onset=31, strength=0.2),
    test=FaultStrength(onset=26, strength=0.25),
    detectable=50,
)
class LrDecayEarly(Change):
    """The learning rate falls to zero after `strength` of the steps; the planned schedule ends with the run.

    Seen under seed 0: the rate is 0 from step 80 on, where 0.003 is planned, updates are exactly zero, and the loss stays at 2.2
    (healthy at step 200: 1.65).
    """

    def rate(self, training: "Training", rate: float) -> float:
        """Return the rate of a schedule with fewer steps."""
        plan = training.plan
        return plan.optimizer.peak * replace(plan.schedule, final=0.0).factor(training.step, round(plan.steps * self.strength))


@fault(
    "lr_decay_early_floor",
    group="optimization",
    truth="schedule_horizon_wrong",
    acceptable=("learning_rate_too_low",),
    symptoms=("schedule_off_plan", "loss_not_falling"),
    consequences=("schedule_wrong", "update_out_of_band", "barely_moving"),
    dev=FaultStrength(onset=31, strength=0.4),
    test=FaultStrength(onset=26, strength=0.3),
    detectable=100,
)
class LrDecayEarlyFloor(Change):
    """The learning rate reaches a tenth of its peak after `strength` of the steps and stays there.

    Seen under seed 0: the rate is at its floor of 0.0003 from step 160 on, where 0.0022 to 0.0003 is planned, and the loss
    hardly falls any more: 1.85 on held-out rows at step 200 (healthy: 1.69).
    """

    def rate(self, training: "Training", rate: float) -> float:
        """Return the rate of a schedule with fewer steps."""
        plan = training.plan
        return plan.optimizer.peak * replace(plan.schedule, final=0.1).factor(training.step, round(plan.steps * self.strength))
