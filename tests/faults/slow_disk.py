"""Measures what a step waits for a disk that is slow: `python -m tests.faults.slow_disk --delay 0.1 0.5 2`."""

import argparse
import logging
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, sleep

from tests.faults.layer import LASTS, Fault, Layer
from tests.faults.plans import Plan
from tests.faults.trials import TRAININGS

CALLS = ("open", "write", "fsync", "replace")


def times_of_steps(kind: str, folder: Path, delay: float, steps: int, pause: float) -> list[float]:
    """Return how many seconds each step took of a training whose disk takes so long for every call; 0: it is well."""
    faults = tuple(Fault(call, "slow", 1, LASTS) for call in CALLS) if delay else ()
    drawn = Plan(seed=0, kind=kind, steps=steps, every=max(1, steps // 10), earlier=0, suffix=".json", faults=faults)
    times = []
    with Layer(folder, faults, delay=delay) as layer:
        training = TRAININGS[kind](drawn, str(folder / "run"), start=0)
        training.first()
        for step in range(1, steps + 1):
            sleep(pause)
            with layer.step(step):
                begun = perf_counter()
                training.step(step)
                times.append(perf_counter() - begun)
        if layer.blocked:
            raise RuntimeError(f"a step waited for {dict(layer.blocked)}")
        layer.moment = 0
    training.recorder.close()
    return times


def main() -> int:
    """Print a table of steps with a slow disk, and of the same steps with one that is well."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--delay", type=float, nargs="+", default=[0.1, 0.5, 2.0], help="seconds of every call of a file")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--pause", type=float, default=0.01, help="seconds between two steps")
    arguments = parser.parse_args()
    logging.getLogger("ckaudit.recorder").setLevel(logging.CRITICAL)
    sys.stdout.write("| recorder | each call of the disk, s | a step, ms: median | 99 % | worst |\n|---|---|---|---|---|\n")
    for kind in ("writer", "recorder"):
        for delay in (None, 0.0, *arguments.delay):
            with TemporaryDirectory() as folder:
                times = sorted(times_of_steps(kind, Path(folder), delay or 0.0, arguments.steps, arguments.pause))
            if delay is None:  # what is loaded at the first time is loaded
                continue
            cells = (median(times), times[int(0.99 * len(times))], times[-1])
            sys.stdout.write(f"| {kind} | {delay or 'well'} | " + " | ".join(f"{1e3 * cell:.2f}" for cell in cells) + " |\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
