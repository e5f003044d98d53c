"""How long `ckaudit report` takes against `ckaudit triage` of the same run, and how large the file becomes.

python benchmarks/report.py [--rounds 5] [--files 1000] [--write]
"""

import random
import re
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "fixtures")]

from checkpoints.honest import grid_heavy, key_heavy  # noqa: E402  the generator stands beside the fixtures
from pairs import Case, run  # noqa: E402
from validate import write_run  # noqa: E402  the same data
from watch import line  # noqa: E402

HEALTHY = HERE.parent / "fixtures" / "runs" / "healthy"
STEPS = 1_000_000
COLUMNS = " MB whole, aim 4.5 | MB of data, aim 3 |"


def prepare(root: Path, files: int) -> None:
    """Write two runs of checkpoints and one long log."""
    for name, make in (("keys", key_heavy), ("grids", grid_heavy)):
        write_run(root / name, make, files, lambda data: data)
    (root / "log").mkdir()
    draw = random.Random(0)
    with (root / "log" / "scalars.jsonl").open("w") as stream:
        stream.writelines(line(step, 1e9 + step / 20, draw) for step in range(1, STEPS + 1))


def cases(root: Path, files: int) -> list[Case]:
    """Return all comparisons."""
    ckaudit = str(Path(sys.executable).parent / "ckaudit")
    many = f"{files:,} checkpoints of 200 KB"

    def case(name: str, aim: str, *runs: Path) -> Case:
        ours = [ckaudit, "report", *map(str, runs), "-o", str(root / "report.html")]
        return Case(name, ours, "triage of the first", [ckaudit, "triage", str(runs[0])], aim)

    return [
        case(f"{many}, 310 tensors", "2.0", root / "keys"),
        case(f"{many}, nested grids", "2.0", root / "grids"),
        case(f"{many}, 310 tensors, beside another such run", "-", root / "keys", root / "keys"),
        case("the healthy recorded run of 2,000 steps", "3 s", HEALTHY),
        case(f"a log of {STEPS:,} steps of ten values", "-", root / "log"),
    ]


def sizes(root: Path) -> str:
    """Return the size of the report written last, and of the data in it."""
    whole = (root / "report.html").read_bytes()
    data = sum(map(len, re.findall(rb'"application/json" id="d-\w+">(.*?)</script>', whole)))
    return f" {len(whole) / 1e6:.2f} | {data / 1e6:.2f} |"


if __name__ == "__main__":
    run("report", prepare, cases, columns=COLUMNS, cells=sizes)
