"""`ckaudit diff` and `ckaudit gate` scored on groups of trainings: how often chance is called a change, and a change chance."""

from collections.abc import Callable, Iterator, Sequence
from math import inf
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
from msgspec import Struct

from ckaudit import __version__
from ckaudit.audit.engine import open_judged, triage_reads, triage_run
from ckaudit.diff.compare import JudgedRun, against_good, subject_of
from ckaudit.diff.divergence import reads
from ckaudit.diff.gate import gated
from ckaudit.diff.noise import MAX_FALSE_ALARMS, quantile
from ckaudit.errors import UsageError
from ckaudit.lab.score.scoreboard import Share, share
from ckaudit.lab.wild.groups import GroupMember, GroupNote, Kind, group_folder, read_group
from ckaudit.metrics.loss import train_loss_raw, val_loss
from ckaudit.policy.policy_schema import GateTerms
from ckaudit.run.series import Series
from ckaudit.wording import plural

REFERENCES = (1, 2, 3, 5)
STRONG = 3.0  # effect in standard deviations of the good runs' loss from which on a change must be found
LAST = 20  # losses used to measure the effect, at most the last quarter
MAX_STEPS_OFF = 2  # tolerance of the parting in steps


class PairOutcome(Struct, frozen=True, kw_only=True):
    """The results of diff and gate for one run against some good ones.

    Attributes:
        index: Number of the group.
        family: Family of the group.
        kind: Kind of the run.
        change: Name of the change; empty: none.
        onset: First step at which it acts.
        effect: Final loss above the mean of the good runs, in their standard deviations, for the training or validation loss,
            whichever is worse; negative for a change that helps.
        good: Number of good runs that it was compared with.
        is_paired: Whether the first of them has its seed.
        word: The word of `diff`.
        decided: The questions that decided the word of `diff`.
        gate: Outcome of the gate.
        parting: Step at which the runs part by `diff`; None: nowhere.
        statistic: Statistic in which they part.
        interval: Steps from one checkpoint to the next.
    """

    index: int
    family: str
    kind: Kind
    change: str
    onset: int
    effect: float
    good: int
    is_paired: bool
    word: str
    decided: tuple[str, ...]
    gate: str
    parting: int | None
    statistic: str
    interval: int

    @property
    def is_alike(self) -> bool:
        """Whether it differs from the good runs by chance only."""
        return self.kind != "change"

    @property
    def is_found(self) -> bool:
        """Whether `diff` names the direction of the change."""
        return self.word == ("worse" if self.effect > 0 else "better")

    def is_near(self, steps: int) -> bool:
        """Tell whether the parting is within `steps` steps of the onset of the change."""
        return self.parting is not None and abs(self.parting - self.onset) <= steps


def outcomes_of(
    cache: Path, split: str, seed: int, *, jobs: int = 2, progress: Callable[[int, int], object] | None = None
) -> list[PairOutcome]:
    """Compare the runs of every recorded group of a drawing.

    Args:
        cache: Folder of recordings.
        split: Split of the families.
        seed: Number of the drawing.
        jobs: Number of processes.
        progress: Called with the number of judged groups and of all groups.

    Raises:
        UsageError: If no group of it is recorded.
    """
    numbers = [int(folder.name.rpartition(".")[2]) for folder in sorted(cache.glob(f"{split}.group.{seed}.*"))]
    recorded = [index for index in numbers if read_group(group_folder(cache, split, seed, index))]
    if not recorded:
        raise UsageError(
            f"{cache} holds no group of {split} with seed {seed}",
            hint=f"ckaudit lab wild --pairs --split {split} --seed {seed} records them",
        )
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    work = [(group_folder(cache, split, seed, index), index) for index in recorded]
    outcomes: list[PairOutcome] = []
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for done, judged in enumerate(pool.map(_judge, work), 1):
            outcomes += judged
            if progress:
                progress(done, len(work))
    return outcomes


def _judge(work: tuple[Path, int]) -> list[PairOutcome]:
    folder, index = work
    group = read_group(folder)
    return [] if group is None else list(judge_group(folder, index, group))


def judge_group(folder: Path, index: int, group: GroupNote) -> Iterator[PairOutcome]:
    """Yield the results for each run of a group, against one, two, three and five good ones."""
    runs = {member.name: _opened(folder / member.name) for member in group.members}
    good = [member.name for member in group.of("good")]
    for place, member in enumerate(group.of("good")):
        yield from _held(index, group, member, runs, [([*good[place + 1 :], *good[:place]], False)])
    for member in group.of("order", "rounding", "resumed"):
        yield from _held(index, group, member, runs, [(good, True)])
    for member in group.of("change"):
        yield from _held(index, group, member, runs, [(good, True), (good[1:], False)])


def _held(
    index: int, group: GroupNote, member: GroupMember, runs: dict[str, JudgedRun], choices: Sequence[tuple[list[str], bool]]
) -> Iterator[PairOutcome]:
    canary = runs[member.name]
    effect = effect_of(canary, [runs[one.name] for one in group.of("good")])
    for names, is_paired in choices:
        for count in REFERENCES:
            comparisons = against_good(canary, [runs[name] for name in names[:count]])
            verdict = gated(comparisons, GateTerms(), policy=None)
            pair, parting = comparisons[0].pairs[0], comparisons[0].pairs[0].parting
            answers = [answer for answer in pair.answers if answer.word in ("worse", "better")]
            yield PairOutcome(
                index=index,
                family=group.family,
                kind=member.kind,
                change=member.change,
                onset=member.onset,
                effect=effect,
                good=count,
                is_paired=is_paired,
                word=pair.word,
                decided=tuple(f"{answer.question} {answer.word}" for answer in answers),
                gate="passed" if verdict.gate is None else verdict.gate.outcome,
                parting=None if parting is None else int(parting.step),
                statistic="" if parting is None else parting.statistic,
                interval=_interval(canary),
            )


def _interval(run: JudgedRun) -> int:
    steps = run.side.run.checkpoint_steps
    return int(np.median(np.diff(steps))) if len(steps) > 1 else 1


def _opened(path: Path) -> JudgedRun:
    run = open_judged(path, reads=triage_reads() | reads())
    return subject_of(path, run, triage_run(run))


def effect_of(canary: JudgedRun, good: Sequence[JudgedRun]) -> float:
    """Return the final loss of a run above the mean of the good runs, in their standard deviations.

    It is the larger value for the training and the validation loss; a loss that is not finite gives infinity.
    """
    effects = []
    for metric, last in ((train_loss_raw, LAST), (val_loss, 1)):
        levels = [_level(metric(run.side.run), last) for run in (canary, *(one for one in good if one is not canary))]
        others = [level for level in levels[1:] if np.isfinite(level)]
        if len(others) < 2:
            continue
        spread = stdev(others)
        effects.append((levels[0] - fmean(others)) / spread if np.isfinite(levels[0]) and spread else inf)
    return max(effects, default=0.0)


def _level(series: Series, last: int) -> float:
    if not series:
        return float("nan")
    values = series.values[:, 0]
    return float(values[-min(last, max(1, len(values) // 4)) :].mean())


class PairRow(Struct, frozen=True, kw_only=True):
    """A row of the table: the results for runs compared with some number of good ones.

    Attributes:
        good: Number of good runs.
        worse: Runs that differ by chance only and that `diff` calls worse.
        failed: Such runs that the gate fails.
        told: Such runs that `diff` calls anything but the same or within noise.
        found: Changes that harm by `STRONG` deviations and more, and that `diff` calls worse.
        stopped: Such changes that the gate fails.
        by_one_who_knows: Such changes that a test with the known deviation of the good runs would find at the error rate of one
            question of `diff`.
        helped: Changes that help by as much, and that `diff` calls better.
        held_up: Such changes that the gate fails.
    """

    good: int
    worse: Share
    failed: Share
    told: Share
    found: Share
    stopped: Share
    by_one_who_knows: Share
    helped: Share
    held_up: Share


class PairScore(Struct, frozen=True, kw_only=True):
    """The score on a drawing of groups.

    Attributes:
        tool: The scored tool, with its version.
        split: Split of the families.
        seed: Number of the drawing.
        groups: Number of recorded groups.
        rows: A row for each number of good runs.
        partings: Strong changes whose first step is found: with the seed of the first good run, and with another.
        wrong: Wrong results, a line for each run.
    """

    tool: str
    split: str
    seed: int
    groups: int
    rows: list[PairRow]
    partings: dict[str, Share]
    wrong: list[str]


def summarized(split: str, seed: int, outcomes: Sequence[PairOutcome]) -> PairScore:
    """Return the sums over the outcomes of a drawing."""
    strong = [outcome for outcome in outcomes if not outcome.is_alike and abs(outcome.effect) >= STRONG]
    partings = {}
    for name, is_paired in (("the same seed", True), ("another seed", False)):
        alone = [outcome for outcome in strong if outcome.is_paired == is_paired and outcome.good == 1]
        partings[f"{name}, within {MAX_STEPS_OFF} steps"] = _shares([outcome.is_near(MAX_STEPS_OFF) for outcome in alone])
        partings[f"{name}, within one interval of checkpoints"] = _shares(
            [outcome.is_near(max(MAX_STEPS_OFF, outcome.interval)) for outcome in alone]
        )
    return PairScore(
        tool=f"ckaudit {__version__}",
        split=split,
        seed=seed,
        groups=len({outcome.index for outcome in outcomes}),
        rows=[_row(count, [outcome for outcome in outcomes if outcome.good == count]) for count in REFERENCES],
        partings=partings,
        wrong=[*dict.fromkeys(_wrong(outcome) for outcome in outcomes if _is_wrong(outcome))],
    )


def _row(count: int, outcomes: Sequence[PairOutcome]) -> PairRow:
    alike = [outcome for outcome in outcomes if outcome.is_alike]
    changed = [outcome for outcome in outcomes if not outcome.is_alike]
    harmful = [outcome for outcome in changed if outcome.effect >= STRONG]
    helpful = [outcome for outcome in changed if outcome.effect <= -STRONG]
    enough = quantile(MAX_FALSE_ALARMS) * (1 + 1 / count) ** 0.5
    return PairRow(
        good=count,
        worse=_shares([outcome.word == "worse" for outcome in alike]),
        failed=_shares([outcome.gate == "failed" for outcome in alike]),
        told=_shares([outcome.word not in ("same", "within_noise") for outcome in alike]),
        found=_shares([outcome.is_found for outcome in harmful]),
        stopped=_shares([outcome.gate == "failed" for outcome in harmful]),
        by_one_who_knows=_shares([outcome.effect > enough for outcome in harmful]),
        helped=_shares([outcome.is_found for outcome in helpful]),
        held_up=_shares([outcome.gate == "failed" for outcome in helpful]),
    )


def _shares(hits: Sequence[bool]) -> Share:
    return share(sum(hits), len(hits))


def _is_wrong(outcome: PairOutcome) -> bool:
    if outcome.is_alike:
        return outcome.word == "worse" or outcome.gate == "failed"
    return outcome.effect >= STRONG and not (outcome.is_found and outcome.gate == "failed")


def _wrong(outcome: PairOutcome) -> str:
    what = outcome.change or outcome.kind
    by = f", by {', '.join(outcome.decided)}" if outcome.decided else ""
    against = f"against {plural(outcome.good, 'good run')}: {outcome.word}, {outcome.gate}{by}"
    return f"group {outcome.index}, {outcome.family}, {what} of effect {outcome.effect:+.1f} {against}"
