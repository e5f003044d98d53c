"""Runs the experiments of the curriculum, audits each training, and writes a page on what differs."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.page import Arm, page
from ckaudit.lab.plan import Plan
from ckaudit.lab.settings import setting
from ckaudit.lab.story import Experiment, Family


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
        FileExistsError: If an arm was trained into this folder before.
    """
    done: set[Path] = set()
    for experiment in chosen:
        places = {name: folder / place_of(experiment, name) for name in experiment.arms}
        for name, change in experiment.arms.items():
            if places[name] not in done:
                trained(experiment.family, change, places[name])
                done.add(places[name])
        yield written(experiment, [audited(name, change, places[name]) for name, change in experiment.arms.items()], folder)


def place_of(experiment: Experiment, arm: str) -> Path:
    """Return the folder of an arm, relative to that of the curriculum."""
    if type(experiment.arms[arm]) is Change:
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
