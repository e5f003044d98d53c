"""Every recording of a split audited, held against its label, and added up."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec.structs import replace

from ckaudit import __version__
from ckaudit.errors import CkauditError, UsageError
from ckaudit.lab import archive
from ckaudit.lab.cache import Entry, look
from ckaudit.lab.peers import beside
from ckaudit.lab.peers.in_loop import known
from ckaudit.lab.peers.peer import Peer, Said, ask
from ckaudit.lab.score.outcome import of_control, of_fault
from ckaudit.lab.score.scoreboard import Board, Score, board
from ckaudit.lab.score.tool_comparison import rivals
from ckaudit.lab.score.verdict import Verdict, judge, judge_log
from ckaudit.lab.settings import Split
from ckaudit.lab.specs import controls, faults
from ckaudit.lab.training_spec import Recipe, recipe, recipes

Heard = tuple[str, int, Verdict, dict[str, Said]]  # name, seed, ours, and what peers said


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
    name, seed, said, others = heard
    return name, seed, said, others | beside.heard(cache, recipe(name, seed), known())


def _board(split: Split, heard: Sequence[Heard], peers: Sequence[Peer], *, bare: bool) -> Board:
    ill, well = [], []
    told = [(recipe(name, seed), said, others) for name, seed, said, others in heard]
    told = [each for each in told if each[0].split == split]
    for made, said, _ in told:
        if made.kind == "fault":
            ill.append(of_fault(faults()[made.name], made.seed, made.amount.onset, said))
        else:
            expected = controls()[made.name].expected if made.kind == "control" else ()
            well.append(of_control(made.name, made.seed, expected, said))
    others_of = {(made.name, made.seed): others for made, _, others in told}
    return replace(board(split, ill, well), peers=rivals(others_of, ill, well, peers, bare=bare))


def _nothing(cache: Path, splits: Sequence[Split], only: str, entries: Sequence[Entry]) -> UsageError:
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


def _id(entry: Entry) -> str:
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
