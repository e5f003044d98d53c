"""Batches, precision, clipping, sessions, ranks and evaluations that look ill and are not."""

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.specs import control

if TYPE_CHECKING:
    from ckaudit.lab.training import Training


# Dtypes, batch sizes, clipping and accumulation.
@control("bfloat16")
class Bfloat16(Change):
    """Forward and backward passes run in bfloat16; the weights are kept in float32.

    It looks ill because losses and gradients have three digits only.
    """

    def plan(self, plan: Plan) -> Plan:
        """Choose the precision."""
        return replace(plan, precision="bfloat16")


@control("float16_scaler")
class Float16Scaler(Change):
    """Forward and backward passes run in float16 with a loss scale that starts high.

    It looks ill because the first two or three updates overflow and are skipped while the scale comes down. Later none is.
    """

    def plan(self, plan: Plan) -> Plan:
        """Choose the precision, and stop early, because CPUs are slow at it."""
        return replace(plan, precision="float16", stop=min(plan.steps, 120))

    def zero(self, training: "Training") -> None:
        """Start with a high scale."""
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

    It looks ill because all of the first updates are clipped. Gradients are large before anything is learnt.
    """

    def plan(self, plan: Plan) -> Plan:
        """Choose the clip norm."""
        return replace(plan, optimizer=replace(plan.optimizer, clip=2.5))


@control("large_batch")
class LargeBatch(Change):
    """A batch has four times the usual rows, for half of the steps, at a learning rate higher by half.

    It looks ill because the loss falls in few large steps and has hardly any noise.
    """

    def plan(self, plan: Plan) -> Plan:
        """Enlarge the batches and the learning rate."""
        optimizer = replace(plan.optimizer, peak=plan.optimizer.peak * 1.5)
        data = replace(plan.data, batch_size=4 * plan.data.batch_size)
        return replace(plan, data=data, optimizer=optimizer, steps=plan.steps // 2)


@control("tiny_batch")
class TinyBatch(Change):
    """A batch has four rows, for twice as many steps, at half the learning rate.

    It looks ill because loss and gradients are noisy and clipping is common. The learning rate fits, and both losses fall.
    """

    def plan(self, plan: Plan) -> Plan:
        """Shrink the batches and the learning rate."""
        optimizer = replace(plan.optimizer, peak=plan.optimizer.peak / 2)
        data = replace(plan.data, batch_size=4)
        return replace(plan, data=data, optimizer=optimizer, steps=2 * plan.steps, eval_every=2 * plan.eval_every)


# Runs that are short, resumed, or of two ranks.
@control("resumed_clean")
class ResumedClean(Change):
    """The training is stopped in the middle and resumed with its complete state.

    It looks ill because a second session begins, and time passes without a step.
    """

    def plan(self, plan: Plan) -> Plan:
        """Stop in the middle."""
        return replace(plan, resume_at=plan.steps // 2)


@control("resumed_twice")
class ResumedTwice(Change):
    """The training is stopped after a quarter and after three quarters of its steps, and resumed with its complete state.

    It looks ill because there are three sessions, and time passes twice without a step.
    """

    def plan(self, plan: Plan) -> Plan:
        """Stop after a quarter."""
        return replace(plan, resume_at=plan.steps // 4)

    def restore(self, training: "Training", saved: dict[str, Any]) -> None:
        """Resume, and plan the next stop."""
        training.restore(saved)
        training.plan = replace(training.plan, resume_at=training.plan.steps * 3 // 4)


@control("short_run")
class ShortRun(Change):
    """The training ends as planned after sixty steps.

    It looks ill because the loss still falls fast at the end and is far from its best. It was meant as a trial.
    """

    def plan(self, plan: Plan) -> Plan:
        """Shorten it."""
        return replace(plan, steps=60, eval_every=10, schedule=replace(plan.schedule, warmup=10))


@control("two_ranks")
class TwoRanks(Change):
    """Two processes take half of each batch each and exchange gradients; the training is stopped early.

    It looks ill because the logged loss is that of half a batch, steps take longer, and the processes never take exactly as long.
    """

    def plan(self, plan: Plan) -> Plan:
        """Train on two ranks, and stop when there is enough to see."""
        return replace(plan, ranks=2, stop=min(plan.steps, 200))


# Evaluations that are noisy, rare, or made in another mode.
@control("noisy_evaluations")
class NoisyEvaluations(Change):
    """Each evaluation uses the next four held-out rows, ten steps after the last one.

    It looks ill because the held-out loss goes up and down, and often rises for a while. Its mean falls.
    """

    def plan(self, plan: Plan) -> Plan:
        """Evaluate often."""
        return replace(plan, eval_every=10)

    def evaluate(self, training: "Training") -> dict[str, float]:
        """Evaluate on the next rows."""
        from ckaudit.lab.task import Batch, Evaluation

        held = training.corpus.held_out()
        first = training.step // training.plan.eval_every * 4 % len(held.inputs)
        rows = slice(first, first + 4)
        training.evaluation = Evaluation(training.task, Batch(inputs=held.inputs[rows], targets=held.targets[rows]))
        return training.evaluate()


@control("rare_evaluations")
class RareEvaluations(Change):
    """The training is evaluated three times.

    It looks ill because the held-out loss is old at most steps and has too few points for any trend.
    """

    def plan(self, plan: Plan) -> Plan:
        """Evaluate rarely."""
        return replace(plan, eval_every=plan.steps // 3)


@control("eval_without_dropout_in_train_mode")
class EvalWithoutDropoutInTrainMode(Change):
    """The model is not put into evaluation mode, but has no dropout and no batch norm.

    It looks ill to a reader of the code. The numbers are the same.
    """

    def evaluate(self, training: "Training") -> dict[str, float]:
        """Evaluate in training mode."""
        return training.evaluation.values(training.model)
