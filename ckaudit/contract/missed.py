"""What would be worth recording: the missing things that most checks could not judge without."""

from collections import Counter
from collections.abc import Iterable

from ckaudit.contract.report import SEVERITIES, Check


def most_missed(checks: Iterable[Check], *, top: int = 3) -> list[tuple[str, int]]:
    """Return the `top` missing things that most checks lacked, with how many did; ties go to the graver check."""
    counts: Counter[str] = Counter()
    gravest: dict[str, int] = {}
    for check in checks:
        if check.reason == "not_recorded" and check.detail:
            for thing in check.detail.removeprefix("needs ").split(", "):
                counts[thing] += 1
                gravest[thing] = min(SEVERITIES.index(check.severity), gravest.get(thing, len(SEVERITIES)))
    return sorted(counts.items(), key=lambda item: (-item[1], gravest[item[0]], item[0]))[:top]
