"""The trainings that calibrate `ckaudit diff`: replicas, and trainings with one change each.

python benchmarks/calibration_runs.py FOLDER [--only tune|score]

Existing recordings are kept. The tuning set shares no corpus,
schedule, batch shape or seed with the scoring set.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from msgspec import Struct
from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Data, Gpt, Plan, Schedule
from ckaudit.lab.record import record
from ckaudit.lab.specs import FaultStrength
from ckaudit.lab.task import Batch
from ckaudit.lab.training import Training
from ckaudit.lab.training_spec import Recipe

SETS = ("tune", "score")
PLANS = {
    "tune": Plan(
        model=Gpt(norm="layer", activation="relu"),
        data=Data(corpus="mixture", batch_size=8, length=80, held_rows=48),
        schedule=Schedule(shape="plateau", warmup=40),
        steps=200,
    ),
    "score": Plan(data=Data(corpus="verbs", batch_size=16, length=48, held_rows=64), steps=240),
}
REPLICAS = {"tune": range(300, 308), "score": range(400, 412)}
FIRST_CHANGED = {"tune": 350, "score": 450}


class Rate(Change):
    """A change that multiplies the learning rate by `strength` from the onset on."""

    def rate(self, training: Training, rate: float) -> float:
        """Return the multiplied rate from the onset on."""
        return rate * self.strength if training.step >= self.onset else rate


class Weights(Change):
    """A change that multiplies all weights of block 1 by `strength` before the step of the onset."""

    def begin(self, training: Training) -> None:
        """Multiply the weights at the onset."""
        if training.step == self.onset:
            for weight in training.model.get_submodule("blocks.1").parameters():
                weight.data.mul_(self.strength)


class Noise(Change):
    """A change that gives a share of `strength` of the targets another position from the onset on."""

    def batch(self, training: Training, batch: Batch) -> Batch:
        """Roll the targets of the first rows."""
        rows = round(self.strength * len(batch.targets)) if training.step >= self.onset else 0
        targets = torch.cat([batch.targets[:rows].roll(7, dims=1), batch.targets[rows:]])
        return replace(batch, targets=targets)


class Frozen(Change):
    """A change that freezes block 1."""

    def model(self, model: torch.nn.Module) -> None:
        """Set `requires_grad` of block 1 to false."""
        model.get_submodule("blocks.1").requires_grad_(False)


class Case(Struct, frozen=True, kw_only=True):
    """One training of a set.

    Attributes:
        name: Name of its folder.
        plan: What is trained.
        change: The change that is made to it.
        reference: Name of the replica that it is compared with; empty: it is a replica itself.
        onset: First step of a late change, which has the seed of its reference; 0: another seed.
    """

    name: str
    plan: Plan
    change: Change
    reference: str = ""
    onset: int = 0


def _optimizer(**values: object) -> Callable[[Plan], Plan]:
    return lambda plan: replace(plan, optimizer=replace(plan.optimizer, **values))


def _rate(factor: float) -> Callable[[Plan], Plan]:
    return lambda plan: replace(plan, optimizer=replace(plan.optimizer, peak=plan.optimizer.peak * factor))


def _model(**values: object) -> Callable[[Plan], Plan]:
    return lambda plan: replace(plan, model=replace(plan.model, **values))


def _batch(factor: float) -> Callable[[Plan], Plan]:
    return lambda plan: replace(plan, data=replace(plan.data, batch_size=round(plan.data.batch_size * factor)))


def _warmup(steps: int) -> Callable[[Plan], Plan]:
    return lambda plan: replace(plan, schedule=replace(plan.schedule, warmup=steps))


PLAIN: dict[str, Callable[[Plan], Plan]] = {
    **{f"rate_x{factor:g}": _rate(factor) for factor in (1.5, 2, 3, 4, 0.5, 0.25, 0.125)},
    **{f"batch_x{factor:g}": _batch(factor) for factor in (0.5, 0.25, 0.125)},
    **{f"warmup_{steps}": _warmup(steps) for steps in (1, 120)},
    **{f"decay_{value:g}": _optimizer(weight_decay=value) for value in (1.0, 10.0)},
    **{f"dropout_{value:g}": _model(dropout=value) for value in (0.1, 0.3)},
    **{f"init_{value:g}": _model(init_std=value) for value in (0.005, 0.1, 0.3)},
    "frozen": lambda plan: plan,
    **{f"clip_{value:g}": _optimizer(clip=value) for value in (0.01, 0.1)},
    "betas_0.9_0.999": _optimizer(betas=(0.9, 0.999)),
    "betas_0.5_0.95": _optimizer(betas=(0.5, 0.95)),
}
LATE: dict[str, tuple[type[Change], float]] = {
    "late_rate_x3": (Rate, 3.0),
    "late_rate_x0.2": (Rate, 0.2),
    "late_weights_x1.5": (Weights, 1.5),
    "late_noise_0.3": (Noise, 0.3),
}
ONSETS = {"tune": (75,), "score": (60, 120, 185)}
TURNS = {"tune": 1, "score": 2}


def cases(which: str) -> Iterator[Case]:
    """Yield every training of a set, replicas first."""
    plan, replicas = PLANS[which], [*REPLICAS[which]]
    yield from (Case(name=f"replica_{seed}", plan=replace(plan, seed=seed), change=Change()) for seed in replicas)
    seed = FIRST_CHANGED[which]
    for turn in range(TURNS[which]):
        for name, changed in PLAIN.items():
            change = Frozen() if name == "frozen" else Change()
            reference = f"replica_{replicas[seed % len(replicas)]}"
            yield Case(name=f"{name}_{turn}", plan=replace(changed(plan), seed=seed), change=change, reference=reference)
            seed += 1
    for number, onset in enumerate(ONSETS[which]):
        for name, (kind, strength) in LATE.items():
            own = replicas[(number * len(LATE) + len(name)) % len(replicas)]
            change = kind(onset, strength)
            yield Case(
                name=f"{name}_{onset}", plan=replace(plan, seed=own), change=change, reference=f"replica_{own}", onset=onset
            )


def train(case: Case, folder: Path) -> None:
    """Record one training, unless it exists."""
    target = folder / case.name
    if (target / "run.json").exists():
        return
    partial = folder / f".{case.name}"
    for file in [*partial.glob("*")]:
        file.unlink()
    made = Recipe(
        name=case.name,
        seed=case.plan.seed,
        kind="healthy",
        family="gpt",
        amount=FaultStrength(),
        plan=case.plan,
        change=case.change,
    )
    record(made, partial, grids="none")
    partial.rename(target)


def main() -> None:
    """Train what is missing."""
    root, only = Path(sys.argv[1]), sys.argv[3:4] or SETS
    for which in SETS:
        todo = [*cases(which)] if which in only else []
        (root / which).mkdir(parents=True, exist_ok=True)
        for number, case in enumerate(todo, 1):
            train(case, root / which)
            print(f"{which} {number}/{len(todo)} {case.name}", flush=True)


if __name__ == "__main__":
    main()
