"""How long `ckaudit triage` takes, against a process that only parses the same files: side by side, medians.

python benchmarks/triage.py [--rounds 5] [--files 1000] [--write]
"""

import argparse
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from validate import PARSE, Case, compare, machine, prepare, write_table  # noqa: E402  the same data, the same way of measuring

RUNS = HERE.parent / "fixtures" / "runs"
HEAD = "| ckaudit triage | against | s | s | wall ratio | CPU ratio | aim | peak MiB |\n" + "|---" * 8 + "|"


def cases(root: Path, files: int) -> list[Case]:
    """Return all comparisons."""
    ours = [str(Path(sys.executable).parent / "ckaudit"), "triage"]
    parse, empty = [sys.executable, "-c", PARSE], [sys.executable, "-c", "pass"]
    many = f"{files:,} checkpoints of 200 KB"
    return [
        Case(
            f"{many}, many tensors",
            [*ours, str(root / "keys")],
            "orjson.loads of the same",
            [*parse, str(root / "keys")],
            "1.5",
            0,
        ),
        Case(
            f"{many}, nested grids",
            [*ours, str(root / "grids")],
            "orjson.loads of the same",
            [*parse, str(root / "grids")],
            "2.0",
            0,
        ),
        Case("the healthy recorded run", [*ours, str(RUNS / "healthy")], "an empty Python process", empty, "under 1 s", 0),
        Case("an ill recorded run", [*ours, str(RUNS / "lr_too_high")], "an empty Python process", empty, "-", 1),
    ]


def main() -> None:
    """Measure everything, print the table, and write it where asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--write", action="store_true", help="put the table into benchmarks/README.md")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        prepare(Path(temporary), wanted.files)
        rows = [compare(case, wanted.rounds) for case in cases(Path(temporary), wanted.files)]
    table = "\n".join([f"{machine()}; medians of {wanted.rounds} rounds.", "", HEAD, *rows])
    print(table)
    if wanted.write:
        write_table("triage", table)


if __name__ == "__main__":
    main()
