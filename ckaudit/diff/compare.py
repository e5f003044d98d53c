"""`ckaudit diff` of runs from end to end: runs are opened, audited, aligned and compared."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from msgspec import UNSET, Struct
from msgspec.structs import replace

from ckaudit.audit.engine import open_judged, triage_reads, triage_run
from ckaudit.audit.load_run import at_step, is_ours
from ckaudit.audit.vital_checks import limited
from ckaudit.contract.schema.diff import Answer, Axis, Comparison, Curve, Departure, Drift, Noise, Pair, Unlike, Word
from ckaudit.contract.schema.import_options import NO_IMPORT_OPTIONS, ImportOptions
from ckaudit.contract.schema.numbers import Number, encode_float, ignoring_float_errors
from ckaudit.contract.schema.report import Report
from ckaudit.diff.align import CommonAxis, common_axis
from ckaudit.diff.combine import combine_pairs
from ckaudit.diff.comparability import find_mismatches, settings
from ckaudit.diff.distribution_drift import drifts
from ckaudit.diff.divergence import first_divergence, reads
from ckaudit.diff.questions import Weighs, questions
from ckaudit.diff.run_pair import RunPair, RunSide, gained_and_lost
from ckaudit.diff.shared_start import Parting
from ckaudit.errors import UsageError
from ckaudit.metrics.loss import train_loss_raw, val_loss
from ckaudit.policy.acceptance import OPEN, AcceptanceCriteria
from ckaudit.run.medians import median
from ckaudit.run.read import Progress
from ckaudit.run.run import Run
from ckaudit.run.series import Floats

MAX_SUBJECTS = 20

OF_QUESTIONS = {"smoothed_loss": train_loss_raw, "validation_loss": val_loss}


class WeighedPairAnswer(Struct, frozen=True):
    """An answer with its subject, and whether it counts."""

    answer: Answer
    weighs: Weighs
    counts: bool = True


class JudgedRun(Struct, frozen=True, eq=False):
    """A run that was read and cut off at the judged step, with the findings of its audit."""

    path: Path
    side: RunSide


@ignoring_float_errors
def compare(
    subjects: Sequence[Path | Run],
    *,
    axis: Axis = "step",
    noise: Sequence[Path | Run] = (),
    import_options: ImportOptions = NO_IMPORT_OPTIONS,
    step: int | None = None,
    progress: Progress | None = None,
    criteria: AcceptanceCriteria = OPEN,
) -> Comparison:
    """Compare runs, each with the first.

    Args:
        subjects: Run folders, logs, or runs in memory, the reference first.
        axis: The quantity that is equal: steps, tokens or the loss.
        noise: Replicas of the reference, which show what is chance.
        import_options: Facts that a foreign log lacks.
        step: Judge the state at the end of this step; default: the end of the records.
        progress: Called with the number of read files and of all files, for each run.
        criteria: Policy and baseline for the findings.

    Raises:
        UnreadableError: If one of them is no run.
        UsageError: If there are fewer than two, or more than twenty.
    """
    if not 2 <= len(subjects) <= MAX_SUBJECTS:
        raise UsageError(f"{len(subjects)} runs to compare", hint=f"name 2 to {MAX_SUBJECTS}, the reference first")
    reference, *replicas = [_opened(subject, import_options, step, progress, criteria) for subject in (subjects[0], *noise)]
    others = (_opened(subject, import_options, step, progress, criteria) for subject in subjects[1:])
    return compare_read(reference, others, axis=axis, replicas=replicas)


@ignoring_float_errors
def compare_read(
    reference: JudgedRun, others: Iterable[JudgedRun], *, axis: Axis = "step", replicas: Sequence[JudgedRun] = ()
) -> Comparison:
    """Compare runs in memory, or from an iterator, each with the first."""
    first = [reference, *replicas]
    files, paths, pairs = sum(run.side.run.files for run in first), [str(reference.path)], []
    for subject in others:
        files += subject.side.run.files
        paths.append(str(subject.path))
        pairs.append(compare_pair(reference, subject, axis=axis, replicas=replicas))
    notes = dict.fromkeys(f"{run.path}: {note}" for run in first for note in run.side.run.notes)
    return replace(combine_pairs(paths, pairs, files=files, notes=[*notes]), axis=axis)


@ignoring_float_errors
def compare_canary(
    canary: Path | Run,
    good: Sequence[Path | Run],
    *,
    axis: Axis = "step",
    import_options: ImportOptions = NO_IMPORT_OPTIONS,
    progress: Progress | None = None,
    criteria: AcceptanceCriteria = OPEN,
) -> list[Comparison]:
    """Compare one run with each of several good ones, which are replicas of each other. Every run is read once.

    Args:
        canary: The run that is judged.
        good: The references; one is enough.
        axis: The quantity that is equal: steps, tokens or the loss.
        import_options: Facts that a foreign log lacks.
        progress: Called with the number of read files and of all files, for each run.
        criteria: Policy and baseline for the findings.

    Returns:
        A comparison for each good run; their numbers of files add up to the number of read files.

    Raises:
        UnreadableError: If one of them is no run.
    """
    judged, *opened = [_opened(subject, import_options, None, progress, criteria) for subject in (canary, *good)]
    return against_good(judged, opened, axis=axis)


@ignoring_float_errors
def against_good(canary: JudgedRun, good: Sequence[JudgedRun], *, axis: Axis = "step") -> list[Comparison]:
    """Compare one run in memory with each of several good ones."""
    comparisons: list[Comparison] = []
    for run in good:
        pair = compare_pair(run, canary, axis=axis, replicas=[other for other in good if other is not run])
        files = run.side.run.files + (0 if comparisons else canary.side.run.files)
        notes = [f"{run.path}: {note}" for note in run.side.run.notes]
        comparisons.append(replace(combine_pairs([str(run.path), str(canary.path)], [pair], files=files, notes=notes), axis=axis))
    return comparisons


@ignoring_float_errors
def compare_pair(left: JudgedRun, right: JudgedRun, *, axis: Axis = "step", replicas: Sequence[JudgedRun] = ()) -> Pair:
    """Compare two runs in memory."""
    wanted = common_axis(left.side.run, right.side.run, axis)
    both = RunPair(left.side, right.side, CommonAxis() if wanted.missing else wanted, tuple(replica.side for replica in replicas))
    mismatches = find_mismatches(left.side.run, right.side.run)
    invalid = {name for mismatch in mismatches for name in mismatch.invalidates}
    without = [metric for name, metric in OF_QUESTIONS.items() if name in invalid]
    one_plan = _have_one_plan(left.side.run, right.side.run, mismatches)
    parted = first_divergence(both, without=without, one_plan=one_plan, settings=settings(mismatches))
    answers = [(question, *question(both, mismatches)) for question in questions().values()]
    weighed = [WeighedPairAnswer(answer, question.weighs, counts) for question, answer, counts in answers]
    word = pair_word(weighed, parted)
    gained, lost = gained_and_lost(both)
    return Pair(
        left=str(left.path),
        right=str(right.path),
        word=word,
        verdict=verdict_sentence(word, weighed, parted.departures, mismatches),
        noise=_noise(both, parted, replicas),
        unlike=mismatches,
        answers=[answer.answer for answer in weighed],
        parting=parted.departures[0] if parted.departures else None,
        propagation=list(parted.departures),
        drifts=_drifts(left, right, parted),
        curves=curves(both),
        gained=gained,
        lost=lost,
        left_limits=left.side.limits or UNSET,
        right_limits="; ".join(filter(None, (right.side.limits, _steps_left(right.side.run)))) or UNSET,
        notes=list(_notes(both, wanted, parted, replicas)),
    )


def _notes(both: RunPair, wanted: CommonAxis, parted: Parting, replicas: Sequence[JudgedRun]) -> Iterator[str]:
    """Yield notes on a pair besides its answers."""
    if wanted.missing:
        yield f"{wanted.missing} is not recorded by both, so that the runs are aligned by step"
    sides = (("first", both.left), ("second", both.right))
    yield from [
        f"of the {word} {side.limits}" if side.is_ill else f"no illness seen in the {word}, but {side.limits}"
        for word, side in sides
        if side.limits
    ]
    if parted.aside:
        yield parted.aside
    yield from (*both.right.run.notes, *_resume_steps(both), *_short(both, replicas))


def _have_one_plan(left: Run, right: Run, mismatches: Sequence[Unlike]) -> bool:
    """Tell whether both record the same settings except the seed, and neither has a planned learning rate."""
    facts = [run.manifest for run in (left, right)]
    if any(fact is None or not fact.config or fact.planned_learning_rate is not UNSET for fact in facts):
        return False
    return all(mismatch.kind != "config" or mismatch.name.rpartition(".")[2] == "seed" for mismatch in mismatches)


def _opened(
    subject: Path | Run, import_options: ImportOptions, step: int | None, progress: Progress | None, criteria: AcceptanceCriteria
) -> JudgedRun:
    if isinstance(subject, Run):
        path, run = Path(subject.name), subject
    else:
        path = subject
        run = open_judged(path, reads=triage_reads() | reads(), step=step, import_options=import_options, progress=progress)
    run = at_step(run, step)
    return subject_of(path, run, triage_run(run, criteria=criteria))


def subject_of(path: Path, run: Run, report: Report) -> JudgedRun:
    """Return a run with the results of its audit."""
    return JudgedRun(path, RunSide(run, tuple(report.findings), limited(report)))


def _drifts(left: JudgedRun, right: JudgedRun, parted: Parting) -> list[Drift]:
    """Return the drift of parts, at the checkpoint after the parting and at the last common one."""
    shared = sorted({*left.side.run.checkpoint_steps.tolist()} & {*right.side.run.checkpoint_steps.tolist()})
    if not shared or parted.is_same or not (is_ours(left.path) and is_ours(right.path)):
        return []
    after = [step for step in shared if parted.departures and step >= parted.departures[0].step]
    return drifts(left.path, right.path, sorted({*after[:1], shared[-1]}))


def _noise(both: RunPair, parted: Parting, replicas: Sequence[JudgedRun]) -> Noise:
    until = parted.shared_until
    extent = "but for rounding" if parted.is_rounded else "in every bit"
    bits = "" if until is None else f"the runs agree {extent} up to {f'step {until}' if parted.departures else 'their end'}"
    if replicas:
        more = f"; {bits}" if bits else ""
        return Noise(
            source="replicas",
            replicas=[str(replica.path) for replica in replicas],
            message=f"bands come from the differences among {len(replicas) + 1} replicas, and as far as so few leave doubt from "
            f"residuals{more}",
        )
    if bits:
        more = ": their first difference is the parting, and bands after it come from residuals" if parted.departures else ""
        return Noise(source="identical", message=bits + more)
    if both.level(train_loss_raw) is None:
        return Noise(source="none", message="too little is recorded to tell a difference from chance")
    return Noise(
        source="residuals",
        message="bands come from the runs' own residuals, and from what a seed did to small trainings that were measured; "
        "--noise with replicas of the first tells it for this one",
    )


def _resume_steps(both: RunPair) -> list[str]:
    paired = both.paired(train_loss_raw)
    notes = []
    if paired.apart:
        notes.append(f"the logs have lines at other steps: values of the first are up to {paired.apart} steps older")
    for word, side in (("first", both.left), ("second", both.right)):
        facts = side.run.manifest
        if facts is not None and facts.sessions is not UNSET and len(facts.sessions) > 1:
            notes.append(f"the {word} was started {len(facts.sessions)} times; what a later start replaced does not count")
    return notes


def _short(both: RunPair, replicas: Sequence[JudgedRun]) -> list[str]:
    """Return a sentence on each replica that ended too early to show the noise of the last steps."""
    ends = [side.run.last_step or 0 for side in (both.left, both.right)]
    known = [(replica.path, replica.side.run.last_step or 0) for replica in replicas]
    return [
        f"the replica {path} ends at step {last} and does not tell the noise of what goes on beyond"
        for path, last in known
        if both.axes.axis == "step" and last < min(ends)
    ]


# The losses of two runs, reduced to few points for a chart.
def curves(both: RunPair, *, max_stretches: int = 120) -> list[Curve]:
    """Return the training loss of both runs by segments of steps; empty if they share fewer than two points.

    A segment has the median of its values. If one of them is NaN, the segment is NaN, so that the chart does not hide it.

    Args:
        both: The runs on one axis.
        max_stretches: Maximum number of segments; a screen shows no more columns.
    """
    paired = both.paired(train_loss_raw)
    if not paired.labels:
        return []
    rows = np.flatnonzero(paired.recorded[:, 0])
    if len(rows) < 2:
        return []
    parts = np.array_split(rows, min(max_stretches, len(rows)))
    return [
        Curve(
            name=paired.name,
            unit=paired.unit,
            steps=[int(paired.steps[part[-1]]) for part in parts],
            left=[_middle(paired.left[part, 0]) for part in parts],
            right=[_middle(paired.right[part, 0]) for part in parts],
        )
    ]


def _middle(values: Floats) -> Number:
    broken = values[~np.isfinite(values)]
    return encode_float(float(broken[0] if len(broken) else median(values)))


# The verdict on a pair: one word and one sentence from all answers.
def pair_word(weighed: Sequence[WeighedPairAnswer], parting: Parting) -> Word:
    """Return the word for a pair.

    It is "incomparable" if a difference keeps every question on the loss from being answered; "worse" if any answer that counts
    is; "better" if one is and none is worse; "same" if everything agrees in every bit; "different" if the runs part by more than
    rounding and no question is better or worse.
    """
    losses = {answer.answer.word for answer in weighed if answer.weighs == "loss"}
    if "incomparable" in losses and losses <= {"incomparable", "not_recorded"}:
        return "incomparable"
    words = {answer.answer.word for answer in weighed if answer.counts}
    for word in ("worse", "better"):
        if word in words:
            return word
    if parting.is_same:
        return "same"
    if parting.departures and not parting.is_rounding:
        return "different"
    return "not_recorded" if losses <= {"not_recorded"} else "within_noise"


def verdict_sentence(
    word: Word, weighed: Sequence[WeighedPairAnswer], departures: Sequence[Departure], unlike: Sequence[Unlike]
) -> str:
    """Return a sentence with the result of a pair."""
    parted = ""
    if departures:
        where = f" of {departures[0].where}" if departures[0].where else ""
        parted = f"; they part at step {departures[0].step}, in {departures[0].statistic}{where}"
    if word in ("worse", "better"):
        reasons = [item.answer for item in weighed if item.counts and item.answer.word == word]
        more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
        return f"{word.capitalize()}: {reasons[0].message}{more}{parted}"
    if word == "incomparable":
        return f"Not comparable: {next((item.message for item in unlike if item.invalidates), 'the runs are not alike')}"
    if word == "different":
        text = _undecisive_answer(weighed)
        return f"Different: {text}{parted}" if text else f"Different, and no question tells better from worse{parted}"
    if word == "same":
        return "The same in every bit that both recorded"
    if word == "not_recorded":
        return "Nothing to compare: no loss that both recorded"
    text = _undecisive_answer(weighed)
    return (
        f"Within noise: nothing {f'that decides differs by more than chance; {text}' if text else 'differs by more than chance'}"
    )


def _undecisive_answer(weighed: Sequence[WeighedPairAnswer]) -> str:
    """Return the first answer that is worse or better but does not count; cost, which always varies, is left out."""
    aside = [answer for answer in weighed if not answer.counts and answer.weighs != "cost"]
    return next((weighed.answer.message for weighed in aside if weighed.answer.word in ("worse", "better")), "")


def _steps_left(run: Run, *, done: float = 0.9) -> str:
    """Return how much of a run's own plan is done, if that is not nearly all; empty otherwise or if unknown."""
    planned = run.manifest.planned_steps if run.manifest is not None else UNSET
    last = run.last_step
    if planned is UNSET or not planned or last is None or last >= done * planned:
        return ""
    return f"only {last:,} of {planned:,} planned steps are done"
