"""Sharded tensors: what ranks agree on, and how a tensor is gathered to be measured."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from hashlib import blake2b
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.optim import Optimizer

from ckaudit.contract.schema.checkpoint import DeltaStats
from ckaudit.recorder.distributed.tensor_access import Duty, TensorInspector
from ckaudit.recorder.guard import Guard
from ckaudit.recorder.hooks.vital_signs import WeightSample
from ckaudit.recorder.model.gradient_norms import Norms, norms_of
from ckaudit.recorder.model.optimizers import state_finite
from ckaudit.recorder.model.tensor_table import distinct, parameters
from ckaudit.recorder.model.weight_movement import InitialTensor, Reference, copies, distances, movement_summary
from ckaudit.recorder.stats.arrays import Array, is_sharded, local
from ckaudit.recorder.stats.batched_stats import measure

T = TypeVar("T")
PATIENCE = timedelta(minutes=2)

WholeTensorObserver: TypeAlias = Callable[[str, Array], None]


class Shards:
    """The collectives of one rank: every rank issues the same ones in the same order, or none.

    At the start the ranks agree whether all take part. At every step, along with the gradient norms, they agree whether this step
    is measured. The collectives that follow from this are a list of duties. A rank that fails while it inspects a tensor goes on
    with the next; one whose collective fails issues no more. Small numbers go through a separate process group, so that other
    ranks wait no longer than `PATIENCE` for a rank that hangs.

    Args:
        model: The model inside its wrappers.
        guard: Keeps failures away from the training.
    """

    def __init__(self, model: nn.Module, guard: Guard) -> None:
        self._guard = guard
        self._parameters = parameters(model)
        self._weights = distinct(self._parameters)
        self._gradients: dict[str, Array] = {}
        self._before: dict[str, Array] = {}
        self._owed: deque[Duty] = deque()
        self._is_first, self._known_counts = dist.get_rank() == 0, dict[Any, bool]()
        self._takes_part = self._has_met = False
        self._group: Any = None
        with guard("meeting the other ranks"):
            self._group = dist.new_group(backend="gloo", timeout=PATIENCE)

    def agree(self, start_step: int, *, ready: bool) -> None:
        """Agree whether all ranks take part: they do if all are ready and have the same tensors at the same step."""
        facts = [start_step, *((name, tuple(tensor.shape)) for name, tensor in self._weights.items())]
        digest = int.from_bytes(blake2b(repr(facts).encode(), digest_size=6).digest())
        self._has_met = True
        if self._group is None:
            raise RuntimeError("not all ranks have a recorder: sharded tensors are not recorded")
        all_ready, same, opposite = self._reduce([float(ready), digest, -digest], dist.ReduceOp.MIN)
        self._takes_part = bool(all_ready) and same == -opposite
        if not self._takes_part:
            raise RuntimeError("the ranks differ, or the recorder of one has failed: sharded tensors are not recorded")
        if start_step == 0:
            self._owed += ["reference", "weights"]

    def join(self, start_step: int) -> None:
        """Announce to the other ranks that this one is ready, and learn whether all take part."""
        with self._guard("agreeing with the other ranks"):
            self.agree(start_step, ready=True)

    def refuse(self) -> None:
        """Announce to the other ranks that this one cannot take part, unless they have agreed already."""
        if not self._has_met:
            with self._guard("agreeing with the other ranks"):
                self.agree(-1, ready=False)
        self.leave()

    def owes(self, duty: Duty) -> bool:
        """Return whether this duty is the next one."""
        return bool(self._takes_part and self._owed and self._owed[0] == duty)

    def norms(self, gradients: Mapping[str, Array], *, due: bool = False) -> dict[str, float]:
        """Return the L2 norm of each whole gradient that all ranks have; empty if this rank does not take part.

        Args:
            gradients: This rank's parts.
            due: Whether this step is to be measured; it is if one rank says so and all have the memory.
        """
        if not self._takes_part:
            return {}
        self._owed.clear()
        names = [name for name, tensor in self._parameters.items() if tensor.requires_grad]
        self._gradients = {name: self._summed(gradients[name]) for name in names if name in gradients}
        parts = {name: local(tensor) for name, tensor in self._gradients.items()}
        part_norms, _ = norms_of([*parts.values()])
        squares = {
            name: norm * norm if self._counts(self._gradients[name]) else 0.0
            for name, norm in zip(parts, part_norms, strict=True)
        }
        missing = [float(name not in parts) for name in names]
        *reduced, wanted = self._reduce([*(squares.get(name, 0.0) for name in names), *missing, float(due)])
        whole = {name: square for name, square, lacks in zip(names, reduced, reduced[len(names) :], strict=False) if not lacks}
        self._gradients = {name: self._gradients[name] for name in whole}
        if wanted and self._reduce([float(self._has_room())], dist.ReduceOp.MIN)[0]:
            self._owed += ["gradients", "weights", "movement"]
        return {name: float(np.sqrt(square)) for name, square in whole.items()}

    def gather_each(self, duty: Duty, inspect: WholeTensorObserver | None = None) -> None:
        """Gather every tensor, one after the other, and inspect it; do nothing if this is not the next duty."""
        if not self.owes(duty):
            return
        self._owed.popleft()
        for name, tensor in (self._gradients if duty == "gradients" else self._weights).items():
            whole = self._whole(tensor)
            if inspect is not None:
                with self._guard(duty), torch.no_grad():
                    inspect(name, whole)
            del whole
        if duty == "gradients":
            self._gradients = {}

    def keep(self) -> None:
        """Copy this rank's shards of the weights before the update, if their movement is due and no copies exist."""
        if self._takes_part and "movement" in self._owed and not self._before:
            self._before = copies({name: local(weight) for name, weight in self._weights.items() if weight.requires_grad})

    def movement(self, *, finite: bool | None) -> tuple[dict[str, tuple[float, float]], bool | None]:
        """Return each weight's movement in the update and its norm, and whether the optimizer state is finite on all ranks.

        Args:
            finite: Whether this rank's state is finite; None: it has none.
        """
        before, self._before = self._before, {}
        if not self.owes("movement"):
            return {}, finite
        self._owed.popleft()
        names = [name for name in before if self._counts(self._weights[name])]
        with torch.no_grad():
            norms = distances([local(self._weights[name]) for name in names], [before[name] for name in names])
        pairs = dict(zip(names, norms, strict=True))
        squares = [number * number for name in self._weights for number in pairs.get(name, (0.0, 0.0))]
        *sums, lacking, broken, known = self._reduce([*squares, not before, finite is False, finite is not None])
        both = np.sqrt(np.reshape(sums, (-1, 2))).tolist()
        whole = {name: (apart, size) for name, (apart, size) in zip(self._weights, both, strict=True) if name in before}
        return {} if lacking else whole, not broken if known else None

    def finish_owed(self, finite: bool | None = None) -> None:
        """Do the remaining duties without inspection, because the other ranks do them too; see `movement`."""
        while self._owed:
            if self._owed[0] == "movement":
                self.movement(finite=finite)
            else:
                self.gather_each(self._owed[0])

    def _reduce(self, numbers: Sequence[float], operation: Any = dist.ReduceOp.SUM) -> list[float]:
        vector = torch.tensor(numbers, dtype=torch.float64)
        with self._leaving_on_failure():
            dist.all_reduce(vector, operation, group=self._group)
        return vector.tolist()

    def _summed(self, gradient: Array) -> Array:
        """Return a gradient with its partial placements summed over ranks."""
        if not is_sharded(gradient) or not any(placement.is_partial() for placement in gradient.placements):
            return gradient
        from torch.distributed.tensor import Replicate

        with self._leaving_on_failure(), torch.no_grad():
            return gradient.redistribute(
                placements=[Replicate() if placement.is_partial() else placement for placement in gradient.placements]
            )

    def _whole(self, tensor: Array) -> Array:
        if not is_sharded(tensor):
            return tensor.detach()
        with self._leaving_on_failure(), torch.no_grad():
            home = tensor.device_mesh.device_type
            return (tensor if tensor.device.type == home else tensor.to(home)).full_tensor()

    def _leaving_on_failure(self) -> "_Leaving":
        return _Leaving(self)

    def leave(self) -> None:
        """Issue no more collectives."""
        self._takes_part = False
        self._owed.clear()
        self._gradients, self._before = {}, {}

    def _has_room(self) -> bool:
        """Return whether this rank has memory for the largest tensor twice, beside a copy of all shards."""
        parts = [local(tensor) for tensor in self._weights.values()]
        largest = max((tensor.numel() * tensor.element_size() for tensor in self._weights.values()), default=0)
        needed = 2 * largest + sum(part.numel() * part.element_size() for part in parts)
        try:
            torch.empty(needed, dtype=torch.uint8, device=next((part.device for part in parts), None))
        except RuntimeError:
            return False
        return True

    def _counts(self, tensor: Array) -> bool:
        """Return whether this rank's shard counts in sums over ranks: of ranks with the same shard only the first one counts."""
        if not is_sharded(tensor):
            return self._is_first
        key = id(tensor.device_mesh), tensor.placements
        if key not in self._known_counts:
            self._known_counts[key] = _adds(tensor.device_mesh, tensor.placements)
        return self._known_counts[key]


def _adds(mesh: Any, placements: Sequence[Any]) -> bool:
    """Return whether this rank has index 0 in every dimension of the mesh that replicates a tensor."""
    ours, first = mesh.get_coordinate(), (mesh.mesh == 0).nonzero().tolist()
    if ours is None or not first:
        return False
    return all(ours[dim] == first[0][dim] for dim, placement in enumerate(placements) if placement.is_replicate())


class _Leaving:
    """Context of one collective: if it fails, this rank issues no more."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._shards.leave()


# How the first rank reads whole sharded tensors: all ranks gather them, one after the other.
class ShardedTensors:
    """`TensorAccess` to sharded tensors; `Shards` describes the collectives."""

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
        """Return the norms over all ranks; torch clips by its own."""
        whole = self._shards.norms(gradients, due=due)
        norms = Norms(torch.tensor([*whole.values()], dtype=torch.float64), range(len(whole)), len(whole))
        return {name: gradients[name] for name in whole}, norms

    def changed(self, then: Sequence[tuple[int, int]], gradients: Mapping[str, Tensor]) -> bool:  # noqa: ARG002
        """Return False, because the other ranks would not read the gradients again."""
        return False

    def inspect(
        self,
        duty: Duty,
        tensors: Mapping[str, Tensor],
        inspect: TensorInspector[T],
        *,
        scale: float = 1.0,
        reference: Reference | None = None,
    ) -> dict[str, T]:
        """Inspect each tensor while it is gathered."""
        results: dict[str, T] = {}

        def inspect_whole(name: str, whole: Tensor) -> None:
            if reference is not None and tensors[name].requires_grad:
                self._moved |= reference.moved({name: whole})
            results[name] = inspect(name, whole, measure([whole], scale=scale)[0])

        self._shards.gather_each(duty, inspect_whole)
        return results

    def finish(self, duty: Duty) -> None:
        """Gather the tensors without inspecting them, if that is still due."""
        self._shards.gather_each(duty)

    def reference(self, weights: Mapping[str, Tensor]) -> Reference:  # noqa: ARG002
        """Take the reference of each tensor while it is gathered."""
        entries: dict[str, InitialTensor] = {}
        self._shards.gather_each("reference", lambda name, whole: entries.update(Reference.take({name: whole}).entries))
        return Reference(entries)

    def keep(self, weights: Mapping[str, Tensor]) -> dict[str, Array]:  # noqa: ARG002
        """Copy this rank's shards, if their movement is due."""
        self._shards.keep()
        return {}

    def movement(
        self,
        weights: Mapping[str, Tensor],  # noqa: ARG002
        before: Mapping[str, Array],  # noqa: ARG002
        reference: Reference | None,  # noqa: ARG002
        optimizers: Sequence[Optimizer],
    ) -> tuple[dict[str, DeltaStats], float | None]:
        """Sum the movement of all shards; the distance from step 0 comes from the inspection of the weights."""
        moved, self._moved, self._is_finite = self._moved, {}, None
        pairs, self._is_finite = self._shards.movement(finite=state_finite(optimizers))
        return movement_summary(pairs, moved)

    def state_finite(self, optimizers: Sequence[Optimizer]) -> bool | None:  # noqa: ARG002
        """Return what the ranks exchanged together with the movement."""
        return self._is_finite

    def finish_owed(self) -> None:
        """Do the remaining duties, without inspection."""
        with self._guard("helping the other ranks"):
            self._shards.finish_owed()

    def leave(self) -> None:
        """Issue no more collectives."""
        self._shards.leave()
