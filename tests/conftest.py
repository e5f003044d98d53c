"""Workers of pytest-xdist share the cores, each computing with one thread, and see the terminal that one process would see."""

import gc
import os
import sys
from pathlib import Path

import pytest
from _pytest.assertion import rewrite

if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.pop("COLUMNS", None)  # set to 80 for the workers only

# Tests start hundreds of processes, and each would compile the package anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Modules and tests stay until the end, and to look through all of them for garbage takes a second each time.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_configure(config: pytest.Config) -> None:
    """Rewrite the assertions of this worker's share of all tests; the other workers find them done."""
    worker = getattr(config, "workerinput", None)
    if worker is None or [*map(str, config.args)] != config.getini("testpaths"):
        return
    for path in sorted(Path(__file__).parent.rglob("test_*.py"))[int(worker["workerid"][2:]) :: worker["workercount"]]:
        cached = rewrite.get_cache_dir(path) / (path.stem + rewrite.PYC_TAIL)
        if rewrite._read_pyc(path, cached) is None and rewrite.try_makedirs(cached.parent):
            made_from, code = rewrite._rewrite_test(path, config)
            rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, made_from, cached)
