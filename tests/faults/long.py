"""Records trainings while calls of files, threads and clocks fail: `python -m tests.faults.long --trials 1000 --seed 1`."""

import argparse
import logging
import os
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path
from time import monotonic

from tests.faults.plans import plan
from tests.faults.trials import trial

SLOW = 20.0  # s
VALIDATED, JUDGED = 10, 200  # every tenth run that is left is validated, every 200th audited


def main() -> int:
    """Run so many trials; exit with 1 where anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32), help="of the first trial; the others follow it")
    parser.add_argument("--kind", default="", help="folder, writer, recorder or address: nothing but these")
    arguments = parser.parse_args()
    logging.getLogger("ckaudit.recorder").setLevel(logging.CRITICAL)
    memory = Path("/dev/shm")
    injected, codes, kinds, broken, begun = Counter[str](), Counter[str](), Counter[str](), 0, monotonic()
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        for seed in range(arguments.seed, arguments.seed + arguments.trials):
            drawn, start = plan(seed, arguments.kind), monotonic()
            asked = [name for name, every in (("validate", VALIDATED), ("triage", JUDGED)) if seed % every == 0]
            outcome = trial(drawn, Path(folder) / "trial", asked=asked)
            if monotonic() - start > SLOW:
                outcome.wrong.append(f"the trial took {monotonic() - start:.0f} s")
            kinds[drawn.kind] += 1
            injected += outcome.injected
            codes += outcome.codes
            if outcome.wrong:
                broken += 1
                sys.stderr.write("\n  ".join([f"seed {seed}: {drawn}", *outcome.wrong]) + "\n")
    sys.stdout.write(
        f"seeds from {arguments.seed}: {arguments.trials} trials in {monotonic() - begun:.0f} s, {broken} of them wrong\n"
        f"{_listed(kinds)}\nfaults: {injected.total():,} ({_listed(injected)})\nvalidate: {_listed(codes)}\n"
    )
    return 1 if broken else 0


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.most_common())


if __name__ == "__main__":
    sys.exit(main())
