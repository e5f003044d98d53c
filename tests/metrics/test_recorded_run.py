"""A recorded training: what metrics make of its files, against a plain reading of the same files."""

import json
import math
from itertools import pairwise
from pathlib import Path
from statistics import median

import numpy as np
import pytest

from ckaudit.contract.io.files import read_bytes
from ckaudit.metrics.heads import head_kind
from ckaudit.metrics.memorization import memorization_curve
from ckaudit.metrics.movement import movement_rank, moving_share
from ckaudit.metrics.observability import checkpoint_ok, checkpoint_size, nan_inf_events
from ckaudit.metrics.progress import lr_phase, tokens_per_update
from ckaudit.metrics.scaling import unigram_entropy
from ckaudit.metrics.speed import step_time, tokens_per_sec
from ckaudit.run.read import read_run
from ckaudit.run.run import Run
from tests.metrics.samples import cells

FOLDER = Path(__file__).parents[2] / "fixtures" / "runs" / "healthy"
GRIDS = "attention.*.sampled_qk_grid_32x32_per_head"


@pytest.fixture(scope="module")
def run():
    paths = {path for metric in (unigram_entropy, movement_rank, memorization_curve) for path in metric.paths}
    return read_run(FOLDER, reads=paths | {*head_kind.reads})


@pytest.fixture(scope="module")
def lines():
    return [json.loads(line) for line in (FOLDER / "scalars.jsonl").read_text().splitlines()]


def values(series):
    return {step: value for (step, _), value in cells(series).items()}


def test_speed_is_that_of_the_lines(run, lines):
    expected = {
        after["step"]: (after["time"] - before["time"], after["tokens_seen"] - before["tokens_seen"])
        for before, after in pairwise(lines)
    }
    assert values(step_time(run)) == pytest.approx({step: seconds for step, (seconds, _) in expected.items()})
    assert values(tokens_per_sec(run)) == pytest.approx({step: tokens / seconds for step, (seconds, tokens) in expected.items()})
    assert set(values(tokens_per_update(run)).values()) == {2048.0}


def test_warm_up_ends_at_step_100(run):
    phase = values(lr_phase(run))
    assert (phase[1], phase[50], phase[100], phase[2000]) == (1.0, 50.0, 100.0, 100.0)


def test_files_are_whole_and_as_large_as_on_disk(run):
    sizes = {int(path.name[25:33]): path.stat().st_size for path in FOLDER.glob("analysis_checkpoint_*")}
    assert values(checkpoint_size(run)) == sizes
    assert set(values(checkpoint_ok(run)).values()) == {1.0}
    assert set(values(nan_inf_events(run)).values()) == {0.0}


def test_entropy_of_the_tokens_is_that_of_their_counts(run):
    expected = {}
    for path in FOLDER.glob("analysis_checkpoint_*"):
        document = json.loads(read_bytes(path, path.name))
        counts = document.get("data", {}).get("token_histogram")
        if counts:
            expected[document["step"]] = -sum(n / sum(counts) * math.log(n / sum(counts)) for n in counts if n)
    assert values(unigram_entropy(run)) == pytest.approx(expected)


def test_movement_at_the_end_against_a_recount(run):
    path = FOLDER / "analysis_checkpoint_step_00002000.json.zst"
    deltas = json.loads(read_bytes(path, path.name))["weight_deltas"]
    moved = sorted(((each["moved"], name) for name, each in deltas.items()), reverse=True)
    ranks = {label: value for (step, label), value in cells(movement_rank(run)).items() if step == 2000}
    assert ranks == {name: place for place, (_, name) in enumerate(moved, 1)}
    assert min(ranks, key=ranks.__getitem__).startswith("blocks."), "no embedding or norm leads"
    share = sum(each >= 0.1 * median(value for value, _ in moved) for each, _ in moved) / len(moved)
    assert values(moving_share(run))[2000] == share


def test_kinds_from_sampled_maps_are_mostly_those_that_the_recorder_saw_in_whole_maps(run):
    told, sampled = head_kind(run), head_kind(Run("maps", grids={GRIDS: run.grids[GRIDS]}))
    rows = np.searchsorted(told.steps, sampled.steps)
    columns = [told.labels.index(label) for label in sampled.labels]
    both = sampled.recorded & told.recorded[rows][:, columns]
    assert both.sum() > 100
    assert (told.values[rows][:, columns] == sampled.values)[both].mean() > 0.95
