"""A draw in the cache: an ill recording, its healthy twin of the same seed, and a note on the fault."""

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
CLOCK = ("SYS", "COST")  # codes about the machine, which may have been busy with other work during these trainings
IN_ANOTHER_UNIT = "loss_reduced_by_sum"  # truth of a draw whose training loss is the sum of what its twin's loss is the mean of


class PairNote(msgspec.Struct, frozen=True, kw_only=True):
    """The note beside the two recordings of a draw.

    Attributes:
        family: The family.
        fault: The fault.
        truth: The cause to be named.
        acceptable: Equivalent causes.
        is_fact: Whether weights, gradients or code were changed, which a record shows even if the loss does not.
        onset: First step at which the fault acts.
        strength: How strong it is, from 0 to 1.
        place: The changed module; empty: the whole model, or none.
        through: The trainer.
        optimizer: Name of the optimizer.
        schedule: Course of the learning rate.
        steps: Steps of the training.
        seconds: CPU time of both trainings in seconds.
        slow: Whether the fault's harm grows from step to step, so that it may be detectable before the loss shows it.
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
    """Return the folder of a draw in the cache."""
    return cache / f"{split}.{seed}.{index:04}"


def write_note(path: Path, pair: PairNote) -> None:
    """Write the note beside two recordings; it is written last, so that a draw with a note is complete."""
    path.write_bytes(msgspec.json.encode(pair))


def read_note(folder: Path) -> PairNote | None:
    """Return the note in a draw's folder; None if it is not recorded completely."""
    path = folder / NOTE
    return msgspec.json.decode(path.read_bytes(), type=PairNote) if path.exists() else None


def logged(folder: Path, name: str) -> list[float]:
    """Return the finite values of one scalar of a recording, in order."""
    lines = (json.loads(line) for line in (folder / SCALARS_NAME).read_text(encoding="utf-8").splitlines())
    return [line[name] for line in lines if isinstance(line.get(name), float)]


def has_effect(pair: PairNote, ill: Path, healthy: Path) -> bool:
    """Tell whether a fault had an effect on its training that the record can show.

    For a change of weights, gradients or code, some loss differs from the twin's. For any other, the training is worse.

    Args:
        pair: The note on the fault.
        ill: Run folder of the training with the fault.
        healthy: Run folder of its twin.
    """
    if pair.is_fact:
        return any(logged(ill, name) != logged(healthy, name) for name in (TRAINING, HELD_OUT))
    return is_worse(ill, healthy, in_another_unit=pair.truth == IN_ANOTHER_UNIT)


def is_worse(ill: Path, healthy: Path, *, in_another_unit: bool = False) -> bool:
    """Tell whether a training ended worse than its healthy twin, from their run folders.

    The training or validation loss ends above the twin's by more than a twentieth of the fall of the twin's, and by more than
    three deviations of that difference; or fewer of its values are finite.

    Args:
        ill: Run folder of the training with the fault.
        healthy: Run folder of its twin.
        in_another_unit: Whether to rescale the training loss to the twin's unit by the first losses, which are of the same
            weights and batch.
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
    """Tell whether the healthy twin's loss falls by more than its noise and a share; a twin that learns nothing is no example."""
    losses = logged(healthy, TRAINING)
    if len(losses) < 2:
        return False
    part = max(3, len(losses) // 10)
    steps = [abs(one - other) for one, other in pairwise(losses)]
    noise = median(steps) / 0.954 / part**0.5  # of a median over that many; 0.954 is the median step of unit noise
    first = median(losses[:part])
    return first - median(losses[-part:]) > max(deviations * noise, share * abs(first))


def ends(finding: Finding) -> float:
    """Return the last step of a finding; infinite for one about the whole run."""
    last = finding.first_step if finding.last_step is None else finding.last_step
    return inf if last is None else last
