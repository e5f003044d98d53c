"""Whether two runs train the same parameters: names, shapes, element types, devices, what is trained and what is shared."""

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import UNSET

from ckaudit.contract.schema.diff import Kind, Unlike
from ckaudit.contract.schema.manifest import TensorFacts
from ckaudit.diff.question_ids import EXACT, MACHINE, TENSORS
from ckaudit.material.counts import plural
from ckaudit.run.run import Run

SECTIONS = ("weights", "gradients", "weight_deltas")
FACTS: tuple[tuple[str, Kind, tuple[str, ...], str], ...] = (
    ("shape", "model", (*TENSORS, *EXACT), "of another shape"),
    ("dtype", "precision", (*MACHINE, *EXACT), "of another element type"),
    ("device", "environment", (*MACHINE, *EXACT), "on another kind of device"),
    ("trainable", "model", (), "trained in one run and not in the other"),
    ("tied_to", "model", (), "sharing their storage in one run and not in the other"),
)
_NAMED = 3


def unlike_parameters(left: Run, right: Run) -> Iterator[Unlike]:
    """Yield what is not alike in the parameter tensors of two runs, and whether one scales its loss."""
    mine, theirs = tensor_names(left), tensor_names(right)
    if mine and theirs and set(mine) != set(theirs):
        yield _other_names(mine, theirs)
    for field, kind, invalidates, words in FACTS:
        facts = left.tensors.facts, right.tensors.facts
        values = [(name, _value(facts[0][name], field), _value(facts[1][name], field)) for name in facts[0] if name in facts[1]]
        apart = [value for value in values if value[1] != value[2] and (field == "tied_to" or None not in value[1:])]
        if apart:
            name, one, other = apart[0]
            message = f"{_some([each[0] for each in apart])} {'is' if len(apart) == 1 else 'are'} {words}: {one} and {other}"
            yield Unlike(
                name=f"tensors.{field}",
                kind=kind,
                left=f"{name}: {one}",
                right=f"{name}: {other}",
                invalidates=[*invalidates],
                message=message,
            )
    yield from _loss_scale(left, right)


def tensor_names(run: Run) -> tuple[str, ...]:
    """Return the parameter tensors of a run: those of run.json, else those of its checkpoints."""
    found = (series.labels for path, series in run.sections.items() if path.partition(".")[0] in SECTIONS)
    return tuple(run.tensors.facts) or max(found, key=len, default=())


def _other_names(left: Sequence[str], right: Sequence[str]) -> Unlike:
    gone, new = [name for name in left if name not in set(right)], [name for name in right if name not in set(left)]
    parts = [f"{_some(names)} only in the {which}" for names, which in ((gone, "first"), (new, "second")) if names]
    message = f"the models are not the same: {', '.join(parts)}; what they share is compared"
    count = plural(len(left), "tensor"), plural(len(right), "tensor")
    return Unlike(name="tensors", kind="model", left=count[0], right=count[1], invalidates=[*TENSORS, *EXACT], message=message)


def _value(fact: TensorFacts, field: str) -> Any:
    value = getattr(fact, field)
    if value is UNSET:
        return None
    return value.partition(":")[0] if field == "device" else value


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{plural(len(names), 'tensor')} ({', '.join(names[:_NAMED])}{more})"


def _loss_scale(left: Run, right: Run) -> Iterator[Unlike]:
    scaled = [bool(run.scalar("loss_scale") or run.value("optimizer.loss_scale")) for run in (left, right)]
    if scaled[0] != scaled[1]:
        which = "first" if scaled[0] else "second"
        values = ["scaled" if each else None for each in scaled]
        message = f"only the {which} records a scale of its loss, as mixed precision in float16 needs"
        yield Unlike(name="loss_scale", kind="precision", left=values[0], right=values[1], invalidates=[*EXACT], message=message)
