"""How long `ckaudit diff` takes: two files against jq and diff and against deepdiff, two runs against the triage of one.

    python benchmarks/diff.py [--rounds 5] [--files 1000] [--only TEXT] [--write]

deepdiff is measured if CKAUDIT_DEEPDIFF names a Python that has it.
"""

import os
import sys
from pathlib import Path
from shutil import which

import orjson

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "fixtures")]

from checkpoints.honest import grid_heavy, key_heavy  # noqa: E402  the generator stands beside the fixtures
from pairs import Case, run  # noqa: E402
from validate import VARIANTS  # noqa: E402

JQ = 'jq -S . "$0" > "$2/a1"; jq -S . "$1" > "$2/b1"; diff "$2/a1" "$2/b1"; [ $? -le 1 ]'
EITHER = '"$@"; [ $? -le 1 ]'  # the answers worse and different have exit code 1, which is no failure
DEEP = "import json, sys, deepdiff; print(deepdiff.DeepDiff(*(json.load(open(path)) for path in sys.argv[1:])))"


def prepare(root: Path, files: int) -> None:
    """Write two pairs of files, and two runs of `files` checkpoints."""
    for name, make in (("keys", key_heavy), ("grids", grid_heavy)):
        for side in range(2):
            (root / f"{name}{side}.json").write_bytes(orjson.dumps(make(seed=side)))
    for side in range(2):
        folder = root / f"run{side}"
        folder.mkdir()
        variants = [orjson.dumps(key_heavy(seed=seed + side)) for seed in range(VARIANTS)]
        for step in range(1, files + 1):
            data = variants[step % VARIANTS].replace(b'"step":500', b'"step":%d' % step, 1)
            (folder / f"analysis_checkpoint_step_{step:08d}.json").write_bytes(data)


def cases(root: Path, files: int) -> list[Case]:
    """Return all comparisons that have a peer."""
    ours = str(Path(sys.executable).parent / "ckaudit")
    deep = os.environ.get("CKAUDIT_DEEPDIFF")
    found = []
    for name, text in (("keys", "many tensors"), ("grids", "nested grids")):
        pair = [str(root / f"{name}{side}.json") for side in range(2)]
        title = f"two checkpoints of 200 KB, {text}"
        mine = ["sh", "-c", EITHER, "sh", ours, "diff", *pair]
        found += [Case(title, mine, "jq -S of both, and diff", ["sh", "-c", JQ, *pair, str(root)], "1.2")] if which("jq") else []
        found += [Case(title, mine, "deepdiff", [deep, "-c", DEEP, *pair], "0.05")] if deep else []
    both = ["sh", "-c", EITHER, "sh", ours, "diff", str(root / "run0"), str(root / "run1")]
    one = ["sh", "-c", EITHER, "sh", ours, "triage", str(root / "run0")]
    return [*found, Case(f"two runs of {files:,} checkpoints of 200 KB", both, "triage of one", one, "2.1")]


if __name__ == "__main__":
    run("diff", prepare, cases)
