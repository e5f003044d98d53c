"""Runs the experiments of the curriculum, audits each training, and writes a page on what differs."""

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from ckaudit.errors import UnreadableError
from ckaudit.lab.change import Change
from ckaudit.lab.page import Arm, page
from ckaudit.lab.plan import Plan
from ckaudit.lab.settings import setting
from ckaudit.lab.specs import Experiment, Family, experiments


class Study(Struct, frozen=True):
    """One experiment carried out: its trainings, and the page about them."""

    experiment: Experiment
    arms: tuple[Arm, ...]
    page: Path


def short(family: Family, *, seed: int = 0, steps: int = 125) -> Plan:
    """Return the healthy training that arms change: that of the lab with fewer steps and half of its batch."""
    plan = setting(family, seed)
    return replace(plan, steps=steps, data=replace(plan.data, batch_size=plan.data.batch_size // 2, held_rows=64))


def studies(chosen: Iterable[Experiment], folder: Path) -> Iterator[Study]:
    """Carry experiments out one after the other: train every arm, audit it, and write the page about them.

    The page of an experiment is `folder`/<its name>.md, its arms are `folder`/<its name>/<arm>. The training that nothing is
    changed of is in `folder`/healthy/<family>, and carried out once for all experiments that compare with it.

    Raises:
        FileExistsError: If something is `in_the_way`.
    """
    for experiment in chosen:
        places = {name: folder / place_of(experiment, name) for name in experiment.arms}
        for name, change in experiment.arms.items():
            if not (is_healthy(change) and is_whole(places[name])):
                trained(experiment.family, change, places[name])
        yield written(experiment, [audited(name, change, places[name]) for name, change in experiment.arms.items()], folder)


def in_the_way(chosen: Iterable[Experiment], folder: Path) -> Path | None:
    """Return what experiments must not write over or beside; None: nothing, for all that is there are other experiments.

    Args:
        chosen: The experiments that are to be carried out.
        folder: An existing folder for them.
    """
    others = experiments().keys() - {each.name for each in chosen}
    known = {"healthy", *others, *(f"{name}.md" for name in others)}
    healthy = (place for family in sorted({each.family for each in chosen}) if (place := folder / "healthy" / family).exists())
    strange = (path for path in sorted(folder.iterdir()) if path.name not in known)
    return next(chain(strange, (place for place in healthy if not is_whole(place))), None)


def is_healthy(change: Change) -> bool:
    """Tell whether an arm is the training that nothing is changed of."""
    return type(change) is Change


def is_whole(place: Path) -> bool:
    """Tell whether a training was carried out here, to its end."""
    from ckaudit.run.read import read_run

    try:
        facts = read_run(place, reads=()).manifest
    except UnreadableError:
        return False
    return facts is not None and facts.has_ended


def place_of(experiment: Experiment, arm: str) -> Path:
    """Return the folder of an arm, relative to that of the curriculum."""
    if is_healthy(experiment.arms[arm]):
        return Path("healthy") / experiment.family
    return Path(experiment.name) / arm.replace(" ", "_").replace(",", "")


def trained(family: Family, change: Change, place: Path) -> None:
    """Train one arm into a new folder."""
    from ckaudit.lab.processes import train
    from ckaudit.lab.record import recorded

    place.mkdir(parents=True)
    with recorded(place):
        train(short(family), change, place)


def audited(name: str, change: Change, place: Path) -> Arm:
    """Return an arm that was trained, with what the audit says of it."""
    from ckaudit.audit import triage

    return Arm(name=name, change=change, folder=place, report=triage(place))


def written(experiment: Experiment, arms: Iterable[Arm], folder: Path) -> Study:
    """Write the page of an experiment into a folder."""
    study = Study(experiment, tuple(arms), folder / f"{experiment.name}.md")
    study.page.write_text(page(experiment, study.arms), encoding="utf-8")
    return study
