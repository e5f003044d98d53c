"""A Llama."""

from ckaudit.lab.change import Change
from ckaudit.lab.story import control


@control(family="llama")
class Llama(Change):
    """A Llama of `transformers`, its attention fused.

    It looks ill because modules have other names, keys are shared between queries, and no module puts out probabilities.
    """
