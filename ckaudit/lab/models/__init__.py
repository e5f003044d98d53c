"""The models that the lab trains."""

from torch import nn

from ckaudit.lab.plan import Cnn, Gpt, Llama, Lstm, Mlp, Model


def build(plan: Model, *, vocabulary: int, length: int) -> nn.Module:
    """Build a model with new weights from torch's generator.

    Args:
        plan: The plan of the model.
        vocabulary: Number of tokens or classes.
        length: Longest sequence.
    """
    match plan:
        case Gpt():
            from ckaudit.lab.models.language_models import MiniGPT

            return MiniGPT(plan, vocabulary=vocabulary, length=length)
        case Llama():
            from ckaudit.lab.models.language_models import llama

            return llama(plan, vocabulary=vocabulary, length=length)
        case Lstm():
            from ckaudit.lab.models.language_models import LstmModel

            return LstmModel(plan, vocabulary=vocabulary)
        case Mlp():
            from ckaudit.lab.models.classifiers import MlpModel

            return MlpModel(plan, classes=vocabulary)
        case Cnn():
            from ckaudit.lab.models.classifiers import CnnModel

            return CnnModel(plan, classes=vocabulary)
