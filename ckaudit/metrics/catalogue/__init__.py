"""The prose of the catalogue: one TOML file per category, read only when somebody asks what a number means."""

from functools import cache
from pathlib import Path

from ckaudit.metrics.catalogue.entry import RANKS, Action, Category, Condition, Entry, Importance, Trainer, Way

__all__ = [
    "CATEGORIES",
    "RANKS",
    "Action",
    "Category",
    "Condition",
    "Entry",
    "Importance",
    "Trainer",
    "Way",
    "actions",
    "categories",
    "entries",
    "entry_of",
    "owner_of",
]

HERE = Path(__file__).parent
CATEGORIES = ("optimization", "tensors", "behaviour", "evaluation", "data", "hardware", "safety", "observability")


@cache
def categories() -> tuple[Category, ...]:
    """Return every category with its entries.

    Raises:
        msgspec.ValidationError: If a file has a field too many, too few, or of another type.
    """
    return tuple(_read(HERE / f"{name}.toml") for name in CATEGORIES)


@cache
def entries() -> dict[str, Entry]:
    """Return every entry by name, in the order of the categories."""
    return {name: entry for category in categories() for name, entry in category.entries.items()}


@cache
def actions() -> dict[str, Action]:
    """Return every line that records something, by name.

    Raises:
        msgspec.ValidationError: If the file has a field too many, too few, or of another type.
    """
    import tomllib

    import msgspec

    return msgspec.convert(tomllib.loads((HERE / "actions.toml").read_text(encoding="utf-8")), dict[str, Action])


def entry_of(metric: str) -> str | None:
    """Return the name of the entry that tells about a metric: its own, or the one that covers it."""
    if metric in entries():
        return metric
    return next((name for name, entry in entries().items() if metric in entry.covers), None)


def owner_of(metric: str) -> str | None:
    """Return the name of the entry whose line records a metric: of what an entry covers, another's line may."""
    elsewhere = (entry.elsewhere[metric] for entry in entries().values() if metric in entry.elsewhere)
    return next(elsewhere, None) or entry_of(metric)


def _read(path: Path) -> Category:
    import tomllib

    import msgspec

    document = tomllib.loads(path.read_text(encoding="utf-8"))
    title = msgspec.convert(document.pop("title"), str)
    return Category(path.stem, title, msgspec.convert(document, dict[str, Entry]))
