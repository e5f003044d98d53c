"""Trains with a trainer in one process, in two, and in two unrecorded: `python -m tests.recorder.trainers_on_ranks NAME DIR`.

The name "accelerate" is the example of that library, in two processes, recorded.
"""

import os
import runpy
import socket
import sys
import traceback
import warnings
from pathlib import Path

import torch

from ckaudit.contract.schema.manifest import Cadence

OPTIONS = {"cadence": [Cadence(until=None, every=5)], "grids": "nested", "budget_kb": None}
STEPS = 10
BATCH = 4


def huggingface(folder, world, *, recorded):
    """Train a tiny Llama with two micro-batches a step, and return what the trainer made of it."""
    from tests.recorder.llama import rows, trainer

    data = rows(2 * BATCH * STEPS)  # a round that ends on the way is dealt out to two ranks in another way
    sizes = {"per_device_train_batch_size": BATCH // world, "gradient_accumulation_steps": 2, "max_steps": STEPS}
    backend = {"ddp_backend": "gloo", "ddp_find_unused_parameters": False} if world > 1 else {}
    made = trainer(folder, folder.with_suffix(".out"), data=data, recorded=recorded, options=OPTIONS, **sizes, **backend)
    assert made.args.world_size == world
    made.train()
    return made.model


def lightning(folder, world, *, recorded):
    """Train two residual blocks; ranks take turns in the order of the data."""
    from lightning.pytorch import Trainer
    from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

    from ckaudit.recorder.lightning import RecorderCallback
    from tests.recorder.test_trainers_lightning import Net

    torch.manual_seed(0)
    tokens = (torch.randint(0, 16, (BATCH * STEPS, 1)) * 5 + 3 * torch.arange(9)) % 16
    data, net = TensorDataset(tokens[:, :-1], tokens[:, 1:]), Net()
    sampler = DistributedSampler(data, world, int(os.environ.get("LOCAL_RANK", "0")), shuffle=False)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    trainer = Trainer(
        accelerator="cpu",
        devices=world,
        strategy="ddp" if world > 1 else "auto",
        use_distributed_sampler=False,
        max_steps=STEPS,
        gradient_clip_val=0.1,
        limit_val_batches=0,
        **quiet,
        callbacks=[RecorderCallback(folder, batch_of=list, vocabulary=16, **OPTIONS)] if recorded else [],
    )
    trainer.fit(net, DataLoader(data, BATCH // world, sampler=sampler))
    assert trainer.world_size == world
    return net


def accelerate(folder, _world, *, recorded):
    """Run the example, which records into `run` of where it runs."""
    assert recorded
    os.chdir(folder.parent)
    return runpy.run_path(str(Path(__file__).parents[2] / "examples" / "with_accelerate.py"), run_name="__main__")["model"]


def main(train, folder, rank, world, *, recorded):
    """Train as one rank, and save the weights."""
    warnings.simplefilter("ignore")
    if world > 1:
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world)}
    model = train(folder, world, recorded=recorded)
    torch.save([each.detach().clone() for each in model.parameters()], f"{folder}.{rank}")
    return model


def start(train, folder, world, *, recorded):
    """Train in forked processes, and return their exit codes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    children = []
    for rank in range(world):
        if not (child := os.fork()):
            code = 1
            try:
                # To free a DDP model after its group can hang in torch 2.13, so that it is kept until the process ends.
                _model = main(train, folder, rank, world, recorded=recorded)
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
    which = {"huggingface": huggingface, "lightning": lightning, "accelerate": accelerate}[sys.argv[1]]
    home, trainings = Path(sys.argv[2]), (("two", 2), ("bare", 2))
    if which is accelerate:
        from accelerate import Accelerator  # noqa: F401  all once, instead of in every fork
        from torch import optim

        optim.AdamW(torch.nn.Linear(1, 1).parameters())
        trainings = trainings[:1]
    else:  # in this process, so that all is imported once
        main(which, home / "one", 0, 1, recorded=True)
    found = [start(which, home / name, world, recorded=name != "bare") for name, world in trainings]
    sys.exit(found != [[0] * world for _, world in trainings])
