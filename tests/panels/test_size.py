"""However long a run, its pictures stay small: what is sent is bounded by what a screen shows."""

import json
from pathlib import Path
from typing import Any

import msgspec
from numpy.random import Generator, default_rng

from ckaudit.audit.engine import triage_run
from ckaudit.audit.load_run import open_run
from ckaudit.contract.io.grids import encode_grid
from ckaudit.panels.build import panel_reads, panels

CHECKPOINTS, LAYERS, HEADS, STEPS = 220, 13, 16, 3_000
MATRICES = ("attn.q.weight", "attn.k.weight", "attn.v.weight", "attn.out.weight", "mlp.up.weight", "mlp.down.weight")
VECTORS = ("attn_norm.weight", "mlp_norm.weight", "mlp.up.bias", "mlp.down.bias")
LARGEST = 3_000_000


def stats(rng: Generator, *, matrix: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "numel": 4096,
        "mean": rng.normal() / 100,
        "std": rng.random(),
        "min": -rng.random(),
        "max": rng.random(),
        "histogram": {"bins": {"range": [-1.0, 1.0], "count": 64}, "counts": rng.integers(0, 99_999, 64).tolist()},
    }
    return found | ({"sampled_grid_32x32": encode_grid(rng.normal(size=(32, 32)), "q8")} if matrix else {})


def checkpoint(rng: Generator, step: int) -> dict[str, Any]:
    names = {f"blocks.{layer}.{part}": part in MATRICES for layer in range(LAYERS) for part in (*MATRICES, *VECTORS)}
    heads = rng.random(HEADS).tolist()
    # Matrices of three layers are enough: no more are drawn, and the files stay small.
    drawn = {name: matrix and int(name.split(".")[1]) in (0, 6, 12) for name, matrix in names.items()}
    return {
        "schema_version": "ck.analysis.v1",
        "step": step,
        "loss": 3.0 + rng.normal() / 10,
        "weights": {n: stats(rng, matrix=drawn[n]) | {"frobenius_norm": 1 + rng.random(), "spectral_norm": 1.0} for n in names},
        "gradients": {n: stats(rng, matrix=drawn[n]) | {"norm": rng.random(), "zero_fraction": rng.random()} for n in names},
        "weight_deltas": {n: {"norm": rng.random(), "relative": rng.random() / 99, "moved": rng.random()} for n in names},
        "activations": {
            f"blocks.{layer}.mlp": stats(rng, matrix=False) | {"rms": rng.random(), "dead_units": 3, "units": 64}
            for layer in range(LAYERS)
        },
        "attention": {
            f"layer.{layer}": {
                "entropy_per_head": heads,
                "normalized_entropy_per_head": heads,
                "sharp_share_per_head": heads,
                "max_logit_per_head": heads,
                "upper_triangle_mass_per_head": heads,
                "nearest_similarity_per_head": heads,
                "kind_per_head": ["content"] * HEADS,
                **({"sampled_qk_grid_32x32_per_head": encode_grid(rng.random((HEADS, 32, 32)), "q8")} if layer % 6 == 0 else {}),
            }
            for layer in range(LAYERS)
        },
    }


def write(folder: Path) -> None:
    """Write a run of 130 tensors with everything in it that a picture is made of."""
    rng = default_rng(0)
    for ordinal in range(CHECKPOINTS):
        step = 1 + ordinal * (STEPS // CHECKPOINTS)
        data = msgspec.json.encode(checkpoint(rng, step))
        (folder / f"analysis_checkpoint_step_{step:08d}.json").write_bytes(data)
    names = ("learning_rate", "grad_global_norm", "tokens_per_sec", "step_time", "train_loss_raw")
    with (folder / "scalars.jsonl").open("w") as lines:
        for step in range(1, STEPS + 1):
            values = dict(zip(names, rng.random(len(names)).tolist(), strict=True))
            held_out = {"val_loss": 3.0 + rng.random(), "slice_val_loss/regular": 2.0} if step % 10 == 0 else {}
            lines.write(
                json.dumps({"step": step, "time": 1e9 + step, "session": 0, "tokens_seen": 512 * step} | values | held_out)
            )
            lines.write("\n")


def test_the_pictures_of_a_long_run_of_130_tensors_stay_below_three_megabytes(tmp_path: Path) -> None:
    write(tmp_path)
    run = open_run(tmp_path, reads=panel_reads())
    document = panels(run, triage_run(run), path=tmp_path)
    charts = {chart.id: chart for tab in document.tabs for chart in tab.charts}
    assert {"weight_grids", "gradient_grids", "attention_grids", "redundancy", "weight_ridges", "activation_bands"} <= set(charts)
    for chart in charts.values():
        assert all(len(trace.x) <= 800 for trace in chart.traces), chart.id
        assert len({ridge.step for ridge in chart.ridges}) <= 24
        assert len({ridge.where for ridge in chart.ridges}) <= 12
        assert len({frame.step for frame in chart.frames}) <= 24
        assert len({frame.where for frame in chart.frames}) <= 16
        if chart.matrix:
            assert len(chart.matrix.rows) <= 120
            assert len(chart.matrix.columns) <= 200
    size = len(msgspec.json.encode(document))
    assert 1_000_000 < size <= LARGEST
