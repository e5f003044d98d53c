"""Workers of pytest-xdist share the cores: each computes with one thread."""

import os

if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
