"""How long each reader was searched in all, in `fixtures/fuzz/ledger.csv`: the runners add to it."""

import csv
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from time import process_time

from tests.fuzz.corpus import FIXTURES

LEDGER = FIXTURES / "fuzz" / "ledger.csv"


@dataclass(frozen=True)
class Searched:
    """What a search for inputs that break a reader cost and found.

    Attributes:
        reader: Its name; "valid runs" for the commands.
        cpu_minutes: Time on one core.
        inputs: Inputs that were read.
        broke: Ways to break it that were found.
    """

    reader: str
    cpu_minutes: float
    inputs: int
    broke: int

    def __str__(self) -> str:
        """Return one line of the ledger in words."""
        return f"{self.reader}: {self.cpu_minutes:.1f} CPU minutes, {self.inputs} inputs, {self.broke} ways to break it"


def minutes_since(begun: float) -> float:
    """Return the CPU minutes of this process since `begun`, which `time.process_time` gave."""
    return (process_time() - begun) / 60


def read(path: Path = LEDGER) -> dict[str, Searched]:
    """Return the sum of all searches by reader."""
    if not path.exists():
        return {}
    with path.open(newline="") as stream:
        rows = list(csv.reader(stream))[1:]
    return {row[0]: Searched(row[0], float(row[1]), int(row[2]), int(row[3])) for row in rows}


def add(done: Searched, path: Path = LEDGER) -> None:
    """Add a search to the sum of its reader."""
    known = read(path)
    if (old := known.get(done.reader)) is not None:
        sums = (round(old.cpu_minutes + done.cpu_minutes, 2), old.inputs + done.inputs, old.broke + done.broke)
        done = Searched(done.reader, *sums)
    known[done.reader] = done
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as stream:
        rows = csv.writer(stream, lineterminator="\n")
        rows.writerow([field.name for field in fields(Searched)])
        rows.writerows(astuple(known[name]) for name in sorted(known))
