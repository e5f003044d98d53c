"""A classifier of pictures."""

from ckaudit.lab.change import Change
from ckaudit.lab.story import control


@control(family="cnn")
class CnnClassifier(Change):
    """Convolutions with batch norm tell shapes apart.

    It looks ill because the training loss comes close to zero, and because batch norm holds numbers that no gradient trains.
    """
