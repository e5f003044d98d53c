"""A network without attention."""

from ckaudit.lab.change import Change
from ckaudit.lab.story import control


@control(family="lstm")
class Lstm(Change):
    """Two layers of LSTM.

    It looks ill because there are no blocks, no attention and no norms, and hidden states saturate: that is what gates do.
    """
