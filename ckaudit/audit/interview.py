"""The interview: every question of some phases put to a run, with findings weighed in, and where to look on."""

import shlex
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ckaudit.audit.applies import why_not_metric
from ckaudit.audit.readiness import readiness
from ckaudit.audit.weigh import causing, weigh
from ckaudit.causes.cause import Findings
from ckaudit.contract.interview import Answer, Phase, Pointer
from ckaudit.contract.numbers import to_word
from ckaudit.contract.report import Check, Diagnosis, Finding
from ckaudit.metrics import Metric, metrics
from ckaudit.questions.phases import MAP, PHASES, Way
from ckaudit.questions.question import FindingsMarker, Input, Question, Said, questions, unrecorded
from ckaudit.run.run import Run
from ckaudit.run.series import Series

READY = 6  # the phase that ends in a verdict
BROKE = "the question broke: "


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
        answers = [answer(each, run, findings, diagnoses) for each in asked]
        verdict = readiness(answers, findings) if number == READY else None
        pointers = [_pointer(way, run, step) for way in MAP if number in way.phases]
        made.append(Phase(number=number, title=PHASES[number], answers=answers, verdict=verdict, pointers=pointers))
    return made


def broken(phases: Iterable[Phase]) -> list[Check]:
    """Return a check for each question that broke instead of answering: an audit with one is not complete."""
    answers = [each for phase in phases for each in phase.answers if BROKE in each.sentence]
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
    said = _said(asked, run, Findings(tuple(each for each in findings if each.severity != "note")))
    weighed = weigh(asked, said, run, findings, diagnoses)
    return Answer(
        id=asked.id, question=asked.text, word=weighed.said.word, sentence=weighed.said.sentence,
        numbers={name: to_word(float(value)) for name, value in weighed.said.numbers.items()},
        missing=list(weighed.said.missing), findings=list(dict.fromkeys(each.code for each in weighed.findings)),
        causes=[each.cause for each in causing(weighed.findings, diagnoses)],
    )  # fmt: skip


def _said(asked: Question, run: Run, found: Findings) -> Said:
    """Return what the series say; an input that was recorded, but never as a number, is bad, and what is missing is named."""
    needed = [(each, each(run)) for each in asked.needs if isinstance(each, Metric)]
    if missing := [metric.name for metric, series in needed if not series]:
        foreign = next((reason for name in missing if (reason := why_not_metric(run, name))), "")
        if foreign:
            return Said(word="not_applicable", sentence=foreign)
        return unrecorded(f"needs {', '.join(missing)}", *missing)
    if broken := [metric.name for metric, series in needed if not series.finite.any()]:
        return Said(word="bad", sentence=f"no value of {', '.join(broken)} is a number")
    try:
        return asked.function(*_values(asked.needs, run, found), *_values(asked.wants, run, found))
    except Exception as error:  # noqa: BLE001  one broken question must not cost the answers of the others
        return unrecorded(f"{BROKE}{type(error).__name__}: {error}")


def _values(inputs: Iterable[Input], run: Run, found: Findings) -> Iterator[Any]:
    """Yield each input's value in a run; a series without a single number counts as missing."""
    for each in inputs:
        if isinstance(each, Metric):
            series: Series = each(run)
            yield series if np.any(series.finite) else None
        else:
            yield found if isinstance(each, FindingsMarker) else run.manifest


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
