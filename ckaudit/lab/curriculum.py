"""Runs the experiments of the curriculum, audits each training, and writes a page on what differs."""

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

    arms: tuple[Arm, ...]
    page: str


def short(family: Family, *, seed: int = 0, steps: int = 150) -> Plan:
    """Return the healthy training that arms change: that of the lab with fewer steps and half of its batch."""
    plan = setting(family, seed)
    return replace(plan, steps=steps, data=replace(plan.data, batch_size=plan.data.batch_size // 2, held_rows=64))


def study(experiment: Experiment, folder: Path) -> Study:
    """Train every arm of an experiment into a folder of its own under `folder`, audit it, and write the page beside them.

    The page is `folder`/<name of the experiment>.md, the arms are `folder`/<name>/<arm>.
    """
    arms = tuple(_arm(experiment, name, change, folder) for name, change in experiment.arms.items())
    text = page(experiment, arms)
    (folder / f"{experiment.name}.md").write_text(text, encoding="utf-8")
    return Study(arms, text)


def _arm(experiment: Experiment, name: str, change: Change, folder: Path) -> Arm:
    from ckaudit.audit import triage
    from ckaudit.lab.processes import train

    place = folder / experiment.name / name.replace(" ", "_").replace(",", "")
    place.mkdir(parents=True)
    train(short(experiment.family), change, place)
    return Arm(name=name, change=change, folder=place, report=triage(place))
