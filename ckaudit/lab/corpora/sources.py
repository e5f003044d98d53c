"""What each text corpus is made of: its sources by name."""

from random import Random
from typing import Protocol

from ckaudit.lab.corpora import dialogue, notes, recipes, stock, sums, verbs, visits, weather
from ckaudit.lab.corpora.line import CorpusLine


class LineSource(Protocol):
    """Draws lines."""

    def __call__(self, rng: Random, *, held: bool) -> CorpusLine:
        """Draw one line, of those held out or of all others."""
        ...


TEXTS: dict[str, dict[str, LineSource]] = {
    "verbs": {"verbs": verbs.draw},
    "mixture": {"dialogue": dialogue.draw, "sums": sums.draw, "recipes": recipes.draw, "visits": visits.draw},
    "letters": {"notes": notes.draw, "weather": weather.draw, "stock": stock.draw},
}
