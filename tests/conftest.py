"""Workers of pytest-xdist share the cores, each computing with one thread, and see the terminal that one process would see."""

import gc
import os
import sys

import pytest
from _pytest.doctest import DoctestModule
from hypothesis import HealthCheck, settings

if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.pop("COLUMNS", None)  # set to 80 for the workers only

# Tests start hundreds of processes, and each would compile the package anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# What a test writes need not outlast a power cut, and to wait for the disk takes milliseconds each time.
os.fsync = lambda descriptor: None

# Modules and tests stay until the end, and to look through all of them for garbage takes a second each time.
gc.disable()

# How fast inputs are made on a shared machine says nothing of the code.
settings.register_profile("shared machine", suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared machine")


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()
    gc.set_threshold(20_000, 20, 20)  # by default 700 new objects are enough, and any document that is read has more


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path):
    """Look for examples in the docstrings of those files alone that have any: to look through a thousand takes seconds."""
    found = yield
    if found and file_path.suffix == ".py" and b">>>" not in file_path.read_bytes():
        found = [each for each in found if not isinstance(each, DoctestModule)]
    return found


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Give a worker whole folders, the largest first: what its tests read, judge, train and load once is then there once."""
    from xdist.scheduler import LoadFileScheduling

    class ByFolder(LoadFileScheduling):
        def _split_scope(self, nodeid):
            file = super()._split_scope(nodeid)
            if file == "tests/docs/test_executed.py":
                return "recorder"
            parts = file.split("/")
            if parts[0] != "tests" or len(parts) < 3:
                return file
            return (
                "recorder" if parts[1] == "examples" else parts[1]
            )  # examples and pages fork from the process that recorder/ has

    return ByFolder(config, log) if config.option.dist == "loadfile" else None
