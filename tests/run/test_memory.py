"""A run that is larger than memory: its columns stand on disk, and the verdict is the same."""

from pathlib import Path

import msgspec
import numpy as np
import pytest

from ckaudit.audit import triage
from ckaudit.run import builder, memory
from ckaudit.run.builder import RunBuilder
from ckaudit.run.memory import ResultCache, free_memory, memory_limit
from ckaudit.run.read import read_run
from ckaudit.run.series import single

RUNS = Path("fixtures/runs")


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch):
    """Have every few checkpoints moved to disk."""
    monkeypatch.setattr(builder, "CHECK_EVERY", 5)
    monkeypatch.setattr(builder, "CHECK_FROM", 0)
    monkeypatch.setattr(memory, "LARGE", 0)
    with memory_limit(4096):
        yield


@pytest.mark.parametrize("name", ["healthy", "experts_two_ranks", "lr_too_high"])
def test_columns_on_disk_hold_what_columns_in_memory_hold(name: str, request: pytest.FixtureRequest):
    in_memory = read_run(RUNS / name)
    request.getfixturevalue("tiny")
    on_disk = read_run(RUNS / name)
    assert any(isinstance(series.values, np.memmap) for series in on_disk.sections.values())
    assert on_disk.sections.keys() == in_memory.sections.keys()
    for path, series in in_memory.sections.items():
        other = on_disk.sections[path]
        assert other.labels == series.labels
        np.testing.assert_array_equal(other.steps, series.steps)
        np.testing.assert_array_equal(other.values, series.values, err_msg=path)
        np.testing.assert_array_equal(other.recorded, series.recorded, err_msg=path)


def test_the_verdict_is_the_same_to_the_last_byte(request: pytest.FixtureRequest):
    whole = msgspec.json.encode(triage(RUNS / "lr_too_high"))
    request.getfixturevalue("tiny")
    assert msgspec.json.encode(triage(RUNS / "lr_too_high")) == whole


@pytest.mark.usefixtures("tiny")
def test_tensors_that_come_late_and_cells_that_are_not_recorded():
    found = RunBuilder(frozenset({"gradients.*.norm"}))
    for step in range(12):
        entries = {"a": {"norm": 1.0 + step}} | ({"b": {"norm": "NaN" if step == 9 else 2.0}} if step > 6 else {"c": {}})
        text = msgspec.json.encode({"schema_version": "ck.analysis.v1", "step": step, "gradients": entries})
        found.take(found.decoder.decode(text))
    series = found.series()["gradients.*.norm"]
    cells = dict(zip(series.labels, zip(series.values.T.tolist(), series.recorded.T.tolist(), strict=True), strict=True))
    assert cells["a"] == ([1.0 + step for step in range(12)], [True] * 12)
    assert cells["b"][1] == [False] * 7 + [True] * 5
    assert np.isnan(cells["b"][0][9])
    assert cells["b"][0][7:9] == [2.0, 2.0]
    assert cells["c"][1] == [False] * 12


def test_large_results_go_to_disk_where_memory_is_short(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(memory, "LARGE", 100)
    steps = np.arange(1000)
    made = [single(str(number), "1", steps, np.full(1000, float(number))) for number in range(4)]
    with memory_limit(4 * 20_000):  # a quarter of it: two results of 8,000 bytes
        cache = ResultCache()
        kept = [cache.get(series.name, lambda series=series: series, held=lambda: [steps]) for series in made]
    assert [isinstance(series.values, np.memmap) for series in kept] == [False, False, True, True]
    assert cache.get("3", lambda: pytest.fail("it is known")) is kept[3]
    np.testing.assert_array_equal(kept[3].values, made[3].values)
    np.testing.assert_array_equal(kept[3].recorded, made[3].recorded)


def test_the_memory_of_a_container_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert free_memory() > 2**20
    monkeypatch.setattr(memory, "CGROUPS", tmp_path)
    for folder in (tmp_path, tmp_path / "memory"):
        folder.mkdir(exist_ok=True)
        (folder / "memory.max").write_text("1048576\n")
        (folder / "memory.limit_in_bytes").write_text("1048576\n")
    assert free_memory() == 2**20
