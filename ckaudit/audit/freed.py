"""Which checks lines let judge: what each check waits for, held against what each remedy brings."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from msgspec.structs import replace

from ckaudit.audit.arguments import ARGUMENTS, given
from ckaudit.audit.lacking import missing_inputs
from ckaudit.audit.remedies import Remedy
from ckaudit.metrics.catalogue import entries, owner_of
from ckaudit.run.run import Run

Needs = Sequence[Sequence[str]]
FACTS = "run.json"


def ranked(run: Run, found: Sequence[Remedy], waits: Mapping[str, Needs]) -> tuple[Remedy, ...]:
    """Return remedies with the checks that each lets judge, the one that lets most of those left judge first.

    Args:
        run: The run.
        found: Remedies, in the order that counts among equals.
        waits: What each check waits for, by its name.
    """
    wanted = {name: [[_pieces(run, one) for one in need] for need in needs] for name, needs in waits.items()}
    rest, left, order = list(found), dict(wanted), []
    while rest:
        freed = [[name for name, needs in left.items() if _all_brought(needs, pieces_of(each))] for each in rest]
        best = max(range(len(rest)), key=lambda place: (len(freed[place]), -place))
        order.append(replace(rest.pop(best), waiting=tuple(freed[best])))
        left = {name: needs for name, needs in left.items() if name not in freed[best]}
    return tuple(order)


def together(run: Run, found: Sequence[Remedy], needs: Needs) -> tuple[int, ...]:
    """Return the numbers of the remedies that bring all that a check waits for, counted from 1; empty: they do not."""
    there = [pieces_of(each) for each in found]
    numbers: set[int] = set()
    for need in needs:
        ways = [_places(_pieces(run, one), there) for one in need]
        if not (open_ways := [way for way in ways if way]):
            return ()
        numbers |= min(open_ways, key=len)
    return tuple(sorted(numbers))


def pieces_of(remedy: Remedy) -> frozenset[str]:
    """Return what the lines bring as they stand: entries, arguments, and the facts of the run where they make a recorder."""
    more = set(chain.from_iterable(extra.names for extra in remedy.extras))
    arguments = {name for name in ARGUMENTS if f"{name}=" in remedy.code}
    return frozenset({*remedy.names} - more | arguments | ({FACTS} if len(remedy.lines) > 1 else set()))


def _pieces(run: Run, name: str) -> frozenset[str]:
    """Return what must be brought for a metric or an argument: its entry, what that is made of, what the Recorder is told."""
    owner = owner_of(name)
    if owner is None:
        return frozenset((name,))
    arguments = {*entries()[owner].arguments}
    return frozenset({owner, *missing_inputs(run, owner)} | (arguments - given(run, arguments)))


def _all_brought(needs: Iterable[Iterable[frozenset[str]]], there: frozenset[str]) -> bool:
    return all(any(one <= there for one in need) for need in needs)


def _places(pieces: Iterable[str], there: Sequence[frozenset[str]]) -> set[int]:
    """Return the numbers of the first remedies that bring each piece; empty where one is brought by none."""
    found = {next((place for place, each in enumerate(there, start=1) if piece in each), 0) for piece in pieces}
    return set() if 0 in found else found
