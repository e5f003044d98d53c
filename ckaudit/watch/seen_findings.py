"""Which findings are new: each is told once, and once more where it became graver."""

from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from ckaudit.contract.report import Accepted, Finding
from ckaudit.policy.baseline import Baseline, accepted, is_graver, is_near

SLACK = 50  # steps: the start of a finding may move so far, as in a baseline


class _Told(Struct):
    """A finding that was told: what it was, and the last step that it was seen at."""

    entry: Accepted
    last: int | None


class Known:
    """Findings that were told, known again by code, place and start, as a baseline knows them."""

    def __init__(self) -> None:
        """Begin with nothing told."""
        self._told: list[_Told] = []

    def news(self, findings: Sequence[Finding], *, in_full: int = 0) -> Iterator[tuple[Finding, bool]]:
        """Yield each finding that is new or graver than it was, and whether it was told before.

        Args:
            findings: All that were found now.
            in_full: First step from which on the history is whole: what ended before was told when it was new, and what a
                thinned history shows there is doubtful.
        """
        places = self._places_of(findings)
        for index, finding in enumerate(findings):
            place = places.get(index)
            if place is not None and _goes_on(self._told[place], finding):
                entry = self._told[place].entry
                worse = is_graver(finding, entry)
                self._told[place] = _told(finding if worse else _as_grave(finding, entry))
                if worse:
                    yield finding, True
            elif finding.last_step is None or finding.last_step >= in_full:
                self._told.append(_told(finding))
                yield finding, False

    def _places_of(self, findings: Sequence[Finding]) -> dict[int, int]:
        """Return by index of a finding the place of what was told of it; one that spread far is known by its first place."""
        entries = [each.entry for each in self._told]
        places = {id(entry): place for place, entry in enumerate(entries)}
        found = {index: places[id(entry)] for index, entry in Baseline(file="", entries=entries).matched(findings).items()}
        left = set(range(len(entries))) - set(found.values())
        for index, finding in enumerate(findings):
            if index not in found and (spread := [place for place in sorted(left) if _is_spread(entries[place], finding)]):
                found[index] = spread[0]
                left.remove(spread[0])
        return found


def _is_spread(entry: Accepted, finding: Finding) -> bool:
    """Tell whether a finding is what was told, with so many more places that a baseline would take it for another."""
    return entry.first_step == finding.first_step and is_near(entry, finding)


def _as_grave(finding: Finding, entry: Accepted) -> Finding:
    """Return a finding as grave as what was told of it: one that became milder and grave again is told once."""
    return replace(finding, severity=entry.severity)


def _told(finding: Finding) -> _Told:
    return _Told(accepted(finding, "watch", None), finding.last_step)


def _goes_on(told: _Told, finding: Finding) -> bool:
    """Tell whether a finding is the one that was told, and not another of its kind that began after that had ended."""
    return told.last is None or finding.first_step is None or finding.first_step <= told.last + SLACK
