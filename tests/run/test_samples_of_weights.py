"""Samples of weights: in a long run they are read of at most 128 checkpoints, evenly spread, whoever writes them how often."""

import json
from pathlib import Path

import numpy as np
import pytest

from ckaudit.run.read import read_run
from tests.loops import for_each

GRID = "weights.*.sampled_grid_32x32"


def _write(folder: Path, *, count: int, every: int) -> None:
    for step in range(count):
        weights = {"std": 0.02, "percentiles": [-0.05, -0.03, -0.01, 0.0, 0.01, 0.03, 0.05 + step]}
        if step % every == 0:
            weights["sampled_grid_32x32"] = [[0.5, step], [1.0, -1.0]]
        document = {"schema_version": "ck.analysis.v1", "step": step, "loss": 1.0, "weights": {"head.weight": weights}}
        (folder / f"analysis_checkpoint_step_{step:08d}.json").write_text(json.dumps(document))


@for_each(
    ("count", "every", "steps"),
    [
        (100, 1, [*range(100)]),
        (300, 1, [*range(0, 300, 3), 299]),  # 300 over 128 is 3 at least
        (300, 10, [*range(0, 300, 10)]),  # a writer's own pace is not thinned further
        (301, 2, [*range(0, 300, 4), 300]),
    ],
)
def test_samples_are_spread_evenly_with_the_first_and_the_last(
    count: int, every: int, steps: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("run")
    _write(folder, count=count, every=every)
    run = read_run(folder, reads=[GRID, "weights.*.std"])
    grids = run.grid("weights", "sampled_grid_32x32")
    assert list(grids.steps) == steps
    assert all(np.array_equal(grid, [[0.5, step], [1.0, -1.0]]) for step, grid in zip(grids.steps, grids.values, strict=True))
    assert run.series("weights", "std").values.shape == (count, 1)


def test_who_asks_for_everything_gets_every_percentile(tmp_path: Path) -> None:
    _write(tmp_path, count=300, every=1)
    everything = read_run(tmp_path).series("weights", "percentiles")
    assert np.array_equal(everything.values[:, -1], 0.05 + np.arange(300))
    thinned = read_run(tmp_path, reads=["weights.*.percentiles"]).series("weights", "percentiles")
    assert list(thinned.steps) == [*range(0, 300, 3), 299]
