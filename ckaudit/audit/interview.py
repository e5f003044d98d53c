"""The interview: all questions of some phases answered for a run, weighed by findings, with commands to look further."""

import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from ckaudit.audit.judge import answer_from_series
from ckaudit.causes.cause import Findings
from ckaudit.causes.shared.void import likely_diagnoses, voided_numbers
from ckaudit.contract.schema.numbers import encode_float
from ckaudit.contract.schema.report import Answer, Check, Diagnosis, Finding, Phase, Pointer, Word
from ckaudit.metrics import Metric, metrics
from ckaudit.questions.bad_answer_table import BAD
from ckaudit.questions.question import MAP, PHASES, MapRow, Question, SeriesAnswer, questions, worst_of
from ckaudit.rules import Rule, rules
from ckaudit.rules.precision.nonfinite_values import nonfinite_values
from ckaudit.run.run import Run

READINESS_PHASE = 6  # the phase that ends in a verdict

BY_HEART = 7  # the phase whose questions the scores themselves answer

RUINOUS = ("nonfinite_values", "hidden_nonfinite")
"""Rules whose finding, if it lasts to the end of the record, spoils the whole run."""

BEFORE = ("D6.1", "D6.2", "D6.5")
"""Questions that decide on the start of fine-tuning; D6.3 and D6.4 are about the time after it."""

ABOUT = {
    "D6.1": ("pretraining is at its plateau", "pretraining is not at its plateau", "whether pretraining is done"),
    "D6.2": ("the language is fluent", "the language or what it follows is not as it should be", "how fluent it is"),
    "D6.5": ("half prompts are continued", "half prompts are continued poorly", "how half prompts are continued"),
}
"""Phrases for a good, a bad and an unknown answer."""


class WeighedAnswer(Struct, frozen=True):
    """An answer that is not better than triage, and the findings that affect it, most severe first."""

    answer: SeriesAnswer
    findings: tuple[Finding, ...] = ()


class Interview(Struct, frozen=True):
    """Answers of a run to the questions of some phases.

    Attributes:
        phases: Questions and answers by phase.
        broken: Answers of questions that raised an error.
    """

    phases: list[Phase]
    broken: list[Answer]


def interview(
    run: Run, phases: Collection[int], findings: Sequence[Finding], diagnoses: Sequence[Diagnosis], *, step: int | None = None
) -> Interview:
    """Answer the questions of some phases for a run.

    Args:
        run: The run as known at the judged step.
        phases: Numbers, 1 to 7.
        findings: Findings of the rules, most severe first.
        diagnoses: Their causes, likeliest first.
        step: The requested step, for the commands to look further.
    """
    answered, broken = list[Phase](), list[Answer]()
    for number in sorted(set(phases)):
        asked = [question for question in questions().values() if question.phase == number]
        weighed = [_weighed(question, run, findings, diagnoses) for question in asked]
        answers = [no_worse_than_findings(_in_words(*pair, diagnoses)) for pair in zip(asked, weighed, strict=True)]
        broken += [given for given, reply in zip(answers, weighed, strict=True) if reply.answer.broke]
        verdict = readiness(answers, findings) if number == READINESS_PHASE else None
        pointers = [_pointer(way, run, step) for way in MAP if number in way.phases]
        answered.append(Phase(number=number, title=PHASES[number], answers=answers, verdict=verdict, pointers=pointers))
    return Interview(answered, broken)


def broken_questions(broken: Iterable[Answer], checks: Iterable[Check] = ()) -> list[Check]:
    """Return a failed check for each question that crashed, because an audit with one is not complete.

    Args:
        broken: The answers of such questions.
        checks: Existing checks.
    """
    codes = {check.code for check in checks}
    return [
        Check(code=answer_.id, name="question", title=answer_.question, severity="note", outcome="error", detail=answer_.sentence)
        for answer_ in broken
        if answer_.id not in codes
    ]


def interview_reads(phases: Collection[int]) -> frozenset[str]:
    """Return the checkpoint paths that the questions of some phases read."""
    wanted = {metric for question in questions().values() if question.phase in phases for metric in question.metrics}
    wanted |= {metrics()[name] for way in MAP if set(way.phases) & set(phases) for name in way.metrics}
    return frozenset().union(*(metric.paths for metric in wanted))


def answer(asked: Question, run: Run, findings: Sequence[Finding], diagnoses: Sequence[Diagnosis]) -> Answer:
    """Answer one question for a run: from the series, and never better than what triage says of the same run."""
    return _in_words(asked, _weighed(asked, run, findings, diagnoses), diagnoses)


def _weighed(asked: Question, run: Run, findings: Sequence[Finding], diagnoses: Sequence[Diagnosis]) -> WeighedAnswer:
    series_answer = answer_from_series(asked, run, Findings(tuple(finding for finding in findings if finding.severity != "note")))
    return weigh_answer(asked, series_answer, run, findings, diagnoses)


def _in_words(asked: Question, weighed: WeighedAnswer, diagnoses: Sequence[Diagnosis]) -> Answer:
    return Answer(
        id=asked.id,
        question=asked.text,
        word=weighed.answer.word,
        sentence=weighed.answer.sentence,
        numbers={name: encode_float(float(value)) for name, value in weighed.answer.numbers.items()},
        missing=list(weighed.answer.missing),
        findings=list(dict.fromkeys(finding.code for finding in weighed.findings)),
        causes=[diagnosis.cause for diagnosis in causes_of_findings(weighed.findings, diagnoses)],
    )


def no_worse_than_findings(given: Answer) -> Answer:
    """Return an answer that is bad only if a finding that counts supports it.

    A bad answer without a finding was accepted by a policy or a baseline, and becomes "watch".
    """
    if given.word != "bad" or given.findings:
        return given
    return replace(given, word="watch", sentence=f"{given.sentence}; no finding counts for it, as policy or baseline say")


def _pointer(way: MapRow, run: Run, step: int | None) -> Pointer:
    """Return the command that shows more, from what the run has recorded."""
    name = shlex.quote(run.name)
    at = "" if step is None else f" --step {step}"
    if way.command and not run.events:
        return Pointer(id=way.id, question=way.question, command=f"ckaudit triage {name} -v{at}", why="no event was recorded")
    if way.command:
        command = way.command.format(run=name, event=min(event.event_step for event in run.events))
        return Pointer(id=way.id, question=way.question, command=command)
    known = [metric for metric in way.metrics if metrics()[metric](run)]
    if not known:
        why = f"nothing of {', '.join(way.metrics)} is recorded"
        return Pointer(id=way.id, question=way.question, command=f"ckaudit coverage {name}", why=why)
    return Pointer(id=way.id, question=way.question, command=f"ckaudit metrics {name} {' '.join(known)}{at}")


# Weighing of an answer by triage of the same run: it is never better than the findings and causes allow.
def weigh_answer(
    asked: Question, series_answer: SeriesAnswer, run: Run, findings: Sequence[Finding], diagnoses: Sequence[Diagnosis]
) -> WeighedAnswer:
    """Weigh an answer by findings and causes.

    Findings of the question's own rules count in full: sev2 allows "watch" at best; a more severe one makes it "bad", and so does
    a finding that the question itself calls bad. A good answer becomes "watch" if its numbers mean nothing, if the run is ruined,
    if a related cause is likely, or if a finding that is severe or lasts uses the same numbers.

    Args:
        asked: The question.
        series_answer: The answer from the series.
        run: The run, for the last step of its record.
        findings: Findings of the rules, most severe first; notes do not count.
        diagnoses: Their causes, likeliest first.
    """
    illnesses = [finding for finding in findings if finding.severity != "note"]
    of_its_rules = [finding for finding in illnesses if finding.name in asked.rules]
    if of_its_rules:
        is_called_bad = asked.id in BAD and any(finding.name in BAD[asked.id].means for finding in of_its_rules)
        word: Word = "bad" if of_its_rules[0].severity != "sev2" or is_called_bad else "watch"
        of_its_rules += [finding for finding in findings if finding.code == asked.id]
        return WeighedAnswer(
            _never_better(
                series_answer, word, f"{_finding_text(of_its_rules[0])}{_besides(of_its_rules)}", of_its_rules, diagnoses
            ),
            tuple(of_its_rules),
        )
    if series_answer.word == "bad":
        return WeighedAnswer(
            series_answer,
            (*(finding for finding in illnesses if finding.name in asked.weighs), *_of_answers(asked, series_answer, findings)),
        )
    if series_answer.word != "good":
        return WeighedAnswer(series_answer)
    for reason, doubts in _doubts(asked, run, illnesses, diagnoses):
        return WeighedAnswer(_never_better(series_answer, "watch", reason, doubts, diagnoses), tuple(doubts))
    return WeighedAnswer(series_answer)


def _of_answers(asked: Question, answer: SeriesAnswer, findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings of this bad answer, or of a rule or another answer that covers it."""
    others = [questions()[id_] for id_ in BAD[asked.id].covered_by] if asked.id in BAD else []
    rules = BAD[asked.id].covered_by_rules if asked.id in BAD else ()
    codes = {asked.id, *(other.id for other in others)}
    names = {*rules, *(name for other in others for name in (*other.rules, *other.weighs))}
    names |= {nonfinite_values.name} if answer.no_number else set()
    return [finding for finding in findings if finding.code in codes or (finding.name in names and finding.severity != "note")]


def _doubts(
    asked: Question, run: Run, illnesses: Sequence[Finding], diagnoses: Sequence[Diagnosis]
) -> Iterator[tuple[str, Sequence[Finding]]]:
    """Yield the reasons to doubt a good answer, each with its findings."""
    # A question without required metrics rests on all of its metrics.
    needed = [need for need in asked.needs if isinstance(need, Metric)]
    rests = needed or asked.metrics
    reads = {path for metric in rests for path in (metric.name, *metric.reads)}
    for void in voided_numbers(illnesses, diagnoses):
        if reads & void.names:
            first = void.findings[0]
            yield f"{void.reason} ({first.code}{_since(first)})", void.findings
    ruin = [finding for finding in illnesses if asked.phase < BY_HEART and finding.name in RUINOUS and _lasts(finding, run)]
    if ruin:
        yield f"the run is no longer finite: {_finding_text(ruin[0])}{_besides(ruin)}", ruin
    for cause in likely_diagnoses(diagnoses):
        if cause.cause in asked.causes:
            findings = [finding for finding in illnesses if finding.code in cause.explains]
            yield f"{cause.title.rstrip('.')} ({', '.join(dict.fromkeys(finding.code for finding in findings))})", findings
    yield from _on_same_metrics(
        asked, rests, [finding for finding in illnesses if finding.severity != "sev2" or _lasts(finding, run)]
    )


def _on_same_metrics(
    asked: Question, rests: Sequence[Metric], illnesses: Sequence[Finding]
) -> Iterator[tuple[str, Sequence[Finding]]]:
    """Yield the findings on the same numbers, except those that the question itself weighs by place and time.

    A sev2 that is over does not change the answer.
    """
    by_code = rules()
    others = [finding for finding in illnesses if finding.name not in asked.weighs]
    shared = [(other, metric) for other in others if (metric := _shared(other, by_code.get(other.code), rests))]
    if shared:
        (first, metric), findings = shared[0], [finding for finding, _ in shared]
        yield f"{first.code}{_since(first)}, on the same {metric}: {first.message}{_besides(findings)}", findings


def _shared(finding: Finding, rule: Rule | None, rests: Iterable[Metric]) -> str:
    """Return the metric of a finding, or one that its rule needs, among those of an answer; else an empty string."""
    named = {place.partition("/")[0] for place in (finding.where, *finding.also) if place}
    needed = named | ({need.name for need in rule.needs if isinstance(need, Metric)} if rule else set())
    return next((metric.name for metric in rests if metric.name in needed), "")


def _lasts(finding: Finding, run: Run) -> bool:
    return finding.last_step is None or run.last_step is None or finding.last_step >= run.last_step


def _never_better(
    series_answer: SeriesAnswer, worst_word: Word, reason: str, findings: Sequence[Finding], diagnoses: Sequence[Diagnosis]
) -> SeriesAnswer:
    word: Word = worst_of(worst_word, series_answer.word) if series_answer.word in ("good", "watch", "bad") else worst_word
    likeliest = next((diagnosis.cause for diagnosis in causes_of_findings(findings, diagnoses)), "")
    cause = f"; the likeliest cause is {likeliest}" if likeliest else ""
    return replace(
        series_answer, word=word, sentence=f"{reason}{cause}. {series_answer.sentence[:1].upper()}{series_answer.sentence[1:]}"
    )


def _finding_text(finding: Finding) -> str:
    return f"{finding.code}{_since(finding)}: {finding.message}"


def _since(finding: Finding) -> str:
    return "" if finding.first_step is None else f" from step {finding.first_step}"


def _besides(findings: Sequence[Finding]) -> str:
    """Return the codes of the other findings; findings on many places already name them."""
    counts = Counter(finding.code for finding in findings[1:])
    others = [f"{count} more of {code}" if code == findings[0].code else code for code, count in counts.items()]
    return f"; besides {', '.join(others)}" if others else ""


def causes_of_findings(findings: Iterable[Finding], diagnoses: Iterable[Diagnosis]) -> list[Diagnosis]:
    """Return the diagnoses that explain some of these findings, likeliest first."""
    codes = {finding.code for finding in findings}
    return [diagnosis for diagnosis in diagnoses if codes & set(diagnosis.explains)]


# One sentence on whether to start fine-tuning: arguments for it, against it, and unknown ones.
def readiness(answers: Sequence[Answer], findings: Sequence[Finding]) -> str:
    """Return the verdict of phase 6, with findings that stop or contain a run against it.

    Args:
        answers: Answers of phase 6.
        findings: All findings, most severe first.
    """
    asked = {answer_.id: answer_ for answer_ in answers if answer_.id in BEFORE}
    codes = list(dict.fromkeys(finding.code for finding in findings if finding.severity in ("sev0", "sev1")))
    for_it = [_about(answer_, 0) for answer_ in asked.values() if answer_.word == "good"]
    against = [_about(answer_, 1) for answer_ in asked.values() if answer_.word in ("watch", "bad")]
    against += [f"findings that stop or contain a run ({', '.join(codes)})"] if codes else []
    unknown = [_about(answer_, 2) for answer_ in asked.values() if answer_.word in ("not_recorded", "not_applicable")]
    if codes or any(answer_.word == "bad" for answer_ in asked.values()):
        head = "Not ready for fine-tuning"
    elif asked["D6.1"].word == "watch":
        head = "Not yet ready for fine-tuning: go on with pretraining"
    elif unknown:
        head = "Whether it is ready for fine-tuning cannot be said"
    else:
        head = "Ready for fine-tuning, with reservations" if against else "Ready for fine-tuning"
    sides = [("for it", for_it), ("against it", against), ("not recorded", unknown)]
    sentence = "; ".join(f"{side}: {', '.join(names) or 'nothing'}" for side, names in sides)
    return f"{head}. {sentence[0].upper()}{sentence[1:]}."


def _about(answer: Answer, side: int) -> str:
    return f"{ABOUT[answer.id][side]} ({answer.id})"
