"""Throughput as log values: step time and its parts, tokens per second, and use of accelerators."""

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any, Protocol

import torch
from torch import Tensor

from ckaudit.recorder.batch_facts import token_count
from ckaudit.recorder.guard import logger
from ckaudit.recorder.loop.step_clock import StepClock, StepTime
from ckaudit.recorder.loop.step_state import StepState
from ckaudit.recorder.stats.float32_rounding import shorten


class Device(Protocol):
    """Measurements of one accelerator."""

    def memory(self) -> tuple[int, int, int]:
        """Return the bytes in use by all programs, held by PyTorch, and taken by its tensors."""

    def utilization(self) -> float:
        """Return the percentage of the last 1/6 to 1 s in which the device ran anything."""


class CudaDevice:
    """A device of CUDA or ROCm.

    Memory comes from the driver and PyTorch's allocator. Utilization comes from NVML or its AMD counterpart, for which PyTorch
    needs the package nvidia-ml-py or amdsmi. Nothing waits for the device's queue.

    Args:
        index: Index among the devices that the process sees.
    """

    def __init__(self, index: int) -> None:
        self._index = index

    def memory(self) -> tuple[int, int, int]:
        """Return the bytes in use by all programs, held by PyTorch, and taken by its tensors."""
        free, total = torch.cuda.mem_get_info(self._index)
        return total - free, torch.cuda.memory_reserved(self._index), torch.cuda.memory_allocated(self._index)

    def utilization(self) -> float:
        """Return the percentage of the last moments in which the device ran anything."""
        return float(torch.cuda.utilization(self._index))


class DeviceGauge:
    """Reads the devices of this process every 25 steps.

    `gpu_mem_used` (M43, bytes) is the memory that all programs use on the fullest device; the labels "reserved" and "allocated"
    are what PyTorch holds there and what its tensors take. `gpu_util` (M42, %) is the mean over devices. A value that cannot be
    read is logged once and not read again.

    Args:
        devices: The devices; without any there are no values.
    """

    def __init__(self, devices: Sequence[Device]) -> None:
        self._devices = devices
        self._tells_memory = self._tells_utilization = True

    def values(self) -> dict[str, float]:
        """Return the values of a log line, without those that cannot be read."""
        if not self._devices:
            return {}
        return self._memory() | self._utilization()

    def _memory(self) -> dict[str, float]:
        if not self._tells_memory:
            return {}
        try:
            used, reserved, allocated = max(device.memory() for device in self._devices)
        except Exception as error:  # noqa: BLE001  a driver may fail in any way
            self._tells_memory = False
            logger.warning("the memory of the device cannot be read and is not recorded: %s", error)
            return {}
        return {"gpu_mem_used": used, "gpu_mem_used/reserved": reserved, "gpu_mem_used/allocated": allocated}

    def _utilization(self) -> dict[str, float]:
        if not self._tells_utilization:
            return {}
        try:
            shares = [device.utilization() for device in self._devices]
        except Exception as error:  # noqa: BLE001  as above
            self._tells_utilization = False
            logger.warning("the utilization of the device cannot be read and is not recorded: %s", error)
            return {}
        return {"gpu_util": sum(shares) / len(shares)}


def devices_of(tensors: Iterable[Tensor]) -> list[Device]:
    """Return the CUDA devices that hold any of these tensors."""
    return [CudaDevice(index) for index in sorted({tensor.device.index or 0 for tensor in tensors if tensor.is_cuda})]


# Training speed: step time, its parts, and tokens per second.
class ThroughputMeter:
    """Returns the medians of step times every 25 steps, over the steps since then without hooks.

    `step_time` (M40) is the time from the end of a step to the end of the next, by the host's clock. The host runs ahead of an
    accelerator by its queue at most, so many steps take the same time on both. The shares are those of the host, too:

    - `dataloader_stall_frac` (M44): before the forward pass begins, whatever the loop does there. With several forward passes in
      a step it is what comes before the first: the waits before the others are not seen.
    - `comm_time_frac` (M45): waiting for the gradients of other ranks, see `ExchangeWait`. Not recorded if unknown: on an
      accelerator, which exchanges asynchronously, and without `DistributedDataParallel`. One process has none.
    - `compute_time_frac` (M46): the rest; so not recorded if several ranks train and the exchange is unknown.

    `tokens_per_sec` (M39) uses `tokens_per_update` or `tokens_seen` if they are logged. Otherwise, in one process, it uses the
    target tokens of the step's batch, if each step has one forward pass and so one batch.

    Args:
        clock: Measures the steps.
        alone: Whether there is only one rank.
        gauge: Reads memory and utilization of the accelerators; None: there are none.
    """

    def __init__(self, clock: StepClock, *, alone: bool, gauge: DeviceGauge | None = None) -> None:
        self._clock, self._alone, self._gauge = clock, alone, gauge
        self._seen: tuple[int, float] | None = None

    def values(self, step_state: StepState, batch: Any) -> dict[str, float]:
        """Return the values of a step's log line, without unknown ones.

        Args:
            step_state: The step, with its values so far.
            batch: Its batch, in any form that `inputs_and_targets` takes.
        """
        times = self._clock.take_times()
        tokens = self._tokens(step_state, times, batch)
        state = self._gauge.values() if self._gauge else {}
        if not times:
            return state
        whole = median(time.whole for time in times)
        inputs = [time.input / time.whole for time in times if time.input is not None]
        waits = [time.exchange / time.whole for time in times if time.exchange is not None]
        rests = [rest for time in times if (rest := self._rest(time)) is not None]
        shares = {"dataloader_stall_frac": inputs, "comm_time_frac": waits, "compute_time_frac": rests}
        values = {"step_time": whole} | {name: median(share) for name, share in shares.items() if share}
        if tokens is not None:
            values["tokens_per_sec"] = tokens / whole
        return state | {name: shorten(value) for name, value in values.items()}

    def _rest(self, time: StepTime) -> float | None:
        if time.input is None or (time.exchange is None and not self._alone):
            return None
        return 1 - (time.input + (time.exchange or 0.0)) / time.whole

    def _tokens(self, step_state: StepState, times: Sequence[StepTime], batch: Any) -> float | None:
        """Return the tokens of one step; None if they are not known."""
        before, seen = self._seen, step_state.values.get("tokens_seen")
        self._seen = (step_state.step, float(seen)) if isinstance(seen, int | float) else None
        if isinstance(logged := step_state.values.get("tokens_per_update"), int | float):
            return float(logged)
        if self._seen is not None:
            return None if before is None else (self._seen[1] - before[1]) / (step_state.step - before[0])
        passes = {time.passes for time in times if time.input is not None}
        return token_count(batch) if self._alone and passes == {1} else None
