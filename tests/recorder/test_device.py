"""The gauge of devices, on stand-ins: what a real one says is CUDA's, and asked for in one place."""

import pytest
import torch

from ckaudit.recorder import Recorder
from ckaudit.recorder.loop import session
from ckaudit.recorder.loop.throughput import CudaDevice, DeviceGauge, devices_of
from ckaudit.validate import validate


class PretendDevice:
    """A device that says what it is told to, or fails."""

    def __init__(self, memory=(0, 0, 0), utilization=0.0):
        self.answers = {"memory": memory, "utilization": utilization}
        self.asked = []

    def memory(self):
        return self.answer("memory")

    def utilization(self):
        return self.answer("utilization")

    def answer(self, name):
        self.asked.append(name)
        if isinstance(self.answers[name], Exception):
            raise self.answers[name]
        return self.answers[name]


def test_the_fullest_device_counts_and_the_mean_of_all_are_busy():
    gauge = DeviceGauge([PretendDevice((70, 60, 50), 40.0), PretendDevice((80, 20, 10), 90.0)])
    expected = {"gpu_mem_used": 80, "gpu_mem_used/reserved": 20, "gpu_mem_used/allocated": 10, "gpu_util": 65.0}
    assert gauge.values() == expected


@pytest.mark.parametrize("name", ["memory", "utilization"])
def test_what_cannot_be_read_is_said_once_and_the_rest_recorded(name, caplog):
    device = PretendDevice((3, 2, 1), 50.0)
    device.answers[name] = ModuleNotFoundError("nvidia-ml-py")
    gauge = DeviceGauge([device])
    first, second = gauge.values(), gauge.values()
    assert first == second
    assert bool(first) is True
    assert ("gpu_util" in first) is (name == "memory")
    assert device.asked.count(name) == 1
    assert caplog.text.count("nvidia-ml-py") == 1


def test_a_cuda_device_asks_driver_allocator_and_nvml(monkeypatch):
    """Stand-ins for four functions of torch.cuda, because there is no device here."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda index: (1000 + index, 5000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda index: 300 + index)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda index: 200 + index)
    monkeypatch.setattr(torch.cuda, "utilization", lambda index: 10 + index)
    assert CudaDevice(2).memory() == (3998, 302, 202)
    assert CudaDevice(2).utilization() == 12


def test_without_an_accelerator_nothing_is_asked():
    assert devices_of([torch.zeros(1), torch.zeros(1, device="meta")]) == []
    assert DeviceGauge([]).values() == {}


def test_a_line_every_25_steps_holds_what_the_device_says(tiny, train, tmp_path, monkeypatch, lines):
    device = PretendDevice((3_000, 2_000, 1_000), 50.0)
    monkeypatch.setattr(session, "devices_of", lambda _tensors: [device])
    recorder = train(tiny(), 60, tmp_path)
    assert isinstance(recorder, Recorder)
    assert recorder._guard.failures == 0
    found = {line["step"]: (line["gpu_mem_used"], line["gpu_util"]) for line in lines(tmp_path) if "gpu_util" in line}
    assert found == dict.fromkeys((25, 50), (3_000, 50))
    assert not validate([tmp_path]).findings
