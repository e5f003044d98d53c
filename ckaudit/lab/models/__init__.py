"""The models that the lab trains."""

from torch import nn

from ckaudit.lab.plan import Gpt, Model


def build(plan: Model, *, vocabulary: int, length: int) -> nn.Module:
    """Build a model with new weights, drawn from torch's generator.

    Args:
        plan: Which model.
        vocabulary: Tokens or classes that it tells apart.
        length: Longest sequence.
    """
    match plan:
        case Gpt():
            from ckaudit.lab.models.gpt import MiniGPT

            return MiniGPT(plan, vocabulary=vocabulary, length=length)
    raise NotImplementedError(plan)
