"""The scene of the tabs: a run with its report and, where there is another run, that one beside it."""

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
    """One run, audited.

    Attributes:
        run: What was known at the step judged at.
        report: What was found in it.
        path: Where its checkpoints are; None: in memory only.
        other: The run that it is compared with.
        comparison: What comparing the two said.
    """

    run: Run
    report: Report
    path: Path | None = None
    other: "Scene | None" = None
    comparison: Comparison | None = None

    def answers(self, ids: tuple[str, ...]) -> list[Answer]:
        """Put some questions to the run, or take the answers that the report holds."""
        known = {given.id: given for phase in self.report.interview for given in phase.answers}
        asked = [questions()[id_] for id_ in ids]
        return [
            known.get(question.id) or answer(question, self.run, self.report.findings, self.report.diagnoses)
            for question in asked
        ]

    def places(self, *names: str) -> list[str]:
        """Return the places of the findings that rest on any of these metrics, gravest first, each once."""
        codes = codes_on(self.report.findings, names)
        findings = [finding for finding in self.report.findings if finding.code in codes]
        return list(dict.fromkeys(place for finding in findings for place in (finding.where, *finding.also) if place))


def metrics_of(finding: Finding) -> list[str]:
    """Return the metrics that the rule of a finding looks at, in its order; none where no rule found it."""
    return _metrics_of(finding.code)


def codes_on(findings: Iterable[Finding], names: Iterable[str]) -> frozenset[str]:
    """Return which codes of findings are of rules that look at any of these metrics."""
    wanted = frozenset(names)
    return frozenset(code for code in {finding.code for finding in findings} if not wanted.isdisjoint(_metrics_of(code)))


def _metrics_of(code: str) -> list[str]:
    rule = rules().get(code)
    return [metric.name for metric in rule.metrics] if rule else []
