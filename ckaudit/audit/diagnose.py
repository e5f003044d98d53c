"""Weighing of causes, and the order of findings and causes."""

import math
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from ckaudit.audit.confidence import MIN_CONFIDENCE, CauseCandidate, confidences
from ckaudit.audit.judge import gravity, resolve
from ckaudit.audit.playbook import RECORDS, part_of
from ckaudit.causes.cause import Advice, Cause, Findings, total
from ckaudit.contract.schema.numbers import ignoring_float_errors
from ckaudit.contract.schema.report import SEVERITIES, Diagnosis, Evidence, Finding
from ckaudit.rules.activations.dead_units import dead_units
from ckaudit.rules.evaluation.benchmark_regression import benchmark_regression
from ckaudit.rules.evaluation.off_its_playbook import off_its_playbook
from ckaudit.rules.evaluation.probe_jump import probe_jump
from ckaudit.rules.evaluation.probes_forgotten import probes_forgotten
from ckaudit.rules.gradients.dead_parameter import dead_parameter
from ckaudit.rules.gradients.zero_gradients import zero_gradients
from ckaudit.rules.precision.nonfinite_values import nonfinite_values
from ckaudit.run.run import Run

ZEROS = {rule.code for rule in (dead_units, dead_parameter, zero_gradients)}
"""Codes of findings that NaN causes at the same step: comparisons with NaN are false, so a ReLU of it is zero, as is its
gradient."""

NOT_OF_TENSORS = (nonfinite_values.code, "RESUME", "REPLAY", "SCHED")
"""Code prefixes of numerics that NaN does not cause: NaN itself, and restarts, replays and schedules."""

LOSSES = ("train_loss_raw", "val_loss")
"""Places of values that may be non-finite while the weights stay finite."""


WeighedCause = tuple[CauseCandidate, Diagnosis]
"""A cause that explains something, and its diagnosis; the confidence is open until all causes of a run are known."""


@ignoring_float_errors
def diagnose(
    run: Run,
    findings: Iterable[Finding],
    causes: Iterable[Cause],
    *,
    accepted: Iterable[Finding] = (),
    min_confidence: float = MIN_CONFIDENCE,
) -> list[Diagnosis]:
    """Return the causes that explain something, likeliest first.

    The log odds of a cause are the sum of its prior and its evidence, as if evidence were independent. Its confidence is how
    often causes with such odds and such rivals were true (`confidences`).

    Args:
        run: Gives the series that causes read.
        findings: Findings to explain; notes need no cause and are not evidence.
        causes: The hypotheses.
        accepted: Findings that need no explanation, but count as evidence like any other.
        min_confidence: Less likely causes are left out.
    """
    weighed = weigh_causes(run, findings, causes, accepted=accepted)
    likely = zip(weighed, confidences([candidate for candidate, _ in weighed]), strict=True)
    # A record must support a cause: not being ruled out does not suffice.
    diagnoses = [
        replace(diagnosis, confidence=confidence)
        for (candidate, diagnosis), confidence in likely
        if candidate.is_supported and confidence >= min_confidence
    ]
    diagnoses.sort(key=lambda diagnosis: (-diagnosis.confidence, SEVERITIES.index(diagnosis.severity), diagnosis.cause))
    return [*diagnoses[:1], *(_placed(diagnosis, diagnoses[0]) for diagnosis in diagnoses[1:])]


def weigh_causes(
    run: Run, findings: Iterable[Finding], causes: Iterable[Cause], *, accepted: Iterable[Finding] = ()
) -> list[WeighedCause]:
    """Return every cause that explains a finding with its evidence; the arguments are those of `diagnose`."""
    findings, accepted = tuple(findings), tuple(accepted)
    end = _end_of_numbers([*findings, *accepted], run)
    illnesses = [finding for finding in findings if finding.severity != "note"]
    ill = Findings(tuple(finding for finding in illnesses if not _is_of_nan(finding, end)))
    of_nan = list(dict.fromkeys(finding.code for finding in illnesses if _is_of_nan(finding, end)))
    seen = Findings((*ill.all, *(finding for finding in accepted if finding.severity != "note" and not _is_of_nan(finding, end))))
    return [weighed for cause in causes if (weighed := _weigh(cause, run, ill, seen, of_nan))]


def _is_of_nan(finding: Finding, end: float) -> bool:
    """Tell whether a finding on tensors began after their numbers became NaN, so that only NaN caused it."""
    if part_of(finding.code) not in ("numerics", "behaviour") or finding.code.startswith(NOT_OF_TENSORS):
        return False
    start = finding.first_step if finding.first_step is not None else -1
    return start > end or (start == end and finding.code in ZEROS)


def _end_of_numbers(findings: Iterable[Finding], run: Run, *, share: float = 0.1) -> float:
    """Return the step from which weights or gradients are non-finite until the last `share` of the run; infinity if none."""
    late = (1 - share) * (run.last_step or 0)
    steps = [
        finding.first_step
        for finding in findings
        if finding.code == nonfinite_values.code
        and finding.where not in LOSSES
        and finding.first_step is not None
        and (finding.last_step or 0) >= late
    ]
    return min(steps, default=math.inf)


def _placed(later: Diagnosis, first: Diagnosis) -> Diagnosis:
    """Return a diagnosis, marked if it may only be a consequence of the likeliest."""
    began = first.first_step is not None and later.first_step is not None and first.first_step < later.first_step
    return replace(later, may_follow=first.cause) if began and set(later.explains) <= set(first.explains) else later


def _weigh(cause: Cause, run: Run, ill: Findings, seen: Findings, of_nan: Sequence[str]) -> WeighedCause | None:
    """Return a cause that explains a finding; None for any other.

    Args:
        cause: The hypothesis.
        run: Gives the series that it reads.
        ill: Findings to explain.
        seen: Findings that are evidence.
        of_nan: Codes of findings that NaN caused; the cause of the NaN explains them too.
    """
    explained = ill.of(*cause.explains)
    if not explained:
        return None
    inputs = resolve(cause.wants, run)
    results = list(cause.function(seen, *inputs))
    evidence = sorted((evidence for evidence in results if isinstance(evidence, Evidence)), key=lambda item: -abs(item.weight))
    knob = next((advice.sentence for advice in results if isinstance(advice, Advice)), cause.knob)
    codes = [finding.code for finding in (*explained, *_followed(cause, ill, explained[0]))]
    explains = list(dict.fromkeys((*codes, *(of_nan if nonfinite_values.code in codes else ()))))
    candidate = CauseCandidate(
        cause.name,
        cause.prior + total(evidence),
        explains,
        is_supported=any(item.weight > 0 for item in evidence),
        recorded_share=sum(value is not None for value in inputs) / len(inputs) if inputs else 1.0,
    )
    return candidate, _diagnosis(cause, explained, _placed_in_model(explained, run), evidence, explains, knob=knob)


def _placed_in_model(explained: Sequence[Finding], run: Run, *, lead: int = 50) -> Finding:
    """Return the first finding, or one that began with it and names a part of the model, as a loss finding does not."""
    first, names = explained[0], run.tensors.facts
    together = (finding for finding in explained if (finding.first_step or 0) <= (first.first_step or 0) + lead)
    parts = (
        finding for finding in together if finding.where and any(f"{name}.".startswith(f"{finding.where}.") for name in names)
    )
    return next(parts, first)


def _diagnosis(
    cause: Cause, explained: Sequence[Finding], place: Finding, evidence: list[Evidence], explains: list[str], *, knob: str
) -> Diagnosis:
    """Return a cause in the form of a report, from the first finding that it explains; the confidence is added later."""
    return Diagnosis(
        cause=cause.name,
        title=cause.title,
        confidence=0.0,
        severity=min(explained, key=gravity).severity,
        symptom=explained[0].message,
        knob=knob,
        inspect=cause.inspect,
        runbook=cause.runbook,
        evidence=evidence,
        explains=explains,
        where=place.where,
        group=place.group,
        first_step=explained[0].first_step,
        path=place.path,
    )


def _followed(cause: Cause, ill: Findings, first: Finding, *, lead: int = 50) -> list[Finding]:
    """Return the findings that may follow from a cause and did not begin long before it was seen.

    A checkpoint shows a cause some steps after the log shows its consequence: `lead` is their distance in the default cadence.
    """
    return ill.since((first.first_step or 0) - lead).of(*cause.follows)


SCORE_CODES = frozenset(rule.code for rule in (benchmark_regression, probes_forgotten, probe_jump, off_its_playbook))
"""Codes of findings on scores and answers, which are effects of other problems."""

COST = "COST"
"""Code prefix of rules on the cost of recording."""


# Order within a severity: the training before its record, and lasting problems before past ones.
def ranked(findings: Sequence[Finding], run: Run) -> list[Finding]:
    """Return findings by severity; then those of the training before its record, lasting ones before past ones, then by step.

    Scores and answers that get worse come after their causes.
    """

    def place(finding: Finding) -> tuple[int, bool, bool, bool, tuple[int, bool, int, str]]:
        is_effect = finding.code in SCORE_CODES
        return SEVERITIES.index(finding.severity), of_record(finding), is_over(finding, run), is_effect, gravity(finding)

    return sorted(findings, key=place)


def first_causes(
    diagnoses: Sequence[Diagnosis], findings: Sequence[Finding], run: Run, *, sure: float = 0.7, min_sev0_confidence: float = 0.5
) -> list[Diagnosis]:
    """Return causes likeliest first, except that causes of past problems yield to sure causes of lasting ones.

    A likely cause of a sev0 comes first. Causes of the record alone come last.

    Args:
        diagnoses: Causes, likeliest first.
        findings: The findings that they explain.
        run: Gives the length of the record.
        sure: Confidence from which a cause of a lasting problem comes before likelier causes of past ones, if it is as severe.
            Less sure causes of past problems come after it too.
        min_sev0_confidence: Confidence from which a cause of a sev0 comes first.
    """
    ill = [finding for finding in findings if finding.severity != "note"]
    explained = {diagnosis.cause: [one for one in ill if one.code in diagnosis.explains] for diagnosis in diagnoses}
    passing = {name for name, illnesses in explained.items() if illnesses and _are_over(illnesses, run)}
    lasting = [diagnosis for diagnosis in diagnoses if diagnosis.cause not in passing and diagnosis.confidence >= sure]

    def place(diagnosis: Diagnosis) -> tuple[bool, bool, float, bool]:
        severity = SEVERITIES.index(diagnosis.severity)
        before = [other.confidence for other in lasting if SEVERITIES.index(other.severity) <= severity]
        yields = diagnosis.cause in passing and bool(before)
        confidence = min([diagnosis.confidence, *before]) if yields else diagnosis.confidence
        explains_end = diagnosis.severity == "sev0" and diagnosis.confidence >= min_sev0_confidence
        return all(map(of_record, explained[diagnosis.cause])), not explains_end, -confidence, yields

    return sorted(diagnoses, key=place)


def of_record(finding: Finding) -> bool:
    """Tell whether a finding is about the record of the training, or the cost of recording, and not about the training itself."""
    return part_of(finding.code) == RECORDS or finding.code.startswith(COST)


def is_over(finding: Finding, run: Run) -> bool:
    """Tell whether a problem was short and is over."""
    return _are_over([finding], run)


def _are_over(findings: Sequence[Finding], run: Run, *, share: float = 0.1) -> bool:
    """Tell whether problems, taken as one, were short and are over.

    Args:
        findings: The problems.
        run: The record.
        share: Largest share of the record that a short problem takes, and smallest share that must follow it.
    """
    starts, ends = [finding.first_step for finding in findings], [finding.last_step for finding in findings]
    known = [(first, last) for first, last in zip(starts, ends, strict=True) if first is not None and last is not None]
    if run.last_step is None or len(known) < len(findings):
        return False
    first, last, room = min(first for first, _ in known), max(last for _, last in known), share * run.last_step
    return last - first < room and run.last_step - last > room
