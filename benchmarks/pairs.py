"""Two programs side by side: whole processes taking turns (A B A B), medians of wall time, processor time and memory."""

import argparse
import ctypes
import os
import platform
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from resource import struct_rusage
from statistics import median
from time import perf_counter

README = Path(__file__).with_name("README.md")
HEAD = "| command | against | s | s | wall ratio | CPU ratio | aim | peak MiB |"


@dataclass(frozen=True)
class Usage:
    """Usage of one process: wall and processor time in seconds, largest memory in MiB."""

    wall: float
    cpu: float
    memory: float


@dataclass(frozen=True)
class Case:
    """Two commands to compare, the aimed ratio of their times, and the exit code of ours."""

    name: str
    ours: Sequence[str]
    peer_name: str
    peer: Sequence[str]
    aim: str
    code: int = 0


def measure(command: Sequence[str], *expected: int) -> Usage:
    """Run one process and return its usage; its exit code must be one of `expected`, or 0 if none is given."""
    become_subreaper()
    start = perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, process_group=0)
    _, status, used = os.wait4(process.pid, 0)
    wall = perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (expected or (0,)):
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}, not {expected or 0}")
    every = [used, *usage_of_descendants(process.pid)]
    cpu = sum(each.ru_utime + each.ru_stime for each in every)
    return Usage(wall, cpu, max(each.ru_maxrss for each in every) / 1024)


@cache
def become_subreaper() -> None:
    """Adopt processes whose parent ends first, such as workers of a fork server, so that their usage is counted."""
    set_child_subreaper = 36  # PR_SET_CHILD_SUBREAPER of linux/prctl.h
    with suppress(AttributeError):  # not Linux
        ctypes.CDLL(None).prctl(set_child_subreaper, 1, 0, 0, 0)


def usage_of_descendants(group: int) -> Iterator[struct_rusage]:
    """Yield the usage of each further process of a group, once it has ended."""
    with suppress(ChildProcessError):
        while True:
            yield os.wait4(-group, 0)[2]


def compare(case: Case, rounds: int) -> str:
    """Measure one case and return its row."""
    pairs = [(measure(case.ours, case.code), measure(case.peer)) for _ in range(rounds + 1)][1:]  # the first fills the page cache
    ours, peers = zip(*pairs, strict=True)
    wall = median(a.wall / b.wall for a, b in pairs)
    cpu = median(a.cpu / b.cpu for a, b in pairs)
    memory = max(usage.memory for usage in ours)
    times = f"{median(each.wall for each in ours):.3f} | {median(peer.wall for peer in peers):.3f}"
    return f"| {case.name} | {case.peer_name} | {times} | {wall:.3g} | {cpu:.3g} | {case.aim} | {memory:.0f} |"


def machine() -> str:
    """Return a line about the machine of the measurement."""
    return f"Python {platform.python_version()}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}"


def run(
    name: str,
    prepare: Callable[[Path, int], None],
    cases: Callable[[Path, int], list[Case]],
    *,
    columns: str = "",
    cells: Callable[[Path], str] = lambda _: "",
) -> None:
    """Measure all cases of one benchmark, print the table, and write it if asked.

    Args:
        name: Marks the table's place in benchmarks/README.md.
        prepare: Writes the data of a given number of files under a folder.
        cases: The comparisons over that data.
        columns: Headers of further columns.
        cells: Returns their cells after a case was measured.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--only", default="", help="measure only cases whose name holds this text")
    parser.add_argument("--write", action="store_true", help="put the table into benchmarks/README.md")
    wanted = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # peers were compiled when they were installed; the first round compiles ours
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        prepare(root, wanted.files)
        chosen = [case for case in cases(root, wanted.files) if wanted.only in case.name]
        rows = [compare(case, wanted.rounds) + cells(root) for case in chosen]
    head = HEAD + columns
    table = "\n".join([f"{machine()}; medians of {wanted.rounds} rounds.", "", head, "|---" * (head.count("|") - 1) + "|", *rows])
    print(table)
    if wanted.write:
        write_table(name, table)


def write_table(name: str, table: str, page: Path = README) -> None:
    """Replace a table in its place on a page."""
    start, end = f"<!-- {name}: written by benchmarks/{name}.py -->", f"<!-- end of {name} -->"
    text = page.read_text(encoding="utf-8")
    block = f"{start}\n{table}\n{end}"
    page.write_text(re.sub(f"{start}.*?{end}", lambda _: block, text, flags=re.DOTALL), encoding="utf-8")
