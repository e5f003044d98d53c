"""Short trainings for the tests of the lab."""

import json

import torch

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Data, Gpt, Plan
from ckaudit.lab.training import Training

SMALL = Gpt(width=16, depth=2, heads=4, hidden=24)
SHORT = Plan(model=SMALL, data=Data(batch_size=8, length=24, held_rows=8), steps=40, stop=6, eval_every=3)


def trained(plan, folder, change=None):
    """Train on one thread and return the training."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    training = Training(plan, change or Change(), folder)
    training.run()
    torch.set_num_threads(threads)
    return training


def lines(folder):
    """Return the lines of a run by their step."""
    found = [json.loads(line) for line in (folder / "scalars.jsonl").read_text().splitlines()]
    return {line["step"]: line for line in found}


def column(folder, name):
    """Return the values of a scalar, in the order of steps."""
    return [line[name] for _, line in sorted(lines(folder).items()) if name in line]
