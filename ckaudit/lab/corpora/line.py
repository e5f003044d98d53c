"""One line of a text corpus."""

from msgspec import Struct


class CorpusLine(Struct, frozen=True, kw_only=True):
    """A line and where it belongs.

    Attributes:
        text: Without a line break.
        source: Which of the corpus's sources made it; None: there is one only.
        slice: Which named part of an evaluation it counts for; None: none.
    """

    text: str
    source: str | None = None
    slice: str | None = None
