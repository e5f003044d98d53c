"""The training loop of the lab: it executes a plan, with a change acting at its points and the recorder attached."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.spawn import spawn
from torch.nn.utils import clip_grad_norm_
from torch.optim import SGD, AdamW, Optimizer

from ckaudit.contract.io.grids import GridEncoding
from ckaudit.lab.change import Change
from ckaudit.lab.corpora import open_corpus
from ckaudit.lab.models import build
from ckaudit.lab.plan import Plan
from ckaudit.lab.task import Batch, Corpus, Evaluation, Task
from ckaudit.recorder import Recorder

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


class Training:
    """One running training; a change reads and replaces its parts.

    Attributes:
        plan: The plan, including the change.
        change: The change.
        task: The task of the model.
        corpus: The source of batches.
        model: The model, without a wrapper.
        optimizer: The optimizer.
        scaler: The loss scaler, in float16 only.
        recorder: Writes the run folder.
        precision: Precision of the forward pass; a change may switch it.
        step: The current step, counted from 1.
        tokens: Number of targets seen.
        rank: Rank of this process among `plan.ranks`.
        grids: Encoding of sampled weights and attention.
    """

    def __init__(self, plan: Plan, change: Change, folder: Path, *, rank: int = 0, grids: GridEncoding = "q8") -> None:
        self.grids: GridEncoding = grids
        self.plan, self.change, self.folder, self.rank = change.plan(plan), change, folder, rank
        self.task = Task()
        self.corpus: Corpus = open_corpus(self.plan.data, self.plan.seed)
        self.evaluation = Evaluation(self.task, self.corpus.held_out())
        self.precision = self.plan.precision
        self.step = self.tokens = 0
        self._build()

    def run(self, *, on_step: Callable[[int], object] = lambda _: None) -> None:
        """Train to the end and close the recorder, even if the training fails."""
        last = self.plan.last
        try:
            while self.step < last:
                self.step += 1
                self._train_step()
                on_step(self.step)
                if self.step == self.plan.resume_at:
                    self._stop_and_resume()
        finally:
            self.recorder.close()

    def clip(self) -> None:
        """Clip by the plan."""
        if self.plan.optimizer.clip is not None:
            clip_grad_norm_(self.model.parameters(), self.plan.optimizer.clip)

    def update(self) -> None:
        """Take the optimizer's step, through the scaler if there is one."""
        if self.scaler is None:
            self.optimizer.step()
        else:
            self.scaler.step(self.optimizer)
            self.scaler.update()

    def evaluate(self) -> dict[str, float]:
        """Evaluate on the held-out batch in evaluation mode."""
        self.model.eval()
        values = self.evaluation.values(self.model)
        self.model.train()
        return values

    def save(self) -> dict[str, Any]:
        """Return the complete state for a resume."""
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "step": self.step}
        if self.scaler is not None:
            state["scaler"] = self.scaler.state_dict()
        return deepcopy(state)

    def restore(self, saved: dict[str, Any]) -> None:
        """Restore the saved state."""
        self.model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.step = saved["step"]
        if self.scaler is not None:
            self.scaler.load_state_dict(saved["scaler"])

    def casting(self) -> AbstractContextManager[Any]:
        """Return the context of a forward pass in the current precision."""
        kind = DTYPES.get(self.precision)
        return nullcontext() if kind is None else torch.autocast("cpu", dtype=kind)

    def _build(self) -> None:
        torch.manual_seed(self.plan.seed)
        self.model = build(self.plan.model, vocabulary=self.corpus.vocabulary, length=self.plan.data.length)
        self.change.model(self.model)
        self.wrapped = self._wrap(self.model)
        self.optimizer = self._optimizer()
        self.scaler = torch.amp.GradScaler("cpu") if self.plan.precision == "float16" else None
        self.recorder = self._record(start_step=0)

    def _wrap(self, model: nn.Module) -> nn.Module:
        if self.plan.ranks == 1:
            return model
        return nn.parallel.DistributedDataParallel(model)

    def _optimizer(self) -> Optimizer:
        plan, parameters = self.plan.optimizer, self.change.trained(self.model)
        if plan.kind == "sgd":
            return SGD(parameters, lr=plan.peak, momentum=plan.betas[0], weight_decay=plan.weight_decay)
        return AdamW(parameters, lr=plan.peak, betas=plan.betas, eps=plan.eps, weight_decay=plan.weight_decay)

    def _record(self, *, start_step: int) -> Recorder:
        told = self.change.facts(facts(self.plan, self.corpus))
        return Recorder(
            self.wrapped,
            self.folder,
            optimizer=self.optimizer,
            scaler=self.scaler,
            start_step=start_step,
            suffix=".json.zst",
            grids=self.grids,
            **told,
        )

    def _train_step(self) -> None:
        self.change.begin(self)
        rate = self.change.rate(self, self.plan.rate(self.step))
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.change.zero(self)
        loss, batch = self._passes()
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
        self.change.gradients(self)
        self.recorder.after_backward()
        self.change.clip(self)
        self.change.update(self)
        self.change.updated(self)
        self._tell(loss, batch)

    def _passes(self) -> tuple[Tensor, Batch]:
        """Run the passes over the parts of an update; the loss is their mean, the batch the last part."""
        parts, losses = self.plan.accumulate * self.plan.ranks, []
        for index in range(self.plan.accumulate):
            part = index * self.plan.ranks + self.rank
            batch = self.change.batch(self, self.corpus.batch(self.step, part=part, parts=parts))
            with self.casting():
                logits = self.task.logits(self.wrapped, batch)
            loss = self.change.loss(self, logits, batch) + self.task.auxiliary(self.model)
            scaled = loss / self.plan.accumulate
            self.change.backward(self, scaled if self.scaler is None else self.scaler.scale(scaled))
            losses.append(loss.detach())
            self.tokens += batch.tokens * self.plan.ranks
        return torch.stack(losses).mean(), batch

    def _tell(self, loss: Tensor, batch: Batch) -> None:
        values: dict[str, Any] = {"tokens_seen": self.tokens}
        if self.step % self.plan.eval_every == 0 and self.rank == 0:
            values |= self.change.evaluate(self)
            self.recorder.hold_out(self.evaluation.held_out.inputs)
        values = self.change.log(self, values)
        shown = self.change.shown_loss(self, loss)
        pair = (batch.inputs, batch.targets)
        self.recorder.step(shown, batch=pair, batch_id=batch.id, source=batch.source, **values)

    def _stop_and_resume(self) -> None:
        saved = self.change.save(self)
        self.recorder.close()
        torch.manual_seed(self.plan.seed + 1)  # a new process draws other random numbers
        self.model = build(self.plan.model, vocabulary=self.corpus.vocabulary, length=self.plan.data.length)
        self.change.model(self.model)
        self.wrapped, self.optimizer = self._wrap(self.model), self._optimizer()
        self.change.restore(self, saved)
        self.recorder = self._record(start_step=self.step)


# The facts that a training passes to the recorder: those of a careful user, and nothing about the change.
def facts(plan: Plan, corpus: Corpus, *, every: int = 25) -> dict[str, Any]:
    """Return the facts of `run.json`: seed, vocabulary, length, clipping limit and the schedule that is planned.

    Args:
        plan: The training.
        corpus: The source of its batches.
        every: Steps between two points of the planned learning rate, which is linear between them.
    """
    bends = {step for step in range(2, plan.steps) if _bends(plan, step)}
    knots = sorted({1, max(1, plan.schedule.warmup), *range(every, plan.steps + 1, every), *bends, plan.steps})
    told: dict[str, Any] = {
        "seed": plan.seed,
        "planned_steps": plan.steps,
        "warmup_steps": plan.schedule.warmup,
        "planned_learning_rate": [[step, plan.rate(step)] for step in knots],
    }
    if plan.optimizer.clip is not None:
        told["clip_norm"] = plan.optimizer.clip
    if plan.data.corpus not in ("points", "shapes"):
        told |= {"vocabulary": corpus.vocabulary, "sequence_length": plan.data.length}
    return told


def _bends(plan: Plan, step: int, *, min_bend: float = 0.002) -> bool:
    """Whether the learning rate has a corner or a jump at a step: a second difference of at least `min_bend` of its peak."""
    return abs(plan.rate(step + 1) - 2 * plan.rate(step) + plan.rate(step - 1)) > min_bend * plan.optimizer.peak


# Trainings on several ranks: one process each, with gradients exchanged over gloo.
def train(
    plan: Plan, change: Change, folder: Path, *, grids: GridEncoding = "q8", on_step: Callable[[int], object] = lambda _: None
) -> None:
    """Execute a plan, in this process or in one per rank, and let the change modify the finished files.

    Args:
        plan: The healthy training.
        change: The change; with several ranks it is sent to each of them, so its class must be importable.
        folder: The run folder.
        grids: Encoding of sampled weights and attention.
        on_step: Called after each step of a training with one rank.

    Raises:
        torch.multiprocessing.ProcessRaisedException: If a rank failed; the others are stopped.
    """
    ranks = change.plan(plan).ranks
    if ranks == 1:
        Training(plan, change, folder, grids=grids).run(on_step=on_step)
    else:
        with TemporaryDirectory() as meeting:
            arguments = (ranks, f"file://{meeting}/ranks", plan, change, folder, grids)
            spawn(_rank, args=arguments, nprocs=ranks)
    change.finished(folder)


def _rank(rank: int, ranks: int, meeting: str, plan: Plan, change: Change, folder: Path, grids: GridEncoding) -> None:
    torch.set_num_threads(1)
    distributed = torch.distributed
    distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=ranks, timeout=timedelta(minutes=10))
    try:
        Training(plan, change, folder, rank=rank, grids=grids).run()
        distributed.barrier()
    finally:
        distributed.destroy_process_group()
