"""Results of the functions: a short form for notebooks and shells, the whole document for programs."""

import io
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ckaudit.audit.measure import MeasuredMetric, Measurement
from ckaudit.contract.schema.diff import Comparison
from ckaudit.contract.schema.diff import Outcome as GateOutcome
from ckaudit.contract.schema.fleet import CommonCause, Fleet, FleetRun
from ckaudit.contract.schema.report import SEVERITIES, Diagnosis, Finding, Report, Severity
from ckaudit.errors import UsageError
from ckaudit.remote.addresses import with_addresses
from ckaudit.reports import notebook, render
from ckaudit.reports.escape import visible
from ckaudit.reports.metric_series import write
from ckaudit.reports.outcome import ExitOutcome, outcome
from ckaudit.reports.terminal.screen_text import badge
from ckaudit.run.series import Series
from ckaudit.wording import plural

if TYPE_CHECKING:
    import pyarrow as pa


class Audit:
    """The result of `triage` or `validate`.

    Attributes:
        report: The whole report, in the form of the JSON schema `ck.report.v1`.
    """

    def __init__(self, report: Report) -> None:
        """Keep a report."""
        self.report = with_addresses(report)

    @property
    def severity(self) -> Severity | None:
        """The highest severity among the findings: "sev0", "sev1", "sev2" or "note"; None: there are no findings."""
        return self.report.severity

    @property
    def word(self) -> str:
        """The word in capitals on the terminal: the severity, else "OK", or "LIMITED" or "NOT JUDGED" if checks lacked data."""
        return badge(self.report)[0]

    @property
    def verdict(self) -> str:
        """The verdict in one sentence."""
        return self.report.verdict

    @property
    def findings(self) -> Sequence[Finding]:
        """The findings, most severe first."""
        return self.report.findings

    @property
    def diagnoses(self) -> Sequence[Diagnosis]:
        """The causes that explain the findings, likeliest first."""
        return self.report.diagnoses

    def fails(self, fail_on: Severity | None = None) -> bool:
        """Tell whether a finding is as severe as `fail_on` or more; None: the severity in the policy, else "sev1".

        Raises:
            UsageError: Where there is no such severity.
        """
        return reached(self.report, fail_on).code == 1

    def to_dict(self) -> dict[str, Any]:
        """Return the whole report as dictionaries and lists."""
        document: dict[str, Any] = msgspec.json.decode(render(self.report, "json"))
        return document

    def __repr__(self) -> str:
        """Return one line: the run, the highest severity and the verdict."""
        summary = f"{self.word}, {plural(len(self.findings), 'finding')}"
        return f"<Audit of {visible(self.report.subject)}: {summary}: {visible(self.verdict)}>"

    def __str__(self) -> str:
        """Return what the command prints."""
        return render(self.report, "terminal")

    def _repr_html_(self) -> str:
        """Return the verdict, the loss, the findings and the first causes as HTML for a notebook."""
        return notebook.audit(self.report)


class Difference:
    """The result of `diff` on several runs and a reference, or of `gate` on a run and good runs.

    Attributes:
        comparison: The whole comparison, in the form of the JSON schema `ck.diff.v1`.
    """

    def __init__(self, comparison: Comparison) -> None:
        """Keep a comparison."""
        self.comparison = with_addresses(comparison)

    @property
    def word(self) -> str:
        """The worst word among all pairs, such as "within_noise", "better" or "worse"."""
        return self.comparison.word

    @property
    def verdict(self) -> str:
        """The verdict in one sentence."""
        return self.comparison.verdict

    @property
    def outcome(self) -> GateOutcome | None:
        """The outcome of the gate: "passed", "failed" or "incomparable"; None for a result of `diff`."""
        return self.comparison.gate.outcome if self.comparison.gate else None

    def to_dict(self) -> dict[str, Any]:
        """Return the whole comparison as dictionaries and lists."""
        document: dict[str, Any] = msgspec.json.decode(render(self.comparison, "json"))
        return document

    def __repr__(self) -> str:
        """Return one line: the runs, the word and the verdict."""
        names = ", ".join(map(visible, self.comparison.subjects))
        return f"<Difference of {names}: {self.outcome or self.word}: {visible(self.verdict)}>"

    def __str__(self) -> str:
        """Return what the command prints."""
        return render(self.comparison, "terminal")

    def _repr_html_(self) -> str:
        """Return the word, the verdict and the result of each pair as HTML for a notebook."""
        return notebook.comparison(self.comparison)


class FleetAudit:
    """The result of `fleet` on many runs.

    Attributes:
        fleet: The whole audit, in the form of the JSON schema `ck.fleet.v1`.
    """

    def __init__(self, fleet: Fleet) -> None:
        """Keep a fleet, whose rows already name runs by the addresses that were given."""
        self.fleet = fleet

    @property
    def severity(self) -> Severity | None:
        """The highest severity among the findings of all runs; None: there are no findings."""
        return self.fleet.severity

    @property
    def verdict(self) -> str:
        """The verdict in one sentence."""
        return self.fleet.verdict

    @property
    def runs(self) -> Sequence[FleetRun]:
        """One row per run, the most urgent first."""
        return self.fleet.runs

    @property
    def common_causes(self) -> Sequence[CommonCause]:
        """Facts that ill runs share more often than by chance."""
        return self.fleet.common_causes

    def to_dict(self) -> dict[str, Any]:
        """Return the whole audit as dictionaries and lists."""
        document: dict[str, Any] = msgspec.json.decode(render(self.fleet, "json"))
        return document

    def __repr__(self) -> str:
        """Return one line: the number of runs and the verdict."""
        return f"<FleetAudit of {plural(len(self.runs), 'run')}: {visible(self.verdict)}>"

    def __str__(self) -> str:
        """Return what the command prints."""
        return render(self.fleet, "terminal")

    def _repr_html_(self) -> str:
        """Return the verdict, the common causes and the most urgent rows as HTML for a notebook."""
        return notebook.fleet(self.fleet)


class Metrics(Mapping[str, Series]):
    """Derived series of a run by name; each has `steps`, `labels`, `values` of shape (T, L), and `recorded`."""

    def __init__(self, measurement: Measurement) -> None:
        """Keep a measurement."""
        self.measurement = with_addresses(measurement)
        self._measured: dict[str, MeasuredMetric] = {metric.name: metric for metric in self.measurement.measured}

    def __getitem__(self, name: str) -> Series:
        """Return the series of a metric that has a value."""
        return self._measured[name].series

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the metrics that have a value."""
        return iter(self._measured)

    def __len__(self) -> int:
        """Return how many metrics have a value."""
        return len(self._measured)

    def to_arrow(self) -> "pa.Table":
        """Return a table with one row per recorded cell: step, metric, label, value."""
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
        """Return `to_arrow` as a pandas data frame.

        Raises:
            ImportError: Where pandas is not installed.
        """
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """Return `to_arrow` as a polars data frame.

        Raises:
            ImportError: Where polars is not installed.
        """
        import polars as pl

        return pl.from_arrow(self.to_arrow())

    def to_dict(self) -> dict[str, Any]:
        """Return the series, and the metrics that could not be computed, as dictionaries and lists, as `--format json` does."""
        stream = io.BytesIO()
        write(self.measurement, "json", stream)
        document: dict[str, Any] = msgspec.json.decode(stream.getvalue())
        return document

    def __repr__(self) -> str:
        """Return one line: the run, and how many metrics have a value."""
        return (
            f"<Metrics of {visible(self.measurement.subject)}: {len(self)} with a value, {len(self.measurement.missing)} without>"
        )

    def _repr_html_(self) -> str:
        """Return the last value and the curve of each metric as HTML for a notebook."""
        return notebook.metrics(self.measurement)


def reached(report: Report, fail_on: Severity | None, *, allow_empty: bool = False) -> ExitOutcome:
    """Return the exit outcome of a report.

    Raises:
        UsageError: Where there is no such severity.
    """
    if fail_on is not None and fail_on not in SEVERITIES:
        raise UsageError(f"there is no severity {fail_on!r}", hint=f"One of {', '.join(SEVERITIES)}.")
    return outcome(report, fail_on=fail_on, allow_empty=allow_empty)
