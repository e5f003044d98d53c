"""Rules applied to a run: which fired, which passed, which could not be judged and why."""

import math
from collections.abc import Iterable, Iterator, Sequence
from string import Formatter
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ckaudit.audit.coverage.applicability import why_not_metric
from ckaudit.audit.coverage.arguments import says
from ckaudit.contract.schema.numbers import takes_any_numbers, to_word
from ckaudit.contract.schema.report import SEVERITIES, Check, Finding
from ckaudit.contract.summaries import needed
from ckaudit.metrics import Metric
from ckaudit.questions.bad_answer_table import BAD
from ckaudit.rules.rule import Hit, Input, Rule, Skip
from ckaudit.run.run import Run
from ckaudit.run.tensor_groups import Group, Known, group_of, known_places


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
    return [(input_(run) or None) if isinstance(input_, Metric) else run.manifest for input_ in inputs]


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
    findings = [_finding(rule, hit, run) for hit in fold(hit for hit in said if isinstance(hit, Hit))]
    skip = next((_fitting(skip, run) for skip in said if isinstance(skip, Skip)), None)
    grave = any(finding.severity != "note" for finding in findings)
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


def _check(rule: Rule, skip: Skip | None, findings: list[Finding]) -> Check:
    failed = any(finding.severity != "note" for finding in findings)
    return Check(
        code=rule.code,
        name=rule.name,
        title=rule.title,
        severity=rule.severity,
        outcome="skipped" if skip else "failed" if failed else "passed",
        reason=skip.reason if skip else None,
        detail=skip.detail if skip else None,
        findings=len(findings),
    )


def _path(rule: Rule, hit: Hit, run: Run) -> list[str]:
    """Return what leads from the rule's first metric to the kernels of the tensor hit, where the run knows more than its name."""
    below = run.tensors.path(hit.where) if hit.where else []
    return [*(metric.name for metric in rule.metrics[:1]), *below] if below else []


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


# One hit of many that say the same at overlapping times, and the sentence that tells of all their places.
def fold(hits: Iterable[Hit]) -> Iterator[Hit]:
    """Make one hit of those that say the same of many places at overlapping times; of the first of them the worst speaks."""
    groups: dict[tuple[str, str], list[Hit]] = {}
    for hit in hits:
        groups.setdefault((hit.severity, hit.message), []).append(hit)
    for members in groups.values():
        current: list[Hit] = []
        for hit in sorted(members, key=lambda hit: -1 if hit.first is None else hit.first):
            if current and not _overlap(current, hit):
                yield _merged(current)
                current = []
            current.append(hit)
        yield _merged(current)


def _overlap(hits: list[Hit], later: Hit) -> bool:
    ends = [hit.last for hit in hits if hit.last is not None]
    return len(ends) < len(hits) or later.first is None or later.first <= max(ends)


def _merged(hits: list[Hit]) -> Hit:
    if len(hits) == 1:
        return hits[0]
    speaker = max((hit for hit in hits if hit.first == hits[0].first), key=_badness)
    also = dict.fromkeys(place for hit in hits for place in (hit.where, *hit.also) if place)
    also.pop(speaker.where or "", None)
    last = max((hit.last for hit in hits if hit.last is not None), default=None)
    return replace(speaker, also=tuple(also), last=last, joined_by=hits[-1].first, members=tuple(hits))


def _badness(hit: Hit) -> float:
    return -math.inf if hit.badness is None or math.isnan(hit.badness) else hit.badness


def told(hit: Hit, known: Known) -> tuple[str, str | None]:
    """Return the sentence of a hit and the name of its group: where its places are one, it speaks of all in one.

    Args:
        hit: One place, or many folded into one.
        known: All places of the run.
    """
    if not hit.also:
        return _sentence(hit, hit.where), None
    later = f" by step {hit.joined_by}" if hit.joined_by is not None and hit.joined_by != hit.first else ""
    group = group_of((*([hit.where] if hit.where else []), *hit.also), known)
    if group is None:
        return f"{_sentence(hit, hit.where)} (and {len(hit.also)} more{later}{_worse(hit)})", None
    if _alike(hit) and "{where" in hit.message:
        return _sentence(hit, group.as_subject(later)), group.as_place()
    return f"{_sentence(hit, hit.where)} ({_rank(hit, group)}{later}{_worse(hit)})", group.as_place()


def _sentence(hit: Hit, where: str | None) -> str:
    return hit.message.format(where=where, value=hit.value, limit=hit.limit, first=hit.first, last=hit.last, worst=hit.worst)


def _alike(hit: Hit) -> bool:
    """Tell whether the sentence is the same of every place."""
    return len({_sentence(replace(hit, value=member.value, limit=member.limit), "") for member in hit.members}) <= 1


def _rank(hit: Hit, group: Group) -> str:
    """Return how one place stands among its group: nothing is the worst where the rule does not say how bad each is."""
    if "{where" not in hit.message:
        return group.as_place()
    if all(member.badness is None for member in hit.members) or _later_worse(hit):
        return f"as in {group.as_place()}"
    return f"the worst of {group.as_place()}"


def _later_worse(hit: Hit) -> Hit | None:
    """Return the worst hit, where it began later than the first ones and is worse than they are."""
    worst = max(hit.members, key=_badness, default=hit)
    return worst if _badness(worst) > _badness(hit) else None


def _worse(hit: Hit) -> str:
    """Return what the worst place has, where it is not the one that the sentence is about."""
    worst = _later_worse(hit)
    formats = [spec or "" for _, name, spec, _ in Formatter().parse(hit.message) if name == "value"]
    if worst is None or worst.where == hit.where or not formats or worst.value is None or hit.value is None:
        return ""
    value, here = (format(each, formats[0]) for each in (worst.value, hit.value))
    return "" if value == here else f"; {worst.where} has come to {value}"
