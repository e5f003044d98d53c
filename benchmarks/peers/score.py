"""Tools compared by one measure on the recordings of the lab: any alarm counts, whenever and whatever for."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec.structs import replace

from benchmarks.peers import peer_cache
from benchmarks.peers.in_loop import known
from benchmarks.peers.peer import Peer, PeerVerdict, Tool, ask
from ckaudit.errors import CkauditError
from ckaudit.lab import archive
from ckaudit.lab.cache import CachedTraining, cached_training
from ckaudit.lab.score.score import chosen, our_score
from ckaudit.lab.score.score import score as score_ours
from ckaudit.lab.score.scoreboard import PeerScore, Score, share
from ckaudit.lab.score.verdict import ControlOutcome, FaultOutcome
from ckaudit.lab.specs import Fault, faults
from ckaudit.lab.training_spec import Split

Run = tuple[str, int]  # name and seed


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
    """Score our auditor and others on the recordings of a cache; those in the loop as far as the cache has what they said.

    Args:
        cache: Where recordings are kept.
        splits: Which trainings.
        only: Patterns of names, or of name.seed, with commas between; empty: all.
        bare: Show our auditor only the log that other tools are shown.
        peers: Other tools that are shown the log.
        jobs: Processes at work.
        progress: Called with runs done and runs in all, by our auditor.

    Raises:
        UsageError: If nothing is recorded.
    """
    ours = score_ours(cache, splits, only=only, bare=bare, jobs=jobs, progress=progress)
    entries = [entry for entry in (cached_training(cache, recipe) for recipe in chosen(splits, only)) if entry.usable]
    with ThreadPoolExecutor(jobs) as pool:
        heard = dict(zip(map(_run, entries), pool.map(lambda entry: _hear(cache, entry, peers), entries), strict=True))
    boards = []
    for board in ours.boards:
        of_split = {_run(entry): heard[_run(entry)] for entry in entries if entry.recipe.split == board.split}
        boards.append(replace(board, peers=rivals(of_split, board.outcomes, board.controls, peers, bare=bare)))
    return replace(ours, boards=boards)


def _run(entry: CachedTraining) -> Run:
    return entry.recipe.name, entry.recipe.seed


def _hear(cache: Path, entry: CachedTraining, peers: Sequence[Peer]) -> dict[str, PeerVerdict]:
    """Return the verdicts of others on one recording: peers in the loop, and readers of its log under a neutral name."""
    return dict(_shown_the_log(entry.path, peers)) | peer_cache.peer_verdicts(cache, entry.recipe, known())


def _shown_the_log(path: Path, peers: Sequence[Peer]) -> Iterator[tuple[str, PeerVerdict]]:
    with TemporaryDirectory(prefix="run-") as temporary:
        folder = Path(temporary)
        try:
            archive.unpack(path, folder)
        except CkauditError:  # our score names it
            return
        for peer in peers:
            yield peer.name, ask(peer, folder)


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
