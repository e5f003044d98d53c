"""`triage` from end to end: a source is opened, judged and explained, and becomes a report."""

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from ckaudit import __version__
from ckaudit.audit.derived import METRICS as DERIVED
from ckaudit.audit.derived import derived
from ckaudit.audit.diagnose import diagnose
from ckaudit.audit.interview import broken, interview, interview_reads
from ckaudit.audit.judge import gravity
from ckaudit.audit.latest_checkpoint import contradictions_of_newest
from ckaudit.audit.load_run import is_ours, open_run
from ckaudit.audit.pictures import DRAWN, STATE, charts, finding_charts, state
from ckaudit.audit.playbook.first_knob import advised
from ckaudit.audit.policy_run import broken_plugins, clauses_of, settle_run, unwatched, with_slices
from ckaudit.audit.ranking import first_causes, of_record, ranked
from ckaudit.audit.response_plan import from_the_start, response
from ckaudit.audit.vital_checks import judged, limits, to_judge_more, vital_checks
from ckaudit.causes import causes
from ckaudit.contract.contradictions import is_of_other_unit
from ckaudit.contract.schema.import_options import NOTHING_SAID, Choice
from ckaudit.contract.schema.numbers import takes_any_numbers
from ckaudit.contract.schema.report import VERSION, Check, Diagnosis, Finding, Report, VitalCheck, worst
from ckaudit.contract.summaries import across_files, same_kind
from ckaudit.errors import UsageError
from ckaudit.material.counts import plural
from ckaudit.metrics import Metric
from ckaudit.metrics.gradients import gradient_norm
from ckaudit.metrics.words import element_type
from ckaudit.policy.gate import OPEN, Gate, over
from ckaudit.questions import questions as all_questions
from ckaudit.questions.bad_answer_table import BAD
from ckaudit.rules import rules
from ckaudit.run.cancelled import left_out
from ckaudit.run.read import Progress
from ckaudit.run.run import Run


@takes_any_numbers
def triage(
    path: Path,
    *,
    step: int | None = None,
    choice: Choice = NOTHING_SAID,
    questions: Collection[int] = (),
    gate: Gate = OPEN,
    progress: Progress | None = None,
) -> Report:
    """Audit one run.

    Args:
        path: A run folder, a checkpoint file, or a log that an importer knows.
        step: Judge with what was known when this step had ended; default: the end of the record.
        choice: What a foreign log does not say itself, such as which of its columns holds the loss.
        questions: Phases whose questions are to be answered.
        gate: Policy and baseline.
        progress: Called with files done and files in all.

    Raises:
        UnreadableError: Where there is no run.
        UsageError: Where `step` lies before the record.
    """
    reads = triage_reads() | interview_reads(questions)
    run = open_judged(path, reads=reads, step=step, choice=choice, progress=progress)
    return triage_run(run, step=step, questions=questions, gate=gate)


def open_judged(
    path: Path, *, reads: Iterable[str], step: int | None = None, choice: Choice = NOTHING_SAID, progress: Progress | None = None
) -> Run:
    """Read a run, whose newest checkpoint until a step is held against the whole contract."""
    run = open_run(path, reads=reads, choice=choice, progress=progress)
    if not len(run.checkpoint_steps) or not is_ours(path):
        return run
    findings = (
        contradiction
        for contradiction in contradictions_of_newest(path, step=step)
        if not is_of_other_unit(contradiction, run.units)
    )
    return replace(run, findings=(*run.findings, *findings))


@takes_any_numbers
def triage_run(run: Run, *, step: int | None = None, questions: Collection[int] = (), gate: Gate = OPEN) -> Report:
    """Audit a run that is in memory."""
    run = at_step(run, step)
    notes = list(run.notes)
    clauses, used = clauses_of(run, gate)
    run = with_slices(run, clauses)
    settled = settle_run(run, clauses, gate)
    findings = sorted(across_files(settled.findings, same_kind), key=gravity)
    hidden = [suppressed.finding for suppressed in settled.suppressed]
    diagnoses = first_causes(diagnose(run, findings, causes().values(), accepted=hidden), findings, run)
    findings = advised(ranked(findings, run), diagnoses)
    answers = interview(run, questions, findings, diagnoses, step=step)
    checks = [*settled.checks, *broken_plugins(), *broken(answers, settled.checks)]
    notes += [*over(settled.ended, gate), *unwatched(run, clauses), *left_out(gradient_norm(run), run.tensors, element_type(run))]
    vital = vital_checks(run, checks)
    drawn = [*charts(run), *finding_charts(run, findings)]
    return Report(
        schema_version=VERSION,
        tool=f"ckaudit {__version__}",
        command="triage",
        subject=run.name,
        verdict=verdict(checks, diagnoses, findings, run, vital=vital, hidden=len(hidden)),
        severity=worst(findings),
        judged=judged(vital, checks),
        vital=vital,
        to_judge_more=to_judge_more(run, vital),
        step=run.last_step,
        state=state(run),
        derived=derived(run, findings),
        diagnoses=diagnoses,
        response=response(run, findings, diagnoses),
        findings=findings,
        checks=checks,
        charts=drawn,
        notes=notes,
        files=run.files,
        policy=used,
        baseline=gate.baseline.file if gate.baseline else None,
        suppressed=settled.suppressed,
        stale=settled.stale,
        interview=answers,
    )


def triage_reads() -> frozenset[str]:
    """Return the checkpoint paths that any rule, question, cause or picture looks at."""
    wanted: set[Metric] = {*STATE, *DRAWN, *DERIVED}
    for rule in rules().values():
        wanted.update(rule.metrics)
    for cause in causes().values():
        wanted.update(want for want in cause.wants if isinstance(want, Metric))
    for question in all_questions().values():
        wanted.update(question.metrics)
    return frozenset().union(*(metric.paths for metric in wanted))


def at_step(run: Run, step: int | None) -> Run:
    """Return what was known of a run when `step` had ended, with a note where that takes one; None: all of it.

    Raises:
        UsageError: Where nothing was recorded by then.
    """
    if step is None:
        return run
    return replace(run.until(step), notes=(*run.notes, *_notes_on_step(run, step)))


def _notes_on_step(run: Run, step: int) -> list[str]:
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
    checks: Sequence[Check],
    diagnoses: list[Diagnosis],
    findings: list[Finding],
    run: Run,
    *,
    vital: Sequence[VitalCheck] = (),
    hidden: int = 0,
    sure: float = 0.5,
) -> str:
    """Say in one sentence what the audit comes to.

    Args:
        checks: What became of each rule.
        diagnoses: Causes, likeliest first.
        findings: All findings, gravest first.
        run: The run, cut at the step judged at.
        vital: The vital checks; where one could not judge, a run without findings is not called well.
        hidden: How many findings do not count.
        sure: A cause less likely than not is named as a guess only.
    """
    grave = [finding for finding in findings if finding.severity != "note"]
    if not grave:
        bad = [finding for finding in findings if finding.code in BAD]
        return _all_clear(checks, run.last_step, vital, hidden, bad)
    if not diagnoses:
        worst_of_training = next((finding for finding in grave if not of_record(finding)), None)
        if worst_of_training is None and (broken := grave[0].file):
            return f"The record is broken in {Path(broken).name}: {grave[0].message}"
        return f"No known cause explains this: {(worst_of_training or grave[0]).message}"
    first = diagnoses[0]
    title = first.title.rstrip(".")
    if first.confidence < sure:
        return f"No cause stands out for this: {first.symptom} (the best guess: {title[0].lower()}{title[1:]})"
    return f"{title}{_since(run, first.first_step)}{_place(first)}"


def _since(run: Run, step: int | None) -> str:
    if step is None:
        return ""
    return f", since step {step}" + (" or before" if step > 1 and from_the_start(run, step) else "")


def _place(diagnosis: Diagnosis) -> str:
    """Return where in the model, a whole group by its name; a scalar such as the loss is no place."""
    if diagnosis.group:
        return f", in {diagnosis.group}"
    return f", in {diagnosis.where}" if diagnosis.where and "." in diagnosis.where else ""


def _all_clear(
    checks: Sequence[Check], last: int | None, vital: Sequence[VitalCheck], hidden: int, bad: Sequence[Finding]
) -> str:
    """Say that nothing is ill, how much was judged, and which questions are answered bad for all that."""
    rules = [check for check in checks if check.code not in BAD]
    count = sum(check.outcome in ("passed", "failed") for check in rules)
    if not count:
        return "Nothing could be judged: no rule found what it needs"
    until = "" if last is None else f" up to step {last}"
    known = f", and {plural(hidden, 'finding')} {'is' if hidden == 1 else 'are'} accepted" if hidden else ""
    told = "".join(f"; {each.code}: {BAD[each.code].says}" for each in bad)
    if judged(vital, checks) == "limited":
        return f"No {'new ' if hidden else ''}illness seen{until}, but {limits(vital)}{known}{told}"
    nothing = f"No {'new ' if hidden else ''}illness" if bad else f"Nothing {'new' if hidden else 'wrong'}"
    return f"{nothing}{until}: {count} of {len(rules)} rules could judge{known}{told}"
