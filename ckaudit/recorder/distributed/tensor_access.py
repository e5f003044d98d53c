"""Access to whole tensors: the protocol, and its implementation for tensors that this process holds."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol, TypeAlias, TypeVar

from torch import Tensor
from torch.optim import Optimizer

from ckaudit.contract.schema.checkpoint import DeltaStats
from ckaudit.recorder.hooks.vital_signs import WeightSample
from ckaudit.recorder.model.gradient_norms import Norms, common_dtype_and_size, take_norms, versions
from ckaudit.recorder.model.optimizers import state_finite
from ckaudit.recorder.model.weight_movement import Reference, copies, movement
from ckaudit.recorder.stats.arrays import Array
from ckaudit.recorder.stats.batched_stats import WrittenStats, measure

T = TypeVar("T")

Duty: TypeAlias = Literal["reference", "gradients", "weights", "movement"]
TensorInspector: TypeAlias = Callable[[str, Tensor, WrittenStats], T]


class TensorAccess(Protocol):
    """Access to tensors that this process holds whole, or that are sharded over ranks.

    Attributes:
        sample: Samples a few elements of every weight for vital signs; None: this rank has too few elements.
    """

    sample: WeightSample | None

    def join(self, start_step: int) -> None:
        """Begin, together with the other ranks if they are needed."""

    def norms(self, gradients: Mapping[str, Tensor], *, due: bool, long: int) -> tuple[Mapping[str, Tensor], Norms | None]:
        """Return the gradients whose whole norm is known, and their norms.

        Args:
            gradients: The gradients as this rank holds them.
            due: Whether statistics will follow.
            long: The argument `long` of `take_norms`.
        """

    def changed(self, then: Sequence[tuple[int, int]], gradients: Mapping[str, Tensor]) -> bool:
        """Return whether gradients changed since `versions` returned `then`, and their norms can be taken again."""

    def inspect(
        self,
        duty: Duty,
        tensors: Mapping[str, Tensor],
        inspect: TensorInspector[T],
        *,
        scale: float = 1.0,
        reference: Reference | None = None,
    ) -> dict[str, T]:
        """Return the result of `inspect` for each whole tensor, given its statistics divided by `scale`.

        Args:
            duty: Kind of the tensors.
            tensors: The tensors as this rank holds them.
            inspect: Takes name, tensor and statistics.
            scale: Factor that the elements contain.
            reference: Weights of step 0, if `movement` is to return the distance from them.
        """

    def finish(self, duty: Duty) -> None:
        """Do this rank's part of collectives that it had no use for or that failed here."""

    def reference(self, weights: Mapping[str, Tensor]) -> Reference:
        """Return a reference of the current weights."""

    def keep(self, weights: Mapping[str, Tensor]) -> dict[str, Array]:
        """Copy the weights before an update; return the copies, unless `movement` has its own."""

    def movement(
        self,
        weights: Mapping[str, Tensor],
        before: Mapping[str, Array],
        reference: Reference | None,
        optimizers: Sequence[Optimizer],
    ) -> tuple[dict[str, DeltaStats], float | None]:
        """Return what `movement.movement` does; sharded ranks also exchange whether the optimizer state is finite."""

    def state_finite(self, optimizers: Sequence[Optimizer]) -> bool | None:
        """Return whether the optimizer state is finite, on all ranks if it is sharded; None: not known."""

    def finish_owed(self) -> None:
        """Do what other ranks still wait for at the end of a step."""

    def leave(self) -> None:
        """Issue no more collectives."""


class LocalTensors:
    """Tensors that this process holds whole, so that no other rank is needed."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        self.sample: WeightSample | None = WeightSample(weights)
        self._dtype, self._longest = common_dtype_and_size(weights.values())
        self._sizes: dict[str, float] | None = None  # norms of the weights, kept from the sweep to the movement of the same step

    def join(self, start_step: int) -> None:
        """Do nothing."""

    def norms(
        self,
        gradients: Mapping[str, Tensor],
        *,
        due: bool,  # noqa: ARG002
        long: int,
    ) -> tuple[Mapping[str, Tensor], Norms | None]:
        """Take the norms of all gradients in one pass."""
        tensors = [*gradients.values()]
        is_known = tensors and tensors[0].dtype == self._dtype
        return gradients, take_norms(tensors, long=long, longest=self._longest if is_known else None)

    def changed(self, then: Sequence[tuple[int, int]], gradients: Mapping[str, Tensor]) -> bool:
        """Compare the versions."""
        return then != versions(gradients.values())

    def inspect(
        self,
        duty: Duty,
        tensors: Mapping[str, Tensor],
        inspect: TensorInspector[T],
        *,
        scale: float = 1.0,
        reference: Reference | None = None,  # noqa: ARG002
    ) -> dict[str, T]:
        """Measure all tensors in one sweep."""
        measured = measure([*tensors.values()], scale=scale)
        if duty == "weights":
            self._sizes = {name: one.moments.norm for name, one in zip(tensors, measured, strict=True)}
        return {name: inspect(name, tensor, one) for (name, tensor), one in zip(tensors.items(), measured, strict=True)}

    def finish(self, duty: Duty) -> None:
        """Do nothing."""

    def reference(self, weights: Mapping[str, Tensor]) -> Reference:
        """Take the reference."""
        return Reference.take(weights)

    def keep(self, weights: Mapping[str, Tensor]) -> dict[str, Array]:
        """Return copies of the weights."""
        return copies(weights)

    def movement(
        self,
        weights: Mapping[str, Tensor],
        before: Mapping[str, Array],
        reference: Reference | None,
        optimizers: Sequence[Optimizer],  # noqa: ARG002
    ) -> tuple[dict[str, DeltaStats], float | None]:
        """Compare the weights with their copies and with step 0."""
        sizes, self._sizes = self._sizes, None
        return movement(weights, before, reference, sizes=sizes)

    def state_finite(self, optimizers: Sequence[Optimizer]) -> bool | None:
        """Check the state of the optimizers."""
        return state_finite(optimizers)

    def finish_owed(self) -> None:
        """Do nothing."""

    def leave(self) -> None:
        """Do nothing."""
