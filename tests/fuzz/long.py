"""Asks every command about valid runs with any values for as long as it is told to: `python -m tests.fuzz.long --minutes 10`."""

import argparse
import random
import shutil
import sys
import tempfile
from pathlib import Path
from time import monotonic, process_time

from tests.fuzz.commands import ABOUT_ONE, ABOUT_TWO, ask
from tests.fuzz.ledger import Searched, add, minutes_since
from tests.fuzz.valid_runs import Plan, write

SLOW = 20.0  # s


def plan(source: random.Random) -> Plan:
    """Draw a plan, a long log now and then."""
    points = source.choice([0, 1, 2, 3, 5, 12, 30, 60, 200, source.choice([200, 5000])])
    return Plan(
        seed=source.randrange(2**32),
        points=points,
        checkpoints=source.choice([0, 0, 1, 2, 6]),
        gap=source.choice([1, 1, 10, 10**12]),
        start=source.choice([0, 1, 1000]),
        names=source.randint(1, 24),
        manifest=source.random() < 0.5,
        words=source.random() < 0.5,
    )


def one_round(folder: Path, source: random.Random) -> list[str]:
    """Write two runs, ask everything about them, and return what was wrong, with the plans that it grew from."""
    drawn = {"RUN": plan(source), "OTHER": plan(source)}
    places = {"OUT": folder / "OUT"} | {name: folder / name for name in drawn}
    for name, path in places.items():
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
        if name in drawn:
            write(drawn[name], path)
    wrong = []
    for words in (*ABOUT_ONE, *ABOUT_TWO):
        begun = monotonic()
        found = ask(words, places)
        if monotonic() - begun > SLOW:
            found = f"{found}\n{' '.join(words)} took {monotonic() - begun:.0f} s"
        wrong += [f"{found}\n{drawn}\n"] if found else []
    return wrong


def main() -> int:
    """Fuzz until the time is over; exit with 1 where anything broke."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("--ledger", action="store_true", help="add the time to the ledger")
    arguments = parser.parse_args()
    begun = process_time()
    source, end, rounds, broken = random.Random(arguments.seed), monotonic() + 60 * arguments.minutes, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        while monotonic() < end:
            rounds += 1
            for wrong in one_round(Path(folder), source):
                broken += 1
                sys.stderr.write(f"{wrong}\n")
    sys.stdout.write(f"seed {arguments.seed}: {rounds} pairs of runs, {broken} commands broke\n")
    done = Searched("valid runs", minutes_since(begun), rounds * len((*ABOUT_ONE, *ABOUT_TWO)), broken)
    sys.stdout.write(f"{done}\n")
    if arguments.ledger:
        add(done)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
