"""Trains one model in several processes with a recorder in each: `python many_ranks.py '{"kind": "ddp", ...}' ...`."""

import json
import os
import signal
import sys
import time
import traceback
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from conftest import LENGTH, VOCABULARY, TinyGPT
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ckaudit.contract.manifest import Cadence
from ckaudit.recorder import Recorder


def made(kind, rank, world):
    """Return the model as its kind of training has it, the optimizer, and this rank's part of a batch."""
    torch.manual_seed(0)
    model = TinyGPT()
    part = slice(None) if kind == "one" else slice(rank * 4 // world, (rank + 1) * 4 // world)
    if kind == "ddp":
        model = DistributedDataParallel(model)
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), part


def train(kind, rank, world, folder, *, steps=12, seed=0, slow=None, moved=None, killed=None, record=True, spike=None, **options):
    """Train, with these faults: rank `slow` sleeps, that of `moved` is changed by hand after step 5, `killed` dies in step 7."""
    model, optimizer, part = made(kind, rank, world)
    cadence = [Cadence(until=None, every=options.pop("every", 4))]
    options = {"cadence": cadence, "vocabulary": VOCABULARY, **options}
    recorder = Recorder(model, folder, optimizer=optimizer, **options) if record else None
    source = torch.Generator().manual_seed(seed)
    for step in range(1, steps + 1):
        tokens = torch.randint(0, VOCABULARY, (4, LENGTH + 1), generator=source)[part]
        batch = tokens[:, :-1], tokens[:, 1:]
        time.sleep(0.03 if rank == slow else 0.0)
        if rank == killed and step == 7:
            os.kill(os.getpid(), signal.SIGKILL)
        loss = nn.functional.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten())
        optimizer.zero_grad()
        (loss * (50 if step == spike else 1)).backward()
        if recorder:
            recorder.after_backward()
        optimizer.step()
        if rank == moved and step == 5:
            with torch.no_grad():
                next(model.parameters())[0, 0] += 1e-3
        if recorder:
            recorder.step(loss * (50 if step == spike and rank == 0 else 1), batch=batch)
    if recorder:
        recorder.close()
    return model, recorder


def main(rank, world, meeting, kind, folder, **options):
    if world > 1:
        dist.init_process_group(
            "gloo", init_method=f"file://{meeting}", rank=rank, world_size=world, timeout=timedelta(seconds=20)
        )
    weights = options.pop("weights", None)
    model, recorder = train(kind, rank, world, folder, **options)
    if recorder and recorder._guard.failures:
        raise RuntimeError("the recorder failed")
    if weights:
        torch.save({name.removeprefix("module."): each for name, each in model.state_dict().items()}, f"{weights}.{rank}")
    if world > 1:
        dist.destroy_process_group()


def start_ranks(number, *, world, **options):
    """Run one training in forked processes; return their exit codes."""
    children = []
    meeting = Path(options["folder"]).parent / f"meeting-{os.getpid()}-{number}"
    for rank in range(world):
        if not (child := os.fork()):
            code = 1
            try:
                main(rank, world, meeting, **options)
                code = 0
            except BaseException:  # noqa: BLE001  a child must not run the parent's code
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.optim.AdamW(nn.Linear(1, 1).parameters())  # imports a second's worth of torch, once instead of in every fork
    codes = [start_ranks(number, **json.loads(text)) for number, text in enumerate(sys.argv[1:])]
    print(json.dumps(codes))  # noqa: T201
