"""Measures every speed table again, one after the other, and gathers all rows that have an aim.

    python benchmarks/speed.py [--measure] [--only diff,triage] [--write]

Without `--measure` the tables in benchmarks/README.md are read as they are. A row is met if its ratio is not above its aim; an
aim such as "under 1 s" is compared with the seconds.
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE)]

from pairs import README, machine, write_table  # noqa: E402

TABLES = ("validate", "triage", "report", "diff", "imports", "metrics", "storage", "fleet")
"""Benchmarks whose tables compare two programs, in the order of the page."""

LIBRARIES = ("msgspec", "numpy", "orjson", "pyarrow")


YES_OR_NO = {True: "yes", False: "no"}


class Row(NamedTuple):
    """A row that has an aim."""

    table: str
    what: str
    against: str
    seconds: float
    ratio: float
    aim: str

    @property
    def is_met(self) -> bool:
        """Whether the row reaches its aim."""
        limit = float(re.search(r"[\d.]+", self.aim)[0])  # type: ignore[index]
        return (self.seconds if self.aim.endswith(" s") else self.ratio) <= limit


def rows_of(table: str, text: str) -> Iterator[Row]:
    """Yield the rows of one table of the page that have an aim."""
    block = text.partition(f"<!-- {table}: written by")[2].partition(f"<!-- end of {table}")[0]
    head: list[str] = []
    for line in block.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if "aim" in cells:
            head = cells
        elif head and len(cells) == len(head) and re.search(r"\d", cells[head.index("aim")]):
            ratio = cells[head.index("wall ratio" if "wall ratio" in head else "ratio")]
            yield Row(table, cells[0], cells[1], float(cells[2]), float(ratio), cells[head.index("aim")])


def summary(text: str) -> str:
    """Return the table of all aims."""
    rows = [row for table in TABLES for row in rows_of(table, text)]
    met = sum(row.is_met for row in rows)
    libraries = ", ".join(f"{name} {version(name)}" for name in LIBRARIES)
    lines = [
        f"| {row.table} | {row.what} | {row.against} | {row.seconds:g} | {row.ratio:g} | {row.aim} | {YES_OR_NO[row.is_met]} |"
        for row in rows
    ]
    head = f"{machine()}; {libraries}. {met} of {len(rows)} aims are met."
    return "\n".join([head, "", "| table | what | against | s | ratio | aim | met |", "|---|---|---|---|---|---|---|", *lines])


def main() -> None:
    """Measure if asked, gather, print, and write if asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--measure", action="store_true", help="run the benchmarks first, which writes their tables")
    parser.add_argument("--only", default=",".join(TABLES), help="measure these alone")
    parser.add_argument("--write", action="store_true", help="put the table into benchmarks/README.md")
    wanted = parser.parse_args()
    for table in wanted.only.split(",") if wanted.measure else ():
        print(f"measuring {table}", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, str(HERE / f"{table}.py"), "--write"], check=True, stdout=subprocess.DEVNULL)
    found = summary(README.read_text(encoding="utf-8"))
    print(found)
    if wanted.write:
        write_table("speed", found)


if __name__ == "__main__":
    main()
