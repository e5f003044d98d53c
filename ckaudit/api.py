"""The commands as functions, for notebooks, tests and programs: short answers, drawn where a notebook shows them."""

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ckaudit.audit.engine import triage as triage_path
from ckaudit.audit.engine import triage_run
from ckaudit.audit.measure import Measured, Measurement, StepRange, measure
from ckaudit.contract.schema.diff import Axis, Comparison, Outcome
from ckaudit.contract.schema.import_options import Choice
from ckaudit.contract.schema.report import SEVERITIES, Diagnosis, Finding, Report, Severity
from ckaudit.diff.compare import compare, compare_canary
from ckaudit.diff.gate import gated
from ckaudit.errors import UnreadableError, UsageError
from ckaudit.material.counts import plural
from ckaudit.policy.policy_schema import Terms
from ckaudit.reports import notebook, render
from ckaudit.reports.escape import visible
from ckaudit.reports.terminal.screen_text import badge
from ckaudit.run.run import Run
from ckaudit.run.series import Series
from ckaudit.validate import validate as validate_paths

if TYPE_CHECKING:
    import pyarrow as pa

RunPath = str | os.PathLike[str]


class Audit:
    """What `triage` or `validate` says of a run.

    Attributes:
        report: All of it, as the JSON schema `ck.report.v1` has it.
    """

    def __init__(self, report: Report) -> None:
        """Take a report."""
        self.report = report

    @property
    def severity(self) -> Severity | None:
        """The gravest finding's, of "sev0", "sev1", "sev2" and "note"; None: nothing was found."""
        return self.report.severity

    @property
    def word(self) -> str:
        """What the screen says in capitals: the severity, else "OK", or "LIMITED" or "NOT JUDGED" where checks lacked data."""
        return badge(self.report)[0]

    @property
    def verdict(self) -> str:
        """One sentence."""
        return self.report.verdict

    @property
    def findings(self) -> Sequence[Finding]:
        """What is wrong, gravest first."""
        return self.report.findings

    @property
    def diagnoses(self) -> Sequence[Diagnosis]:
        """The causes that account for it, likeliest first."""
        return self.report.diagnoses

    def fails(self, fail_on: Severity = "sev1") -> bool:
        """Tell whether a finding is as grave as `fail_on`, or graver.

        Raises:
            UsageError: Where there is no such severity.
        """
        if fail_on not in SEVERITIES:
            raise UsageError(f"there is no severity {fail_on!r}", hint=f"One of {', '.join(SEVERITIES)}.")
        return self.severity is not None and SEVERITIES.index(self.severity) <= SEVERITIES.index(fail_on)

    def to_dict(self) -> dict[str, Any]:
        """Return the whole report as dictionaries and lists."""
        document: dict[str, Any] = msgspec.json.decode(render(self.report, "json"))
        return document

    def __repr__(self) -> str:
        """Return a line: the run, the gravest severity and the verdict."""
        found = f"{self.word}, {plural(len(self.findings), 'finding')}"
        return f"<Audit of {visible(self.report.subject)}: {found}: {visible(self.verdict)}>"

    def __str__(self) -> str:
        """Return what the command prints."""
        return render(self.report, "terminal")

    def _repr_html_(self) -> str:
        """Return the verdict, the loss, the findings and the first causes as HTML for a notebook."""
        return notebook.audit(self.report)


class Difference:
    """What `diff` says of runs beside a reference, or `gate` of a run beside good ones.

    Attributes:
        comparison: All of it, as the JSON schema `ck.diff.v1` has it.
    """

    def __init__(self, comparison: Comparison) -> None:
        """Take a comparison."""
        self.comparison = comparison

    @property
    def word(self) -> str:
        """The gravest word of all pairs, such as "within_noise", "better" or "worse"."""
        return self.comparison.word

    @property
    def verdict(self) -> str:
        """One sentence."""
        return self.comparison.verdict

    @property
    def outcome(self) -> Outcome | None:
        """What the gate says: "passed", "failed" or "incomparable"; None where `diff` was asked."""
        return self.comparison.gate.outcome if self.comparison.gate else None

    def to_dict(self) -> dict[str, Any]:
        """Return the whole comparison as dictionaries and lists."""
        document: dict[str, Any] = msgspec.json.decode(render(self.comparison, "json"))
        return document

    def __repr__(self) -> str:
        """Return a line: the runs, the word and the verdict."""
        names = ", ".join(map(visible, self.comparison.subjects))
        return f"<Difference of {names}: {self.outcome or self.word}: {visible(self.verdict)}>"

    def __str__(self) -> str:
        """Return what the command prints."""
        return render(self.comparison, "terminal")

    def _repr_html_(self) -> str:
        """Return the word, the verdict and what each pair came to as HTML for a notebook."""
        return notebook.comparison(self.comparison)


class Metrics(Mapping[str, Series]):
    """Derived series of a run by name; each has `steps`, `labels`, `values` of shape (T, L), and `recorded`."""

    def __init__(self, measurement: Measurement) -> None:
        """Take what was measured."""
        self.measurement = measurement
        self._measured: dict[str, Measured] = {each.name: each for each in measurement.measured}

    def __getitem__(self, name: str) -> Series:
        """Return the series of a metric that has a value."""
        return self._measured[name].series

    def __iter__(self) -> Any:
        """Iterate over the names of the metrics that have a value."""
        return iter(self._measured)

    def __len__(self) -> int:
        """Return how many metrics have a value."""
        return len(self._measured)

    def to_arrow(self) -> "pa.Table":
        """Return a line for each recorded cell: step, metric, label, value."""
        import numpy as np
        import pyarrow as pa

        steps, names, labels, values = [], [], [], []
        for name, series in self.items():
            rows, columns = np.nonzero(series.recorded)
            steps.append(series.steps[rows])
            names += [name] * len(rows)
            labels += [series.labels[column] for column in columns.tolist()]
            values.append(series.values[rows, columns])
        together = [np.concatenate(part) if part else np.empty(0, kind) for part, kind in ((steps, np.int64), (values, float))]
        return pa.table({"step": together[0], "metric": names, "label": labels, "value": together[1]})

    def to_pandas(self) -> Any:
        """Return `to_arrow` as a data frame of pandas.

        Raises:
            ImportError: Where pandas is not installed.
        """
        return self.to_arrow().to_pandas()

    def __repr__(self) -> str:
        """Return a line: the run, and how many metrics have a value."""
        return (
            f"<Metrics of {visible(self.measurement.subject)}: {len(self)} with a value, {len(self.measurement.missing)} without>"
        )

    def _repr_html_(self) -> str:
        """Return the last value of each metric as HTML for a notebook."""
        rows = [
            (name, f"{series.values[series.recorded][-1]:.4g}" if series.recorded.any() else "", self._measured[name].title)
            for name, series in self.items()
        ]
        return notebook.table(("metric", "last", "what it is"), rows)


def triage(
    run: RunPath | Run,
    *,
    step: int | None = None,
    columns: Mapping[str, str] | None = None,
    which: str = "",
    questions: Collection[int] = (),
) -> Audit:
    """Say what is wrong with a run, since when, where, and what most likely caused it.

    Args:
        run: A run folder, a checkpoint, a log that is known, or a run that `read_run` returned.
        step: Judge with what was known when this step had ended; None: all of it.
        columns: The log's own name for a catalogue name or its short form, such as {"loss": "train/nll"}.
        which: Which of several runs in one file, by its name or its number from 1.
        questions: Phases, from 1 to 5, whose questions are to be answered.

    Raises:
        UnreadableError: Where there is no run.
        UsageError: Where `step` lies before the record, or `columns` or `which` names what is not there.

    >>> import ckaudit
    >>> audit = ckaudit.triage("fixtures/runs/lr_too_high")
    >>> audit.word, audit.diagnoses[0].cause
    ('SEV1', 'learning_rate_too_high')
    """
    if isinstance(run, Run):
        return Audit(triage_run(run, step=step, questions=questions))
    return Audit(triage_path(_path(run), step=step, choice=Choice(columns=columns or {}, run=which), questions=questions))


def validate(*runs: RunPath) -> Audit:
    """Hold run folders, or single files, against the contract.

    Raises:
        UnreadableError: Where none of them can be read, or nothing in them can be audited.

    >>> import ckaudit
    >>> ckaudit.validate("fixtures/runs/healthy").word
    'OK'
    """
    return Audit(validate_paths([_path(run) for run in runs]))


def diff(reference: RunPath, *others: RunPath, noise: Sequence[RunPath] = (), align: Axis = "step") -> Difference:
    """Say where runs part from a reference, and whether they are worse.

    Args:
        reference: What the others are judged against.
        others: One run or more.
        noise: Runs that differ from the reference by their seed alone.
        align: Compare at equal "step", "tokens" or "loss".

    Raises:
        UsageError: Where there is nothing to compare.

    >>> import ckaudit
    >>> ckaudit.diff("fixtures/runs/healthy", "fixtures/runs/lr_too_high").word
    'worse'
    """
    if not others:
        raise UsageError("there is nothing to compare it with", hint="name a second run: ckaudit.diff(reference, other)")
    paths = [_path(run) for run in (reference, *others)]
    return Difference(compare(paths, axis=align, noise=[_path(run) for run in noise]))


def gate(canary: RunPath, *good: RunPath, align: Axis = "step") -> Difference:
    """Hold a run against runs that are known to be good.

    Args:
        canary: What is judged.
        good: One run or more; the spread of several is what chance explains.
        align: As in `diff`.

    Raises:
        UsageError: Where no good run is named.

    >>> import ckaudit
    >>> ckaudit.gate("fixtures/runs/lr_too_high", "fixtures/runs/healthy").outcome
    'failed'
    """
    if not good:
        raise UsageError("there is no good run to hold it against", hint="name one: ckaudit.gate(canary, good)")
    comparisons = compare_canary(_path(canary), [_path(run) for run in good], axis=align)
    return Difference(gated(comparisons, Terms(), policy=None))


def metrics(run: RunPath, *names: str, step: int | None = None, columns: Mapping[str, str] | None = None) -> Metrics:
    """Compute the derived series of a run.

    Args:
        run: A run folder, a checkpoint, or a log that is known.
        names: Metrics, patterns such as "grad_*", or rows such as "M19"; none: all.
        step: Compute with what was known then; None: all of it.
        columns: As in `triage`.

    Raises:
        UnreadableError: Where there is no run.
        UsageError: Where no metric has such a name.

    >>> import ckaudit
    >>> losses = ckaudit.metrics("fixtures/runs/healthy", "val_loss")["val_loss"]
    >>> losses.values.shape, losses.steps[:3].tolist()
    ((40, 1), [50, 100, 150])
    """
    return Metrics(measure(_path(run), names=names, stretch=StepRange(step), choice=Choice(columns=columns or {})))


def assert_healthy(run: RunPath | Run, *, fail_on: Severity = "sev1", step: int | None = None) -> Audit:
    """Return the audit of a run, or fail a test with all that it says.

    Args:
        run: As in `triage`.
        fail_on: The least grave severity that fails.
        step: As in `triage`.

    Raises:
        AssertionError: Where a finding is as grave as `fail_on`, or graver.

    >>> import ckaudit
    >>> ckaudit.assert_healthy("fixtures/runs/healthy", fail_on="sev2").word
    'OK'
    """
    audit = triage(run, step=step)
    if audit.fails(fail_on):
        raise AssertionError(f"{audit!r}\n{audit}")
    return audit


def _path(run: RunPath) -> Path:
    """Return a path that is there.

    Raises:
        UnreadableError: Where it is not.
    """
    path = Path(run)
    if not path.exists():
        here = visible(str(Path.cwd()))
        raise UnreadableError(f"{visible(str(path))} does not exist", hint=f"It was looked for from {here}.")
    return path
