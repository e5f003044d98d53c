"""What every case of a rule and of a cause, and every recorded run, comes to, word for word, beside what is asked of it.

A case asks for what matters: the rule fires there, this cause stands first. What else the verdict says, each piece of evidence
with its weight, each value with its limit, stands in `tests/verdicts/`, so that no change of it goes unseen:

    python -m tests.case_verdicts

writes the files anew; read what has changed before it is committed.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from ckaudit.audit import triage, triage_run
from ckaudit.audit.judge import judge
from ckaudit.contract.schema.report import Check, Diagnosis, Finding, Report
from ckaudit.rules import rules
from tests.cases import Case, load

HERE = Path(__file__).parent
PLACE = HERE / "verdicts"
RUNS = PLACE / "runs"
HEADING = "# "


def of_cause(diagnoses: Sequence[Diagnosis]) -> str:
    """Return the causes in their order with all evidence."""
    return "".join(
        f"{diagnosis.cause} {diagnosis.confidence:.2f}\n"
        + "".join(f"  {each.weight:+.2f} {each.reference or '-'}: {each.sentence}\n" for each in diagnosis.evidence)
        for diagnosis in diagnoses
    )


def of_rule(check: Check, findings: Sequence[Finding]) -> str:
    """Return the outcome of a rule and its findings with all numbers."""
    reason = f" {check.reason}: {check.detail}" if check.reason else ""
    return f"{check.outcome}{reason}\n" + "".join(map(_line, findings))


def of_run(report: Report) -> str:
    """Return what is found in a recording, and why, with all numbers."""
    return f"{report.verdict}\n" + "".join(map(_line, report.findings)) + of_cause(report.diagnoses)


def _line(finding: Finding) -> str:
    steps = f"{finding.first_step}-{finding.last_step}, worst {finding.worst_step}, {finding.points} points"
    numbers = ", ".join(
        f"{name} {float(value):.4g}" for name, value in (("value", finding.value), ("limit", finding.limit)) if value is not None
    )
    return f"  {finding.severity} {finding.where}: {steps}; {numbers}; {finding.message}\n"


def recorded(path: Path) -> dict[str, str]:
    """Return by the name of each case of a case file what it came to when that was last read."""
    text = (PLACE / path.parent.name / f"{path.stem}.txt").read_text(encoding="utf-8")
    parts = (part.partition("\n") for part in f"\n{text}".split(f"\n{HEADING}")[1:])
    return {name: f"{verdict}\n" if verdict and not verdict.endswith("\n") else verdict for name, _, verdict in parts}


def rule_verdict(code: str, case: Case) -> str:
    """Judge a case by a rule."""
    judgement = judge(case.run, [rules()[code]])
    return of_rule(judgement.checks[0], judgement.findings)


def cause_verdict(case: Case) -> str:
    """Triage a case."""
    return of_cause(triage_run(case.run).diagnoses)


def _files() -> Iterator[tuple[Path, str]]:
    for path in sorted((HERE / "rules").glob("*.toml")):
        head, cases = load(path)
        yield path, "".join(f"{HEADING}{case.name}\n{rule_verdict(head['rule'], case)}" for case in cases)
    for path in sorted((HERE / "causes").glob("*.toml")):
        yield path, "".join(f"{HEADING}{case.name}\n{cause_verdict(case)}" for case in load(path)[1])
    for path in sorted((HERE.parent / "fixtures" / "runs").glob("*/expected.toml")):
        yield RUNS / path.parent.name, of_run(triage(path.parent))


def main() -> None:
    """Write all files anew."""
    for path, text in _files():
        target = PLACE / path.parent.name / f"{path.stem}.txt"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
