"""The tensors of one checkpoint compared with those of the next, and with the tensor table of run.json."""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import TypeVar

from msgspec import UNSET

from ckaudit.contract.schema.report import Finding
from ckaudit.contract.violations import ViolationKind
from ckaudit.validate.catalogue import TABLE_SHAPE, TENSOR_DTYPE, TENSOR_SET, TENSOR_SHAPE, UNLISTED_TENSOR
from ckaudit.validate.file_facts import CheckpointFacts, Layout, RunFacts
from ckaudit.wording import first_names, plural

SHOWN = 3

T = TypeVar("T")


def layout_changes(run: RunFacts) -> Iterator[Finding]:
    """Tensors that appear, vanish or change shape or type from one checkpoint to the next.

    Files of one rank are only compared with each other, because shards have different shapes.
    """
    for rank in sorted({checkpoint.rank for checkpoint in run.checkpoints}, key=lambda rank: -1 if rank is None else rank):
        recorded = [checkpoint for checkpoint in run.checkpoints if checkpoint.rank == rank and checkpoint.layout is not None]
        for older, newer in pairwise(recorded):
            if older.layout is not newer.layout and older.layout and newer.layout:
                yield from _compare(older, older.layout, newer, newer.layout)


def _compare(older: CheckpointFacts, old: Layout, newer: CheckpointFacts, new: Layout) -> Iterator[Finding]:
    between = f"between steps {older.step} and {newer.step}"
    if old.names and new.names:
        before, after = set(old.names), set(new.names)
        yield from _fold(TENSOR_SET, newer, [n for n in old.names if n not in after], f"vanish {between}")
        yield from _fold(TENSOR_SET, newer, [n for n in new.names if n not in before], f"appear {between}")
    for name, was, now in _changed(old.shape_of(), new.shape_of()):
        yield _shape(newer, name, f"shape {was}", f"shape {now}", f"step {older.step}")
    for name, had, has in _changed(dict(old.heads), dict(new.heads)):
        yield _shape(newer, name, f"{had} heads", f"{has} heads", f"step {older.step}")
    types = _changed(old.dtype_of(), new.dtype_of())
    for before_type, after_type in dict.fromkeys((was, now) for _, was, now in types):
        names = [name for name, was, now in types if (was, now) == (before_type, after_type)]
        yield from _fold(TENSOR_DTYPE, newer, names, f"change from {before_type} to {after_type} {between}")


def _shape(newer: CheckpointFacts, name: str, was: str, now: str, before: str) -> Finding:
    message = f"{name} has {now} at step {newer.step}, {was} at {before}"
    return TENSOR_SHAPE.at(newer.shown, message, where=name, first_step=newer.step, expected=was, found=now)


def _changed(old: Mapping[str, T | None], new: Mapping[str, T | None]) -> list[tuple[str, T, T]]:
    return [
        (name, was, now) for name, now in new.items() if now is not None and (was := old.get(name)) is not None and was != now
    ]


def _fold(kind: ViolationKind, newer: CheckpointFacts, names: list[str], what: str) -> Iterator[Finding]:
    if names:
        verb = (
            what.replace("vanish", "vanishes").replace("appear", "appears").replace("change", "changes")
            if len(names) == 1
            else what
        )
        message = f"{plural(len(names), 'tensor')} {verb}: {first_names(names, SHOWN)}"
        yield kind.at(newer.shown, message, where=names[0], also=names[1:], first_step=newer.step)


def table_contradictions(run: RunFacts) -> Iterator[Finding]:
    """Tensors of checkpoints that the tensor table lacks, or lists with another shape; each is reported once."""
    table = run.manifest.tensors if run.manifest else UNSET
    if not table:
        return
    shapes = {name: tuple(tensor.shape) for name, tensor in table.items() if tensor.shape is not UNSET}
    reported: set[str] = set()
    seen: set[int] = set()
    for facts in run.merged():
        if facts.layout is not None and id(facts.layout) not in seen:
            seen.add(id(facts.layout))
            layout = facts.layout
            unlisted = [name for name in layout.names if name not in table and name not in reported]
            yield from _fold(UNLISTED_TENSOR, facts, unlisted, f"of step {facts.step} not in run.json")
            wrong = [change for change in _changed(shapes, layout.shape_of()) if change[0] not in reported]
            for name, listed, shape in wrong:
                message = f"{name} has shape {shape} at step {facts.step}, {listed} in run.json"
                place = {"expected": f"shape {listed}", "found": f"shape {shape}"}
                yield TABLE_SHAPE.at(facts.shown, message, where=name, first_step=facts.step, **place)
            reported.update(unlisted, (name for name, *_ in wrong))
