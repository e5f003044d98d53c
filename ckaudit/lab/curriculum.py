"""Runs the experiments of the curriculum, audits each training, and writes a page on the differences."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from inspect import cleandoc
from itertools import chain
from pathlib import Path

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from ckaudit.audit.load_run import open_run
from ckaudit.audit.measure import MeasuredMetric, measure
from ckaudit.contract.schema.report import Report
from ckaudit.errors import UnreadableError
from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.specs import Experiment, Family, experiments
from ckaudit.lab.training_spec import setting
from ckaudit.run.run import Grids
from ckaudit.run.series import Floats, Series

# The page of an experiment, in Markdown: the changes, the results of the audit, and numbers at fixed steps.
SHADES = " .:-=+*#%@"


class Arm(Struct, frozen=True, kw_only=True):
    """One training of an experiment, and its audit."""

    name: str
    change: Change
    folder: Path
    report: Report


def page(experiment: Experiment, arms: Sequence[Arm]) -> str:
    """Return the page of a completed experiment."""
    story = experiment.story.removeprefix(experiment.title).strip()
    lines = [f"# {experiment.id}: {experiment.title.rstrip('.')}", "", story, "", "## What was changed", ""]
    lines += _table(["arm", "change"], [[arm.name, change_text(arm.change)] for arm in arms])
    lines += ["", "## What the audit says", ""]
    lines += _table(
        ["arm", "severity", "verdict"], [[arm.name, arm.report.severity or "none", arm.report.verdict] for arm in arms]
    )
    lines += ["", "## Numbers", ""]
    names = sorted({look.partition("/")[0] for look in experiment.look if not is_map(look)})
    measured = {arm.name: {measured.name: measured for measured in measure(arm.folder, names=names).measured} for arm in arms}
    for look in experiment.look:
        drawn = _maps(look, arms) if is_map(look) else _numbers(look, experiment.steps, measured)
        lines += [*drawn, ""]
    return "\n".join(lines)


def change_text(change: Change) -> str:
    """Return the description of a change from its docstring, with its actual numbers."""
    if type(change) is Change:
        return "nothing"
    first = cleandoc(type(change).__doc__ or "").partition("\n")[0]
    return first.replace("`strength`", f"{change.strength:g}").replace("`onset`", f"{change.onset}")


def is_map(look: str) -> bool:
    """Return whether an experiment shows sampled matrices, by their path in a checkpoint, and not a metric."""
    return ".*." in look and "/" not in look


def _numbers(look: str, steps: Sequence[int], measured: Mapping[str, Mapping[str, MeasuredMetric]]) -> Iterator[str]:
    """Yield the table of one metric: a row for each arm and label, a column for each step at which any arm has a value."""
    name, _, pattern = look.partition("/")
    arms = [(arm, metrics[name]) for arm, metrics in measured.items() if name in metrics]
    if not arms:
        yield from (f"### {name}", "", "Not recorded.")
        return
    yield from (f"### {name}", "", f"{arms[0][1].title} Unit: {_unit(arms[0][1])}.", "")
    rows = [[arm, label, *cells] for arm, metric in arms for label, cells in _rows(metric.series, pattern, steps)]
    filled_columns = [column for column in range(2, 2 + len(steps)) if any(row[column] for row in rows)]
    used = [0, *([] if {row[1] for row in rows} == {name} else [1]), *filled_columns]
    if not filled_columns:
        yield "Not recorded at these steps."
        return
    head = ["arm", "of", *(f"step {step}" for step in steps)]
    yield from _table([head[column] for column in used], [[row[column] for column in used] for row in rows])


def _rows(series: Series, pattern: str, steps: Sequence[int]) -> Iterator[tuple[str, list[str]]]:
    for column in chosen(series, pattern):
        at = {int(step): float(value) for step, value in zip(series.steps, series.values[:, column], strict=True)}
        known = dict(zip(series.steps.tolist(), series.recorded[:, column].tolist(), strict=True))
        yield series.labels[column], [f"{at[step]:.4g}" if known.get(step) else "" for step in steps]


def chosen(series: Series, pattern: str, *, max_columns: int = 8) -> list[int]:
    """Return the displayed columns: all that match the pattern, or a selection if there are more than `max_columns`.

    Of numbered labels, such as blocks, evenly spaced ones are selected; of others the lowest and the highest at the last step.
    """
    columns = [index for index, label in enumerate(series.labels) if fnmatchcase(label, pattern or "*")]
    if len(columns) <= max_columns:
        return columns
    if all(series.labels[column][-1].isdecimal() for column in columns):
        return [columns[index] for index in np.linspace(0, len(columns) - 1, max_columns).round().astype(int)]
    last = np.flatnonzero(series.recorded[:, columns].any(axis=1))[-1]
    ranked = sorted(columns, key=lambda column: float(np.nan_to_num(series.values[last, column])), reverse=True)
    return ranked[: max_columns // 2] + ranked[-(max_columns // 2) :]


def _unit(measured: MeasuredMetric) -> str:
    return "a pure number" if measured.unit == "1" else measured.unit


def _maps(look: str, arms: Sequence[Arm]) -> Iterator[str]:
    """Yield the matrices of the last step that has any, layer by layer, with heads side by side."""
    yield from (f"### {look.rpartition('.')[2]}", "")
    for arm in arms:
        grids = open_run(arm.folder, reads=frozenset({look})).grids.get(look, Grids())
        last = max(grids.steps, default=None)
        for step, label, values in zip(grids.steps, grids.labels, grids.values, strict=True):
            if step == last:
                yield from (f"{arm.name}, {label} at step {step}:", "", "```text", *side_by_side(values), "```", "")


def side_by_side(heads: Floats, *, size: int = 16) -> list[str]:
    """Return maps (H, r, c) side by side in shades, darker for more; each is pooled to at most `size` rows and columns."""
    pooled = [_pooled(head, size) for head in heads]
    drawn = [[_shaded(row, head.max()) for row in head] for head in pooled]
    return [" | ".join(rows).rstrip() for rows in zip(*drawn, strict=True)]


def _pooled(head: Floats, size: int) -> Floats:
    """Return the means of square blocks of a map, (r, c) to at most (size, size)."""
    step = max(1, -(-max(head.shape) // size))
    rows, columns = (np.arange(0, length, step) for length in head.shape)
    sums = np.add.reduceat(np.add.reduceat(head, rows, axis=0), columns, axis=1)
    counts = np.add.reduceat(np.add.reduceat(np.ones_like(head), rows, axis=0), columns, axis=1)
    return np.asarray(sums / counts)


def _shaded(row: Floats, top: float) -> str:
    """Return a row in shades, by the square root of each value over the maximum, so that small values are visible."""
    return "".join(SHADES[round((value / top) ** 0.5 * (len(SHADES) - 1))] if top > 0 else SHADES[0] for value in row)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    cells = [list(head), ["---"] * len(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return [f"| {' | '.join(row)} |" for row in cells]


class Study(Struct, frozen=True):
    """One completed experiment: its trainings, and its page."""

    experiment: Experiment
    arms: tuple[Arm, ...]
    page: Path


def short(family: Family, *, seed: int = 0, steps: int = 125) -> Plan:
    """Return the healthy training that the arms change: that of the lab with fewer steps and half the batch."""
    plan = setting(family, seed)
    return replace(plan, steps=steps, data=replace(plan.data, batch_size=plan.data.batch_size // 2, held_rows=64))


def studies(chosen: Iterable[Experiment], folder: Path) -> Iterator[Study]:
    """Run experiments one after the other: train and audit every arm, and write the page.

    The page of an experiment is `folder`/<its name>.md, its arms are `folder`/<its name>/<arm>. The unchanged training is in
    `folder`/healthy/<family>, and runs once for all experiments that compare with it.

    Raises:
        FileExistsError: If `blocking_path` finds one.
    """
    for experiment in chosen:
        places = {name: folder / place_of(experiment, name) for name in experiment.arms}
        for name, change in experiment.arms.items():
            if not (is_healthy(change) and is_complete(places[name])):
                trained(experiment.family, change, places[name])
        yield written(experiment, [audited(name, change, places[name]) for name, change in experiment.arms.items()], folder)


def blocking_path(chosen: Iterable[Experiment], folder: Path) -> Path | None:
    """Return a path that keeps experiments from being written; None: the folder contains nothing but other experiments.

    Args:
        chosen: The experiments to run.
        folder: An existing folder for them.
    """
    others = experiments().keys() - {experiment.name for experiment in chosen}
    known = {"healthy", *others, *(f"{name}.md" for name in others)}
    healthy = (
        place
        for family in sorted({experiment.family for experiment in chosen})
        if (place := folder / "healthy" / family).exists()
    )
    strange = (path for path in sorted(folder.iterdir()) if path.name not in known)
    return next(chain(strange, (place for place in healthy if not is_complete(place))), None)


def is_healthy(change: Change) -> bool:
    """Tell whether an arm is the unchanged training."""
    return type(change) is Change


def is_complete(place: Path) -> bool:
    """Tell whether a folder contains a completed training."""
    from ckaudit.run.read import read_run

    try:
        facts = read_run(place, reads=()).manifest
    except UnreadableError:
        return False
    return facts is not None and facts.has_ended


def place_of(experiment: Experiment, arm: str) -> Path:
    """Return the folder of an arm, relative to that of the curriculum."""
    if is_healthy(experiment.arms[arm]):
        return Path("healthy") / experiment.family
    return Path(experiment.name) / arm.replace(" ", "_").replace(",", "")


def trained(family: Family, change: Change, place: Path) -> None:
    """Train one arm into a new folder."""
    from ckaudit.lab.record import recorded
    from ckaudit.lab.training import train

    place.mkdir(parents=True)
    with recorded(place):
        train(short(family), change, place)


def audited(name: str, change: Change, place: Path) -> Arm:
    """Return a trained arm with its audit."""
    from ckaudit.audit import triage

    return Arm(name=name, change=change, folder=place, report=triage(place))


def written(experiment: Experiment, arms: Iterable[Arm], folder: Path) -> Study:
    """Write the page of an experiment into a folder."""
    study = Study(experiment, tuple(arms), folder / f"{experiment.name}.md")
    study.page.write_text(page(experiment, study.arms), encoding="utf-8")
    return study
