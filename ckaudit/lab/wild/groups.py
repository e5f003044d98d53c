"""Groups of trainings for comparisons: good runs that differ by chance only, and runs with one change each."""

from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

Kind = Literal["good", "order", "rounding", "resumed", "change"]

NOTE = "group.json"


class GroupMember(Struct, frozen=True, kw_only=True):
    """One training of a group.

    Attributes:
        name: Name of its folder.
        kind: Difference from the other good runs: only the seed. Or from the first of them: the order of batches, the last bit of
            its weights, a stop and a resume, or a change.
        change: Name of the change; empty: none.
        onset: First step at which it acts; 0: never.
    """

    name: str
    kind: Kind
    change: str = ""
    onset: int = 0


class GroupNote(Struct, frozen=True, kw_only=True):
    """The note beside the recordings of a group.

    Attributes:
        family: The family.
        through: The trainer.
        optimizer: Name of the optimizer.
        schedule: Course of the learning rate.
        steps: Steps of each training.
        members: The trainings, good ones first.
        seconds: CPU time of all trainings in seconds.
    """

    family: str
    through: str
    optimizer: str
    schedule: str
    steps: int
    members: tuple[GroupMember, ...]
    seconds: float = 0.0

    def of(self, *kinds: Kind) -> list[GroupMember]:
        """Return the members of some kinds."""
        return [member for member in self.members if member.kind in kinds]


def group_folder(cache: Path, split: str, seed: int, index: int) -> Path:
    """Return the folder of a group in the cache."""
    return cache / f"{split}.group.{seed}.{index:04}"


def read_group(folder: Path) -> GroupNote | None:
    """Return the note in a group's folder; None if it is not recorded completely."""
    path = folder / NOTE
    return msgspec.json.decode(path.read_bytes(), type=GroupNote) if path.exists() else None
