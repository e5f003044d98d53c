"""Trains one model in several processes: `python -m tests.recorder.many_ranks '{"kind": "ddp", "world": 2, ...}' ...`.

Trainings with `"together"` go one after the other in the same processes, where torch has already learned how to split tensors.
"""

import json
import os
import signal
import sys
import time
import traceback
from datetime import timedelta
from itertools import groupby
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

from ckaudit.contract.schema.manifest import Cadence
from ckaudit.recorder import Recorder
from ckaudit.recorder.distributed import shards
from ckaudit.recorder.loop import session, step_clock
from ckaudit.recorder.loop.triggers import EventThresholds
from ckaudit.recorder.model import collector
from tests.recorder.conftest import LENGTH, VOCABULARY, TinyGPT

EVERY = session.EVERY
PLAIN = {"ddp": "module.norm.bias", "tensor": "norm.bias"}  # a tensor that every rank holds


class AverageNorm(nn.BatchNorm1d):
    """A norm with running statistics, which DDP sends from the first rank to all in each forward pass."""

    def forward(self, x):
        return super().forward(x.transpose(1, 2)).transpose(1, 2)


def made(kind, rank, world, blocks=2):
    """Return the model as its kind of training has it, the optimizer, and this rank's part of a batch."""
    torch.manual_seed(0)
    model = TinyGPT()
    del model.blocks[blocks:]
    if kind == "norms":
        model.norm = AverageNorm(8)
    part = slice(None) if kind == "one" else slice(rank * 4 // world, (rank + 1) * 4 // world)
    if kind in ("ddp", "norms"):
        model = DistributedDataParallel(model)
    if kind in ("fsdp", "hybrid"):
        shape, names = ((world,), ("part",)) if kind == "fsdp" else ((2, world // 2), ("copy", "part"))
        fully_shard_all(model, init_device_mesh("cpu", shape, mesh_dim_names=names))
    if kind in ("tensor", "sequence"):
        part = slice(None)
        parallelize(model, init_device_mesh("cpu", (world,)), world, sequence=kind == "sequence")
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), part


def fully_shard_all(model, mesh):
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)


def parallelize(model, mesh, world, *, sequence):
    """Split heads and hidden units; with `sequence` also the tokens outside them, so that gradients of norms are partial sums."""
    between = Shard(1) if sequence else Replicate()
    head, embed = (
        ColwiseParallel(input_layouts=between, output_layouts=Replicate()),
        RowwiseParallel(input_layouts=Replicate(), output_layouts=between),
    )
    parallelize_module(model, mesh, {"head": head, "embed": embed})
    for block in model.blocks:
        block.attn.heads //= world
        plan = {f"attn.{name}": ColwiseParallel() for name in "qkv"} | {"mlp.0": ColwiseParallel()}
        plan |= {name: RowwiseParallel(output_layouts=between) for name in ("attn.o", "mlp.2")}
        if sequence:
            whole = {"input_layouts": (between,), "desired_input_layouts": (Replicate(),), "use_local_output": True}
            plan |= {name: PrepareModuleInput(**whole) for name in ("attn", "mlp")}
            plan |= {name: SequenceParallel(use_local_output=True) for name in ("norm1", "norm2")}
        parallelize_module(block, mesh, plan)
    if sequence:
        parallelize_module(model, mesh, {"norm": SequenceParallel(use_local_output=True)})


def break_recorder(rank, broken, where):
    """Have the recorder of a rank fail: while it starts, or while it looks at tensors."""
    if rank == broken:
        place, name = {
            "start": (session, "RunSession" if rank == 0 else "WorkerSession"),
            "read": (collector, "learning_rates"),
            "look": (shards, "measure"),
        }[where]

        def fail(*_args, **_kwargs):
            raise ValueError("broken")

        setattr(place, name, fail)


def loss_of(model, batch):
    return nn.functional.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten())


def ask(recorder, model, batch):
    """Ask every rank for all that is measured on request; the profile last, or it would hold what the others compute."""
    whole = getattr(model, "module", model)
    recorder.pin(batch)
    recorder.check_gradients(batch, loss_of, per_tensor=1)
    recorder.measure_curvature(lambda: loss_of(whole, batch), samples=1)
    recorder.profile_next_step()


def train(kind, rank, world, folder, *, steps=12, slow=None, moved=None, killed=None, record=True, spike=None, **options):
    """Train, with these faults: rank `slow` sleeps, that of `moved` is changed by hand after step 5, `killed` dies in step 7."""
    model, optimizer, part = made(kind, rank, world, options.pop("blocks", 2))
    cadence, clips = [Cadence(until=None, every=options.pop("every", 4))], options.pop("clips", False)
    break_recorder(rank, options.pop("broken", None), options.pop("where", "start"))
    shares, keeps = options.pop("shares", False), options.pop("keeps", False)
    closes, absent, leaves, spoils, asks = (options.pop(name, None) for name in ("closes", "absent", "leaves", "spoils", "asks"))
    session.EVERY = step_clock.EVERY = options.pop("vital_every", EVERY)
    if after := options.pop("limits_after", None):
        options["limits"] = EventThresholds(loss_after=after, grad_norm_after=after)
    shards.PATIENCE = timedelta(seconds=options.pop("patience", 20))
    options = {"cadence": cadence, "vocabulary": VOCABULARY, **options}
    recorder = Recorder(model, folder, optimizer=optimizer, **options) if record and rank != absent else None
    source = torch.Generator().manual_seed(0)
    for step in range(1, steps + 1):
        tokens = torch.randint(0, VOCABULARY, (4, LENGTH + 1), generator=source)[part]
        batch = tokens[:, :-1], tokens[:, 1:]
        if asks and step == steps - 1:
            ask(recorder, model, batch)
        time.sleep(0.06 if rank == slow else 0.0)
        if rank == killed and step == 7:
            time.sleep(1.0)  # what its recorder's thread has yet to write is not what is looked at
            os.kill(os.getpid(), signal.SIGKILL)
        loss = loss_of(model, batch)
        if not keeps:
            optimizer.zero_grad()
        if shares and recorder:
            recorder.rank_batch(examples=4 / world)
        (loss * (50 if step == spike else 1)).backward()
        if asks:
            recorder.micro_batch()
        if rank == spoils and step == 4:
            model.head.weight.grad.to_local()[0, 0] = torch.nan
        if rank == closes and step == steps - 1:
            recorder.close()
        if recorder and clips:
            recorder.log(torch_norm=recorder.clip_grad_norm_(0.5))
        elif clips:
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        elif recorder:
            recorder.after_backward()
        if step == leaves:
            break
        optimizer.step()
        if rank == moved and step == 5:
            with torch.no_grad():
                dict(model.named_parameters())[PLAIN[kind]][0] += 1e-3
        if recorder:
            recorder.step(loss * (50 if step == spike and rank == 0 else 1), batch=batch)
    if recorder:
        recorder.close()
    return model, recorder


def main(rank, kind, world, folder, **options):
    weights, may_fail = options.pop("weights", None), options.pop("may_fail", False)
    model, recorder = train(kind, rank, world, folder, **options)
    if recorder and recorder._guard.failures and not may_fail:
        raise RuntimeError("the recorder failed")
    if weights:
        torch.save([getattr(each, "to_local", lambda each=each: each)() for each in model.parameters()], f"{weights}.{rank}")
    return model


def run_rank(rank, meeting, trainings):
    """Run one rank of trainings one after the other, and add a letter to a file for each that went well."""
    world, is_alone, kept = trainings[0]["world"], trainings[0]["kind"] == "one", []
    if not is_alone:
        patience = timedelta(seconds=20)
        dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=world, timeout=patience)
    for each in trainings:
        # To free a DDP model after its group can hang in torch 2.13, so that all are kept until the process ends.
        kept.append(main(rank, **each))
        with Path(f"{meeting}.{rank}").open("a") as file:
            file.write("x")
    if not is_alone:
        dist.destroy_process_group()


def start_ranks(number, trainings):
    """Run trainings one after the other in forked processes; return the exit codes of the ranks for each."""
    children = []
    meeting = Path(trainings[0]["folder"]).parent / f"meeting-{os.getpid()}-{number}"
    for rank in range(trainings[0]["world"]):
        if not (child := os.fork()):
            code = 1
            try:
                run_rank(rank, meeting, trainings)
                code = 0
            except BaseException:  # noqa: BLE001  a child must not run the parent's code
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        children.append(child)
    ended = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    files = [Path(f"{meeting}.{rank}") for rank in range(len(children))]
    good = [file.stat().st_size if file.exists() else 0 for file in files]
    return [[code if at >= done else 0 for code, done in zip(ended, good, strict=True)] for at in range(len(trainings))]


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.optim.AdamW(nn.Linear(1, 1).parameters())  # imports a second's worth of torch, once instead of in every fork
    trainings = [json.loads(text) for text in sys.argv[1:]]
    numbers = [each["world"] if each.pop("together", False) else -at for at, each in enumerate(trainings)]
    groups = [[each for _, each in group] for _, group in groupby(zip(numbers, trainings, strict=True), lambda pair: pair[0])]
    codes = [code for number, group in enumerate(groups) for code in start_ranks(number, group)]
    print(json.dumps(codes))  # noqa: T201
