"""The page of `explain` on one name: plain data that every renderer draws."""

from typing import Literal

from msgspec import Struct

PageKind = Literal["metric", "rule", "cause", "question", "violation", "procedure", "advice", "row"]


class Formula(Struct, frozen=True, kw_only=True):
    """One formula.

    Attributes:
        row: The row that it belongs to, empty if there is only one formula.
        tex: The formula in TeX, without dollar signs.
    """

    row: str = ""
    tex: str


class Threshold(Struct, frozen=True, kw_only=True):
    """One number that a judgement depends on and that a user may set.

    Attributes:
        name: Its keyword argument.
        default: Its value, as text.
        meaning: The sentences on its effect and its source.
    """

    name: str
    default: str
    meaning: str


class Section(Struct, frozen=True, kw_only=True):
    """A headed paragraph, a list, or a list after a paragraph."""

    title: str
    text: str = ""
    items: tuple[str, ...] = ()

    @property
    def paragraphs(self) -> tuple[str, ...]:
        """The paragraph and each item of the list."""
        return (self.text, *self.items) if self.text else self.items


class Shapes(Struct, frozen=True, kw_only=True):
    """A healthy and an unhealthy series on one axis, and each in words; `of` is the drawn quantity, empty for the page's own."""

    of: str = ""
    good: str
    bad: str
    good_values: tuple[float, ...]
    bad_values: tuple[float, ...]


class Page(Struct, frozen=True, kw_only=True):
    """Everything known about one name.

    Attributes:
        kind: Kind of the named thing.
        name: The name itself.
        ids: Its codes, or the rows that it answers.
        also_called: Other names for it.
        title: One sentence that describes it.
        formulas: Its definitions.
        facts: Short facts by label, in display order.
        importance: Importance for a run, by "scale" and "stage" and each of their words.
        thresholds: Its thresholds.
        links: Other names that `explain` knows, by their relation.
        line: Line that records it, ready to copy, or one for each of its inputs.
        sections: The rest, in reading order.
        belongs_to: Another metric that the sections are about and that covers this one; empty: they are its own.
        shapes: Its healthy and unhealthy shapes.
    """

    kind: PageKind
    name: str
    ids: tuple[str, ...] = ()
    also_called: tuple[str, ...] = ()
    title: str
    formulas: tuple[Formula, ...] = ()
    facts: dict[str, str] = {}
    importance: dict[str, dict[str, str]] = {}
    thresholds: tuple[Threshold, ...] = ()
    links: dict[str, tuple[str, ...]] = {}
    line: str = ""
    sections: tuple[Section, ...] = ()
    belongs_to: str = ""
    shapes: Shapes | None = None

    @property
    def heading(self) -> str:
        """Heading of sections about another metric; empty if they are the page's own."""
        return f"Of {self.belongs_to}, which this belongs to:" if self.belongs_to and self.sections else ""

    def table(self) -> dict[str, str]:
        """Return facts and importance, each as one line of text by label."""
        lines = {
            f"by {kind}": ", ".join(f"{word} {level}" for word, level in levels.items())
            for kind, levels in self.importance.items()
        }
        return self.facts | lines


class NameLine(Struct, frozen=True, kw_only=True):
    """One name in the list of all names."""

    name: str
    ids: tuple[str, ...]
    title: str


class NameGroup(Struct, frozen=True, kw_only=True):
    """A group of names."""

    title: str
    lines: tuple[NameLine, ...]
