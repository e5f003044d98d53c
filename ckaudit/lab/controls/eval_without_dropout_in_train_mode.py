"""Evaluations in training mode, of a model to which it makes no difference."""

from typing import TYPE_CHECKING

from ckaudit.lab.change import Change
from ckaudit.lab.story import control

if TYPE_CHECKING:
    from ckaudit.lab.training import Training


@control()
class EvalWithoutDropoutInTrainMode(Change):
    """The model is not put into evaluation mode, but has no dropout and no batch norm.

    It looks ill to who reads the code: the numbers are the same.
    """

    def evaluate(self, training: "Training") -> dict[str, float]:
        """Evaluate as it is."""
        return training.evaluation.values(training.model)
