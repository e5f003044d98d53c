"""Whether a run continued after each resume as if it had not stopped: weights, optimizer, rate, scale, data, loss (D1.6)."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from msgspec import UNSET
from msgspec.structs import replace

from ckaudit.audit.judge import apply_rules
from ckaudit.audit.load_run import open_run
from ckaudit.contract.schema.diff import BAD_WORDS, Answer, Noise, Pair, Word
from ckaudit.contract.schema.manifest import Manifest, Session
from ckaudit.contract.schema.numbers import ignoring_float_errors
from ckaudit.diff.comparability import find_mismatches
from ckaudit.diff.resume_checks import RESUME_CHECKS, ResumePoint
from ckaudit.metrics import Metric
from ckaudit.rules.data.repeated_batch import repeated_batch
from ckaudit.rules.resume.optimizer_state_reset import optimizer_state_reset
from ckaudit.rules.resume.seam_jump import seam_jump
from ckaudit.rules.resume.weights_not_as_saved import weights_not_as_saved
from ckaudit.rules.updates.learning_rate_jump import learning_rate_jump
from ckaudit.run.memory import ResultCache
from ckaudit.run.run import Labels, Run
from ckaudit.run.run_facts import later_sessions
from ckaudit.run.series import Series
from ckaudit.wording import plural

RULES = (seam_jump, optimizer_state_reset, weights_not_as_saved, learning_rate_jump, repeated_batch)

NOISE = Noise(source="residuals", message="each side of a resume is judged by the other: by the limits of the rules on resumes")


def resume_reads() -> frozenset[str]:
    """Return the checkpoint paths that an audit of resumes reads."""
    wanted = [metric for rule in RULES for metric in (*rule.needs, *rule.wants) if isinstance(metric, Metric)]
    return frozenset[str]().union(*(metric.paths for metric in wanted)) | {"optimizer.loss_scale"}


@ignoring_float_errors
def resumed(left: Path, right: Path | None = None) -> Pair:
    """Compare the values before each resume with those after it.

    Args:
        left: A run with resumes, or the resumed run.
        right: The run that resumed it, if that is another folder.

    Raises:
        UnreadableError: If there is no run.
    """
    runs = open_run(left, reads=resume_reads()), open_run(right, reads=resume_reads()) if right else None
    return resumed_pair(*runs)


def resumed_pair(left: Run, right: Run | None = None) -> Pair:
    """Compare the values before each resume with those after it, for runs in memory."""
    if right is None:
        resumes = [
            ResumePoint(left, int(session.resumed_from or 0), session, left.branches) for session in later_sessions(left.manifest)
        ]
        return _pair(left.name, left.name, left, resumes)
    start = resume_step_between(right)
    if start is None:
        words = f"{right.name} starts at the first step: it does not take up {left.name}"
        return _as_pair(left.name, right.name, "incomparable", words, [], left, right)
    run = join_runs(left, right, start)
    session = (run.manifest.sessions or [])[1] if run.manifest else None
    return _pair(left.name, right.name, run, [ResumePoint(run, start, session, {}, left, right)], left, right)


def _pair(name: str, other: str, run: Run, resumes: list[ResumePoint], left: Run | None = None, right: Run | None = None) -> Pair:
    if not resumes:
        return _as_pair(name, other, "not_recorded", "run.json tells of no resume: nothing to compare", [], left, right)
    findings = apply_rules(run, RULES).findings
    answers = [answer for resume in resumes for answer in _answers(resume.knowing(findings), len(resumes) > 1)]
    bad = sorted((answer for answer in answers if answer.word in BAD_WORDS), key=lambda answer: BAD_WORDS.index(answer.word))
    good = [answer for answer in answers if answer.word == "same"]
    if bad:
        return _as_pair(name, other, bad[0].word, bad[0].message, answers, left, right)
    unknown = [answer.title.rstrip("?").lower() for answer in answers if answer.word == "not_recorded"]
    rest = f"; not recorded: {'; '.join(unknown)}" if unknown else ""
    verdict = f"after {plural(len(resumes), 'resume')} {len(good)} of {len(answers)} things go on as before{rest}"
    return _as_pair(name, other, "same" if good else "not_recorded", verdict, answers, left, right)


def _answers(resume: ResumePoint, several: bool) -> Iterator[Answer]:
    for look in RESUME_CHECKS:
        answer = look(resume)
        if answer is not None:
            yield Answer(
                question=f"{answer.question}@{resume.step}" if several else answer.question,
                title=answer.title,
                word=answer.word,
                left=answer.left,
                right=answer.right,
                band=answer.band,
                unit=answer.unit,
                message=answer.message,
            )


def _as_pair(left: str, right: str, word: Word, verdict: str, answers: list[Answer], one: Run | None, other: Run | None) -> Pair:
    unlikes = find_mismatches(one, other) if one is not None and other is not None else []
    return Pair(left=left, right=right, word=word, verdict=verdict, noise=NOISE, answers=answers, unlike=unlikes)


# One run joined from two: the first up to a step, and from there on the second, which resumed it.
def join_runs(left: Run, right: Run, resume_step: int) -> Run:
    """Return the joined run of `left` and `right`, which resumed it after step `resume_step`.

    Its sessions are the last one of `left` and those of `right`.
    """
    before = left.until(resume_step)
    manifest = right.manifest or Manifest(schema_version="ck.run.v1")
    first = (left.manifest.sessions or []) if left.manifest else []
    second = manifest.sessions or [Session()]
    sessions = [*(first[-1:] or [Session()]), replace(second[0], resumed_from=resume_step), *second[1:]]
    return replace(
        right,
        manifest=replace(manifest, sessions=sessions),
        checkpoint_steps=np.concatenate([before.checkpoint_steps, right.checkpoint_steps[right.checkpoint_steps > resume_step]]),
        sections={path: _series(before.sections.get(path), part, resume_step) for path, part in right.sections.items()},
        scalars={name: _series(before.scalars.get(name), part, resume_step) for name, part in right.scalars.items()},
        texts={name: _labels(before.texts.get(name), part, resume_step) for name, part in right.texts.items()},
        branches={},
        _derived=ResultCache(),
    )


def _series(before: Series | None, after: Series, resume_step: int) -> Series:
    start = int(np.searchsorted(after.steps, resume_step, side="right"))
    later = replace(after, steps=after.steps[start:], values=after.values[start:], recorded=after.recorded[start:])
    if before is None:
        return later
    labels = tuple(dict.fromkeys((*before.labels, *later.labels)))
    steps = np.concatenate([before.steps, later.steps])
    values, recorded = np.full((len(steps), len(labels)), np.nan), np.zeros((len(steps), len(labels)), bool)
    for part, rows in ((before, slice(0, len(before.steps))), (later, slice(len(before.steps), None))):
        columns = [labels.index(label) for label in part.labels]
        values[rows, columns], recorded[rows, columns] = part.values, part.recorded
    return replace(later, steps=steps, labels=labels, values=values, recorded=recorded)


def _labels(before: Labels | None, after: Labels, resume_step: int) -> Labels:
    start = sum(step <= resume_step for step in after.steps)
    steps, values = (before.steps, before.values) if before else ((), ())
    return Labels(after.name, (*steps, *after.steps[start:]), (*values, *after.values[start:]))


def resume_step_between(right: Run) -> int | None:
    """Return the step after which a run resumed another, by its first session, else by its first line; None: it did not."""
    sessions = (right.manifest.sessions if right.manifest else UNSET) or []
    if sessions and sessions[0].resumed_from is not UNSET:
        return int(sessions[0].resumed_from)
    starts = [int(series.steps[0]) for series in right.scalars.values() if len(series.steps)]
    return min(starts) - 1 if starts and min(starts) > 1 else None
