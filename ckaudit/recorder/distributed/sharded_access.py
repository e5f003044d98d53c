"""How the first rank reaches whole tensors of which every rank holds a part: with the help of all, one after the other."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

import torch
from torch import Tensor
from torch.optim import Optimizer

from ckaudit.contract.schema.checkpoint import DeltaStats
from ckaudit.recorder.distributed.shards import Shards
from ckaudit.recorder.distributed.tensor_access import Duty, Look
from ckaudit.recorder.guard import Guard
from ckaudit.recorder.loop.vital_signs import WeightSample
from ckaudit.recorder.model.gradient_norms import Norms
from ckaudit.recorder.model.initial_weights import InitialTensor, Reference
from ckaudit.recorder.model.optimizers import state_finite
from ckaudit.recorder.stats.arrays import Array
from ckaudit.recorder.stats.batched_stats import measure
from ckaudit.recorder.stats.movement import described

T = TypeVar("T")


class ShardedTensors:
    """See `TensorAccess` for the methods, and `Shards` for what ranks owe each other."""

    def __init__(self, shards: Shards, guard: Guard) -> None:
        self.sample: WeightSample | None = None
        self._shards, self._guard = shards, guard
        self._moved: dict[str, float] = {}
        self._is_finite: bool | None = None

    def join(self, start_step: int) -> None:
        """Agree with the other ranks."""
        self._shards.join(start_step)

    def norms(
        self,
        gradients: Mapping[str, Tensor],
        *,
        due: bool,
        long: int,  # noqa: ARG002
    ) -> tuple[Mapping[str, Tensor], Norms | None]:
        """Return the norms that all ranks have together; torch clips by its own."""
        whole = self._shards.norms(gradients, due=due)
        norms = Norms(torch.tensor([*whole.values()], dtype=torch.float64), range(len(whole)), len(whole))
        return {name: gradients[name] for name in whole}, norms

    def changed(self, then: Sequence[tuple[int, int]], gradients: Mapping[str, Tensor]) -> bool:  # noqa: ARG002
        """Say no, because the other ranks would not read again."""
        return False

    def look(
        self, duty: Duty, tensors: Mapping[str, Tensor], look: Look[T], *, scale: float = 1.0, reference: Reference | None = None
    ) -> dict[str, T]:
        """Look at each tensor while it is whole."""
        found: dict[str, T] = {}

        def look_at_whole(name: str, whole: Tensor) -> None:
            if reference is not None and tensors[name].requires_grad:
                self._moved |= reference.moved({name: whole})
            found[name] = look(name, whole, measure([whole], scale=scale)[0])

        self._shards.each(duty, look_at_whole)
        return found

    def finish(self, duty: Duty) -> None:
        """Bring the tensors together without looking, where that is still owed."""
        self._shards.each(duty)

    def reference(self, weights: Mapping[str, Tensor]) -> Reference:  # noqa: ARG002
        """Take the reference of each tensor while it is whole."""
        entries: dict[str, InitialTensor] = {}
        self._shards.each("reference", lambda name, whole: entries.update(Reference.take({name: whole}).entries))
        return Reference(entries)

    def keep(self, weights: Mapping[str, Tensor]) -> dict[str, Array]:  # noqa: ARG002
        """Have this rank's parts copied, where their movement is owed."""
        self._shards.keep()
        return {}

    def movement(
        self,
        weights: Mapping[str, Tensor],  # noqa: ARG002
        before: Mapping[str, Array],  # noqa: ARG002
        reference: Reference | None,  # noqa: ARG002
        optimizers: Sequence[Optimizer],
    ) -> tuple[dict[str, DeltaStats], float | None]:
        """Sum the movement of all parts; the way since step 0 is known from looking at the weights."""
        moved, self._moved, self._is_finite = self._moved, {}, None
        pairs, self._is_finite = self._shards.movement(finite=state_finite(optimizers))
        return described(pairs, moved)

    def state_finite(self, optimizers: Sequence[Optimizer]) -> bool | None:  # noqa: ARG002
        """Return what the ranks told each other with the movement."""
        return self._is_finite

    def settle(self) -> None:
        """Do without looking what is still owed."""
        with self._guard("helping the other ranks"):
            self._shards.settle()

    def leave(self) -> None:
        """Issue no more collectives."""
        self._shards.leave()
