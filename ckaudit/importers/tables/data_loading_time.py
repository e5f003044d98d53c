"""Duration of a step and the share of it spent waiting for data, where a file has both with common names.

`data_time`, `data` or `wait_secs` beside `time`, `iter_time`, `batch_time`, `step_time` or `secs` is the time in seconds from the
start of a step until its batch is available.
"""

import re
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from ckaudit.importers.kinds_of_loss import NO_LETTERS
from ckaudit.importers.names import shorten_name
from ckaudit.importers.tables.numbers import Numbers, ratio

_DATA = re.compile(r"((?:.+_)?)(?:data|(?:data_|loader_)?wait)(?:_(?:time|secs?|seconds|s))?")
_WHOLE_TIMES = ("time", "iter_time", "batch_time", "step_time", "secs", "seconds", "step_secs", "step_seconds")
_HELD_OUT = re.compile(r"(?:^|_)(?:val|valid|validation|eval|evaluation|dev|test)_")


class StepTimes(Struct, frozen=True):
    """The columns that time a step, by their own names.

    Attributes:
        data: Time until the batch was available.
        whole: Time of the whole step.
    """

    data: str
    whole: str


def named_times(names: Sequence[str]) -> StepTimes | None:
    """Return the columns whose names say that they time a step, or None where there are no two such columns.

    >>> named_times(["step", "train/data_time", "train/time"])
    StepTimes(data='train/data_time', whole='train/time')
    >>> named_times(["step", "data_time"]), named_times(["val_data_time", "val_time"]), named_times(["Data", "Time"])
    (None, None, StepTimes(data='Data', whole='Time'))
    >>> named_times(["step", "xent", "secs", "wait_secs"])
    StepTimes(data='wait_secs', whole='secs')
    """
    plain = {NO_LETTERS.sub("_", name.lower()): name for name in reversed(names)}
    for form, data in plain.items():
        match = _DATA.fullmatch(form)
        if match is None or _HELD_OUT.search(form):
            continue
        if whole := next((plain[match[1] + ending] for ending in _WHOLE_TIMES if match[1] + ending in plain), ""):
            return StepTimes(data, whole)
    return None


def may_time_a_step(name: str) -> bool:
    """Tell whether a column may be one of the two."""
    form = NO_LETTERS.sub("_", name.lower())
    return _DATA.fullmatch(form) is not None or form.endswith(_WHOLE_TIMES)


def take_times(series: dict[str, Numbers], times: StepTimes, columns: Mapping[str, Numbers]) -> list[str]:
    """Add the time of a step and the share of it spent waiting for data, and return a note; empty where the columns are not such.

    They are not where the whole time never falls from row to row, as a clock, or is ever less than its part.
    """
    data, whole = columns[times.data], columns[times.whole]
    both = data.recorded & whole.recorded & np.isfinite(data.values) & np.isfinite(whole.values)
    share = ratio(data.only(both), whole.only(both))
    if share is None or (np.diff(whole.values[both]) >= 0).all() or not _is_part(share):
        return []
    series["dataloader_stall_frac"] = share
    series.setdefault("step_time", whole)
    return [f"step_time is {shorten_name(times.whole)} in seconds, dataloader_stall_frac is {shorten_name(times.data)} over it"]


def _is_part(share: Numbers) -> bool:
    values = share.values[share.recorded]
    return bool(((values >= 0) & (values <= 1)).all())
