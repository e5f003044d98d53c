"""Which checks lines let judge: what each check waits for, held against what each remedy brings."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from msgspec.structs import replace

from ckaudit.audit.arguments import ARGUMENTS, given
from ckaudit.audit.missing_inputs import missing_inputs
from ckaudit.audit.remedies import BY_ITSELF, Remedy
from ckaudit.audit.writer import trainer_of
from ckaudit.metrics import metrics
from ckaudit.metrics.catalogue import actions, entries, owner_of
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
    wanted = {name: _wanted(run, needs) for name, needs in waits.items()}
    rest, left, order = list(found), dict(wanted), []
    while rest:
        freed = [[name for name, needs in left.items() if _all_brought(needs, pieces_of(run, each))] for each in rest]
        best = max(range(len(rest)), key=lambda place: (len(freed[place]), -place))
        order.append(replace(rest.pop(best), waiting=tuple(freed[best])))
        left = {name: needs for name, needs in left.items() if name not in freed[best]}
    return _with_others(run, order)


def together(run: Run, found: Sequence[Remedy], needs: Needs) -> tuple[int, ...]:
    """Return the numbers of the remedies that bring all that a check waits for, counted from 1; empty: they do not."""
    there = [pieces_of(run, each) for each in found]
    numbers: set[int] = set()
    for ways in _wanted(run, needs):
        places = [_places(way, there) for way in ways]
        if not (open_ways := [each for each in places if each]):
            return ()
        numbers |= min(open_ways, key=len)
    return tuple(sorted(numbers))


def pieces_of(run: Run, remedy: Remedy) -> frozenset[str]:
    """Return what the lines bring as they stand: entries, arguments, and the facts of the run where they make a recorder."""
    more = set(chain.from_iterable(extra.names for extra in remedy.extras))
    way = actions()["recorder"].way(trainer_of(run))
    spelled = {name: way.spells.get(argument.option, argument.option) for name, argument in ARGUMENTS.items()}
    arguments = {name for name, option in spelled.items() if f"{option.partition('=')[0]}=" in remedy.code}
    is_recorder = len(remedy.lines) > 1
    found = {*way.gives} & {*ARGUMENTS} if is_recorder else set()
    facts = {FACTS} if is_recorder or remedy.where == BY_ITSELF else set()
    return frozenset({*remedy.names} - more | arguments | found | facts)


def _wanted(run: Run, needs: Needs) -> list[list[frozenset[str]]]:
    """Return the ways in which each need can be met; one that the run meets already is left out, unless all are."""
    unmet = [need for need in needs if not any(name in metrics() and metrics()[name](run) for name in need)]
    return [[_pieces(run, name) for name in need] for need in unmet or needs]


def _pieces(run: Run, name: str) -> frozenset[str]:
    """Return what must be brought for a metric or an argument: its entry, what that is made of, what the Recorder is told."""
    owner = owner_of(name)
    if owner is None:
        return frozenset((FACTS,) if " " in name else (name,))  # a sentence says what of the run is not told
    arguments = {*entries()[owner].arguments}
    others = (_pieces(run, each) for each in _besides(run, owner))
    return frozenset({owner, *missing_inputs(run, owner)} | (arguments - given(run, arguments))).union(*others)


def _besides(run: Run, name: str) -> list[str]:
    """Return the entries that a run has not, and without which the line of another brings nothing."""
    return [each for each in entries()[name].together if not metrics()[each](run)]


def _with_others(run: Run, found: Sequence[Remedy]) -> tuple[Remedy, ...]:
    """Return remedies that say which of the others they take as well."""
    there = [pieces_of(run, each) for each in found]
    told = []
    for remedy, own in zip(found, there, strict=True):
        wanted = {name: frozenset().union(*(_pieces(run, each) for each in _besides(run, name))) for name in remedy.names}
        places = {name: sorted(_places(pieces - own, there)) for name, pieces in wanted.items() if pieces - own}
        said = [f"Together with {_numbers(numbers)}, for {name}." for name, numbers in places.items() if numbers]
        told.append(replace(remedy, where=" ".join([remedy.where, *said])))
    return tuple(told)


def _numbers(places: Sequence[int]) -> str:
    return f"number{'s' if len(places) > 1 else ''} {' and '.join(map(str, places))}"


def _all_brought(needs: Iterable[Iterable[frozenset[str]]], there: frozenset[str]) -> bool:
    return all(any(one <= there for one in need) for need in needs)


def _places(pieces: Iterable[str], there: Sequence[frozenset[str]]) -> set[int]:
    """Return the numbers of the first remedies that bring each piece; empty where one is brought by none."""
    found = {next((place for place, each in enumerate(there, start=1) if piece in each), 0) for piece in pieces}
    return set() if 0 in found else found
