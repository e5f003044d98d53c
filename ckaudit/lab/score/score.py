"""Audits every recording of a split, compares it with its label, and sums up the outcomes."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec.structs import replace

from ckaudit import __version__
from ckaudit.errors import CkauditError, UsageError
from ckaudit.lab import archive
from ckaudit.lab.cache import CachedTraining, cached_training
from ckaudit.lab.score.scoreboard import Board, PeerScore, Score, board, share
from ckaudit.lab.score.verdict import (
    COUNTING,
    GRAVE,
    AuditVerdict,
    ControlOutcome,
    FaultOutcome,
    judge,
    judge_log,
    of_control,
    of_fault,
)
from ckaudit.lab.specs import controls, faults
from ckaudit.lab.training_spec import Recipe, Split, recipe, recipes

Judged = tuple[str, int, AuditVerdict]  # name, seed, and the verdict of our auditor


def chosen(splits: Sequence[Split], only: str = "") -> list[Recipe]:
    """Return the trainings of splits whose name, or name.seed, matches one of several patterns; empty: all.

    Raises:
        UsageError: If no training matches.
    """
    patterns = only.split(",") if only else ["*"]
    matching = [
        candidate
        for split in splits
        for candidate in recipes(split)
        if any(
            fnmatchcase(name, pattern) for name in (candidate.name, f"{candidate.name}.{candidate.seed}") for pattern in patterns
        )
    ]
    if not matching:
        raise UsageError(
            f"no fault or control matches {only!r}", hint="ckaudit lab list names them all; * stands for any letters"
        )
    return matching


def score(
    cache: Path,
    splits: Sequence[Split],
    *,
    only: str = "",
    bare: bool = False,
    jobs: int = 2,
    progress: Callable[[int, int], object] | None = None,
) -> Score:
    """Score our auditor on the recordings of a cache.

    Args:
        cache: Folder of recordings.
        splits: Splits of the trainings.
        only: Patterns of names, or of name.seed, with commas between; empty: all.
        bare: Show the auditor only the log that other tools get.
        jobs: Number of processes.
        progress: Called with the number of judged runs and of all runs.

    Raises:
        UsageError: If nothing is recorded.
    """
    entries = [cached_training(cache, wanted) for wanted in chosen(splits, only)]
    usable = [entry for entry in entries if entry.usable]
    if not usable:
        raise _nothing(cache, splits, only, entries)
    work = [(entry.path, entry.recipe.name, entry.recipe.seed, bare) for entry in usable]
    judged: list[Judged] = []
    with _workers(jobs if len(work) > 4 else 1) as over:
        for one in over(_judge, work):
            judged.append(one)
            if progress:
                progress(len(judged), len(work))
    return Score(
        tool=f"ckaudit {__version__}",
        bare=bare,
        only=only,
        boards=[_board(split, judged, bare=bare) for split in splits],
        missing={_id(entry): entry.why or entry.state for entry in entries if not entry.usable},
        older={_id(entry): entry.why for entry in entries if entry.state == "older"},
        broken={f"{name}.{seed}": verdict.error for name, seed, verdict in judged if verdict.error},
    )


def _judge(work: tuple[Path, str, int, bool]) -> Judged:
    """Unpack one recording and judge it, in a folder with a neutral name."""
    path, name, seed, bare = work
    with TemporaryDirectory(prefix="run-") as temporary:
        folder = Path(temporary)
        try:
            archive.unpack(path, folder)
        except CkauditError as error:
            return name, seed, AuditVerdict(error=str(error))
        return name, seed, judge_log(folder) if bare else judge(folder)


def _board(split: Split, judged: Sequence[Judged], *, bare: bool) -> Board:
    ill, well = [], []
    for name, seed, verdict in judged:
        spec = recipe(name, seed)
        if spec.split != split:
            continue
        if spec.kind == "fault":
            ill.append(of_fault(faults()[name], seed, spec.amount.onset, verdict))
        else:
            expected = controls()[name].expected if spec.kind == "control" else ()
            well.append(of_control(name, seed, expected, verdict))
    return replace(board(split, ill, well), peers=[our_score(ill, well, bare=True)] if bare else [])


def _nothing(cache: Path, splits: Sequence[Split], only: str, entries: Sequence[CachedTraining]) -> UsageError:
    """Return an error with the searched folder, its content, and the command that trains the requested runs."""
    from shlex import join

    stale, broken = (sum(entry.state == state for entry in entries) for state in ("stale", "unreadable"))
    message = f"{cache} holds none of the {len(entries)} recordings asked for"
    if stale or broken:
        message += f" in a form that can be used (of an older version of their training: {stale}, unreadable: {broken})"
    if not cache.is_dir():
        message = f"nothing is recorded: there is no folder {cache}"
    elif not any(cache.glob("*.tar.zst")):
        message = f"nothing is recorded: {cache} is empty"
    split = [] if splits == ["dev"] else ["--split", "both" if len(splits) > 1 else splits[0]]
    fill = join(["ckaudit", "lab", "record", "--cache", str(cache), *split, *(["--only", only] if only else [])])
    return UsageError(message, hint=f"--cache DIR looks elsewhere; to train and keep them here: {fill}")


def _id(entry: CachedTraining) -> str:
    return f"{entry.recipe.name}.{entry.recipe.seed}"


@contextmanager
def _workers(jobs: int) -> Iterator[Callable[..., Iterable[Judged]]]:
    if jobs == 1:
        yield map
        return
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield lambda function, work: pool.map(function, work, chunksize=4)


# A measure that suits every tool: any alarm counts, at any time and of any kind.
def our_score(outcomes: Sequence[FaultOutcome], controls: Sequence[ControlOutcome], *, bare: bool) -> PeerScore:
    """Sum up our auditor's verdicts by the same measure: sev0 and sev1 fail a run, sev2 warns."""
    ill = [outcome for outcome in outcomes if not outcome.harmless]
    return PeerScore(
        name="ckaudit",
        version=__version__,
        reads="log" if bare else "run folder",
        runs=len(outcomes) + len(controls),
        failed=share(sum(outcome.worst in GRAVE for outcome in ill), len(ill)),
        flagged=share(sum(outcome.worst in COUNTING for outcome in ill), len(ill)),
        right_kind=share(sum(outcome.detected for outcome in ill), len(ill)),
        first_right=share(sum(outcome.first_right for outcome in ill), len(ill)),
        top3=share(sum(outcome.top3 for outcome in ill), len(ill)),
        healthy_failed=share(sum(bool(control.grave) for control in controls), len(controls)),
        healthy_flagged=share(sum(bool(control.grave or control.sev2) for control in controls), len(controls)),
        errors=sum(bool(outcome.error) for outcome in outcomes) + sum(bool(control.error) for control in controls),
    )
