"""A training in a process of its own: `python -m tests.recorder.spooled ADDRESS START STEPS close|leave`; 0 steps: for ever."""

import itertools
import sys

import torch
from torch import nn

from ckaudit.contract.schema.manifest import Cadence
from ckaudit.recorder import Recorder
from ckaudit.recorder.files import uploader


def train(address: str, start: int, steps: int, end: str) -> None:
    """Train, and say so after every step."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    uploader.PAUSE = 0.05
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.AdamW(model.parameters())
    recorder = Recorder(model, address, optimizer=optimizer, start_step=start, cadence=[Cadence(until=None, every=2)])
    for step in itertools.islice(itertools.count(start + 1), steps or None):
        loss = model(torch.randn(8, 16)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        recorder.after_backward()
        optimizer.step()
        recorder.step(loss)
        print(step, flush=True)  # noqa: T201
    if end == "close":
        recorder.close()


if __name__ == "__main__":
    train(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
