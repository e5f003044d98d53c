"""The interview: every question of some phases put to a run, with findings weighed in, and where to look on."""

import shlex
from collections.abc import Collection, Iterable, Sequence

from msgspec.structs import replace

from ckaudit.audit.answer_from_series import BROKE, said
from ckaudit.audit.question_evidence import causing, weigh
from ckaudit.audit.readiness import readiness
from ckaudit.causes.cause import Findings
from ckaudit.contract.interview import Answer, Phase, Pointer
from ckaudit.contract.numbers import to_word
from ckaudit.contract.report import Check, Diagnosis, Finding
from ckaudit.metrics import metrics
from ckaudit.questions.phases import MAP, PHASES, Way
from ckaudit.questions.question import Question, questions
from ckaudit.run.run import Run

READY = 6  # the phase that ends in a verdict


def interview(
    run: Run, phases: Collection[int], findings: Sequence[Finding], diagnoses: Sequence[Diagnosis], *, step: int | None = None
) -> list[Phase]:
    """Put the questions of some phases to a run.

    Args:
        run: What was known at the step judged at.
        phases: Numbers, 1 to 7.
        findings: What the rules found, gravest first.
        diagnoses: What explains it, likeliest first.
        step: The step that was asked for, for the commands that lead on.
    """
    made = []
    for number in sorted(set(phases)):
        asked = [each for each in questions().values() if each.phase == number]
        answers = [no_worse_than_findings(answer(each, run, findings, diagnoses)) for each in asked]
        verdict = readiness(answers, findings) if number == READY else None
        pointers = [_pointer(way, run, step) for way in MAP if number in way.phases]
        made.append(Phase(number=number, title=PHASES[number], answers=answers, verdict=verdict, pointers=pointers))
    return made


def broken(phases: Iterable[Phase], known: Iterable[Check] = ()) -> list[Check]:
    """Return a check for each question that broke instead of answering: an audit with one is not complete.

    Args:
        phases: The questions answered.
        known: Checks that there are already.
    """
    codes = {each.code for each in known}
    answers = [each for phase in phases for each in phase.answers if BROKE in each.sentence and each.id not in codes]
    return [
        Check(code=each.id, name="question", title=each.question, severity="note", outcome="error", detail=each.sentence)
        for each in answers
    ]


def interview_reads(phases: Collection[int]) -> frozenset[str]:
    """Return the checkpoint paths that the questions of some phases look at."""
    wanted = {metric for each in questions().values() if each.phase in phases for metric in each.metrics}
    wanted |= {metrics()[name] for way in MAP if set(way.phases) & set(phases) for name in way.metrics}
    return frozenset().union(*(metric.paths for metric in wanted))


def answer(asked: Question, run: Run, findings: Sequence[Finding], diagnoses: Sequence[Diagnosis]) -> Answer:
    """Put one question to a run: what the series say, and never better than what triage says of the same run."""
    told = said(asked, run, Findings(tuple(each for each in findings if each.severity != "note")))
    weighed = weigh(asked, told, run, findings, diagnoses)
    return Answer(
        id=asked.id,
        question=asked.text,
        word=weighed.said.word,
        sentence=weighed.said.sentence,
        numbers={name: to_word(float(value)) for name, value in weighed.said.numbers.items()},
        missing=list(weighed.said.missing),
        findings=list(dict.fromkeys(each.code for each in weighed.findings)),
        causes=[each.cause for each in causing(weighed.findings, diagnoses)],
    )


def no_worse_than_findings(found: Answer) -> Answer:
    """Return an answer that is bad only where a finding that counts says so.

    What no finding tells was accepted, by a policy or a baseline: it is to be watched.
    """
    if found.word != "bad" or found.findings:
        return found
    return replace(found, word="watch", sentence=f"{found.sentence}; no finding counts for it, as policy or baseline say")


def _pointer(way: Way, run: Run, step: int | None) -> Pointer:
    """Return the command that shows more, of what the run has recorded."""
    name = shlex.quote(run.name)
    at = "" if step is None else f" --step {step}"
    if way.command and not run.events:
        return Pointer(id=way.id, question=way.question, command=f"ckaudit triage {name} -v{at}", why="no event was recorded")
    if way.command:
        command = way.command.format(run=name, event=min(each.event_step for each in run.events))
        return Pointer(id=way.id, question=way.question, command=command)
    known = [metric for metric in way.metrics if metrics()[metric](run)]
    if not known:
        why = f"nothing of {', '.join(way.metrics)} is recorded"
        return Pointer(id=way.id, question=way.question, command=f"ckaudit coverage {name}", why=why)
    return Pointer(id=way.id, question=way.question, command=f"ckaudit metrics {name} {' '.join(known)}{at}")
