"""Runs made of arrays, for the tests of comparisons."""

import numpy as np

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.diff.align import common_axis
from ckaudit.diff.run_pair import RunPair, RunSide
from ckaudit.run.run import Run
from ckaudit.run.series import Series, single


def scalar(name, values, steps=None):
    """Make a series of one label; NaN cells are recorded as NaN."""
    values = np.asarray(values, float)
    return single(name, "1", np.arange(1, len(values) + 1) if steps is None else np.asarray(steps), values)


def places(name, values, labels, steps=None):
    """Make a series of several labels; NaN cells are not recorded."""
    values = np.asarray(values, float)
    steps = np.arange(1, len(values) + 1) if steps is None else np.asarray(steps)
    return Series(name, "1", steps.astype(np.int64), tuple(labels), values, ~np.isnan(values))


def run(name="run", *, sections=None, steps=None, **scalars):
    """Make a run of scalars by name and of tables by path."""
    made = {key: value if isinstance(value, Series) else scalar(key, value, steps) for key, value in scalars.items()}
    return Run(name=name, manifest=Manifest(schema_version="ck.run.v1"), scalars=made, sections=sections or {})


def both(left, right, *, axis="step", replicas=(), findings=((), ())):
    """Put two runs side by side."""
    sides = [RunSide(each, tuple(found)) for each, found in zip((left, right), findings, strict=True)]
    return RunPair(
        *sides, common_axis(left, right, axis), tuple(RunSide(each) if isinstance(each, Run) else each for each in replicas)
    )


def losses(seed, *, count=400, scale=0.05, start=4.0, end=2.0, level=0.0):
    """Return a falling loss with the noise of batches."""
    noise = np.random.default_rng(seed).normal(0, scale, count)
    return end + level + (start - end) * np.exp(-np.arange(count) / 60) + noise
