"""The data that the lab trains on: made by seeded generators, nothing is downloaded."""

from ckaudit.lab.plan import Data
from ckaudit.lab.task import Corpus


def open_corpus(plan: Data, seed: int) -> Corpus:
    """Return the corpus that a plan names.

    Args:
        plan: The corpus, and how its batches are made.
        seed: Decides which training rows are drawn; the held-out rows are always the same.

    Raises:
        KeyError: If no corpus has this name.
    """
    if plan.corpus == "points":
        from ckaudit.lab.corpora.classification import points

        return points(plan, seed)
    if plan.corpus == "shapes":
        from ckaudit.lab.corpora.classification import shapes

        return shapes(plan, seed)
    from ckaudit.lab.corpora.text import TextCorpus

    return TextCorpus(plan, seed)
