"""How long `ckaudit metrics` takes with every metric that has a value, against programs that only read the same files.

python benchmarks/metrics.py [--rounds 5] [--files 1000] [--write]
"""

import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "fixtures")]

from checkpoints.honest import key_heavy  # noqa: E402  the generator stands beside the fixtures
from pairs import Case, run  # noqa: E402
from validate import PARSE, write_run  # noqa: E402  the same data

STEPS, PIECE = 1_000_000, 10_000
NAMES = (
    "train_loss_raw",
    "grad_global_norm",
    "learning_rate",
    "clip_coefficient",
    "loss_scale",
    "skipped_updates",
    "update_to_weight",
    "max_attn_logit",
    "min_normalized_entropy",
    "residual_rms_p50",
    "residual_rms_p99",
    "top_gradient_share",
    "grad_noise_scale",
    "dead_unit_fraction",
    "overflow_rate",
    "curvature_trace_est",
    "tokens_per_second",
    "step_time",
    "memory_used",
    "tokens_seen",
)
PYARROW = "import sys, pyarrow.json\npyarrow.json.read_json(sys.argv[1])\n"


def write_log(path: Path, *, nan: float = 0.0, torn: bool = False) -> None:
    """Write a million lines of twenty numbers, `nan` of them as words; if `torn`, the file ends with half a line."""
    rng = np.random.default_rng(0)
    path.parent.mkdir()
    with path.open("w") as stream:
        for first in range(1, STEPS, PIECE):
            columns = _columns(rng, first, nan)
            for step, cells in enumerate(zip(*columns, strict=True), first):
                values = ",".join([f'"{name}":{cell}' for name, cell in zip(NAMES, cells, strict=True)])
                stream.write(f'{{"step":{step},"time":{1_795_226_425 + 0.3 * step:.1f},"session":0,{values}}}\n')
        stream.write(f'{{"step":{STEPS + 1},"time":17952' if torn else "")


def _columns(rng: np.random.Generator, first: int, nan: float) -> list[list[str]]:
    steps = np.arange(first, first + PIECE)
    loss = 3 + 8 * np.exp(-steps / 2e4) + rng.normal(0, 0.1, PIECE)
    numbers = [loss, *np.abs(rng.normal(1, 0.2, (len(NAMES) - 2, PIECE)))]
    columns = [[f"{value:.5g}" for value in column.tolist()] for column in numbers] + [
        [str(step * 2_048) for step in steps.tolist()]
    ]
    for column in columns:
        for row in np.flatnonzero(rng.random(PIECE) < nan).tolist():
            column[row] = '"NaN"'
    return columns


def prepare(root: Path, files: int) -> None:
    """Write all runs under `root`."""
    write_log(root / "clean" / "scalars.jsonl")
    write_log(root / "dirty" / "scalars.jsonl", nan=0.01, torn=True)
    write_run(root / "keys", key_heavy, files, lambda data: data)


def cases(root: Path, files: int) -> list[Case]:
    """Return all comparisons."""
    ours = [str(Path(sys.executable).parent / "ckaudit"), "metrics"]
    clean, size = root / "clean" / "scalars.jsonl", (root / "clean" / "scalars.jsonl").stat().st_size
    arrow = ("pyarrow.json of the clean log", [sys.executable, "-c", PYARROW, str(clean)])
    log = f"{STEPS:,} steps of {len(NAMES)} scalars, {size / 1e6:.0f} MB"
    parquet = ["-f", "parquet", "-o", str(root / "metrics.parquet")]
    return [
        Case(log, [*ours, str(root / "clean")], *arrow, "3"),
        Case(f"{log}, 1 % NaN words, torn end", [*ours, str(root / "dirty")], *arrow, "3"),
        Case(f"{log}, written as Parquet", [*ours, str(root / "clean"), *parquet], *arrow, "-"),
        Case(
            f"{files:,} checkpoints of 200 KB, many tensors",
            [*ours, str(root / "keys")],
            "orjson.loads of the same",
            [sys.executable, "-c", PARSE, str(root / "keys")],
            "1.5",
        ),
    ]


if __name__ == "__main__":
    run("metrics", prepare, cases)
