"""Rules applied to a run: which fired, which passed, which could not be judged and why."""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from ckaudit.audit.applicability import why_not_metric
from ckaudit.audit.arguments import says
from ckaudit.audit.merge_findings import fold, told
from ckaudit.contract.float_overflow import takes_any_numbers
from ckaudit.contract.missing_summary import needed
from ckaudit.contract.numbers import to_word
from ckaudit.contract.report import SEVERITIES, Check, Finding
from ckaudit.metrics import Metric
from ckaudit.questions.bad_answer_table import BAD
from ckaudit.rules.rule import Hit, Input, Rule, Skip
from ckaudit.run.run import Run
from ckaudit.run.tensor_groups import known_places


class Judgement(Struct, frozen=True):
    """What the rules say of a run."""

    findings: tuple[Finding, ...]
    checks: tuple[Check, ...]


@takes_any_numbers
def judge(run: Run, rules: Iterable[Rule]) -> Judgement:
    """Apply every rule; one that breaks is an error of its own and stops no other."""
    findings: list[Finding] = []
    checks: list[Check] = []
    for rule in rules:
        found, check = _apply(rule, run)
        findings += found
        checks.append(check)
    return Judgement(tuple(sorted(findings, key=gravity)), tuple(checks))


def gravity(finding: Finding) -> tuple[int, bool, int, str]:
    """Sort key: gravest first, rules before questions, then by step and code; what a rule says first stays first."""
    start = -1 if finding.first_step is None else finding.first_step
    return SEVERITIES.index(finding.severity), finding.code in BAD, start, finding.code


def resolve(inputs: Iterable[Input], run: Run) -> list[Any]:
    """Return each input's value in a run: a series, the manifest, or None where nothing was recorded."""
    return [(each(run) or None) if isinstance(each, Metric) else run.manifest for each in inputs]


def _apply(rule: Rule, run: Run) -> tuple[list[Finding], Check]:
    try:
        findings, skip = _told(rule, run)
    except Exception as error:  # noqa: BLE001  one broken rule must not cost the verdict of the others
        detail = f"{type(error).__name__}: {error}"
        return [], Check(code=rule.code, name=rule.name, title=rule.title, severity=rule.severity, outcome="error", detail=detail)
    return findings, _check(rule, skip, findings)


def _told(rule: Rule, run: Run) -> tuple[list[Finding], Skip | None]:
    """Return what a rule finds, and why it could not judge if it could not."""
    needs, wants = resolve(rule.needs, run), resolve(rule.wants, run)
    missing = [each for each, value in zip(rule.needs, needs, strict=True) if value is None]
    if missing:
        unsaid = [names for names in rule.facts if not any(says(run.manifest, name) for name in names)]
        return [], _unheard([each for each in missing if isinstance(each, Metric) or not rule.facts], unsaid, run)
    said = list(rule.function(*needs, *wants))
    findings = [_finding(rule, hit, run) for hit in fold(each for each in said if isinstance(each, Hit))]
    skip = next((_fitting(each, run) for each in said if isinstance(each, Skip)), None)
    grave = any(each.severity != "note" for each in findings)
    return findings, None if grave else skip


def _unheard(missing: Sequence[Input], unsaid: Sequence[Sequence[str]], run: Run) -> Skip:
    """Return the word on inputs that are missing: one that makes no sense for the run is not waited for."""
    names = [(each.name,) if isinstance(each, Metric) else ("run.json",) for each in missing]
    needs = [*names, *unsaid]
    for alternatives in needs:
        foreign = [why_not_metric(run, name) for name in alternatives]
        if all(foreign):
            return Skip("not_applicable", foreign[0])
    return Skip("not_recorded", f"needs {', '.join(map(' or '.join, needs))}")


def _fitting(skip: Skip, run: Run) -> Skip:
    """Return a rule's word that something is missing, or that nothing of what would do makes sense for the run."""
    for alternatives in needed(skip.detail) if skip.reason == "not_recorded" else ():
        foreign = [why_not_metric(run, name) for name in alternatives]
        if all(foreign):
            return Skip("not_applicable", foreign[0])
    return skip


def _check(rule: Rule, skip: Skip | None, found: list[Finding]) -> Check:
    failed = any(each.severity != "note" for each in found)
    return Check(
        code=rule.code,
        name=rule.name,
        title=rule.title,
        severity=rule.severity,
        outcome="skipped" if skip else "failed" if failed else "passed",
        reason=skip.reason if skip else None,
        detail=skip.detail if skip else None,
        findings=len(found),
    )


def _path(rule: Rule, hit: Hit, run: Run) -> list[str]:
    """Return what leads from the rule's first metric to the kernels of the tensor hit, where the run knows more than its name."""
    below = run.tensors.path(hit.where) if hit.where else []
    return [*(each.name for each in rule.metrics[:1]), *below] if below else []


def _finding(rule: Rule, hit: Hit, run: Run) -> Finding:
    if SEVERITIES.index(hit.severity) < SEVERITIES.index(rule.severity):
        raise ValueError(f"{rule.code} may be {rule.severity} at most, not {hit.severity}")
    message, group = told(hit, known_places(run))
    return Finding(
        code=rule.code,
        name=rule.name,
        severity=hit.severity,
        message=message,
        where=hit.where,
        group=group,
        first_step=hit.first,
        last_step=hit.last,
        worst_step=hit.worst,
        unit=run.shown_unit(rule.unit),
        value=None if hit.value is None else to_word(hit.value),
        limit=None if hit.limit is None else to_word(hit.limit),
        points=hit.points,
        also=list(hit.also),
        path=_path(rule, hit, run),
    )
