"""The gradient noise scale from the batches of ranks, against the same training in this process without DDP."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from ckaudit.recorder import Recorder
from tests.recorder.conftest import LENGTH, VOCABULARY, TinyGPT

ROOT = Path(__file__).parents[2]
STEPS = 26
TRAININGS = {
    **{f"ddp{world}": {"kind": "ddp", "shares": True, "world": world, "steps": STEPS} for world in (2, 4)},
    "bare": {"kind": "ddp", "steps": STEPS, "record": False},
    "fsdp": {"kind": "fsdp", "shares": True, "steps": 3, "may_fail": True},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return a folder in which every training has recorded, and what all of them said."""
    folder = tmp_path_factory.mktemp("noise")
    placed = [
        {"world": 2, **each, "folder": str(folder / name), "weights": str(folder / name)} for name, each in TRAININGS.items()
    ]
    command = [sys.executable, "-m", "tests.recorder.many_ranks", *map(json.dumps, placed)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120)
    assert json.loads(done.stdout) == [[0] * each.get("world", 2) for each in TRAININGS.values()], done.stderr
    return folder, done.stderr


def computed(world):
    """Return noise and signal of each step, from gradients of each rank's batch one after the other, summed in float64."""
    torch.manual_seed(0)
    model, source, small = TinyGPT(), torch.Generator().manual_seed(0), 4 / world
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(STEPS):
        tokens = torch.randint(0, VOCABULARY, (4, LENGTH + 1), generator=source)
        alone = []
        for part in tokens.chunk(world):
            loss = torch.nn.functional.cross_entropy(model(part[:, :-1]).flatten(0, 1), part[:, 1:].flatten())
            alone.append(torch.autograd.grad(loss, list(model.parameters())))
        for parameter, slopes in zip(model.parameters(), zip(*alone, strict=True), strict=True):
            parameter.grad = torch.stack(slopes).mean(0)
        own = sum(float((slope.double() ** 2).sum()) for slope in alone[0])
        mean = sum(float((each.grad.double() ** 2).sum()) for each in model.parameters())
        yield (own - mean) / (1 / small - 1 / 4), (4 * mean - small * own) / (4 - small)
        optimizer.step()


@pytest.mark.parametrize("world", [2, 4])
def test_the_noise_of_ranks_is_that_of_their_batches_one_by_one(runs, world, lines):
    kept, expected = np.zeros(2), {}
    for step, pair in enumerate(computed(world), 1):
        kept = 0.95 * kept + 0.05 * np.array(pair)
        if step >= 10 and kept[1] > 0:
            expected[step] = kept[0] / kept[1]
    found = {line["step"]: line["grad_noise_scale"] for line in lines(runs[0] / f"ddp{world}") if "grad_noise_scale" in line}
    assert len(expected) > 5
    assert found == pytest.approx(expected, rel=1e-3)
    last = lines(runs[0] / f"ddp{world}")[-1]
    seen = 1 - 0.95**STEPS
    assert (last["grad_noise_trace"], last["grad_noise_signal"]) == pytest.approx(tuple(kept / seen), rel=1e-3)


def test_looking_changes_no_weight(runs):
    for rank in range(2):
        watched, bare = (torch.load(f"{runs[0] / name}.{rank}") for name in ("ddp2", "bare"))
        assert all(map(torch.equal, watched, bare))


def test_where_ranks_hold_parts_of_the_gradients_there_is_none(runs, lines):
    assert not any("grad_noise_scale" in line for line in lines(runs[0] / "fsdp"))
    assert "asking for a rank's own gradient failed" in runs[1]


def test_a_single_rank_has_nothing_to_compare(tiny, batches, loss_of, tmp_path, caplog):
    model = tiny()
    with Recorder(model, tmp_path) as recorder:
        recorder.rank_batch(4)
        loss_of(model, batches(1)[0]).backward()
        recorder.step(1.0)
    assert "there is only one rank" in caplog.text
    assert not any(parameter._post_accumulate_grad_hooks for parameter in model.parameters())
