"""The prose of the catalogue: one TOML file per category, read only when somebody asks what a number means."""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

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


class Entries(Mapping[str, Entry]):
    """Every entry by name, in the order of the categories, read when it is asked for: reading all takes 30 ms."""

    def __init__(self) -> None:
        """Cut the files into the lines of each entry."""
        self._lines: dict[str, str] = {}
        self._read: dict[str, Entry] = {}
        for category in CATEGORIES:
            for table in f"\n{(HERE / f'{category}.toml').read_text(encoding='utf-8')}".split("\n[")[1:]:
                name = table.partition("]")[0].partition(".")[0].strip('"')
                self._lines[name] = f"{self._lines.get(name, '')}[{table}\n"

    def field(self, name: str, key: str) -> Any:
        """Return one field of an entry that stands on one line, without reading the others; None where it has none."""
        import tomllib

        line = self._lines[name].partition(f"\n{key} = ")[2].partition("\n")[0]
        return tomllib.loads(f"{key} = {line}")[key] if line else None

    def __getitem__(self, name: str) -> Entry:
        """Return an entry."""
        if name not in self._read:
            import tomllib

            import msgspec

            self._read[name] = msgspec.convert(tomllib.loads(self._lines[name])[name], Entry)
        return self._read[name]

    def __contains__(self, name: object) -> bool:
        """Tell whether there is an entry of a name, without reading it."""
        return name in self._lines

    def __iter__(self) -> Iterator[str]:
        """Yield the names."""
        return iter(self._lines)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._lines)


@cache
def entries() -> Entries:
    """Return every entry by name, in the order of the categories."""
    return Entries()


@cache
def _covered() -> dict[str, str]:
    """Return by metric the first entry that covers it."""
    found: dict[str, str] = {}
    for name in entries():
        for metric in entries().field(name, "covers") or ():
            found.setdefault(metric, name)
    return found


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
    return _covered().get(metric)


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
