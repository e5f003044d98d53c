"""The least that a recorder can do in a step: norms of all gradients, a hash of the batch, one line written. Nothing else.

It looks for no event, keeps no black box, counts nothing, measures nothing of itself, and any failure ends the training: its
time is what reading the numbers of a step and putting them on the disk costs, in Python, beside a training that has just
filled the caches with something else.
"""

import os
from hashlib import sha1
from math import sqrt
from pathlib import Path
from tempfile import mkstemp
from time import time
from typing import Any

import torch
from loops import MAX_NORM, Look
from msgspec.json import encode
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer


class Floor:
    """Writes one line a step."""

    def __init__(self, model: nn.Module, optimizer: Optimizer) -> None:
        self.model, self.optimizer, self.step = model, optimizer, 0
        self.parameters = list(model.parameters())
        self.norms = torch.zeros(0)
        self.file, self.path = mkstemp()

    def read(self, _loss: Any = None) -> None:
        """Take the norm of every gradient."""
        self.norms = torch.stack(torch._foreach_norm([parameter.grad for parameter in self.parameters], 2))  # noqa: SLF001

    def clip(self) -> None:
        """Clip by the norms that are read on the way, with torch's own arithmetic."""
        self.read()
        coefficient = torch.clamp(MAX_NORM / (torch.linalg.vector_norm(self.norms) + 1e-6), max=1.0)
        torch._foreach_mul_([parameter.grad for parameter in self.parameters], coefficient)

    def write(self, loss: Tensor, batch: tuple[Tensor, Tensor]) -> None:
        """Write the line of the step."""
        self.step += 1
        line = {
            "step": self.step,
            "time": time(),
            "session": 0,
            "train_loss_raw": loss.item(),
            "learning_rate": self.optimizer.param_groups[0]["lr"],
            "grad_global_norm": sqrt(sum(norm * norm for norm in self.norms.tolist())),
            "steps_seen": self.step,
            "batch_hash": sha1(batch[0].numpy()).hexdigest(),
        }
        os.write(self.file, encode(line) + b"\n")

    def close(self) -> None:
        """Remove the file."""
        os.close(self.file)
        Path(self.path).unlink()


def beside(model: nn.Module, optimizer: Optimizer) -> Look:
    """Stand beside `clip_grad_norm_`."""
    floor = Floor(model, optimizer)
    return Look(
        before_clip=floor.read,
        clip=lambda: clip_grad_norm_(model.parameters(), MAX_NORM),
        after_step=floor.write,
        close=floor.close,
    )


def taking_over(model: nn.Module, optimizer: Optimizer) -> Look:
    """Clip, and read on the way."""
    floor = Floor(model, optimizer)
    return Look(clip=floor.clip, after_step=floor.write, close=floor.close)
