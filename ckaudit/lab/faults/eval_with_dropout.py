"""Evaluations with dropout."""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Gpt, Plan
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from ckaudit.lab.training import Training


@fault(
    group="code",
    truth="evaluation_in_training_mode",
    symptoms=("evaluated_in_training_mode", "validation_noise"),
    dev=Amount(strength=0.2),
    test=Amount(strength=0.1),
    detectable=50,
)
class EvalWithDropout(Change):
    """The model has dropout of `strength` and is not put into evaluation mode.

    Each validation loss is too high by what dropout costs, and as noisy as the units dropped. The recorder has the held-out
    batch pinned and evaluates it without dropout at the same weights.

    Seen under seed 0: validation losses of 2.329 and 2.025 where the pinned batch gives 2.307 and 1.996, at steps 50 and 100;
    they lie at the training loss.
    """

    def plan(self, plan: Plan) -> Plan:
        """Give the model dropout."""
        return replace(plan, model=replace(plan.model, dropout=self.strength)) if isinstance(plan.model, Gpt) else plan

    def begin(self, training: "Training") -> None:
        """Show the recorder the held-out batch, which it evaluates as it should be."""
        if training.step == 1:
            held = training.corpus.held_out()
            training.recorder.pin((held.inputs, held.targets), shift=0, held_out=True)

    def evaluate(self, training: "Training") -> dict[str, float]:
        """Evaluate in the mode of training."""
        return training.evaluation.values(training.model)
