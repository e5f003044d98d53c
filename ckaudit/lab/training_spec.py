"""The list of all trainings: every name of the catalogue under every seed of a split is a plan and a change."""

from collections.abc import Callable
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Literal, TypeVar, get_args

from msgspec import Struct
from msgspec.structs import replace

from ckaudit.errors import UsageError
from ckaudit.lab.change import Change
from ckaudit.lab.plan import Cnn, Data, Gpt, Llama, Lstm, Mlp, Optimizer, Plan, Schedule
from ckaudit.lab.specs import Control, Experiment, Family, Fault, FaultStrength, controls, experiments, faults

# The healthy trainings that faults and controls change: three for tuning thresholds, two for scoring only. The two splits share
# no seed, size, corpus or schedule.
Split = Literal["dev", "test"]
SEEDS: dict[Split, tuple[int, ...]] = {"dev": (0, 1, 2), "test": (10, 11)}

_TEXTS = {
    0: Plan(data=Data(corpus="verbs")),
    1: Plan(
        model=Gpt(norm="layer", activation="relu"),
        data=Data(corpus="mixture", batch_size=18, length=112),
        schedule=Schedule(shape="plateau", warmup=40),
    ),
    2: Plan(
        model=Gpt(width=64, depth=4, hidden=176, positions="rope", activation="swiglu", kv_heads=2),
        data=Data(corpus="mixture", tokens="bpe", length=48),
        schedule=Schedule(shape="linear", final=0.0),
    ),
    10: Plan(
        model=Gpt(width=96, depth=4, hidden=384, norm="layer", fused=True),
        data=Data(corpus="letters", batch_size=14, length=80),
        optimizer=Optimizer(peak=1.5e-3, betas=(0.9, 0.98)),
        schedule=Schedule(shape="cosine", warmup=50, final=0.05),
        steps=500,
    ),
    11: Plan(
        model=Gpt(width=96, depth=6, heads=6, hidden=256, positions="rope", activation="swiglu", qk_norm=True, tied=True),
        data=Data(corpus="letters", tokens="bpe", batch_size=20, length=36),
        optimizer=Optimizer(peak=2e-3, weight_decay=0.05),
        schedule=Schedule(shape="plateau", warmup=25, final=0.02, tail=0.3),
        steps=400,
    ),
}
_SIZES: dict[Split, int] = {"dev": 1, "test": 2}


def setting(family: Family, seed: int) -> Plan:
    """Return the healthy training of a family of models under a seed of `SEEDS`.

    Raises:
        KeyError: If no split has this seed.
    """
    text = _TEXTS[seed]
    size = _SIZES[split_of(seed)]
    decay = 0.01 * size
    match family:
        case "gpt":
            plan = text
        case "moe":
            plan = replace(text, model=Gpt(width=48, depth=2, hidden=96, experts=2 + 2 * size))
        case "llama":
            plan = replace(text, model=Llama(depth=1 + size))
        case "lstm":
            plan = replace(text, model=Lstm(width=32 + 32 * size))
        case "mlp":
            data, optimizer = Data(corpus="points", batch_size=64), Optimizer(peak=1e-3 * size, weight_decay=decay)
            plan = replace(text, model=Mlp(depth=2 + size), data=data, optimizer=optimizer)
        case "cnn":
            data, optimizer = Data(corpus="shapes", batch_size=32), Optimizer(peak=4e-3 / size, weight_decay=decay)
            plan = replace(text, model=Cnn(depth=1 + size), data=data, optimizer=optimizer)
    return replace(plan, seed=seed)


def split_of(seed: int) -> Split:
    """Return the split of a seed."""
    return next(split for split in get_args(Split) if seed in SEEDS[split])


# One training from a name of the catalogue and a seed.
Kind = Literal["fault", "control", "healthy"]
HEALTHY = {"healthy": "gpt"} | {f"healthy_{family}": family for family in get_args(Family) if family != "gpt"}


class Recipe(Struct, frozen=True, kw_only=True):
    """The specification of one training.

    Attributes:
        name: Name of a fault, of a control, or one of `HEALTHY`.
        seed: One of the seeds of a split.
        kind: Which of the three the name is.
        family: The kind of model.
        amount: How the change is made.
        plan: The healthy training that it changes.
        change: The change.
    """

    name: str
    seed: int
    kind: Kind
    family: Family
    amount: FaultStrength
    plan: Plan
    change: Change

    @property
    def split(self) -> Split:
        """The split of the seed."""
        return split_of(self.seed)


def recipe(name: str, seed: int) -> Recipe:
    """Return the training of a name and a seed.

    Raises:
        UsageError: If the catalogue has no such name, or no split this seed.
    """
    split = _split(seed)
    kind, family, amount, change_type = _found(name, split)
    change = change_type(amount.onset, amount.strength)
    return Recipe(name=name, seed=seed, kind=kind, family=family, amount=amount, plan=setting(family, seed), change=change)


def recipes(split: Split) -> list[Recipe]:
    """Return every training of a split: healthy ones, controls, then faults, seed by seed."""
    names = [*HEALTHY, *controls(), *faults()]
    return [recipe(name, seed) for seed in SEEDS[split] for name in names]


def names() -> list[str]:
    """Return every name that can be trained."""
    return [*HEALTHY, *controls(), *faults()]


def _found(name: str, split: Split) -> tuple[Kind, Family, FaultStrength, type[Change]]:
    entry: Fault | Control | Experiment | None = faults().get(name) or controls().get(name)
    if isinstance(entry, Fault):
        return "fault", entry.family, entry.dev if split == "dev" else entry.test, entry.change
    if isinstance(entry, Control):
        return "control", entry.family, FaultStrength(), entry.change
    if name in HEALTHY:
        return "healthy", HEALTHY[name], FaultStrength(), Change
    if name in experiments() or name.upper() in (experiment.id for experiment in experiments().values()):
        raise UsageError(f"{name} is an experiment of several trainings", hint=f"ckaudit lab curriculum {name}")
    near = get_close_matches(name.lower(), names(), n=1 if name.lower() in names() else 3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else "ckaudit lab list names them all"
    raise UsageError(f"the lab has no fault, control or healthy training called {name!r}", hint=hint)


def _split(seed: int) -> Split:
    for split, seeds in SEEDS.items():
        if seed in seeds:
            return split
    seed_ranges = "; ".join(f"{split} {', '.join(map(str, seeds))}" for split, seeds in SEEDS.items())
    raise UsageError(f"no split of the lab has the seed {seed}", hint=f"the seeds are {seed_ranges}")


# All trainings of the lab, or those that match a pattern.
MODELS: dict[Family, str] = {
    "gpt": "A GPT on text",
    "moe": "A GPT with experts in place of its MLPs",
    "llama": "A Llama of the library transformers",
    "lstm": "An LSTM on text",
    "mlp": "An MLP that tells classes of points apart",
    "cnn": "A convolutional network that tells shapes apart",
}


class Healthy(Struct, frozen=True, kw_only=True):
    """An unchanged training.

    Attributes:
        name: Name of the training.
        title: A sentence about the training.
        family: The kind of model.
    """

    name: str
    title: str
    family: Family


class LabCatalogue(Struct, frozen=True, kw_only=True):
    """All trainings of each kind, in their order."""

    faults: list[Fault]
    healthy: list[Healthy]
    controls: list[Control]
    experiments: list[Experiment]


Entry = TypeVar("Entry", Fault, Healthy, Control, Experiment)


def catalogue(only: str = "") -> LabCatalogue:
    """Return all trainings, or those that match one of several patterns.

    Args:
        only: Patterns of names, or of ids such as EXP-4, with commas between, in any case of letters; empty: all.

    Raises:
        UsageError: If nothing matches.
    """
    patterns = only.lower().split(",") if only else ["*"]

    def kept(entries: dict[str, Entry], words: Callable[[Entry], tuple[str, ...]] = lambda entry: (entry.name,)) -> list[Entry]:
        return [
            entry
            for entry in entries.values()
            if any(fnmatchcase(word, pattern) for word in words(entry) for pattern in patterns)
        ]

    plain = {
        name: Healthy(name=name, title=f"{MODELS[family]}, and nothing is changed.", family=family)
        for name, family in HEALTHY.items()
    }
    matching = LabCatalogue(
        faults=kept(faults()),
        healthy=kept(plain),
        controls=kept(controls()),
        experiments=kept(experiments(), lambda experiment: (experiment.name, experiment.id.lower())),
    )
    if not (matching.faults or matching.healthy or matching.controls or matching.experiments):
        raise UsageError(f"nothing in the lab matches {only!r}", hint="ckaudit lab list names all; * stands for any letters")
    return matching
