"""How much of the sample a classifier calls toxic (M48)."""

from ckaudit.data.document import Document
from ckaudit.data.gauge import Values, not_recorded, rate


class Toxicity:
    """Share of the scored documents with a score of at least one half."""

    def __init__(self, *, threshold: float = 0.5) -> None:
        # One half is where RealToxicityPrompts draws the line (Gehman et al. 2020).
        self._threshold = threshold
        self._toxic = self._scored = 0

    def see(self, document: Document) -> None:
        """Add a document that has a score."""
        if document.score is not None:
            self._scored += 1
            self._toxic += document.score >= self._threshold

    def measures(self) -> Values:
        """Yield the share, with its interval."""
        if not self._scored:
            yield not_recorded("data_toxicity_rate", "M48", "no column toxicity or score, and no --classifier")
            return
        yield rate("data_toxicity_rate", "M48", self._toxic, self._scored, f"score of at least {self._threshold:g}")
