"""What `explain` says of one name: plain data that every renderer draws alike."""

from typing import Literal

from msgspec import Struct

PageKind = Literal["metric", "rule", "cause", "question", "violation", "procedure", "advice", "row"]


class Formula(Struct, frozen=True, kw_only=True):
    """One formula.

    Attributes:
        row: The row of the lists that it belongs to, empty where there is but one.
        tex: The formula in TeX, without dollar signs.
    """

    row: str = ""
    tex: str


class Threshold(Struct, frozen=True, kw_only=True):
    """One number that a judgement depends on, and that a user may set.

    Attributes:
        name: Its keyword.
        default: Its value, as text.
        meaning: The sentences that say what it does and where it comes from.
    """

    name: str
    default: str
    meaning: str


class Section(Struct, frozen=True, kw_only=True):
    """A headed paragraph, a list where there are several things to say, or a list behind a paragraph."""

    title: str
    text: str = ""
    items: tuple[str, ...] = ()

    @property
    def paragraphs(self) -> tuple[str, ...]:
        """The paragraph and each item of the list."""
        return (self.text, *self.items) if self.text else self.items


class Shapes(Struct, frozen=True, kw_only=True):
    """A healthy and an ill series on one axis, and each in words; `of` is what is drawn, empty for what the page is about."""

    of: str = ""
    good: str
    bad: str
    good_values: tuple[float, ...]
    bad_values: tuple[float, ...]


class Page(Struct, frozen=True, kw_only=True):
    """Everything known of one name.

    Attributes:
        kind: What the name names.
        name: The name itself.
        ids: Its codes, or the rows of the lists that it answers.
        also_called: Other words for it.
        title: One sentence: what it is.
        formulas: How it is defined.
        facts: Short facts by their label, in the order to show them.
        importance: How much a run needs it, by "scale" and "stage" and each of their words.
        thresholds: What it can be told.
        links: Names that `explain` knows too, by how they hang together.
        line: What records it, to be copied as it stands: a line, or one for each of its inputs.
        sections: The rest, in the order to read it.
        belongs_to: Another metric, which the sections are about: this one is another side of it. Empty: they are its own.
        shapes: How it looks when well and when ill.
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
        """What stands over sections that are about another metric; empty where they are the page's own."""
        return f"Of {self.belongs_to}, which this belongs to:" if self.belongs_to and self.sections else ""

    def table(self) -> dict[str, str]:
        """Return facts and importance, each as one line of text by its label."""
        lines = {
            f"by {kind}": ", ".join(f"{word} {level}" for word, level in levels.items())
            for kind, levels in self.importance.items()
        }
        return self.facts | lines


class NameLine(Struct, frozen=True, kw_only=True):
    """One name in the list of all."""

    name: str
    ids: tuple[str, ...]
    title: str


class NameGroup(Struct, frozen=True, kw_only=True):
    """Names that belong together."""

    title: str
    lines: tuple[NameLine, ...]
