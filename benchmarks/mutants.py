"""Small bugs injected into the code one at a time: how many of them the tests catch, and which they do not.

    python benchmarks/mutants.py [--draws 60] [--seed 7] [--only ROOM] [--limit 60] [--results FILE] [--write]

Mutants are drawn at random from the syntax trees (`mutations.py`), equally many in each room (a package). Each is applied to a
copy, and the tests that touch its file (`tests_by_file.py`), nearest first, run in a process forked from this one, which has
NumPy and pytest loaded. They stop at the first failure, or after `--limit` seconds of computing. A test that killed a mutant is
run once more on the unchanged code, and must pass there. Results are kept in a file of lines, from which a second call continues.
`--write` puts all of them into docs/mutants.md.
"""

import argparse
import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)]

from benchmarks.mutations import Mutation, mutations_of  # noqa: E402  stand beside this
from benchmarks.tests_by_file import WALKS, Tests  # noqa: E402

PAGE = ROOT / "docs" / "mutants.md"
MARK = "<!-- written by benchmarks/mutants.py -->"
STUCK = 20  # seconds of computing that one test may take; without a mutant the longest takes 5


@dataclass(frozen=True)
class Outcome:
    """The outcome of one mutant.

    Attributes:
        room: Package of the mutated file.
        mutation: What was changed, and where.
        status: `killed`, `survived`, or `stuck` if a test never ended.
        by: The test that failed.
        tests: How many tests ran.
        seconds: How long they computed.
    """

    room: str
    mutation: Mutation
    status: str
    by: str
    tests: int
    seconds: float


class Watch:
    """A pytest plugin that keeps the time, runs no test twice, and writes what it saw to a file."""

    def __init__(self, limit: float, told: Path) -> None:
        self.limit, self.told = limit, told
        self.ran: set[str] = set()
        self.failed = ""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out tests that have run."""
        items[:] = [item for item in items if item.nodeid not in self.ran]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Start the timer that ends this process."""
        self.ran.add(nodeid)
        self.told.write_text(json.dumps(["stuck", nodeid, len(self.ran)]), encoding="utf-8")
        signal.setitimer(signal.ITIMER_PROF, STUCK)
        signal.alarm(4 * STUCK)

    def pytest_runtest_logfinish(self) -> None:
        """Stop if the time is up."""
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        if time.process_time() > self.limit:
            pytest.exit("the time is up", 0)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Store the test that failed."""
        if report.failed and not self.failed:
            self.failed = report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Store the file that could not be imported."""
        if report.failed and not self.failed:
            self.failed = report.nodeid


def run_tests(tree: Path, stages: Iterable[Sequence[str]], limit: float) -> tuple[str, str, int, float]:
    """Run tests in a process forked from this one; return status, the failed test, how many ran and their seconds."""
    told = tree.with_name("told.json")
    told.write_text(json.dumps(["killed", "import", 0]), encoding="utf-8")
    child = os.fork()
    if not child:
        os.setsid()
        os.chdir(tree)
        os.environ["PYTHONPATH"] = sys.path[0] = str(tree)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(nowhere, stream)
        watch = Watch(limit, told)
        for stage in stages:
            if stage and not watch.failed and time.process_time() < limit:
                pytest.main(["-x", "-q", "-p", "no:cacheprovider", *stage], plugins=[watch])
        status = "killed" if watch.failed else "survived"
        told.write_text(json.dumps([status, watch.failed, len(watch.ran)]), encoding="utf-8")
        os._exit(0)
    usage = os.wait4(child, 0)[2]
    with suppress(ProcessLookupError):  # no process that the tests started stays alive
        os.killpg(child, signal.SIGKILL)
    status, by, tests = json.loads(told.read_text(encoding="utf-8"))
    return status, by, tests, round(usage.ru_utime + usage.ru_stime, 1)


def copied(folder: Path) -> Path:
    """Copy the package and its tests, and link everything else."""
    tree = folder / "tree"
    tree.mkdir()
    for path in ROOT.iterdir():
        if path.name in ("ckaudit", "tests"):
            shutil.copytree(path, tree / path.name)
        elif path.name != ".git":
            (tree / path.name).symlink_to(path)
    return tree


def drawn(room: str, draws: int, seed: int) -> list[Mutation]:
    """Return random mutations of a room; a larger number of draws begins with those of a smaller one."""
    files = sorted((ROOT / "ckaudit" / room).rglob("*.py"))
    every = [each for path in files for each in mutations_of(path.read_bytes(), str(path.relative_to(ROOT)))]
    random.Random(f"{room} {seed}").shuffle(every)
    return every[:draws]


def judged(tree: Path, room: str, mutations: Iterable[Mutation], limit: float) -> Iterator[Outcome]:
    """Apply one mutation after the other, and yield the outcome of the tests."""
    tests = Tests(ROOT)
    for number, mutation in enumerate(mutations, 1):
        place = tree / mutation.file
        source, stat = place.read_bytes(), place.stat()
        place.write_bytes(mutation.applied(source))
        os.utime(place, (time.time() + number, time.time() + number))  # so that no two share cached bytecode
        yield Outcome(room, mutation, *run_tests(tree, tests.stages(mutation.file), limit))
        place.write_bytes(source)
        os.utime(place, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def loaded(results: Path) -> list[Outcome]:
    """Return the outcomes in a file of results."""
    lines = results.read_text(encoding="utf-8").splitlines() if results.exists() else []
    return [Outcome(**{**each, "mutation": Mutation(**each["mutation"])}) for each in map(json.loads, lines)]


def table(outcomes: Sequence[Outcome]) -> str:
    """Return counts by room, and the list of survivors."""

    def row(name: str, told: Sequence[Outcome]) -> str:
        counts = [sum(each.status == status for each in told) for status in ("killed", "stuck", "survived")]
        return f"| {name} | {len(told)} | " + " | ".join(map(str, counts)) + f" | {(counts[0] + counts[1]) / len(told):.0%} |"

    rooms = list(dict.fromkeys(each.room for each in outcomes))
    head = ["| room | mutants | killed | stuck | survived | caught |", "|---|---|---|---|---|---|"]
    rows = [row(room, [each for each in outcomes if each.room == room]) for room in rooms]
    left = [each.mutation for each in outcomes if each.status == "survived"]
    lines = [f"| `{each.file.removeprefix('ckaudit/')}` {each.line} | `{each.before}` | `{each.after}` |" for each in left]
    lines = [line.replace("||", "\\|\\|") for line in lines]
    return "\n".join([*head, *rows, row("all", outcomes), "", "| survivor | was | became |", "|---|---|---|", *lines])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    parser.add_argument("--draws", type=int, default=60, help="mutants of each room")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--only", choices=WALKS, help="one room")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds of computing for the tests of one mutant")
    parser.add_argument("--results", type=Path, default=Path.home() / ".cache" / "ckaudit" / "mutants.jsonl")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/mutants.md")
    return parser


def main() -> None:
    """Judge the mutants that are not judged yet, and print the tables."""
    wanted = _parser().parse_args()
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
    wanted.results.parent.mkdir(parents=True, exist_ok=True)
    rooms = [wanted.only] if wanted.only else list(WALKS)
    draws = {room: drawn(room, wanted.draws, wanted.seed) for room in rooms}
    outcomes = {each.mutation: each for each in loaded(wanted.results)}
    with TemporaryDirectory() as folder:
        tree = copied(Path(folder))
        for room, mutations in draws.items():
            import_module("torch" if room == "recorder" else "numpy")
            left = [each for each in mutations if each not in outcomes]
            for outcome in judged(tree, room, left, wanted.limit):
                print(outcome.status, outcome.seconds, outcome.tests, outcome.mutation, outcome.by, flush=True)
                with wanted.results.open("a", encoding="utf-8") as lines:
                    lines.write(json.dumps(asdict(outcome)) + "\n")
                outcomes[outcome.mutation] = outcome
        told = [each for each in outcomes.values() if each.room in rooms]
        killers = sorted({each.by for each in told if each.status == "killed" and each.by != "import"})
        status, by, *_ = run_tests(tree, [killers], 600.0)
    if status != "survived":
        raise SystemExit(f"{by} fails on the code as it is")
    found = table(told)
    print(found)
    if wanted.write:
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(page[: page.index(MARK) + len(MARK)] + f"\n\n{found}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
