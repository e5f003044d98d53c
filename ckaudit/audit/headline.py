"""The headline of a report: what is wrong, since when and where; or that nothing is, and how much was judged."""

from collections.abc import Sequence
from pathlib import Path

from ckaudit.audit.diagnose import of_record
from ckaudit.audit.response_plan import from_the_start
from ckaudit.audit.vital_checks import judged, limits
from ckaudit.causes import causes
from ckaudit.contract.schema.report import SEVERITIES, Check, Diagnosis, Finding, VitalCheck
from ckaudit.questions.bad_answer_table import BAD
from ckaudit.rules.precision.nonfinite_values import nonfinite_values
from ckaudit.run.run import Run
from ckaudit.wording import plural

MIN_SURE = 0.5
"""A cause less likely than this is named only as a guess."""


def headline(
    checks: Sequence[Check],
    diagnoses: list[Diagnosis],
    findings: list[Finding],
    run: Run,
    *,
    vital: Sequence[VitalCheck] = (),
    hidden: int = 0,
    normal: int = 0,
    sure: float = MIN_SURE,
) -> str:
    """Return the result of the audit in one sentence.

    Args:
        checks: Outcome of each rule.
        diagnoses: Causes, likeliest first.
        findings: All findings, most severe first.
        run: The run, cut at the judged step.
        vital: The vital checks; if one could not judge, a run without findings is not called healthy.
        hidden: Number of findings that do not count.
        normal: Number of those that do not count because siblings have them too.
        sure: A less likely cause is named only as a guess.
    """
    ill = [finding for finding in findings if finding.severity != "note"]
    if not ill:
        bad = [finding for finding in findings if finding.code in BAD]
        return _all_clear(checks, run.last_step, vital, bad, accepted=hidden - normal, normal=normal)
    if not diagnoses:
        worst_of_training = next((finding for finding in ill if not of_record(finding)), None)
        if worst_of_training is None and (broken := ill[0].file):
            return f"The record is broken in {Path(broken).name}: {ill[0].message}"
        what = worst_of_training or ill[0]
        has_causes = any(what.code in {sign.code for sign in cause.explains} for cause in causes().values())
        return f"No {'cause stands out for' if has_causes else 'known cause explains'} this: {what.message}"
    first = _cause_of_worst(diagnoses, ill, sure)
    if first is None:
        return f"No cause stands out for this: {ill[0].message}"
    title = first.title.rstrip(".")
    if first.confidence < sure:
        return f"No cause stands out for this: {first.symptom} (the best guess: {title[0].lower()}{title[1:]})"
    since = ""
    if first.first_step is not None:
        is_older = first.first_step > 1 and from_the_start(run, first.first_step, first.explains)
        since = f", since step {first.first_step}" + (" or before" if is_older else "")
    return f"{title}{since}{_place(first)}{_consequence(first, ill)}"


def led_by_headline(diagnoses: Sequence[Diagnosis], findings: Sequence[Finding], *, sure: float = MIN_SURE) -> list[Diagnosis]:
    """Return the causes with that of the headline first, so that the plan begins with it.

    Problems of the record alone come last, whatever the headline.

    Args:
        diagnoses: Causes, likeliest first.
        findings: All findings, most severe first.
        sure: A cause less likely than this does not move before others.
    """
    ill = [finding for finding in findings if finding.severity != "note" and not of_record(finding)]
    first = _cause_of_worst(diagnoses, ill, sure) if diagnoses and ill else None
    return list(diagnoses) if first is None else [first, *(other for other in diagnoses if other is not first)]


def _consequence(first: Diagnosis, ill: Sequence[Finding]) -> str:
    """Return the non-finite values that a headline's cause led to later, unless the headline already names them."""
    broken = next((finding for finding in ill if finding.code == nonfinite_values.code and finding.code in first.explains), None)
    if broken is None or broken.first_step is None or broken.message == first.symptom:
        return ""
    return f"; {broken.message} since step {broken.first_step}" if broken.first_step > (first.first_step or 0) else ""


def _cause_of_worst(diagnoses: Sequence[Diagnosis], ill: Sequence[Finding], sure: float) -> Diagnosis | None:
    """Return the cause for a headline: the first, or one of a more severe finding that it does not explain; None if none."""
    first, worst = diagnoses[0], ill[0]
    if worst.code in first.explains or SEVERITIES.index(worst.severity) >= SEVERITIES.index(first.severity):
        return first
    return next((other for other in diagnoses if worst.code in other.explains and other.confidence >= sure), None)


def _place(diagnosis: Diagnosis) -> str:
    """Return the place in the model, a whole group by its name; empty for a scalar such as the loss."""
    if diagnosis.group:
        return f", in {diagnosis.group}"
    return f", in {diagnosis.where}" if diagnosis.where and "." in diagnosis.where else ""


def _all_clear(
    checks: Sequence[Check], last: int | None, vital: Sequence[VitalCheck], bad: Sequence[Finding], *, accepted: int, normal: int
) -> str:
    """Return that nothing is wrong, how much was judged, and which questions still have bad answers.

    Args:
        checks: Outcome of each rule.
        last: Last recorded step.
        vital: The vital checks.
        bad: Findings on bad answers that are notes.
        accepted: Number of accepted findings.
        normal: Number of findings that are normal among the siblings.
    """
    rules = [check for check in checks if check.code not in BAD]
    count = sum(check.outcome in ("passed", "failed") for check in rules)
    if not count:
        return "Nothing could be judged: no rule found what it needs"
    until = "" if last is None else f" up to step {last}"
    known = "".join(
        f", and {plural(number, 'finding')} {'is' if number == 1 else 'are'} {state}"
        for number, state in ((accepted, "accepted"), (normal, "normal among its siblings"))
        if number
    )
    answers = "".join(f"; {finding.code}: {BAD[finding.code].says}" for finding in bad)
    if judged(vital, checks) == "nothing":
        return f"Nothing that is vital could be judged{until}: {limits(vital)}{known}{answers}"
    if judged(vital, checks) == "limited":
        where = "" if any(check.outcome == "judged" for check in vital) else " in its scores, which alone could be judged"
        return f"No {'new ' if accepted else ''}illness seen{until}{where}, but {limits(vital)}{known}{answers}"
    nothing = f"No {'new ' if accepted else ''}illness" if bad else f"Nothing {'new' if accepted else 'wrong'}"
    return f"{nothing}{until}: {count} of {len(rules)} rules could judge{known}{answers}"
