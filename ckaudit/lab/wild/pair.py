"""A draw as it lies in the cache: an ill recording, its healthy twin of the same seed, and what was done to the one."""

import json
from itertools import pairwise
from math import inf
from pathlib import Path
from statistics import median

import msgspec

from ckaudit.contract.io.files import SCALARS_NAME
from ckaudit.contract.schema.report import Finding
from ckaudit.run.robust import MAD_TO_SIGMA

HEALTHY, ILL, NOTE = "healthy", "ill", "draw.json"
TRAINING, HELD_OUT = "train_loss_raw", "val_loss"
CLOCK = ("SYS", "COST")  # codes that judge the machine, which may have had other work while these were trained
IN_ANOTHER_UNIT = "loss_reduced_by_sum"  # truth of a draw whose training loss counts what its twin's is the mean of


class PairNote(msgspec.Struct, frozen=True, kw_only=True):
    """What is noted beside the two recordings of a draw.

    Attributes:
        family: The family.
        fault: The fault.
        truth: The cause that is to be named.
        acceptable: Causes that are as good.
        is_fact: Whether weights, gradients or code were changed, which a record shows whatever the loss says.
        onset: First step at which the fault acts.
        strength: How strong it is, from 0 to 1.
        place: The part that it is done to; empty: all of the model, or none.
        through: Who trained.
        optimizer: Word for the optimizer.
        schedule: Course of the learning rate.
        steps: Steps of the training.
        seconds: What both trainings took of a processor.
        slow: Whether the fault's harm grows from step to step, so that it could be seen before the loss shows it.
    """

    family: str
    fault: str
    truth: str
    acceptable: tuple[str, ...]
    is_fact: bool
    onset: int
    strength: float
    place: str
    through: str
    optimizer: str
    schedule: str
    steps: int
    seconds: float
    slow: bool = False


def pair_folder(cache: Path, split: str, seed: int, index: int) -> Path:
    """Return where a draw is kept in the cache."""
    return cache / f"{split}.{seed}.{index:04}"


def write_note(path: Path, pair: PairNote) -> None:
    """Write what is noted beside two recordings; it is written last, so that a draw with a note is whole."""
    path.write_bytes(msgspec.json.encode(pair))


def read_note(folder: Path) -> PairNote | None:
    """Return what is noted in a draw's folder; None where it is not recorded to its end."""
    path = folder / NOTE
    return msgspec.json.decode(path.read_bytes(), type=PairNote) if path.exists() else None


def logged(folder: Path, name: str) -> list[float]:
    """Return the values of one scalar of a recording that are numbers, in order."""
    lines = (json.loads(line) for line in (folder / SCALARS_NAME).read_text(encoding="utf-8").splitlines())
    return [line[name] for line in lines if isinstance(line.get(name), float)]


def has_effect(pair: PairNote, ill: Path, healthy: Path) -> bool:
    """Tell whether a fault did anything to its training that its record can show.

    Of a change of weights, gradients or code: the losses are not all the twin's. Of any other: the training is worse.

    Args:
        pair: What was done.
        ill: Run folder of the training with the fault.
        healthy: That of its twin.
    """
    if pair.is_fact:
        return any(logged(ill, name) != logged(healthy, name) for name in (TRAINING, HELD_OUT))
    return is_worse(ill, healthy, in_another_unit=pair.truth == IN_ANOTHER_UNIT)


def is_worse(ill: Path, healthy: Path, *, in_another_unit: bool = False) -> bool:
    """Tell whether a training ended worse than its healthy twin, from their run folders.

    The loss, or the validation loss, ends further above the twin's than a twentieth of what the twin's fell, and further than
    three deviations of that difference; or fewer of its values are numbers.

    Args:
        ill: Run folder of the training with the fault.
        healthy: That of its twin.
        in_another_unit: Whether the training loss is brought to the twin's unit by the first ones, which are of the same weights
            and the same batch.
    """
    losses, twins = logged(ill, TRAINING), logged(healthy, TRAINING)
    if in_another_unit and losses and twins and losses[0]:
        losses = [loss * twins[0] / losses[0] for loss in losses]
    return _ends_worse(losses, twins) or _ends_worse(logged(ill, HELD_OUT), logged(healthy, HELD_OUT))


def _ends_worse(ill: list[float], well: list[float], *, share_of_fall: float = 0.05, deviations: float = 3.0) -> bool:
    if not well:
        return False
    if len(ill) < len(well):
        return True
    last = max(1, len(well) // 10)
    differences = [one - other for one, other in zip(ill[-last:], well[-last:], strict=True)]
    middle = median(differences)
    noise = MAD_TO_SIGMA * median(abs(difference - middle) for difference in differences) / len(differences) ** 0.5
    fall = median(well[:last]) - median(well[-last:])
    return middle > max(share_of_fall * abs(fall), deviations * noise)


def twin_learns(healthy: Path, *, deviations: float = 3.0, share: float = 0.03) -> bool:
    """Tell whether the healthy twin's loss falls by more than its noise and a share: one that learns nothing is no example."""
    losses = logged(healthy, TRAINING)
    if len(losses) < 2:
        return False
    part = max(3, len(losses) // 10)
    steps = [abs(one - other) for one, other in pairwise(losses)]
    noise = median(steps) / 0.954 / part**0.5  # of a median of so many; 0.954 is the median step of unit noise
    first = median(losses[:part])
    return first - median(losses[-part:]) > max(deviations * noise, share * abs(first))


def ends(finding: Finding) -> float:
    """Return the last step of a finding; one of the whole run has no end."""
    last = finding.first_step if finding.last_step is None else finding.last_step
    return inf if last is None else last
