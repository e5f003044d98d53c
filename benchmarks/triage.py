"""How long `ckaudit triage` takes, against a process that only parses the same files: side by side, medians.

python benchmarks/triage.py [--rounds 5] [--files 1000] [--write]
"""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from pairs import Case, run  # noqa: E402
from validate import PARSE, prepare  # noqa: E402  the same data

RUNS = HERE.parent / "fixtures" / "runs"


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


if __name__ == "__main__":
    run("triage", prepare, cases)
