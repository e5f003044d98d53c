"""The scene of the tabs: a run with its report, and another run with its own if there is one."""

from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from ckaudit.audit.interview import answer
from ckaudit.contract.schema.diff import Comparison
from ckaudit.contract.schema.report import Answer, Finding, Report
from ckaudit.questions.question import questions
from ckaudit.rules import rules
from ckaudit.run.run import Run


class Scene(Struct, frozen=True, eq=False):
    """One audited run.

    Attributes:
        run: The run as known at the judged step.
        report: Its report.
        path: Path of its checkpoints; None: in memory only.
        other: The run that it is compared with.
        comparison: Comparison of the two runs.
    """

    run: Run
    report: Report
    path: Path | None = None
    other: "Scene | None" = None
    comparison: Comparison | None = None

    def answers(self, ids: tuple[str, ...]) -> list[Answer]:
        """Answer some questions for the run, or take the answers from the report."""
        known = {given.id: given for phase in self.report.interview for given in phase.answers}
        asked = [questions()[id_] for id_ in ids]
        return [
            known.get(question.id) or answer(question, self.run, self.report.findings, self.report.diagnoses)
            for question in asked
        ]

    def places(self, *names: str) -> list[str]:
        """Return the unique places of the findings on any of these metrics, most severe first."""
        codes = codes_on(self.report.findings, names)
        findings = [finding for finding in self.report.findings if finding.code in codes]
        return list(dict.fromkeys(place for finding in findings for place in (finding.where, *finding.also) if place))


def metrics_of(finding: Finding) -> list[str]:
    """Return the metrics of a finding's rule, in its order; empty if no rule made the finding."""
    return _metrics_of(finding.code)


def codes_on(findings: Iterable[Finding], names: Iterable[str]) -> frozenset[str]:
    """Return the codes of findings whose rules read any of these metrics."""
    wanted = frozenset(names)
    return frozenset(code for code in {finding.code for finding in findings} if not wanted.isdisjoint(_metrics_of(code)))


def _metrics_of(code: str) -> list[str]:
    rule = rules().get(code)
    return [metric.name for metric in rule.metrics] if rule else []
