"""What would be worth recording: the missing things that most checks could not judge without."""

from collections import Counter
from collections.abc import Iterable
from itertools import product

from ckaudit.contract.schema.report import SEVERITIES, Check

ONE_OF = "needs one of "
OR = ", or "


def needs_of(check: Check) -> tuple[tuple[str, ...], ...]:
    """Return what a check could not judge without, each with what would do in its place; nothing where it had all."""
    return needed(check.detail) if check.reason == "not_recorded" and check.detail else ()


def needed(detail: str) -> tuple[tuple[str, ...], ...]:
    """Return the needs that a sentence names, each with what would do in its place.

    >>> needed("needs a, b or c"), needed("needs one of a, b"), needed("needs a, or b and c")
    ((('a',), ('b', 'c')), (('a', 'b'),), (('a', 'b'), ('a', 'c')))
    """
    if detail.startswith(ONE_OF):
        return (tuple(detail.removeprefix(ONE_OF).split(", ")),)
    if OR in detail:
        return tuple(product(*(names.split(" and ") for names in detail.removeprefix("needs ").split(OR))))
    return tuple(tuple(names.split(" or ")) for names in detail.removeprefix("needs ").split(", "))


def most_missed(checks: Iterable[Check], *, top: int = 3) -> list[tuple[str, int]]:
    """Return the `top` missing things that most checks lacked, with how many did; ties go to the graver check."""
    counts: Counter[str] = Counter()
    gravest: dict[str, int] = {}
    for check in checks:
        for thing in map(" or ".join, needs_of(check)):
            counts[thing] += 1
            gravest[thing] = min(SEVERITIES.index(check.severity), gravest.get(thing, len(SEVERITIES)))
    return sorted(counts.items(), key=lambda item: (-item[1], gravest[item[0]], item[0]))[:top]
