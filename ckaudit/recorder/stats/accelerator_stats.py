"""How full and how busy the accelerator is, as values of a line."""

from collections.abc import Iterable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from ckaudit.recorder.guard import logger


class Device(Protocol):
    """What is asked of one accelerator."""

    def memory(self) -> tuple[int, int, int]:
        """Return the bytes in use by all programs, held by PyTorch, and taken by its tensors."""

    def utilization(self) -> float:
        """Return the percentage of the last moments, 1/6 to 1 s, in which it ran anything."""


class CudaDevice:
    """A device of CUDA or ROCm.

    Memory is asked of the driver and of PyTorch's allocator, utilization of NVML or its like, for which PyTorch needs the
    package nvidia-ml-py or amdsmi. Nothing waits for what the device has to do.

    Args:
        index: Its number among those that the process sees.
    """

    def __init__(self, index: int) -> None:
        self._index = index

    def memory(self) -> tuple[int, int, int]:
        """Return the bytes in use by all programs, held by PyTorch, and taken by its tensors."""
        free, total = torch.cuda.mem_get_info(self._index)
        return total - free, torch.cuda.memory_reserved(self._index), torch.cuda.memory_allocated(self._index)

    def utilization(self) -> float:
        """Return the percentage of the last moments in which it ran anything."""
        return float(torch.cuda.utilization(self._index))


class DeviceGauge:
    """Reads the devices of this process every 25 steps.

    `gpu_mem_used` (M43, bytes) is what all programs use of the fullest device, and with the labels "reserved" and "allocated"
    what PyTorch holds of it and what its tensors take. `gpu_util` (M42, %) is the mean over devices. What cannot be read is
    said once and not tried again.

    Args:
        devices: The devices; of none there are no values.
    """

    def __init__(self, devices: Sequence[Device]) -> None:
        self._devices = devices
        self._tells_memory = self._tells_utilization = True

    def values(self) -> dict[str, float]:
        """Return the values of a line, without those that cannot be read."""
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
            found = [device.utilization() for device in self._devices]
        except Exception as error:  # noqa: BLE001  as above
            self._tells_utilization = False
            logger.warning("the utilization of the device cannot be read and is not recorded: %s", error)
            return {}
        return {"gpu_util": sum(found) / len(found)}


def devices_of(tensors: Iterable[Tensor]) -> list[Device]:
    """Return the CUDA devices on which any of these tensors is."""
    return [CudaDevice(index) for index in sorted({tensor.device.index or 0 for tensor in tensors if tensor.is_cuda})]
