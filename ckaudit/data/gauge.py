"""What every gauge is: it sees each document once, and says at the end what it measured or why it could not."""

from collections.abc import Iterator
from typing import Protocol

from ckaudit.contract.schema.raw_measurements import Measure, Missing
from ckaudit.data.document import Document
from ckaudit.material.interval import wilson

Values = Iterator[Measure | Missing]
NO_TEXT = "no document has a text: where another column holds it, --map text=COLUMN"


class Gauge(Protocol):
    """One family of values."""

    def see(self, document: Document) -> None:
        """Take one document that no filter rejected."""

    def measures(self) -> Values:
        """Yield the values, or what was missing."""


def rate(name: str, row: str, hits: int, of: int, detail: str | None = None) -> Measure:
    """Return a share of `of` documents in percent, as the catalogue has its rates, with the interval that goes with it."""
    low, high = wilson(hits, of)
    return Measure(name=name, row=row, value=100 * hits / of, unit="%", points=of, low=100 * low, high=100 * high, detail=detail)


def not_recorded(name: str, row: str, detail: str) -> Missing:
    """Return a value that the sample has nothing for."""
    return Missing(name=name, row=row, reason="not_recorded", detail=detail)
