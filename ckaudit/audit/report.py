"""`triage` from end to end: a source is opened, judged and explained, and becomes a report."""

from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np

from ckaudit import __version__
from ckaudit.audit.diagnose import diagnose
from ckaudit.audit.interview import broken, interview, interview_reads
from ckaudit.audit.judge import Judgement, gravity, judge
from ckaudit.audit.open import open_run
from ckaudit.audit.pictures import DRAWN, STATE, charts, state
from ckaudit.causes import causes
from ckaudit.contract.report import VERSION, Check, Diagnosis, Finding, Report, worst
from ckaudit.errors import UsageError
from ckaudit.metrics import Metric
from ckaudit.rules import rules
from ckaudit.run.read import Progress
from ckaudit.run.run import Run


def triage(
    path: Path,
    *,
    step: int | None = None,
    columns: Mapping[str, str] | None = None,
    questions: Collection[int] = (),
    progress: Progress | None = None,
) -> Report:
    """Audit one run.

    Args:
        path: A run folder, a checkpoint file, or a log that an importer knows.
        step: Judge with what was known when this step had ended; default: the end of the record.
        columns: Names that a foreign log gives to catalogue names.
        questions: Phases whose questions are to be answered.
        progress: Called with files done and files in all.

    Raises:
        UnreadableError: Where there is no run.
        UsageError: Where `step` lies before the record.
    """
    reads = _reads() | (interview_reads(questions) if questions else frozenset())
    run = open_run(path, reads=reads, columns=columns or {}, progress=progress)
    return triage_run(run, step=step, questions=questions)


def triage_run(run: Run, *, step: int | None = None, questions: Collection[int] = ()) -> Report:
    """Audit a run that is in memory."""
    notes = list(run.notes)
    if step is not None:
        notes += notes_on_step(run, step)
        run = run.until(step)
    judgement = judge(run, rules().values())
    findings = sorted((*run.findings, *judgement.findings), key=gravity)
    diagnoses = diagnose(run, findings, causes().values())
    answers = interview(run, questions, findings, diagnoses, step=step)
    return Report(
        schema_version=VERSION, tool=f"ckaudit {__version__}", command="triage", subject=run.name,
        verdict=verdict(judgement, diagnoses, findings, run.last_step), severity=worst(findings), step=run.last_step,
        state=state(run), diagnoses=diagnoses, findings=findings, checks=[*judgement.checks, *broken(answers)],
        charts=charts(run), notes=notes, files=run.files,
        interview=answers,
    )  # fmt: skip


def _reads() -> frozenset[str]:
    """Return the checkpoint paths that any rule, cause or picture looks at."""
    wanted: set[Metric] = {*STATE, *DRAWN}
    for rule in rules().values():
        wanted.update(rule.metrics)
    for cause in causes().values():
        wanted.update(each for each in cause.wants if isinstance(each, Metric))
    return frozenset().union(*(metric.paths for metric in wanted))


def notes_on_step(run: Run, step: int) -> list[str]:
    """Return what a reader must know of judging at `step`, or raise `UsageError` where nothing was recorded by then."""
    last = run.last_step
    steps = run.checkpoint_steps
    earliest = min((int(s.steps[0]) for s in (*run.scalars.values(), *run.sections.values()) if len(s.steps)), default=None)
    if earliest is None or step < earliest:
        raise UsageError(f"nothing was recorded at or before step {step}", hint=f"The record starts at step {earliest}.")
    if last is not None and step > last:
        return [f"step {step} is beyond the record, which ends at step {last}"]
    if len(steps) and step not in steps:
        before = steps[steps <= step]
        latest = f"the latest before it is {int(before[-1])}" if len(before) else "there is none before it"
        return [f"no checkpoint at step {step}: {latest}"] if np.size(steps) else []
    return []


def verdict(
    judgement: Judgement, diagnoses: list[Diagnosis], findings: list[Finding], last: int | None, *, sure: float = 0.5
) -> str:
    """Say in one sentence what the audit comes to.

    Args:
        judgement: What the rules said.
        diagnoses: Causes, likeliest first.
        findings: All findings, gravest first.
        last: The step judged at.
        sure: A cause less likely than not is named as a guess only.
    """
    grave = [finding for finding in findings if finding.severity != "note"]
    if not grave:
        return _all_clear(judgement.checks, last)
    if not diagnoses:
        return f"No known cause explains this: {grave[0].message}"
    first = diagnoses[0]
    title = first.title.rstrip(".")
    if first.confidence < sure:
        return f"No cause stands out for this: {first.symptom} (the best guess: {title[0].lower()}{title[1:]})"
    since = "" if first.first_step is None else f", since step {first.first_step}"
    return f"{title}{since}{_place(first)}"


def _place(diagnosis: Diagnosis) -> str:
    """Return where in the model; a scalar such as the loss is no place."""
    return f", in {diagnosis.where}" if diagnosis.where and "." in diagnosis.where else ""


def _all_clear(checks: tuple[Check, ...], last: int | None) -> str:
    judged = sum(check.outcome in ("passed", "failed") for check in checks)
    if not judged:
        return "Nothing could be judged: no rule found what it needs"
    return f"Nothing wrong up to step {last}: {judged} of {len(checks)} rules could judge"
