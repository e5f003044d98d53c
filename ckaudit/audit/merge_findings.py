"""One hit of many that say the same at overlapping times, and the sentence that tells of all their places."""

import math
from collections.abc import Iterable, Iterator
from string import Formatter

from msgspec.structs import replace

from ckaudit.rules.rule import Hit
from ckaudit.run.tensor_groups import Group, Known, group_of


def fold(hits: Iterable[Hit]) -> Iterator[Hit]:
    """Make one hit of those that say the same of many places at overlapping times; of the first of them the worst speaks."""
    groups: dict[tuple[str, str], list[Hit]] = {}
    for hit in hits:
        groups.setdefault((hit.severity, hit.message), []).append(hit)
    for members in groups.values():
        current: list[Hit] = []
        for hit in sorted(members, key=lambda hit: -1 if hit.first is None else hit.first):
            if current and not _overlap(current, hit):
                yield _merged(current)
                current = []
            current.append(hit)
        yield _merged(current)


def _overlap(hits: list[Hit], later: Hit) -> bool:
    ends = [hit.last for hit in hits if hit.last is not None]
    return len(ends) < len(hits) or later.first is None or later.first <= max(ends)


def _merged(hits: list[Hit]) -> Hit:
    if len(hits) == 1:
        return hits[0]
    speaker = max((hit for hit in hits if hit.first == hits[0].first), key=_badness)
    also = dict.fromkeys(place for hit in hits for place in (hit.where, *hit.also) if place)
    also.pop(speaker.where or "", None)
    last = max((hit.last for hit in hits if hit.last is not None), default=None)
    return replace(speaker, also=tuple(also), last=last, joined_by=hits[-1].first, members=tuple(hits))


def _badness(hit: Hit) -> float:
    return -math.inf if hit.badness is None or math.isnan(hit.badness) else hit.badness


def told(hit: Hit, known: Known) -> tuple[str, str | None]:
    """Return the sentence of a hit and the name of its group: where its places are one, it speaks of all in one.

    Args:
        hit: One place, or many folded into one.
        known: All places of the run.
    """
    if not hit.also:
        return _sentence(hit, hit.where), None
    later = f" by step {hit.joined_by}" if hit.joined_by is not None and hit.joined_by != hit.first else ""
    group = group_of((*([hit.where] if hit.where else []), *hit.also), known)
    if group is None:
        return f"{_sentence(hit, hit.where)} (and {len(hit.also)} more{later}{_worse(hit)})", None
    if _alike(hit) and "{where" in hit.message:
        return _sentence(hit, group.as_subject(later)), group.as_place()
    return f"{_sentence(hit, hit.where)} ({_rank(hit, group)}{later}{_worse(hit)})", group.as_place()


def _sentence(hit: Hit, where: str | None) -> str:
    return hit.message.format(where=where, value=hit.value, limit=hit.limit, first=hit.first, last=hit.last, worst=hit.worst)


def _alike(hit: Hit) -> bool:
    """Tell whether the sentence is the same of every place."""
    return len({_sentence(replace(hit, value=each.value, limit=each.limit), "") for each in hit.members}) <= 1


def _rank(hit: Hit, group: Group) -> str:
    """Return how one place stands among its group: nothing is the worst where the rule does not say how bad each is."""
    if "{where" not in hit.message:
        return group.as_place()
    if all(each.badness is None for each in hit.members) or _later_worse(hit):
        return f"as in {group.as_place()}"
    return f"the worst of {group.as_place()}"


def _later_worse(hit: Hit) -> Hit | None:
    """Return the worst hit, where it began later than the first ones and is worse than they are."""
    worst = max(hit.members, key=_badness, default=hit)
    return worst if _badness(worst) > _badness(hit) else None


def _worse(hit: Hit) -> str:
    """Return what the worst place has, where it is not the one that the sentence is about."""
    worst = _later_worse(hit)
    formats = [spec or "" for _, name, spec, _ in Formatter().parse(hit.message) if name == "value"]
    if worst is None or worst.where == hit.where or not formats or worst.value is None or hit.value is None:
        return ""
    value, here = (format(each, formats[0]) for each in (worst.value, hit.value))
    return "" if value == here else f"; {worst.where} has come to {value}"
