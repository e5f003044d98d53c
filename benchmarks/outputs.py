"""Whether another revision prints the same: every command's JSON on every fixture, byte for byte.

    python benchmarks/outputs.py REVISION [--real]

Both revisions audit the files of this checkout, each in its own process; with `--real` the public logs too. For each difference
the script prints the first line that differs; the exit code is then 1.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
INSIDE = """
import contextlib, io, json, sys
from ckaudit.cli.run import run

said = {}
for command in json.load(sys.stdin):
    sink = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with contextlib.redirect_stdout(sink), contextlib.redirect_stderr(io.StringIO()):
        try:
            code = run(command)
        except SystemExit as error:
            code = error.code
    sink.flush()
    said[" ".join(command)] = [code, sink.buffer.getvalue().decode("utf-8", "replace")]
json.dump(said, sys.stdout)
"""


def commands(*, real: bool) -> list[list[str]]:
    """Return the command lines that are compared."""
    runs = sorted(path.parent for path in (ROOT / "fixtures" / "runs").glob("*/run.json"))
    logs = [path for path in sorted((ROOT / "fixtures" / "real").rglob("*")) if path.suffix in (".csv", ".log", ".txt", ".jsonl")]
    lines = [["explain", "--format", "json"]]
    for run in [*runs, *(logs if real else [])]:
        lines.append(["triage", str(run), "--questions", "1,2,3,4,5,6,7", "--format", "json"])
        lines.append(["coverage", str(run), "--format", "json"])
    for run in runs:
        lines += [["validate", str(run), "--format", "json"], ["metrics", str(run), "--format", "json"]]
        lines.append(["triage", str(run), "--event", "last", "--format", "json"])
        lines.append(["triage", str(run), "--benchmark-drop", "--format", "json"])
        lines.append(["diff", str(runs[0]), str(run), "--format", "json"])
    for path in sorted((ROOT / "fixtures" / "checkpoints").rglob("*.json")):
        lines.append(["validate", str(path), "--format", "json"])
    return lines


def printed(tree: Path, lines: list[list[str]]) -> dict[str, list[object]]:
    """Return exit code and output of every command line, run with the code of a tree."""
    command = [sys.executable, "-c", INSIDE]
    surroundings = os.environ | {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    done = subprocess.run(
        command, input=json.dumps(lines), capture_output=True, text=True, env=surroundings, cwd=tree, check=True
    )
    answers: dict[str, list[object]] = json.loads(done.stdout)
    return answers


def first_difference(one: str, other: str) -> str:
    """Return the first line in which two texts differ."""
    pairs = zip(one.splitlines(), other.splitlines(), strict=False)
    return next((f"{before.strip()[:90]} -> {now.strip()[:90]}" for before, now in pairs if before != now), "length")


def main() -> int:
    """Compare and print what differs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("revision")
    parser.add_argument("--real", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        subprocess.run(
            ["git", "worktree", "add", "--detach", str(tree), given.revision], cwd=ROOT, check=True, capture_output=True
        )
        try:
            lines = commands(real=given.real)
            before, now = printed(tree, lines), printed(ROOT, lines)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)
    differing = {line: (before[line], now[line]) for line in before if before[line] != now[line]}
    for line, (one, other) in differing.items():
        sys.stdout.write(f"{line}\n    exit {one[0]} -> {other[0]}; {first_difference(str(one[1]), str(other[1]))}\n")
    sys.stdout.write(f"{len(before)} command lines against {given.revision}: {len(differing)} differ\n")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
