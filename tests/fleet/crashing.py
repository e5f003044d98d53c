"""Work that goes wrong, for processes that are started by tests."""

import os
import signal
import time
from pathlib import Path

from ckaudit.contract.schema.fleet import FleetRun
from ckaudit.fleet.source import Source


def crash(source: Source) -> list[FleetRun]:
    """Die by the name of the source: always, the first time, or not at all."""
    mark = Path(source.path)
    with mark.open("a") as stream:
        stream.write("x")
    if "always" in source.name or ("once" in source.name and len(mark.read_text()) == 1):
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.01)
    return [FleetRun(run=source.name, status="audited")]
