"""Which probes training sees, and which it never does."""

from typing import Literal

from ckaudit.run.run import Run
from ckaudit.run.series import Series

Group = Literal["train", "held_out"]
TRAIN: Group = "train"
HELD_OUT: Group = "held_out"


def groups_of(run: Run, labels: tuple[str, ...]) -> list[Group]:
    """Return the group of each probe; one that never says is held out where its name says so, else one of training."""
    held = run.series("probes", "held_out")
    outside = {label for column, label in enumerate(held.labels) if (held.values[held.recorded[:, column], column] == 1).any()}
    silent = set(labels) - {label for column, label in enumerate(held.labels) if held.recorded[:, column].any()}
    outside |= {label for label in silent if label.startswith(HELD_OUT)}
    return [HELD_OUT if label in outside else TRAIN for label in labels]


def probes_of(run: Run, field: str, group: Group) -> Series:
    """Return one field of the probes of one group, shape (C, P)."""
    series = run.series("probes", field)
    groups = dict(zip(series.labels, groups_of(run, series.labels), strict=True))
    return series.only(lambda label: groups[label] == group)
