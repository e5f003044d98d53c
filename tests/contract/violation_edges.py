"""How far each number of a valid checkpoint may be changed before it is a violation, and of which kind.

Every field of the valid fixtures is changed, one at a time: a number is made larger and smaller until something is
said of it, set to zero, turned round, and replaced by NaN; a list loses or repeats its last member, and is
turned round; a word becomes another; a field is left out. What is said then, where, and from which factor on, is kept in
`tests/verdicts/contract/`, which `python -m tests.case_verdicts` writes: the least violation of each kind lies beside
the last value that is none.
"""

import json
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from ckaudit.contract.check import check_checkpoint
from ckaudit.contract.io.files import read_bytes
from ckaudit.contract.schema.checkpoint import Checkpoint
from ckaudit.metrics import metrics

VALID = Path(__file__).parents[2] / "fixtures/checkpoints/valid"
NAMES = ("every_field", "measured_on_request", "q8_grids", "edges_bins")
LADDERS = (1.02, 1.5, 300.0), (1 / 1.02, 1 / 1.5, 1 / 300.0)
OPEN = ("weights", "gradients", "weight_deltas", "activations", "attention", "moe", "probes")
"""Fields whose members have names of a model."""

Said = tuple[str, ...]
Place = tuple[str | int, ...]


def said_of(document: Any) -> Said:
    """Return the codes of what is wrong with a document, each with its place; what its schema refuses is not explained here."""
    data = msgspec.json.encode(document)
    try:
        msgspec.json.decode(data, type=Checkpoint)
    except msgspec.ValidationError:
        return ("refused",)
    findings = check_checkpoint(data, "x.json").findings
    return tuple(sorted({f"{each.code} {each.pointer or '/'}" for each in findings}))


def places(value: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Yield every value of a document with its place; of a list of numbers the first and the last."""
    if place:
        yield place, value
    if isinstance(value, dict):
        for key, each in value.items():
            yield from places(each, (*place, key))
    elif isinstance(value, list):
        for index in sorted({0, len(value) - 1} if value else ()):
            yield from places(value[index], (*place, index))


def pattern(place: Place) -> str:
    """Return what a place is in any document: names of the model are left out, and a list has a first and other members."""
    words = ["n" if isinstance(each, int) and each else str(each) for each in place]
    return "/".join((*words[:1], "*", *words[2:]) if place[0] in OPEN and place[1:] else words)


def changed(document: Any, place: Place, value: Any) -> Any:
    """Return a document with another value at a place; what is not on the way is shared."""
    if not place:
        return value
    copy = dict(document) if isinstance(document, dict) else list(document)
    if value is msgspec.UNSET and len(place) == 1:
        del copy[place[0]]
    else:
        copy[place[0]] = changed(copy[place[0]], place[1:], value)
    return copy


def others(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what may stand in place of a value."""
    if isinstance(value, bool):
        yield "other", not value
    elif isinstance(value, int | float):
        yield "zero", 0 * value
        yield "negative", -value
        if isinstance(value, int):
            yield "one more", value + 1
            yield "one less", value - 1
        else:
            yield "NaN", "NaN"
    elif isinstance(value, str):
        yield "another word", "x"
    elif isinstance(value, list) and value:
        yield "one member less", value[:-1]
        yield "one member more", [*value, value[-1]]
        yield "turned round", value[::-1]
        yield "empty", []


def edges(document: Any, place: Place, value: float) -> Iterator[tuple[str, Said]]:
    """Yield the factors at which something is said of a number, and what."""

    def at_factor(factor: float) -> Said:
        return said_of(changed(document, place, value * factor))

    for ladder in LADDERS:
        turned = next((step for step, factor in enumerate(ladder) if at_factor(factor)), None)
        if turned is not None:
            least = _least(lambda factor: bool(at_factor(factor)), (1.0, *ladder)[turned], ladder[turned])
            yield f"x {least:.4g}", at_factor(least)


def _least(is_turned: Callable[[float], bool], before: float, after: float) -> float:
    while abs(after / before - 1) > 4e-4:
        middle = (before * after) ** 0.5
        before, after = (before, middle) if is_turned(middle) else (middle, after)
    return after


def lines_of(document: Any, seen: set[str]) -> Iterator[str]:
    """Yield a line for every kind of place that was not seen yet, with what is said of its changes."""
    for place, value in places(document):
        if (name := pattern(place)) in seen:
            continue
        seen.add(name)
        ways = others(value) if isinstance(place[-1], int) else chain(others(value), [("missing", msgspec.UNSET)])
        found = [(how, said_of(changed(document, place, other))) for how, other in ways]
        if isinstance(value, float) and value:
            found += edges(document, place, value)
        told = [f"{how} {', '.join(violations)}" for how, violations in found if violations]
        if told:
            yield f"{name}\n" + "".join(f"  {each}\n" for each in told)


def by_fixture() -> dict[str, str]:
    """Return what is said of the changes of each fixture."""
    seen = set[str]()
    documents = {name: json.loads(read_bytes(VALID / f"{name}.json", name)) for name in NAMES}
    scalars = dict.fromkeys(metrics(), 0.5) | dict.fromkeys(("train_ppl", "val_ppl", "straggler_ratio"), 1.65)
    documents["every_scalar"] = {"schema_version": "ck.analysis.v1", "step": 500, "scalars": scalars}
    assert not any(map(said_of, documents.values()))
    return {name: "".join(lines_of(document, seen)) for name, document in documents.items()}
