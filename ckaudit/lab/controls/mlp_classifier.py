"""A classifier of points."""

from ckaudit.lab.change import Change
from ckaudit.lab.story import control


@control(family="mlp")
class MlpClassifier(Change):
    """Linear layers with ReLU tell points apart.

    It looks ill because there are no tokens and part of the units is silent on most inputs.
    """
