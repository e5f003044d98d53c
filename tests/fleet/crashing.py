"""Work that goes wrong, for processes that are started by tests."""

import os
import re
import signal
import time
from pathlib import Path

from ckaudit.contract.schema.fleet import FleetRun
from ckaudit.fleet.source import RunSource


def crash(source: RunSource) -> list[FleetRun]:
    """Die by the name of the source: always, the first time, or not at all."""
    mark = Path(source.path)
    with mark.open("a") as stream:
        stream.write("x")
    if "always" in source.name or ("once" in source.name and len(mark.read_text()) == 1):
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.01)
    return [FleetRun(run=source.name, status="audited")]


def hang(source: RunSource) -> list[FleetRun]:
    """Never end, even holding the interpreter's lock, where the name says so; note each time that it began."""
    with Path(source.path).open("a") as stream:
        stream.write("x")
    if "asleep" in source.name:
        time.sleep(3600)
    if "busy" in source.name:
        re.match(r"(a+)+b", "a" * 60)
    time.sleep(0.05)
    return [FleetRun(run=source.name, status="audited")]


def crash_then_hang(source: RunSource) -> list[FleetRun]:
    """Die the first time, and never end the second."""
    if not Path(source.path).exists():
        Path(source.path).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(3600)
    return []
