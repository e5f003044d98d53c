"""Training loops that take turns in one process, each with its own model, and the processor time of each part of a step."""

from collections.abc import Callable, Sequence
from statistics import median, quantiles
from time import process_time, sleep
from typing import Any

import torch
from models import Shape, loss_of
from msgspec import Struct
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import AdamW, Optimizer

MAX_NORM = 1.0
SETTLE = 0.05  # seconds: by then a file of a few hundred KB is on the disk


class Look(Struct, frozen=True, kw_only=True):
    """A recorder's callbacks in a training loop.

    Attributes:
        before_clip: After the backward pass, with the loss.
        clip: Clips the gradients.
        after_step: After the update, with the loss and the batch.
        close: After the last step.
    """

    before_clip: Callable[[Tensor], Any] = lambda _loss: None
    clip: Callable[[], Any]
    after_step: Callable[[Tensor, tuple[Tensor, Tensor]], Any] = lambda _loss, _batch: None
    close: Callable[[], Any] = lambda: None


class Sample(Struct, frozen=True, kw_only=True):
    """Processor time of one step and of its parts in ms, summed over all threads of the process.

    Attributes:
        whole: The step; on a checkpoint step also the background work right after it.
        before_clip: The call before clipping.
        clip: Clipping.
        after_step: The call after the update.
        hooks: The optimizer's hooks, before and after its update.
    """

    whole: float
    before_clip: float
    clip: float
    after_step: float
    hooks: float

    @property
    def calls(self) -> float:
        """Time of all the recorder's calls, without clipping."""
        return self.before_clip + self.after_step + self.hooks


class Loop:
    """A model in training and its recorder.

    Args:
        shape: The model.
        start: Starts the recorder, given model and optimizer.
    """

    def __init__(self, shape: Shape, start: Callable[[nn.Module, Optimizer], Look]) -> None:
        torch.manual_seed(0)
        self.model = shape.build()
        self.optimizer = AdamW(self.model.parameters(), lr=1e-3)
        self._in_hooks, self._entered = 0.0, 0.0
        for listen in (self.optimizer.register_step_pre_hook, self.optimizer.register_step_post_hook):
            listen(self._enter)
        begin = process_time()
        self._look = start(self.model, self.optimizer)
        sleep(SETTLE)
        self.start_ms = (process_time() - begin) * 1e3
        for listen in (self.optimizer.register_step_pre_hook, self.optimizer.register_step_post_hook):
            listen(self._leave)

    def _enter(self, *_: Any) -> None:
        self._entered = process_time()

    def _leave(self, *_: Any) -> None:
        self._in_hooks += process_time() - self._entered

    def step(self, batch: tuple[Tensor, Tensor], *, settle: bool) -> Sample:
        """Train one step; with `settle` its time includes the writing of files in the background."""
        self._in_hooks = 0.0
        begin = process_time()
        loss = loss_of(self.model, *batch)
        self.optimizer.zero_grad()
        loss.backward()
        trained = process_time()
        self._look.before_clip(loss)
        read = process_time()
        self._look.clip()
        clipped = process_time()
        self.optimizer.step()
        updated = process_time()
        self._look.after_step(loss, batch)
        if settle:
            sleep(SETTLE)
        end = process_time()
        return Sample(
            whole=(end - begin) * 1e3,
            before_clip=(read - trained) * 1e3,
            clip=(clipped - read) * 1e3,
            after_step=(end - updated) * 1e3,
            hooks=self._in_hooks * 1e3,
        )

    def close(self) -> float:
        """End the training, and return its time in ms."""
        begin = process_time()
        self._look.close()
        sleep(SETTLE)
        return (process_time() - begin) * 1e3


def clipping(model: nn.Module, _optimizer: Optimizer) -> Look:
    """Return callbacks that only clip and record nothing."""
    return Look(clip=lambda: clip_grad_norm_(model.parameters(), MAX_NORM))


def take_turns(shape: Shape, loops: Sequence[Loop]) -> list[list[Sample]]:
    """Train all loops on the same batches, step by step in changing order; return the samples of each by step, from 1."""
    samples: list[list[Sample]] = [[] for _ in loops]
    for step in range(1, shape.steps + 1):
        batch = shape.batch(step)
        for turn in range(len(loops)):
            which = (step + turn) % len(loops)
            samples[which].append(loops[which].step(batch, settle=step % shape.every == 0))
    return samples


def spread(values: Sequence[float]) -> float:
    """Return half the interquartile distance over the median, in %."""
    low, middle, high = quantiles(values, n=4)
    return 50 * (high - low) / middle


def error(values: Sequence[float]) -> float:
    """Return the standard error of the median as if the values were normal: 1.2533 * 0.7413 * IQR / sqrt(n)."""
    low, _, high = quantiles(values, n=4)
    return float(1.2533 * 0.7413 * (high - low) / len(values) ** 0.5)


def middle(values: Sequence[float]) -> float:
    """Return the median as a float."""
    return float(median(values))
