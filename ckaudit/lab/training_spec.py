"""A name of the catalogue and a seed become one training: a plan, and the change that steps in."""

from difflib import get_close_matches
from typing import Literal, get_args

from msgspec import Struct

from ckaudit.errors import UsageError
from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.settings import SEEDS, Split, setting, split_of
from ckaudit.lab.specs import Amount, Control, Experiment, Family, Fault, controls, experiments, faults

Kind = Literal["fault", "control", "healthy"]
HEALTHY = {"healthy": "gpt"} | {f"healthy_{family}": family for family in get_args(Family) if family != "gpt"}


class Recipe(Struct, frozen=True, kw_only=True):
    """One training, not yet begun.

    Attributes:
        name: Name of a fault, of a control, or one of `HEALTHY`.
        seed: One of the seeds of a split.
        kind: Which of the three it is.
        family: The kind of model.
        amount: How the change is made.
        plan: The healthy training that it changes.
        change: What steps in.
    """

    name: str
    seed: int
    kind: Kind
    family: Family
    amount: Amount
    plan: Plan
    change: Change

    @property
    def split(self) -> Split:
        """The split that the seed belongs to."""
        return split_of(self.seed)


def recipe(name: str, seed: int) -> Recipe:
    """Return the training that a name and a seed stand for.

    Raises:
        UsageError: If the catalogue has no such name, or no split this seed.
    """
    split = _split(seed)
    kind, family, amount, change = _found(name, split)
    made = change(amount.onset, amount.strength)
    return Recipe(name=name, seed=seed, kind=kind, family=family, amount=amount, plan=setting(family, seed), change=made)


def recipes(split: Split) -> list[Recipe]:
    """Return every training of a split: healthy ones, controls, then faults, seed by seed."""
    names = [*HEALTHY, *controls(), *faults()]
    return [recipe(name, seed) for seed in SEEDS[split] for name in names]


def names() -> list[str]:
    """Return every name that can be trained."""
    return [*HEALTHY, *controls(), *faults()]


def _found(name: str, split: Split) -> tuple[Kind, Family, Amount, type[Change]]:
    found: Fault | Control | Experiment | None = faults().get(name) or controls().get(name)
    if isinstance(found, Fault):
        return "fault", found.family, found.dev if split == "dev" else found.test, found.change
    if isinstance(found, Control):
        return "control", found.family, Amount(), found.change
    if name in HEALTHY:
        return "healthy", HEALTHY[name], Amount(), Change
    if name in experiments() or name.upper() in (experiment.id for experiment in experiments().values()):
        raise UsageError(f"{name} is an experiment of several trainings", hint=f"ckaudit lab curriculum {name}")
    near = get_close_matches(name.lower(), names(), n=1 if name.lower() in names() else 3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else "ckaudit lab list names them all"
    raise UsageError(f"the lab has no fault, control or healthy training called {name!r}", hint=hint)


def _split(seed: int) -> Split:
    for split, seeds in SEEDS.items():
        if seed in seeds:
            return split
    told = "; ".join(f"{split} {', '.join(map(str, seeds))}" for split, seeds in SEEDS.items())
    raise UsageError(f"no split of the lab has the seed {seed}", hint=f"the seeds are {told}")
