"""A router that shares tokens out."""

from ckaudit.lab.change import Change
from ckaudit.lab.story import control


@control(family="moe", expected=("dropped_tokens",))
class SparseMoe(Change):
    """Each token goes to one of several experts, and a small loss keeps the router fair (Fedus et al. 2022).

    It looks ill because experts are used unevenly at first, a few tokens find theirs full, and each expert's weights have a
    gradient from its own tokens only.
    """
