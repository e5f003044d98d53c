"""What every metric gives on small recordings, in few digits, beside the tests of its definition.

A test of a definition looks at what the definition is about. What a metric does where a name is missing that it could go by,
where cells are missing or all are zero, and in labels that no test has, stands here: on recordings with gaps, whole ones, courses
of a training with a spike, and whole ones without one of the paths that the metric reads. Claims of a log stand beside them
with the range that its raw values allow. `python -m tests.case_verdicts` writes what they come to into `tests/verdicts/metrics/`.
"""

from collections.abc import Iterator
from functools import cache
from itertools import groupby

import numpy as np
from msgspec.structs import replace

from ckaudit.contract.schema.numbers import ignoring_float_errors
from ckaudit.metrics import Metric, metrics
from ckaudit.metrics.claims import CLAIMS, every_bound
from ckaudit.run.memory import ResultCache
from ckaudit.run.run import Run
from ckaudit.run.series import Floats, Series
from tests.metrics.samples import random_run
from tests.metrics.test_claims import CONVENTIONS, honest

STEPS = 80
FALLING = ("train_loss_raw", "train_loss_ema", "val_loss", "slice_val_loss", "loss_function.value", "probes.*.loss")


@cache
def whole() -> Run:
    """Return a recording of every path at every step."""
    return random_run(1, steps=STEPS, gaps=0.0, nans=0.0)


@cache
def course() -> Run:
    """Return a recording whose losses fall, jump once and come back, and whose checkpoints are ten steps apart."""
    run = whole()
    steps = np.arange(1, STEPS + 1)
    shape = (0.6 + 2.4 * steps**-0.5 + np.where(abs(steps - 60) < 3, 4.0, 0.0))[:, None]

    def falling(series: Series) -> Series:
        return replace(series, values=shape * (1 + 0.02 * (series.values - 2)))

    sections = {path: falling(series) if path in FALLING else series for path, series in run.sections.items()}
    rows = slice(9, None, 10)
    sections = {
        path: replace(series, steps=series.steps[rows], values=series.values[rows], recorded=series.recorded[rows])
        for path, series in sections.items()
    }
    scalars = {name: falling(series) if name in FALLING else series for name, series in run.scalars.items()}
    return replace(run, sections=sections, scalars=scalars, checkpoint_steps=steps[rows], _derived=ResultCache())


@cache
def zero() -> Run:
    """Return a recording in which every number is zero."""
    return replace(
        whole(),
        sections={path: replace(series, values=0 * series.values) for path, series in whole().sections.items()},
        scalars={name: replace(series, values=0 * series.values) for name, series in whole().scalars.items()},
        _derived=ResultCache(),
    )


def without(run: Run, path: str) -> Run:
    """Return a recording that lacks a path."""
    kept = {
        kind: {name: each for name, each in getattr(run, kind).items() if name != path}
        for kind in ("sections", "scalars", "grids")
    }
    return replace(run, **kept, _derived=ResultCache())


def lines_of(metric: Metric) -> Iterator[str]:
    """Yield a line for each recording of which a metric says something else."""
    recordings = {"gaps": random_run(), "whole": whole(), "course": course(), "begun": whole().until(3), "zero": zero()}
    seen = set[str]()
    for how, run in recordings.items():
        yield f"  {how}: {digest(metric(run))}\n"
    seen.add(digest(metric(whole())))
    others = {f"no {path}": without(whole(), path) for path in metric.reads if len(metric.reads) > 1}
    others["no run.json"] = replace(whole(), manifest=None, _derived=ResultCache())
    for how, run in others.items():
        if (told := digest(metric(run))) not in seen:
            seen.add(told)
            yield f"  {how}: {told}\n"


def digest(series: Series) -> str:
    """Return the size of a table, its ends, and three sums of it in which rows and columns count differently."""
    if not series:
        return "nothing"
    finite = series.finite
    shape = f"{series.steps[0]}-{series.steps[-1]}, {series.values.shape[0]} x {series.values.shape[1]}"
    gaps = f", {int(series.recorded.sum())} recorded, {int(finite.sum())} finite" if not finite.all() else ""
    return f"{shape}{gaps}: {numbers(np.where(finite, series.values, 0.0))}"


def numbers(values: Floats) -> str:
    """Return the first and last cell of an array, and three sums."""
    rows, columns = np.indices(values.shape)
    sums = (values.sum(), (values * (rows + 1)).sum() / len(values), (values * (columns + 1)).sum())
    least = 1e-9 * np.abs(values).sum()  # less is what rounding left
    return " ".join(f"{each if abs(each) > least else 0.0:.5g}" for each in (values.flat[0], values.flat[-1], *sums))


@ignoring_float_errors
def by_module() -> dict[str, str]:
    """Return what the metrics of each module give, and what the claims of a log allow."""

    def module(metric: Metric) -> str:
        return metric.function.__module__.rpartition(".")[2]

    found = {
        name: "".join(f"# {each.name}\n{''.join(lines_of(each))}" for each in several)
        for name, several in groupby(sorted(metrics().values(), key=lambda each: (module(each), each.name)), module)
    }
    return found | {"claims": "".join(_of_claims())}


def _of_claims() -> Iterator[str]:
    for how, run in {"gaps": random_run(), "whole": whole(), **{str(each): honest(**each) for each in CONVENTIONS[::3]}}.items():
        yield f"# {how}\n"
        for bounds in every_bound(run):
            ends = ", ".join(numbers(each[:, None]) if each.size else "nothing" for each in (bounds.low, bounds.high))
            yield f"  {bounds.label}: {len(bounds.steps)} steps, {ends}\n"
    yield f"{len(CLAIMS)} claims\n"
