"""Evaluations that are noisy, rare, or made in another mode."""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.specs import control

if TYPE_CHECKING:
    from ckaudit.lab.training import Training


@control("noisy_evaluations")
class NoisyEvaluations(Change):
    """Each evaluation takes the next four of the held-out rows, ten steps after the one before.

    It looks ill because the held-out loss goes up and down, and often rises for a while: it falls in the mean.
    """

    def plan(self, plan: Plan) -> Plan:
        """Evaluate often."""
        return replace(plan, eval_every=10)

    def evaluate(self, training: "Training") -> dict[str, float]:
        """Evaluate on the next rows."""
        from ckaudit.lab.batch import Batch
        from ckaudit.lab.task import Evaluation

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

    It looks ill to who reads the code: the numbers are the same.
    """

    def evaluate(self, training: "Training") -> dict[str, float]:
        """Evaluate as it is."""
        return training.evaluation.values(training.model)
