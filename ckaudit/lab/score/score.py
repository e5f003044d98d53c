"""Every recording of a split audited, held against its label, and added up."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec.structs import replace

from ckaudit import __version__
from ckaudit.errors import CkauditError, UsageError
from ckaudit.lab import archive
from ckaudit.lab.cache import CachedTraining, look
from ckaudit.lab.peers import beside
from ckaudit.lab.peers.in_loop import known
from ckaudit.lab.peers.peer import Peer, PeerVerdict, Tool, ask
from ckaudit.lab.score.outcome import COUNTING, GRAVE, ControlOutcome, FaultOutcome, of_control, of_fault
from ckaudit.lab.score.scoreboard import Board, PeerScore, Score, board
from ckaudit.lab.score.verdict import Verdict, judge, judge_log
from ckaudit.lab.score.wilson import share
from ckaudit.lab.settings import Split
from ckaudit.lab.specs import Fault, controls, faults
from ckaudit.lab.training_spec import Recipe, recipe, recipes

Heard = tuple[str, int, Verdict, dict[str, PeerVerdict]]  # name, seed, ours, and what peers said

Run = tuple[str, int]  # name and seed


def chosen(splits: Sequence[Split], only: str = "") -> list[Recipe]:
    """Return the trainings of splits whose name, or name.seed, matches one of several patterns; empty: all.

    Raises:
        UsageError: If none does.
    """
    patterns = only.split(",") if only else ["*"]
    found = [
        each
        for split in splits
        for each in recipes(split)
        if any(fnmatchcase(name, pattern) for name in (each.name, f"{each.name}.{each.seed}") for pattern in patterns)
    ]
    if not found:
        raise UsageError(
            f"no fault or control matches {only!r}", hint="ckaudit lab list names them all; * stands for any letters"
        )
    return found


def score(
    cache: Path,
    splits: Sequence[Split],
    *,
    only: str = "",
    bare: bool = False,
    peers: Sequence[Peer] = (),
    jobs: int = 2,
    progress: Callable[[int, int], object] | None = None,
) -> Score:
    """Score our auditor, and others, on the recordings of a cache.

    Args:
        cache: Where recordings are kept.
        splits: Which trainings.
        only: Patterns of names, or of name.seed, with commas between; empty: all.
        bare: Show the auditor only the log that other tools are shown.
        peers: Other tools that are shown the same logs.
        jobs: Processes at work.
        progress: Called with runs done and runs in all.

    Raises:
        UsageError: If nothing is recorded.
    """
    entries = [look(cache, each) for each in chosen(splits, only)]
    usable = [entry for entry in entries if entry.usable]
    if not usable:
        raise _nothing(cache, splits, only, entries)
    work = [(entry.path, entry.recipe.name, entry.recipe.seed, bare, tuple(peers)) for entry in usable]
    heard: list[Heard] = []
    with _workers(jobs if len(work) > 4 else 1) as over:
        for each in over(_hear, work):
            heard.append(each)
            if progress:
                progress(len(heard), len(work))
    heard = [_with_those_in_the_loop(cache, each) for each in heard]
    return Score(
        tool=f"ckaudit {__version__}",
        bare=bare,
        only=only,
        boards=[_board(split, heard, peers, bare=bare) for split in splits],
        missing={_id(entry): entry.why or entry.state for entry in entries if not entry.usable},
        older={_id(entry): entry.why for entry in entries if entry.state == "older"},
        broken={f"{name}.{seed}": said.error for name, seed, said, _ in heard if said.error},
    )


def _hear(work: tuple[Path, str, int, bool, tuple[Peer, ...]]) -> Heard:
    """Unpack one recording and let every tool judge it; its folder has a name that says nothing."""
    path, name, seed, bare, peers = work
    with TemporaryDirectory(prefix="run-") as temporary:
        folder = Path(temporary)
        try:
            archive.unpack(path, folder)
        except CkauditError as error:
            return name, seed, Verdict(error=str(error)), {}
        ours = judge_log(folder) if bare else judge(folder)
        return name, seed, ours, {peer.name: ask(peer, folder) for peer in peers}


def _with_those_in_the_loop(cache: Path, heard: Heard) -> Heard:
    """Add what peers said that were attached to the training, as far as the cache has it."""
    name, seed, verdict, others = heard
    return name, seed, verdict, others | beside.heard(cache, recipe(name, seed), known())


def _board(split: Split, heard: Sequence[Heard], peers: Sequence[Peer], *, bare: bool) -> Board:
    ill, well = [], []
    told = [(recipe(name, seed), verdict, others) for name, seed, verdict, others in heard]
    told = [each for each in told if each[0].split == split]
    for made, verdict, _ in told:
        if made.kind == "fault":
            ill.append(of_fault(faults()[made.name], made.seed, made.amount.onset, verdict))
        else:
            expected = controls()[made.name].expected if made.kind == "control" else ()
            well.append(of_control(made.name, made.seed, expected, verdict))
    others_of = {(made.name, made.seed): others for made, _, others in told}
    return replace(board(split, ill, well), peers=rivals(others_of, ill, well, peers, bare=bare))


def _nothing(cache: Path, splits: Sequence[Split], only: str, entries: Sequence[CachedTraining]) -> UsageError:
    """Return the error that says where was looked, what was there, and the command that trains what was asked for."""
    from shlex import join

    stale, broken = (sum(entry.state == state for entry in entries) for state in ("stale", "unreadable"))
    found = f"{cache} holds none of the {len(entries)} recordings asked for"
    if stale or broken:
        found += f" in a form that can be used (of an older version of their training: {stale}, unreadable: {broken})"
    if not cache.is_dir():
        found = f"nothing is recorded: there is no folder {cache}"
    elif not any(cache.glob("*.tar.zst")):
        found = f"nothing is recorded: {cache} is empty"
    split = [] if splits == ["dev"] else ["--split", "both" if len(splits) > 1 else splits[0]]
    fill = join(["ckaudit", "lab", "record", "--cache", str(cache), *split, *(["--only", only] if only else [])])
    return UsageError(found, hint=f"--cache DIR looks elsewhere; to train and keep them here: {fill}")


def _id(entry: CachedTraining) -> str:
    return f"{entry.recipe.name}.{entry.recipe.seed}"


@contextmanager
def _workers(jobs: int) -> Iterator[Callable[..., Iterable[Heard]]]:
    if jobs == 1:
        yield map
        return
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield lambda function, work: pool.map(function, work, chunksize=4)


# Tools compared by one measure: any alarm counts, whenever and whatever for.
def rivals(
    heard: Mapping[Run, Mapping[str, PeerVerdict]],
    outcomes: Sequence[FaultOutcome],
    controls: Sequence[ControlOutcome],
    peers: Sequence[Peer],
    *,
    bare: bool,
) -> list[PeerScore]:
    """Score every tool that was heard, ours first: on all runs, and again on those at which others were in the loop.

    Args:
        heard: What others said of each run, by name.
        outcomes: What ours said of faults.
        controls: What ours said of healthy runs.
        peers: Those that were shown a log.
        bare: Whether ours saw only the log that they are shown.
    """
    attached = known()
    ridden = {run for run, others in heard.items() if any(peer.name in others for peer in attached)}
    scores = [our_score(outcomes, controls, bare=bare)] if peers or ridden or bare else []
    scores += [_scored(peer, heard) for peer in peers]
    if ridden and len(ridden) < len(heard):
        at = [outcome for outcome in outcomes if (outcome.name, outcome.seed) in ridden]
        scores.append(our_score(at, [control for control in controls if (control.name, control.seed) in ridden], bare=bare))
    return scores + [_scored(peer, heard) for peer in attached if any(peer.name in others for others in heard.values())]


def _scored(peer: Tool, heard: Mapping[Run, Mapping[str, PeerVerdict]]) -> PeerScore:
    return peer_score(
        peer, [(faults().get(name), others[peer.name]) for (name, _), others in heard.items() if peer.name in others]
    )


def peer_score(peer: Tool, heard: Sequence[tuple[Fault | None, PeerVerdict]]) -> PeerScore:
    """Add up what a tool said: of faults that have a consequence, and of healthy runs, which have no fault."""
    ill = [(fault, verdict) for fault, verdict in heard if fault is not None and not fault.harmless]
    well = [verdict for fault, verdict in heard if fault is None]
    return PeerScore(
        name=peer.name,
        version=next((verdict.version for _, verdict in heard if verdict.version), ""),
        reads=peer.reads,
        runs=len(heard),
        failed=share(sum(verdict.level == "fail" for _, verdict in ill), len(ill)),
        flagged=share(sum(verdict.level in ("fail", "warn") for _, verdict in ill), len(ill)),
        right_kind=share(sum(is_right(verdict, fault) for fault, verdict in ill), len(ill)),
        first_right=share(sum(fault.truth in verdict.causes[:1] for fault, verdict in ill), len(ill)),
        top3=share(sum(fault.truth in verdict.causes[:3] for fault, verdict in ill), len(ill)),
        healthy_failed=share(sum(verdict.level == "fail" for verdict in well), len(well)),
        healthy_flagged=share(sum(verdict.level in ("fail", "warn") for verdict in well), len(well)),
        errors=sum(verdict.level == "error" for _, verdict in heard),
    )


def is_right(verdict: PeerVerdict, fault: Fault) -> bool:
    """Tell whether an alarm is of the right kind, whenever it was: a symptom, the truth, or what may be taken for it."""
    return not {fault.truth, *fault.acceptable}.isdisjoint(verdict.causes) or not set(fault.symptoms).isdisjoint(verdict.symptoms)


def our_score(outcomes: Sequence[FaultOutcome], controls: Sequence[ControlOutcome], *, bare: bool) -> PeerScore:
    """Add up what our auditor said by the same measure: sev0 and sev1 fail a run, sev2 warns of it."""
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
