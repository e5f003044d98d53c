"""What every case of a rule and of a cause, and every recorded run, comes to, word for word, beside what is asked of it.

A case asks for what matters: the rule fires there, this cause stands first. What else the verdict says, each piece of evidence
with its weight, each value with its limit, what a rule says where all numbers are a little more, less or fewer, where verdicts
turn (`turning_points.py`), what every metric gives on small recordings (`metrics/kept_values.py`), and from where on a change of
a checkpoint is a violation (`contract/violation_edges.py`), stands in `tests/verdicts/`, so that no change of it goes unseen:

    python -m tests.case_verdicts

writes the files anew; read what has changed before it is committed.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from ckaudit.audit import triage, triage_run
from ckaudit.audit.judge import apply_rules
from ckaudit.causes import causes
from ckaudit.contract.schema.report import Check, Diagnosis, Finding, Report
from ckaudit.rules import rules
from ckaudit.run.run import Run
from ckaudit.run.series import Series
from tests import turning_points
from tests.cases import Case, load
from tests.contract.byte_edges import readers
from tests.contract.violation_edges import by_fixture
from tests.metrics.kept_values import by_module

HERE = Path(__file__).parent
PLACE = HERE / "verdicts"
RUNS = PLACE / "runs"
TURNING_POINTS = PLACE / "turning_points"
METRICS = PLACE / "metrics"
CONTRACT = PLACE / "contract"
HEADING = "# "
NEVER = 2**62


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


# A case beside itself: what a rule says where everything is a little more, less, or earlier.
def _scaled(run: Run, tensors: float, scalars: float) -> Run:
    def times(series: Series, factor: float) -> Series:
        return replace(series, values=series.values * factor) if series else series

    return replace(
        run.until(NEVER),  # a copy that has computed nothing yet
        sections={path: times(series, tensors) for path, series in run.sections.items()},
        scalars={name: times(series, scalars) for name, series in run.scalars.items()},
    )


def _cut_off(run: Run) -> Run:
    return run.until(2 * run.last_step // 3) if run.last_step else run


def _without(run: Run, kind: str) -> Run:
    names = sorted(getattr(run, kind))[1:]
    return replace(run.until(NEVER), **{kind: {name: getattr(run, kind)[name] for name in names}})


VARIANTS: dict[str, Callable[[Run], Run]] = {
    "tensors x 0.7": lambda run: _scaled(run, 0.7, 1.0),
    "tensors x 1.4": lambda run: _scaled(run, 1.4, 1.0),
    "scalars x 0.7": lambda run: _scaled(run, 1.0, 0.7),
    "scalars x 1.4": lambda run: _scaled(run, 1.0, 1.4),
    "cut off": _cut_off,
    "without a section": lambda run: _without(run, "sections"),
    "without a scalar": lambda run: _without(run, "scalars"),
}


def rule_variants(code: str, case: Case) -> str:
    """Return what a rule says beside a case, in few words."""

    def told(run: Run) -> str:
        judgement = apply_rules(run, [rules()[code]])
        found = (f"{each.severity} {each.where} {each.first_step}-{each.last_step}" for each in judgement.findings)
        return ", ".join((judgement.checks[0].outcome, *found))

    usual = told(case.run)
    lines = ((name, told(variant(case.run))) for name, variant in VARIANTS.items())
    return "".join(f"  {name}: {line}\n" for name, line in lines if line != usual)


def recorded(path: Path) -> dict[str, str]:
    """Return by the name of each case of a case file what it came to when that was last read."""
    text = (PLACE / path.parent.name / f"{path.stem}.txt").read_text(encoding="utf-8")
    parts = (part.partition("\n") for part in f"\n{text}".split(f"\n{HEADING}")[1:])
    return {name: f"{verdict}\n" if verdict and not verdict.endswith("\n") else verdict for name, _, verdict in parts}


def rule_verdict(code: str, case: Case) -> str:
    """Judge a case by a rule."""
    judgement = apply_rules(case.run, [rules()[code]])
    return of_rule(judgement.checks[0], judgement.findings) + rule_variants(code, case)


def cause_verdict(case: Case) -> str:
    """Triage a case."""
    return of_cause(triage_run(case.run).diagnoses)


def turning_points_of(path: Path) -> str:
    """Return where the verdicts of the rule, or the evidence of the cause, of a case file turn."""
    head, cases = load(path)
    if path.parent.name == "rules":
        return turning_points.of_rule(rules()[head["rule"]], cases)
    return turning_points.of_cause(causes()[path.stem], cases)


def _files() -> Iterator[tuple[Path, str]]:
    for path in sorted((HERE / "rules").glob("*.toml")):
        head, cases = load(path)
        yield path, "".join(f"{HEADING}{case.name}\n{rule_verdict(head['rule'], case)}" for case in cases)
        yield TURNING_POINTS / "rules" / path.name, turning_points_of(path)
    for path in sorted((HERE / "causes").glob("*.toml")):
        yield path, "".join(f"{HEADING}{case.name}\n{cause_verdict(case)}" for case in load(path)[1])
        yield TURNING_POINTS / "causes" / path.name, turning_points_of(path)
    yield from ((METRICS / name, text) for name, text in by_module().items())
    yield from ((CONTRACT / name, text) for name, text in (by_fixture() | readers()).items())
    for path in sorted((HERE.parent / "fixtures" / "runs").glob("*/expected.toml")):
        yield RUNS / path.parent.name, of_run(triage(path.parent))


def main() -> None:
    """Write all files anew."""
    for path, text in _files():
        folder = path.parent if path.is_relative_to(PLACE) else PLACE / path.parent.name
        target = folder / f"{path.stem}.txt"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
