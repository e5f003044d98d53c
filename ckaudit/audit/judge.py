"""Rules and questions applied to a run: which rules fired, passed or could not judge, and which answers are bad."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from string import Formatter
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ckaudit.audit.coverage.applicability import manifest_says, why_metric_not_applicable
from ckaudit.causes.cause import Findings
from ckaudit.contract.schema.numbers import encode_float, ignoring_float_errors
from ckaudit.contract.schema.report import SEVERITIES, Check, Finding, Outcome, Severity, SkipReason
from ckaudit.contract.summaries import parse_needs
from ckaudit.contract.violations import ViolationKind
from ckaudit.metrics import Metric
from ckaudit.policy.policy_schema import PolicyClauses
from ckaudit.questions import questions
from ckaudit.questions.bad_answer_table import BAD, BadAnswer
from ckaudit.questions.question import FindingsMarker, Question, SeriesAnswer, not_recorded
from ckaudit.questions.question import Input as QuestionInput
from ckaudit.rules import rules
from ckaudit.rules.precision.nonfinite_values import nonfinite_values
from ckaudit.rules.rule import Hit, Input, Rule, Skip
from ckaudit.run.run import Run
from ckaudit.run.tensor_groups import Known, PlaceGroup, group_of, known_places


class Judgement(Struct, frozen=True):
    """Result of rules, or of questions, for a run."""

    findings: tuple[Finding, ...]
    checks: tuple[Check, ...]


@ignoring_float_errors
def apply_rules(run: Run, applied: Iterable[Rule]) -> Judgement:
    """Apply rules to a run; a rule that crashes becomes an error of its own and does not stop the others."""
    findings: list[Finding] = []
    checks: list[Check] = []
    for rule in applied:
        findings_of_rule, check = _apply(rule, run)
        findings += findings_of_rule
        checks.append(check)
    return Judgement(tuple(sorted(findings, key=gravity)), tuple(checks))


def gravity(finding: Finding) -> tuple[int, bool, int, str]:
    """Sort key: most severe first, rules before questions, then by step and code; the order within a rule is stable."""
    start = -1 if finding.first_step is None else finding.first_step
    return SEVERITIES.index(finding.severity), finding.code in BAD, start, finding.code


def resolve(inputs: Iterable[Input], run: Run) -> list[Any]:
    """Return each input's value in a run: a series, the manifest, or None if nothing is recorded."""
    return [(input_(run) or None) if isinstance(input_, Metric) else run.manifest for input_ in inputs]


def _apply(rule: Rule, run: Run) -> tuple[list[Finding], Check]:
    try:
        findings, skip = _findings_or_skip(rule, run)
    except Exception as error:  # noqa: BLE001  one broken rule must not cost the verdict of the others
        detail = f"{type(error).__name__}: {error}"
        return [], Check(code=rule.code, name=rule.name, title=rule.title, severity=rule.severity, outcome="error", detail=detail)
    failed = any(finding.severity != "note" for finding in findings)
    return findings, Check(
        code=rule.code,
        name=rule.name,
        title=rule.title,
        severity=rule.severity,
        outcome="skipped" if skip else "failed" if failed else "passed",
        reason=skip.reason if skip else None,
        detail=skip.detail if skip else None,
        findings=len(findings),
    )


def _findings_or_skip(rule: Rule, run: Run) -> tuple[list[Finding], Skip | None]:
    """Return the findings of a rule, and why it could not judge, if so."""
    needs, wants = resolve(rule.needs, run), resolve(rule.wants, run)
    missing = [need for need, value in zip(rule.needs, needs, strict=True) if value is None]
    if missing:
        named = [need for need in missing if isinstance(need, Metric) or not rule.facts]
        names = [(need.name,) if isinstance(need, Metric) else ("run.json",) for need in named]
        facts = [
            alternatives for alternatives in rule.facts if not any(manifest_says(run.manifest, name) for name in alternatives)
        ]
        needed_names = [*names, *facts]
        return [], _why_foreign(needed_names, run) or Skip("not_recorded", f"needs {', '.join(map(' or '.join, needed_names))}")
    results = list(rule.function(*needs, *wants))
    findings = [_finding(rule, hit, run) for hit in merge_hits(hit for hit in results if isinstance(hit, Hit))]
    if any(finding.severity != "note" for finding in findings):
        return findings, None
    skip = next((skip for skip in results if isinstance(skip, Skip)), None)
    if skip is not None and skip.reason == "not_recorded":
        skip = _why_foreign(parse_needs(skip.detail), run) or skip
    return findings, skip


def _why_foreign(needs: Iterable[Sequence[str]], run: Run) -> Skip | None:
    """Return that a need with none of its alternatives applies to the run, so it is not missing; None if all needs apply."""
    for alternatives in needs:
        reasons = [why_metric_not_applicable(run, name) for name in alternatives]
        if all(reasons):
            return Skip("not_applicable", reasons[0])
    return None


def _finding(rule: Rule, hit: Hit, run: Run) -> Finding:
    if SEVERITIES.index(hit.severity) < SEVERITIES.index(rule.severity):
        raise ValueError(f"{rule.code} may be {rule.severity} at most, not {hit.severity}")
    message, group = describe(named_once(hit, rule), known_places(run))
    # The path from the tensor to its kernels, if the run knows more of it than its name.
    below = run.tensors.path(hit.where) if hit.where else []
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
        value=None if hit.value is None else encode_float(hit.value),
        limit=None if hit.limit is None else encode_float(hit.limit),
        points=hit.points,
        also=list(hit.also),
        path=[*(metric.name for metric in rule.metrics[:1]), *below] if below else [],
    )


# Merging of equal hits at overlapping times, and the sentence on all their places.
def merge_hits(hits: Iterable[Hit]) -> Iterator[Hit]:
    """Merge hits with the same message at overlapping times; the worst of the first ones gives the sentence."""
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


def named_once(hit: Hit, rule: Rule) -> Hit:
    """Return a hit whose sentence does not say a metric's name beside its words, as "the spectral norm of spectral_norm".

    A scalar that was logged without a label has its own name for its place, and the sentence names the metric already.

    Args:
        hit: A hit of the rule.
        rule: The rule.
    """
    if hit.also or hit.where not in {metric.name for metric in rule.metrics}:
        return hit
    return replace(hit, message=hit.message.replace(" of {where}", ""))


def describe(hit: Hit, places_of_run: Known) -> tuple[str, str | None]:
    """Return the sentence of a hit and the name of its group; if its places form a group, the sentence names the group.

    Args:
        hit: A hit at one place, or a merged hit.
        places_of_run: All places of the run.
    """
    if not hit.also:
        return _sentence(hit, hit.where), None
    later = f" by step {hit.joined_by}" if hit.joined_by is not None and hit.joined_by != hit.first else ""
    group = group_of((*([hit.where] if hit.where else []), *hit.also), places_of_run)
    if group is None:
        return f"{_sentence(hit, hit.where)} (and {len(hit.also)} more{later}{_worse(hit)})", None
    if _alike(hit) and "{where" in hit.message:
        return _sentence(hit, group.as_subject(later)), group.as_place()
    return f"{_sentence(hit, hit.where)} ({_rank(hit, group)}{later}{_worse(hit)})", group.as_place()


def _sentence(hit: Hit, where: str | None) -> str:
    return hit.message.format(where=where, value=hit.value, limit=hit.limit, first=hit.first, last=hit.last, worst=hit.worst)


def _alike(hit: Hit) -> bool:
    """Tell whether the sentence is the same for every place."""
    return len({_sentence(replace(hit, value=member.value, limit=member.limit), "") for member in hit.members}) <= 1


def _rank(hit: Hit, group: PlaceGroup) -> str:
    """Return a place's position in its group; it is not called the worst if the rule does not rate places."""
    if "{where" not in hit.message:
        return group.as_place()
    if all(member.badness is None for member in hit.members) or _later_worse(hit):
        return f"as in {group.as_place()}"
    return f"the worst of {group.as_place()}"


def _later_worse(hit: Hit) -> Hit | None:
    """Return the worst hit if it began later than the first ones and is worse."""
    worst = max(hit.members, key=_badness, default=hit)
    return worst if _badness(worst) > _badness(hit) else None


def _worse(hit: Hit) -> str:
    """Return the value of the worst place, if the sentence is about another one."""
    worst = _later_worse(hit)
    formats = [spec or "" for _, name, spec, _ in Formatter().parse(hit.message) if name == "value"]
    if worst is None or worst.where == hit.where or not formats or worst.value is None or hit.value is None:
        return ""
    value, own_value = (format(number, formats[0]) for number in (worst.value, hit.value))
    return "" if value == own_value else f"; {worst.where} has come to {value}"


# Questions: the answer from a run's series, before weighing.
def answer_from_series(question: Question, run: Run, findings: Findings) -> SeriesAnswer:
    """Return the answer from the series; an input without any number is bad, and missing inputs are named.

    Args:
        question: The question.
        run: The run.
        findings: Findings that are more than a note.
    """
    metrics = [need for need in question.needs if isinstance(need, Metric)]
    if missing := [metric.name for metric in metrics if not metric(run)]:
        if foreign := next((reason for name in missing if (reason := why_metric_not_applicable(run, name))), ""):
            return SeriesAnswer(word="not_applicable", sentence=foreign)
        return not_recorded(f"needs {', '.join(missing)}", *missing)
    if broken := [metric.name for metric in metrics if not _has_number(metric, run)]:
        return SeriesAnswer(word="bad", sentence=f"no value of {', '.join(broken)} is a number", no_number=True)
    try:
        return question.function(*_values(question.needs, run, findings), *_values(question.wants, run, findings))
    except Exception as error:  # noqa: BLE001  one broken question must not cost the answers of the others
        sentence = f"the question broke: {type(error).__name__}: {error}"
        return SeriesAnswer(word="not_recorded", sentence=sentence, broke=True)


def _values(inputs: Iterable[QuestionInput], run: Run, findings: Findings) -> Iterator[Any]:
    """Yield each input's value in a run; a series without any number counts as missing."""
    for input_ in inputs:
        if isinstance(input_, Metric):
            yield input_(run) if _has_number(input_, run) else None
        else:
            yield findings if isinstance(input_, FindingsMarker) else run.manifest


def _has_number(metric: Metric, run: Run) -> bool:
    return run.derived(("has a number", metric.name), lambda: bool(metric(run).finite.any()))


# Bad answers: what a question calls bad and no rule has found becomes a finding of its own, so that the headline, `--questions`,
# `gate`, `watch`, `diff` and the report draw from the same findings. How grave each is says `questions/bad_answer_table.py`.
def judge_answers(run: Run, findings: Sequence[Finding], clauses: PolicyClauses) -> Judgement:
    """Answer the questions for a run, and return a finding for each bad answer that no finding covers.

    Args:
        run: The run.
        findings: All findings of rules and readers, before grading and acceptance.
        clauses: The policy's clauses. A selection of rules excludes all questions.
    """
    if clauses.select is not None:
        return Judgement((), ())
    evidence = Findings(tuple(finding for finding in findings if finding.severity != "note"))
    asked = [question for question in questions().values() if question.id in BAD and not BAD[question.id].judged_by_rules]
    answers = {question.id: (question, answer_from_series(question, run, evidence)) for question in asked}
    bad = {id_: answer for id_, (_, answer) in answers.items() if answer.word == "bad"}
    new = [
        _finding_of_answer(answers[id_][0], answer, run)
        for id_, answer in bad.items()
        if not _is_accounted_for(id_, bad, findings, run, clauses)
    ]
    codes = {finding.code for finding in new}
    return Judgement(tuple(new), tuple(_check_of_answer(question, answer, codes) for question, answer in answers.values()))


def kinds_of_questions() -> Iterator[ViolationKind]:
    """Yield bad answers as kinds of findings that a policy can name by code or by name."""
    for id_, bad in BAD.items():
        yield ViolationKind(id_, bad.name, bad.severity, title_of(bad), _help(id_), ("triage",))


def title_of(bad: BadAnswer) -> str:
    """Return what is wrong as a whole sentence.

    >>> title_of(BAD["D1.1"])
    'It does not train.'
    """
    return f"{bad.says[0].upper()}{bad.says[1:]}."


def _is_accounted_for(
    id_: str, bad: Mapping[str, SeriesAnswer], findings: Sequence[Finding], run: Run, clauses: PolicyClauses
) -> bool:
    """Tell whether a finding or another answer already covers a bad answer."""
    question, table = questions()[id_], BAD[id_]
    if any(other in bad for other in table.covered_by):
        return True
    if bad[id_].no_number and any(finding.name == nonfinite_values.name for finding in findings):
        return True
    names = {*question.rules, *question.weighs}
    if any(finding.name in {*names, *table.covered_by_rules} and _is_as_grave(finding, table.severity) for finding in findings):
        return True
    # The policy has decided on what a rule that it disables or whose thresholds it changes would find.
    changed = [
        rule
        for rule in rules().values()
        if rule.name in names and (clauses.severities.get(rule.code) == "off" or rule.name in clauses.thresholds)
    ]
    return any(_is_as_grave(finding, table.severity) for finding in apply_rules(run, changed).findings)


def _is_as_grave(finding: Finding, severity: Severity) -> bool:
    return SEVERITIES.index(finding.severity) <= SEVERITIES.index(severity)


def _finding_of_answer(question: Question, answer: SeriesAnswer, run: Run) -> Finding:
    bad = BAD[question.id]
    return Finding(
        code=question.id,
        name=bad.name,
        severity=bad.severity,
        message=f"{bad.says}: {answer.sentence}",
        last_step=run.last_step,
        help=_help(question.id),
    )


def _check_of_answer(question: Question, answer: SeriesAnswer, codes: set[str]) -> Check:
    """Return the outcome of a question in the form of a rule's check."""
    bad = BAD[question.id]
    judged = answer.word in ("good", "watch", "bad")
    outcome: Outcome = "error" if answer.broke else "passed" if judged else "skipped"
    reason: SkipReason = "not_applicable" if answer.word == "not_applicable" else "not_recorded"
    return Check(
        code=question.id,
        name=bad.name,
        title=title_of(bad),
        severity=bad.severity,
        outcome="failed" if question.id in codes and bad.severity != "note" else outcome,
        reason=reason if outcome == "skipped" else None,
        detail=None if judged else answer.sentence,
        findings=int(question.id in codes),
    )


def _help(id_: str) -> str:
    phase = questions()[id_].phase
    return f"`ckaudit triage RUN --questions {phase}` shows the answer, and `ckaudit explain {id_}` what it rests on."
