"""Sessions and ranks of files against each other, and against run.json."""

from collections.abc import Iterator
from itertools import groupby

from msgspec import UNSET

from ckaudit.contract.report import Finding
from ckaudit.validate.catalogue import LONELY_RANK, RANK_RANGE, UNLISTED_SESSION
from ckaudit.validate.file_facts import CheckpointFacts, RunFacts


def lonely_ranks(run: RunFacts) -> Iterator[Finding]:
    """Rank facts of a step without a merged checkpoint, one finding per step."""
    merged = run.written_steps()
    facts = [each for each in run.checkpoints if each.rank is not None and each.only_rank_facts and each.step not in merged]
    for step, files in groupby(facts, key=lambda each: each.step):
        first, *others = files
        message = f"step {step} has facts of {1 + len(others)} ranks, but no merged checkpoint"
        yield LONELY_RANK.at(first.shown, message, first_step=step, also=[other.shown for other in others])


def ranks_out_of_range(run: RunFacts) -> Iterator[Finding]:
    """A rank that is not below the world size of its session."""
    for each in run.checkpoints:
        size = world_size(run, each)
        if each.rank is not None and size is not None and each.rank >= size:
            message = f"rank {each.rank} of a world of {size}"
            place = {"expected": f"at most {size - 1}", "found": str(each.rank), "first_step": each.step}
            yield RANK_RANGE.at(each.shown, message, pointer="/rank", **place)


def world_size(run: RunFacts, each: CheckpointFacts) -> int | None:
    """Return how many ranks trained together in the session of a checkpoint; None: run.json does not say."""
    if run.manifest is None:
        return None
    sessions = run.manifest.sessions or []
    session = each.session or 0
    sizes = [sessions[session].world_size] if session < len(sessions) else []
    sizes.append(run.manifest.world_size)
    return next((size for size in sizes if size is not UNSET), None)


def unlisted_sessions(run: RunFacts) -> Iterator[Finding]:
    """A session that wrote a checkpoint or a line, but has no entry in run.json."""
    if run.manifest is None or run.manifest.sessions is UNSET:
        return
    listed = len(run.manifest.sessions)
    wrote = [(each.session, each.shown) for each in run.checkpoints if each.session is not None]
    wrote += [(session, log.shown) for log in run.logs for session in sorted(log.sessions)]
    said: set[int] = set()
    for session, shown in wrote:
        if session >= listed and session not in said:
            said.add(session)
            message = f"session {session} wrote {shown}, but run.json lists {listed} sessions, from 0"
            yield UNLISTED_SESSION.at(run.manifest_file, message, pointer="/sessions", found=str(session))
