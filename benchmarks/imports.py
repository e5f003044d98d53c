"""How long importing a foreign log takes, against a plain parse of the same file: whole processes, side by side.

    python benchmarks/imports.py [--rounds 5] [--write]

The plain parse gives numbers without a meaning. It is pyarrow's reader of CSV or of JSON, `json.loads`, or a loop over lines that
matches one pattern and converts the match.
"""

import json
import random
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE)]

from pairs import Case, run  # noqa: E402  it stands beside this file

STEPS = 143_000
GOLDEN_STEPS = 9_000  # 1.8 MB
LOG_LINES = 310_000  # 100 MB

IMPORT = """
import sys
from pathlib import Path
from ckaudit.importers import import_source
import_source(Path(sys.argv[1]))
"""
ARROW_CSV = "import sys\nfrom pyarrow import csv\ncsv.read_csv(sys.argv[1])\n"
ARROW_JSON = """
import sys
from pyarrow import json
json.read_json(sys.argv[1], read_options=json.ReadOptions(block_size=2**25))
"""
JSON = "import json, sys\njson.loads(open(sys.argv[1], 'rb').read())\n"
LINES = r"""
import re, sys
pattern = re.compile(r"[^|]*iteration +(\d+)/ *(\d+) \| consumed samples: +(\d+) \| elapsed time per iteration \(ms\): ([\d.]+) "
    r"\| learning rate: ([-+.\dE]+) \| global batch size: +(\d+) \| lm loss: ([-+.\dE]+) \| loss scale: ([\d.]+) "
    r"\| grad norm: ([\d.]+) \| num zeros: ([\d.]+) \| number of skipped iterations: +(\d+) "
    r"\| number of nan iterations: +(\d+) \|")
rows = []
with open(sys.argv[1]) as stream:
    for line in stream:
        found = pattern.match(line)
        if found:
            rows.append(tuple(map(float, found.groups())))
"""


def prepare(root: Path, _: int) -> None:
    """Write a table, golden values and a text log under `root`."""
    chance = random.Random(0)
    with (root / "metrics.csv").open("w") as stream:
        stream.write("step,train/loss,lr,grad_norm,tokens_per_sec,val/loss\n")
        for step in range(1, STEPS + 1):
            held_out = f"{2 + chance.random():.5f}" if step % 100 == 0 else ""
            loss, norm, speed = 2 + chance.random(), chance.random(), chance.randrange(40_000, 50_000)
            stream.write(f"{step},{loss:.6f},{3e-4 * (1 - step / 150_000):.8g},{norm:.5f},{speed},{held_out}\n")
    names = ("lm loss", "iteration-time", "mem-allocated-bytes", "learning-rate", "grad-norm", "loss-scale", "num-zeros")
    golden = {
        name: {
            "start_step": 1,
            "end_step": GOLDEN_STEPS,
            "step_interval": 1,
            "values": {str(step): round(chance.random() * 3, 5) for step in range(1, GOLDEN_STEPS + 1)},
        }
        for name in names
    }
    (root / "golden.json").write_text(json.dumps(golden, indent=4))
    with (root / "train.log").open("w") as stream:
        for step in range(1, LOG_LINES + 1):
            time, loss, norm = 9000 + 500 * chance.random(), 2 + chance.random(), chance.random()
            stream.write(
                f"[default7]: iteration {step:8d}/{LOG_LINES:8d} | consumed samples: {step * 2048:12d} | elapsed time per "
                f"iteration (ms): {time:.1f} | learning rate: 6.000E-05 | global batch size:  2048 | lm loss: {loss:.6E} | "
                f"loss scale: 1.0 | grad norm: {norm:.3f} | num zeros: 0.0 | number of skipped iterations:   0 | number of nan "
                "iterations:   0 |\n"
            )


def cases(root: Path, _: int) -> list[Case]:
    """Return all comparisons."""
    rows = (
        (f"a CSV of {STEPS:,} steps", "metrics.csv", "pyarrow.csv", ARROW_CSV, "2.0"),
        ("golden values, JSON of 1.8 MB", "golden.json", "pyarrow.json", ARROW_JSON, "2.0"),
        ("golden values, JSON of 1.8 MB", "golden.json", "json.loads, without any array", JSON, "-"),
        ("a text log of 100 MB", "train.log", "one pattern in a loop over lines", LINES, "2.0"),
    )
    return [
        Case(name, [sys.executable, "-c", IMPORT, str(root / file)], peer, [sys.executable, "-c", code, str(root / file)], aim)
        for name, file, peer, code, aim in rows
    ]


if __name__ == "__main__":
    run("imports", prepare, cases)
