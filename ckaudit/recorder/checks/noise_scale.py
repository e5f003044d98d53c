"""Gradient noise scale, in examples, estimated from parts of each update's batch."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from msgspec import Struct
from torch import Tensor, nn

from ckaudit.recorder.guard import Guard
from ckaudit.recorder.hooks.hook import after_backward
from ckaudit.recorder.stats.arrays import flat, real_shape
from ckaudit.recorder.stats.float32_rounding import shorten

MAX_ELEMENTS = 2**22  # elements of the gradient sampled: 16 MiB of copies
SMOOTHING = 0.95  # per update; McCandlish et al. smooth too, without giving a constant
MIN_UPDATES = 10  # updates before the ratio of two averages is meaningful


class NoiseParts(Struct, frozen=True):
    """Both parts of the noise scale, each an exponential moving average over updates.

    Attributes:
        trace: Trace of the covariance of one example's gradient.
        signal: Squared norm of the mean gradient.
    """

    trace: float
    signal: float

    def values(self) -> dict[str, float]:
        """Return both by catalogue name, with the noise scale in examples unless the noise hides the gradient."""
        parts = {"grad_noise_trace": shorten(self.trace), "grad_noise_signal": shorten(self.signal)}
        return parts | ({"grad_noise_scale": shorten(self.trace / self.signal)} if self.signal > 0 else {})


class NoiseScale:
    r"""Estimates $B = \operatorname{tr}\Sigma / |G|^2$ (McCandlish et al. 2018, equation 2.9 and appendix A.1).

    Call `add` after each backward pass of an update and `estimate` once it is done. The growth of the accumulated gradients is
    the contribution of each micro-batch. Numerator and denominator are unbiased at every update and are smoothed separately,
    because the mean of a ratio is not the ratio of means. A factor on all losses, such as 1 over their number, changes nothing.
    If the part is the batch of one rank, call `compare` once per update instead.

    Of a large model every k-th element is sampled, with the same k for all tensors, and counts k times.

    Attributes:
        sizes: Examples in each micro-batch of the current update; empty between updates.
    """

    def __init__(self, *, max_elements: int = MAX_ELEMENTS, smoothing: float = SMOOTHING, fewest: int = MIN_UPDATES) -> None:
        self._most, self._smoothing, self._fewest = max_elements, smoothing, fewest
        self._stride = 0
        self._before: dict[str, Tensor] = {}
        self._squares: list[float] = []
        self.sizes: list[float] = []
        self._noise, self._signal, self._updates = 0.0, 0.0, 0

    def add(self, gradients: Mapping[str, Tensor], examples: float, *, scale: float = 1.0) -> None:
        """Read the gradients after one more micro-batch.

        Args:
            gradients: All gradients, accumulated since they were last zero.
            examples: Examples in the micro-batch.
            scale: Loss scale that the gradients still contain.
        """
        self._stride = self._stride or common_stride(gradients.values(), self._most)
        now = {name: flat(gradient)[:: self._stride] / scale for name, gradient in gradients.items()}
        grown = [part - self._before[name] if name in self._before else part for name, part in now.items()]
        self._squares.append(self._stride * square(grown))
        self.sizes.append(examples)
        self._before = now

    def estimate(self) -> NoiseParts | None:
        """Finish an update, and return the noise estimate so far; None before enough updates."""
        squares, sizes, total = self._squares, self.sizes, self._stride * square(list(self._before.values()))
        self._squares, self.sizes, self._before = [], [], {}
        if len(squares) > 1 and math.isfinite(total) and all(map(math.isfinite, squares)):
            self._smooth(*noise_and_signal(squares, sizes, total))
        return None if len(squares) < 2 else self._known()

    def compare(self, part: float, whole: float, *, small: float, big: float) -> NoiseParts | None:
        """Finish an update for which the gradient of one part of the batch is known, and return what `estimate` does.

        Args:
            part: Squared norm of the mean gradient of the part.
            whole: That of the whole batch.
            small: Examples in the part.
            big: Examples in the whole batch.
        """
        if math.isfinite(part) and math.isfinite(whole):
            self._smooth(*unbiased(part, whole, small=small, big=big))
        return self._known()

    def _smooth(self, noise: float, signal: float) -> None:
        keep = self._smoothing
        self._noise, self._signal = keep * self._noise + (1 - keep) * noise, keep * self._signal + (1 - keep) * signal
        self._updates += 1

    def _known(self) -> NoiseParts | None:
        if self._updates < self._fewest:
            return None
        seen = 1 - self._smoothing**self._updates  # corrects the averages, which started at 0
        return NoiseParts(self._noise / seen, self._signal / seen)


def noise_and_signal(squares: Sequence[float], sizes: Sequence[float], total: float) -> tuple[float, float]:
    """Return what `unbiased` does, from n micro-batches and their sum; b is the harmonic mean of their sizes.

    Args:
        squares: Squared norm of each micro-batch's contribution to the gradient.
        sizes: Examples in each.
        total: Squared norm of the sum of all.
    """
    count = len(squares)
    small = count / sum(1 / size for size in sizes)
    big = small * count
    # Each contribution is an n-th of its micro-batch's own gradient.
    return unbiased(count * sum(squares), total, small=small, big=big)


def unbiased(part: float, whole: float, *, small: float, big: float) -> tuple[float, float]:
    r"""Return unbiased estimates of $\operatorname{tr}\Sigma$ and $|G|^2$ from one update (McCandlish et al. 2018, appendix A.1).

    $$|G|^2 \approx \frac{B_{big} |G_{big}|^2 - B_{small} |G_{small}|^2}{B_{big} - B_{small}}, \qquad
      \operatorname{tr}\Sigma \approx \frac{|G_{small}|^2 - |G_{big}|^2}{1/B_{small} - 1/B_{big}}$$

    Args:
        part: $|G_{small}|^2$, of the mean gradient of the smaller batch, or its mean over several such.
        whole: $|G_{big}|^2$.
        small: $B_{small}$, in examples.
        big: $B_{big}$.
    """
    return (part - whole) / (1 / small - 1 / big), (big * whole - small * part) / (big - small)


def common_stride(gradients: Iterable[Tensor], max_elements: int) -> int:
    """Return the stride that samples about `max_elements` elements of all gradients."""
    shapes = [real_shape(gradient) for gradient in gradients]
    stride = max(1, -(-sum(map(math.prod, shapes)) // max_elements))
    # A common factor with the row length would always sample the same few columns.
    while stride > 1 and any(shape and math.gcd(stride, shape[-1]) > 1 for shape in shapes):
        stride += 1
    return stride


def square(parts: Sequence[Tensor]) -> float:
    """Return the squared norm of all parts together, summed in float64."""
    devices: dict[torch.device, list[Tensor]] = {}
    for part in parts:
        devices.setdefault(part.device, []).append(part)
    wholes = [torch.cat(group).double() for group in devices.values()]
    return math.fsum(float(whole.dot(whole)) for whole in wholes)


# The part of a batch may be that of one rank: its own gradient before averaging, and the mean after it.
class GradientPair(Struct, frozen=True):
    """Squared norms of one update's gradients.

    Attributes:
        own: Of this rank's gradient.
        mean: Of the mean over all ranks.
    """

    own: float
    mean: float


class RankNoise:
    """Reads every gradient twice in one step: when autograd has accumulated it, and when the backward pass has ended.

    Autograd calls the hooks of a parameter before `DistributedDataParallel` averages its gradient, and ends the backward pass
    after all averages are there. Nothing else is exchanged: one rank's gradient is an unbiased sample for its batch size, so the
    other ranks are not needed. Of several backward passes the last counts.

    Args:
        parameters: The parameters; they have hooks between `watch` and `take`.
        guard: Keeps failures away from the backward pass.
        max_elements: Elements sampled; of a larger gradient every k-th, which counts k times.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], guard: Guard, *, max_elements: int = MAX_ELEMENTS) -> None:
        self._parameters = {id(parameter): parameter for parameter in parameters if parameter.requires_grad}
        self._stride = common_stride(self._parameters.values(), max_elements)
        self._guard = guard
        self._own: dict[int, Tensor] = {}
        self._mean: list[Tensor] = []
        self._is_waiting = False
        self._handles: list[Any] = []

    def watch(self) -> None:
        """Read the backward passes from now on."""
        if not self._handles:
            parameters: list[Any] = [*self._parameters.values()]  # torch does not annotate the method
            self._handles = [parameter.register_post_accumulate_grad_hook(self._accumulated) for parameter in parameters]

    def take(self) -> GradientPair | None:
        """Stop reading, and return both norms; None if there was no backward pass or gradients were not averaged."""
        for handle in self._handles:
            handle.remove()
        own, mean = _sum(self._own.values()), _sum(self._mean)
        self._handles, self._own, self._mean, self._is_waiting = [], {}, [], False
        # If both are equal to the last bit, the gradients were not averaged.
        return GradientPair(own, mean) if own is not None and mean is not None and own != mean else None

    def _accumulated(self, parameter: nn.Parameter) -> None:
        with self._guard("looking at a rank's own gradient"):
            self._own[id(parameter)] = self._square(parameter)
            if not self._is_waiting:
                after_backward(self._ended)
                self._is_waiting = True

    def _ended(self) -> None:
        self._is_waiting = False
        with self._guard("looking at the mean gradient"):
            self._mean = [self._square(self._parameters[key]) for key in self._own]

    def _square(self, parameter: nn.Parameter) -> Tensor:
        if parameter.grad is None:
            raise RuntimeError("a gradient is gone")
        values = flat(parameter.grad)[:: self._stride].double()
        square: Tensor = self._stride * values.dot(values)  # stays on the device: fetching each would make an accelerator wait
        return square


def _sum(squares: Iterable[Tensor]) -> float | None:
    tensors = [*squares]
    return float(torch.stack([tensor.to(tensors[0].device) for tensor in tensors]).sum()) if tensors else None
