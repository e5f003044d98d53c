"""What holds for every metric: it reads what it says, sees no future, and keeps NaN apart from not recorded."""

from collections.abc import Mapping
from copy import deepcopy

import numpy as np
import pytest
from msgspec.structs import replace

from ckaudit.metrics import metrics
from ckaudit.metrics.loss import LOGGED_AS
from ckaudit.run.memory import ResultCache
from ckaudit.run.run import Grids, Run
from tests.loops import check_each, for_each
from tests.metrics.samples import random_run

ALL = list(metrics().values())
each_metric = for_each("metric", ALL)


class Guarded(Mapping):
    """A mapping that refuses every key which was not declared, and remembers what it was asked for."""

    def __init__(self, inner, declared):
        self.inner, self.declared, self.asked = inner, declared, set()

    def __getitem__(self, key):
        if key not in self.declared:
            raise AssertionError(f"{key} was read but not declared")
        self.asked.add(key)
        return self.inner[key]

    def __iter__(self):
        raise AssertionError("a metric looked at everything")

    def __len__(self):
        return len(self.inner)


class GuardedWords(Guarded):
    """Words, whose names carry labels: all may be looked through, and only declared ones be read."""

    def __getitem__(self, key):
        family = key.partition("/")[0]
        if family not in self.declared:
            raise AssertionError(f"{family} was read but not declared")
        self.asked.add(family)
        return self.inner[key]

    def __iter__(self):
        return iter(self.inner)


def guarded(run, declared):
    return replace(
        run,
        sections=Guarded(run.sections, declared),
        scalars=Guarded(run.scalars, declared),
        texts=GuardedWords(run.texts, declared),
        grids=Guarded(run.grids, declared),
        _derived=ResultCache(),
    )


def same(found, expected):
    return (
        found.labels == expected.labels
        and np.array_equal(found.steps, expected.steps)
        and np.array_equal(found.recorded, expected.recorded)
        and np.allclose(found.values, expected.values, rtol=1e-9, atol=1e-12, equal_nan=True)
    )


@each_metric
def test_it_reads_only_what_it_declares(metric):
    assert metric(guarded(random_run(), set(metric.reads)))


@each_metric
def test_it_asks_for_all_that_it_declares_sooner_or_later(metric):
    asked = set()
    singles = [(path,) for path in metric.reads]
    losses = [LOGGED_AS[:2], LOGGED_AS]  # a loss that goes by three names
    for missing in ((), *singles, *losses, metric.reads):
        run = guarded(without(random_run(), missing), set(metric.reads))
        metric(run)
        asked |= run.sections.asked | run.scalars.asked | run.texts.asked | run.grids.asked
    assert asked == set(metric.reads)


def without(run, paths):
    sections = {key: series for key, series in run.sections.items() if key not in paths}
    scalars = {key: series for key, series in run.scalars.items() if key not in paths}
    return replace(
        run, sections=sections, scalars=scalars, grids={key: each for key, each in run.grids.items() if key not in paths}
    )


def test_an_undeclared_path_is_caught():
    weight_std = metrics()["weight_std"]
    with pytest.raises(AssertionError, match="not declared"):
        weight_std(guarded(random_run(), {"weights.*.mean"}))


@each_metric
def test_nothing_recorded_gives_nothing(metric):
    found = metric(Run("empty"))
    assert not found
    assert found.values.shape == (len(found.steps), len(found.labels)) == found.recorded.shape


@each_metric
def test_a_cell_that_is_not_recorded_holds_nan_under_the_metrics_own_name(metric):
    found = metric(random_run())
    assert (found.name, found.unit) == (metric.name, metric.unit)
    assert found.values.shape == found.recorded.shape == (len(found.steps), len(found.labels))
    assert np.isnan(found.values[~found.recorded]).all()
    assert (np.diff(found.steps) > 0).all()
    assert found.finite.any()


def test_it_leaves_the_run_as_it_was():
    run = random_run()
    untouched = [(series, deepcopy(series)) for series in (*run.sections.values(), *run.scalars.values())]

    def check(metric):
        metric(run)
        for series, before in untouched:
            assert series.labels == before.labels
            assert np.array_equal(series.steps, before.steps)
            assert np.array_equal(series.recorded, before.recorded)
            assert np.array_equal(series.values, before.values, equal_nan=True)

    check_each(ALL, check, name="metric")


@each_metric
def test_it_sees_no_future(metric):
    run = random_run()
    for step in (3, 60, 100):
        assert same(metric(run.until(step)), metric(run).until(step))


def spaced(series, steps):
    """Return the first rows of a series at other steps."""
    return replace(series, steps=steps, values=series.values[: len(steps)], recorded=series.recorded[: len(steps)])


def changed(run, change, reads):
    sections = {path: change(series) for path, series in run.sections.items() if path in reads}
    scalars = {name: change(series) for name, series in run.scalars.items() if name in reads}
    return replace(run, sections=sections, scalars=scalars, _derived=ResultCache())


LOG_SPACED = np.unique(np.geomspace(1, 1e6, 130).astype(np.int64))
HOSTILE = {
    "log-spaced steps": lambda series: spaced(series, LOG_SPACED),
    "two points": lambda series: spaced(series, np.array([10, 5_000])),
    "one point": lambda series: spaced(series, np.array([7])),
    "constant": lambda series: replace(series, values=np.where(series.recorded, 1.0, np.nan)),
    "all zero": lambda series: replace(series, values=np.where(series.recorded, 0.0, np.nan)),
    "all NaN": lambda series: replace(series, values=np.full(series.values.shape, np.nan)),
    "infinities": lambda series: replace(series, values=np.where(series.recorded, np.inf, np.nan)),
    "as large as float32 goes": lambda series: replace(series, values=series.values * 1e38),
    "from step 0": lambda series: replace(series, steps=series.steps - 1),
    "counted in thousands": lambda series: replace(series, steps=series.steps * 1_000),
}


@for_each("case", HOSTILE)
@each_metric
def test_it_bears_any_recording(metric, case):
    found = metric(changed(random_run(), HOSTILE[case], set(metric.reads)))
    assert found.values.shape == found.recorded.shape == (len(found.steps), len(found.labels))
    assert np.isnan(found.values[~found.recorded]).all()
    assert (np.diff(found.steps) > 0).all()


@for_each("metric", [metric for metric in ALL if metric.memory])
def test_the_last_value_needs_no_more_history_than_its_memory(metric):
    run = random_run(steps=260, gaps=0.0)
    found, short = metric(run), metric(_tail(run, metric.memory))
    assert np.allclose(found.values[-1], short.values[-1], rtol=1e-9, equal_nan=True)
    assert np.array_equal(found.recorded[-1], short.recorded[-1])


@for_each("metric", [metric for metric in ALL if (metric.memory or 0) > 1])
def test_a_metric_needs_half_of_the_history_that_it_asks_for_at_least(metric):
    """Half of the points of a window may be missing, so that its double is asked for; of one point there is no half."""
    whole = random_run(steps=260, gaps=0.0, nans=0.0)
    flags = changed(whole, lambda series: replace(series, values=(series.values < 2).astype(float)), set(metric.reads))
    runs = [run.until(step) for step in (201, 222, 243, 260) for run in (whole, flags)]
    shorter = max(1, metric.memory // 2 - 1)
    assert not all(_same_end(metric(run), metric(_tail(run, shorter))) for run in runs)


def _same_end(found, short):
    return (
        found.labels == short.labels
        and np.array_equal(found.recorded[-1], short.recorded[-1])
        and np.allclose(found.values[-1], short.values[-1], rtol=1e-9, equal_nan=True)
    )


def _tail(run, points):
    def cut(series):
        return replace(series, steps=series.steps[-points:], values=series.values[-points:], recorded=series.recorded[-points:])

    sections = {path: cut(series) for path, series in run.sections.items()}
    scalars = {name: cut(series) for name, series in run.scalars.items()}
    since = int(run.checkpoint_steps[-points])
    kept = {path: _since(grids, since) for path, grids in run.grids.items()}
    return replace(run, sections=sections, scalars=scalars, grids=kept, _derived=ResultCache())


def _since(grids, step):
    rows = [row for row in zip(grids.steps, grids.labels, grids.values, strict=True) if row[0] >= step]
    return Grids(*zip(*rows, strict=True)) if rows else Grids()
