"""Fuzzes readers, led by coverage: `pip install atheris`, then `python -m tests.fuzz.coverage contract --minutes 10`.

Each reader is searched in a process of its own. What reached more is kept, made small, where `--keep` is given.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

from tests.fuzz import corpus, ledger, readers

_RUNS = re.compile(r"^Done (\d+) runs", re.MULTILINE)


def search(name: str, seconds: float, crashers: Path, *, keep: bool) -> ledger.Searched:
    """Search in a process of its own, and return what it cost and found."""
    crashers.mkdir(parents=True, exist_ok=True)
    known, before = set(crashers.iterdir()), getrusage(RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as inputs:
        for number, data in enumerate(corpus.seeds(name)):
            (Path(inputs) / str(number)).write_bytes(data)
        words = [sys.executable, "-m", "tests.fuzz.guided", name, str(max(1, round(seconds))), inputs, str(crashers)]
        done = subprocess.run(words, capture_output=True, text=True, errors="replace", check=False)
        after, runs = getrusage(RUSAGE_CHILDREN), _RUNS.findall(done.stderr)
        broke = len(set(crashers.iterdir()) - known)
        if broke or done.returncode or not runs:
            sys.stderr.write(done.stderr[-6000:])
        if keep:
            keep_small(name, [path.read_bytes() for path in Path(inputs).iterdir()])
    minutes = (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime) / 60
    return ledger.Searched(name, minutes, int(runs[-1]) if runs else 0, broke)


def keep_small(name: str, inputs: list[bytes]) -> None:
    """Keep the few inputs that reach all that the others do."""
    read = readers.targets()[name]
    with tempfile.TemporaryDirectory() as folder:
        corpus.write(name, corpus.smallest(inputs, lambda data: read(data, Path(folder))))


def main() -> int:
    """Search for each reader in turn; exit with 1 where anything broke."""
    known = sorted(readers.targets())
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("reader", nargs="*", help=f"every one where none is named; there is {', '.join(known)}")
    parser.add_argument("--minutes", type=float, default=5.0, help="for all of them together")
    parser.add_argument("--crashers", type=Path, default=readers.CRASHERS, help="where files go that break one")
    parser.add_argument("--keep", action="store_true", help="keep what reaches more in fixtures/fuzz/corpus")
    parser.add_argument("--ledger", action="store_true", help="add the time to the ledger")
    arguments = parser.parse_args()
    names, broken = arguments.reader or known, 0
    for name in names:
        done = search(name, 60 * arguments.minutes / len(names), arguments.crashers.resolve(), keep=arguments.keep)
        broken += done.broke
        sys.stdout.write(f"{done}\n")
        sys.stdout.flush()
        if arguments.ledger:
            ledger.add(done)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
