"""A training that takes a second, for tests of what a change does to it."""

from pathlib import Path
from typing import Any

import msgspec
import torch
from msgspec.structs import replace

from ckaudit.contract.io.files import read_bytes
from ckaudit.lab.change import Change
from ckaudit.lab.faults.checkpoints import checkpoints
from ckaudit.lab.plan import Cnn, Data, Gpt, Plan, Schedule
from ckaudit.lab.specs import faults
from ckaudit.lab.training import Training

SMALL = Plan(
    model=Gpt(width=16, depth=2, heads=2, hidden=24),
    data=Data(batch_size=4, length=16, held_rows=8),
    schedule=Schedule(warmup=4),
    steps=20,
    eval_every=5,
)
PICTURES = replace(SMALL, model=Cnn(channels=4, depth=1), data=Data(corpus="shapes", batch_size=8, held_rows=8))


def trained(change: Change, folder: Path, plan: Plan = SMALL, *, stop: int | None = None) -> Training:
    """Train to `stop`, or to the end of the plan, and let the change finish its files."""
    torch.set_num_threads(1)  # a model as small as this one is slower on several
    training = Training(plan, change, folder)
    training.plan = replace(training.plan, stop=stop or training.plan.stop)
    training.run()
    change.finished(folder)
    return training


def lines(folder: Path) -> list[dict[str, Any]]:
    """Return the lines of the log."""
    return [msgspec.json.decode(line) for line in (folder / "scalars.jsonl").read_bytes().splitlines()]


def column(folder: Path, name: str) -> dict[int, Any]:
    """Return one value of the log by step, where it is."""
    return {line["step"]: line[name] for line in lines(folder) if name in line}


def documents(folder: Path) -> dict[int, dict[str, Any]]:
    """Return the checkpoints by step."""
    return {step: msgspec.json.decode(read_bytes(path, path.name)) for step, path in checkpoints(folder).items()}


def told(folder: Path) -> dict[str, Any]:
    """Return `run.json`."""
    return msgspec.json.decode((folder / "run.json").read_bytes())


def made(name: str, *, onset: int = 0, strength: float = 1.0) -> Change:
    """Return a fault; "healthy" is the change that does nothing."""
    return Change() if name == "healthy" else faults()[name].change(onset, strength)
