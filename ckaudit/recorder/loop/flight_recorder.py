"""The black box: loss, learning rate, batch and every tensor's norms of the last 64 steps."""

from collections import deque
from collections.abc import Mapping
from typing import Any

from msgspec import UNSET, Struct, field

from ckaudit.contract.io.codec import encode, significant
from ckaudit.contract.schema.checkpoint import History
from ckaudit.contract.schema.numbers import Number, to_word

LENGTH = 64


class HistoryStep(Struct, frozen=True):
    """One step of the black box; what is None or missing was not recorded."""

    step: int
    loss: float | None
    learning_rate: float | None
    batch_hash: str | None
    gradient_norms: Mapping[str, float]
    update_norms: Mapping[str, float] = field(default_factory=dict)


class BlackBox:
    """Keeps the last steps.

    Attributes:
        add: Keeps one more step, and forgets the oldest where there are too many.
    """

    def __init__(self, length: int = LENGTH) -> None:
        self._moments: deque[HistoryStep] = deque(maxlen=length)
        self.add = self._moments.append

    def dump(self, *, before: int) -> History | None:
        """Return the steps before this one as columns, norms with 4 digits; None where there are none."""
        moments = [moment for moment in self._moments if moment.step < before]
        if not moments:
            return None
        hashes = [moment.batch_hash for moment in moments]
        return History(
            steps=[moment.step for moment in moments],
            loss=[_number(moment.loss) for moment in moments],
            learning_rate=[_number(moment.learning_rate) for moment in moments],
            batch_hash=hashes if any(hashes) else UNSET,
            gradient_norms=_columns([moment.gradient_norms for moment in moments]) or UNSET,
            update_norms=_columns([moment.update_norms for moment in moments]) or UNSET,
        )


def fitted(history: History, room: float, *, at_least: int = 8) -> History:
    """Return the newest steps of a black box that fit into so many bytes of JSON.

    Args:
        history: All steps.
        room: Bytes.
        at_least: Steps that are kept in any case, enough to see what an event grew from.
    """
    size, names, steps = len(encode(history)), len(encode(_newest(history, 0))), len(history.steps)
    if size <= room:
        return history
    return _newest(history, min(steps, max(at_least, int(steps * (room - names) / (size - names)))))


def _newest(history: History, count: int) -> History:
    """Return the last steps; a tensor of which they hold nothing has no column."""
    start = len(history.steps) - count

    def cut(column: Any) -> Any:
        if not isinstance(column, dict):
            return column if column is UNSET else column[start:]
        shorter = {name: values[start:] for name, values in column.items()}
        return {name: values for name, values in shorter.items() if set(values) != {None}} or UNSET

    return History(**{name: cut(getattr(history, name)) for name in History.__struct_fields__})


def _number(value: float | None) -> Number | None:
    return None if value is None else to_word(value)


def _columns(rows: list[Mapping[str, float]]) -> dict[str, list[Number | None]]:
    names = list(dict.fromkeys(name for row in rows for name in row))
    return {name: [significant([row[name]])[0] if name in row else None for row in rows] for name in names}
