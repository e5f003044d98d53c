"""How long `ckaudit validate` takes, against what anyone would write: whole processes, side by side.

    python benchmarks/validate.py [--rounds 5] [--files 1000] [--write]

Data are made in a temporary folder. Two commands take turns (A B A B), and medians are compared: wall time, processor time,
largest memory. `--write` puts the table into benchmarks/README.md.
"""

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

import orjson

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "fixtures"))

from checkpoints.honest import grid_heavy, key_heavy  # noqa: E402  the generator stands beside the fixtures

README = HERE / "README.md"
START, END = "<!-- validate: written by benchmarks/validate.py -->", "<!-- end of validate -->"
VARIANTS = 8  # different documents; the others repeat them with another step

PARSE = """
import os, sys, orjson
for folder in sys.argv[1:]:
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), "rb") as file:
            orjson.loads(file.read())
"""
EMPTY_TYPER = "import typer\napp = typer.Typer()\n@app.command()\ndef main() -> None: ...\napp()\n"


@dataclass(frozen=True)
class Usage:
    """What one process took: wall and processor time in seconds, largest memory in MiB."""

    wall: float
    cpu: float
    memory: float


@dataclass(frozen=True)
class Case:
    """Two commands to compare, the ratio of their times that is aimed at, and the exit code of ours."""

    name: str
    ours: Sequence[str]
    peer_name: str
    peer: Sequence[str]
    aim: str
    code: int = 0


def measure(command: Sequence[str], expected: int = 0) -> Usage:
    """Run one process and return what it took; it must end with the exit code `expected`."""
    start = perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != expected:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}, not {expected}")
    return Usage(perf_counter() - start, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def write_run(folder: Path, make: Callable[..., dict[str, object]], files: int, change: Callable[[bytes], bytes]) -> None:
    """Write a run of `files` checkpoints."""
    folder.mkdir()
    variants = [orjson.dumps(make(seed=seed)) for seed in range(VARIANTS)]
    for step in range(1, files + 1):
        data = variants[step % VARIANTS].replace(b'"step":500', b'"step":%d' % step, 1)
        (folder / f"analysis_checkpoint_step_{step:08d}.json").write_bytes(change(data))


def prepare(root: Path, files: int) -> None:
    """Write all runs under `root`."""
    write_run(root / "keys", key_heavy, files, lambda data: data)
    write_run(root / "grids", grid_heavy, files, lambda data: data)
    field = b'"zero_fraction":0.0'
    write_run(root / "unknown", key_heavy, files, lambda data: data.replace(field, field + b',"skewness":0.5', 1))
    write_run(root / "bare", key_heavy, files, lambda data: data.replace(field, b'"zero_fraction":NaN', 1))
    write_run(root / "hundred", key_heavy, 100, lambda data: data)
    for copy in range(10):
        shutil.copytree(root / "keys", root / f"copy{copy}", copy_function=os.link)
    (root / "empty.py").write_text(EMPTY_TYPER)


def cases(root: Path, files: int) -> list[Case]:
    """Return all comparisons."""
    here = Path(sys.executable).parent
    ours = [str(here / "ckaudit"), "validate", "--quiet"]
    schema = str(HERE.parent / "schemas" / "ck.analysis.v1.schema.json")
    strict = [str(here / "check-jsonschema"), "--schemafile", schema]
    parse = [sys.executable, "-c", PARSE]
    hundred = sorted(map(str, (root / "hundred").iterdir()))
    many = f"{files:,} files of 200 KB"
    found = [
        Case(f"{many}, {text}", [*ours, str(root / name)], "orjson.loads of the same", [*parse, str(root / same)], aim, code)
        for name, same, text, aim, code in (
            ("keys", "keys", "many tensors", "1.5", 0),
            ("grids", "grids", "nested grids", "2.0", 0),
            ("unknown", "unknown", "an unknown field in each", "3.0", 0),
            ("bare", "keys", "a bare NaN in each (orjson: without it)", "3.0", 1),
        )
    ]
    least = [sys.executable, str(HERE / "floors" / "validate_floor.py")]
    found += [
        Case(
            f"floor program: {many}, {text}",
            [*least, str(root / name)],
            "orjson.loads of the same",
            [*parse, str(root / name)],
            "-",
        )
        for name, text in (("keys", "many tensors"), ("grids", "nested grids"))
    ]
    copies = [str(root / f"copy{copy}") for copy in range(10)]
    python, empty = sys.executable, str(root / "empty.py")
    return [
        *found,
        Case("100 files", [*ours, str(root / "hundred")], "check-jsonschema", [*strict, *hundred], "-"),
        Case("1 file", [*ours, hundred[0]], "check-jsonschema", [*strict, hundred[0]], "-"),
        Case(f"{10 * files:,} files", [*ours, *copies], f"{files:,} files", [*ours, str(root / "keys")], "10"),
        Case("--version", [ours[0], "--version"], "--help of an empty Typer app", [python, empty, "--help"], "-"),
        Case("--help", [ours[0], "--help"], "--help of an empty Typer app", [python, empty, "--help"], "-"),
    ]


def compare(case: Case, rounds: int) -> str:
    """Measure one case and return its row."""
    pairs = [(measure(case.ours, case.code), measure(case.peer)) for _ in range(rounds + 1)][1:]  # the first fills the page cache
    ours, peers = zip(*pairs, strict=True)
    wall = median(a.wall / b.wall for a, b in pairs)
    cpu = median(a.cpu / b.cpu for a, b in pairs)
    memory = max(usage.memory for usage in ours)
    times = f"{median(each.wall for each in ours):.3f} | {median(each.wall for each in peers):.3f}"
    return f"| {case.name} | {case.peer_name} | {times} | {wall:.3g} | {cpu:.3g} | {case.aim} | {memory:.0f} |"


def machine() -> str:
    """Say on what this was measured."""
    return f"Python {platform.python_version()}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}"


def main() -> None:
    """Measure everything, print the table, and write it where asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--only", default="", help="measure only cases whose name holds this text")
    parser.add_argument("--write", action="store_true", help="put the table into benchmarks/README.md")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        prepare(Path(temporary), wanted.files)
        head = "| ckaudit validate | against | s | s | wall ratio | CPU ratio | aim | peak MiB |\n" + "|---" * 8 + "|"
        rows = [compare(case, wanted.rounds) for case in cases(Path(temporary), wanted.files) if wanted.only in case.name]
    table = "\n".join([f"{machine()}; medians of {wanted.rounds} rounds.", "", head, *rows])
    print(table)
    if wanted.write:
        text = README.read_text(encoding="utf-8")
        block = f"{START}\n{table}\n{END}"
        README.write_text(re.sub(f"{START}.*?{END}", lambda _: block, text, flags=re.DOTALL), encoding="utf-8")


if __name__ == "__main__":
    main()
