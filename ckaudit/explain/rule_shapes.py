"""How an illness looks beside health: as its rule's first metric does, or by a pair of series of its own."""

from functools import cache
from pathlib import Path

from msgspec import Struct

from ckaudit.explain.page import Shapes
from ckaudit.metrics import Metric
from ckaudit.metrics.catalogue import entries
from ckaudit.rules.rule import Rule

FILE = Path(__file__).with_suffix(".toml")


class Drawn(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What stands in the file under the name of a rule.

    Attributes:
        of: What is drawn: a metric of the rule, or words.
        good: The healthy series in words.
        bad: The ill one.
        good_shape: The healthy series.
        bad_shape: The ill one, on the same axis.
    """

    of: str
    good: str
    bad: str
    good_shape: tuple[float, ...]
    bad_shape: tuple[float, ...]


@cache
def drawn() -> dict[str, Drawn]:
    """Return the pairs of series of rules that have their own, by the name of the rule.

    Raises:
        msgspec.ValidationError: If the file has a field too many, too few, or of another type.
    """
    import tomllib

    import msgspec

    return msgspec.convert(tomllib.loads(FILE.read_text(encoding="utf-8")), dict[str, Drawn])


def shapes_of(rule: Rule) -> Shapes | None:
    """Return how a rule's illness looks, or None for the rule of a plugin on a metric that nobody has drawn."""
    if own := drawn().get(rule.name):
        return Shapes(of=own.of, good=own.good, bad=own.bad, good_values=own.good_shape, bad_values=own.bad_shape)
    first = next((each for each in (*rule.needs, *rule.wants) if isinstance(each, Metric)), None)
    entry = entries().get(first.name) if first else None
    if first is None or entry is None:
        return None
    return Shapes(of=first.name, good=entry.good, bad=entry.bad, good_values=entry.good_shape, bad_values=entry.bad_shape)
