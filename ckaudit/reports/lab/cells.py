"""The tables of a score as rows of cells, the same for screen and Markdown."""

from collections.abc import Iterator

from ckaudit.lab.score.scoreboard import Board, Faults, PeerScore, Score, Share
from ckaudit.lab.score.verdict import FaultOutcome
from ckaudit.lab.specs import faults

HEAD = ("", "runs", "detected", "cause", "acceptable", "top 3", "place", "false", "delay")
PEER_HEAD = ("", "reads", "runs", "fails", "or warns", "cause", "top 3", "healthy: fails", "or warns", "no answer")
LEGEND = (
    "detected: a finding of sev0 to sev2 of the right kind, at or after the onset",
    "cause: the first one named is the truth; acceptable: or may be taken for it; top 3: the truth is among three",
    "place: the layer or tensor is named, where there is one",
    "false: runs with a finding of sev0 to sev2 before the onset, or of something else",
    "delay: median from when it could be seen to the first step of the finding, in steps / checkpoints",
)
BRACKETS = "in brackets: Wilson 95 %"
Table = list[tuple[str, ...]]


def legend(score: Score) -> Iterator[str]:
    """Yield what the columns mean; without a table of faults, only what also applies to the other tables."""
    yield from LEGEND if any(board.faults for board in score.boards) else ()
    yield BRACKETS


def no_fault(score: Score, board: Board) -> str:
    """Return the sentence that replaces the table of faults."""
    if board.outcomes:
        return "no fault that has a consequence is recorded yet"
    asked = any(name.rpartition(".")[0] in faults() for name in score.missing)
    return "no fault is recorded yet: ckaudit lab record trains them" if asked else "no fault is among these"


def percent(share: Share, *, interval: bool = True) -> str:
    """Return a share as a cell.

    >>> percent(Share(hits=9, of=10, share=0.9, low=0.596, high=0.982))
    '90 % [60-98]'
    """
    if share.share is None or share.low is None or share.high is None:
        return "-"
    text = f"{100 * share.share:.0f} %"
    return f"{text} [{100 * share.low:.0f}-{100 * share.high:.0f}]" if interval else text


def summary(board: Board, *, interval: bool = True) -> Table:
    """Return the heading, a line for all faults, and one for each group."""
    return [HEAD, *(_line(faults, interval=interval) for faults in (board.all, *board.groups))]


def each_fault(board: Board) -> Table:
    """Return the heading and a line for each fault, with what was named instead of its truth."""
    lines = [(*_line(fault, interval=False), ", ".join(fault.causes)) for fault in board.faults]
    return [(*HEAD, "first cause where wrong"), *lines]


def healthy(board: Board) -> Table:
    """Return the shares for healthy runs, faults without consequences, and the baseline."""
    rows: Table = (
        [("healthy runs", "none recorded")]
        if not board.controls
        else [
            ("healthy runs with sev0 or sev1", _count(board.healthy.grave)),
            ("healthy runs with sev2", _count(board.healthy.sev2)),
            ("healthy runs with a note", _count(board.healthy.notes)),
        ]
    )
    if board.harmless.noted.of:
        rows += [
            ("harmless faults noted", _count(board.harmless.noted)),
            ("harmless faults taken for sev2 or worse", _count(board.harmless.flagged)),
            ("runs of harmless faults with something false", _count(board.harmless.false)),
        ]
    if board.baseline is not None:
        rows.append((f"cause right by always saying {board.baseline.cause}", _count(board.baseline.first_right)))
    return rows


def each_run(board: Board) -> Table:
    """Return the heading and a line for each run with a fault: what was reported, and the truth."""
    lines = [
        (f"{outcome.name}.{outcome.seed}", _detected_word(outcome), outcome.cause or "-", outcome.truth)
        for outcome in board.outcomes
    ]
    return [("", "detected", "first cause", "truth"), *lines]


def flagged(board: Board) -> Table:
    """Return the heading and a line for each healthy run with findings, and the rules that found them."""
    ill = [control for control in board.controls if control.grave or control.sev2]
    lines = [
        (f"{outcome.name}.{outcome.seed}", ", ".join(outcome.grave) or "-", ", ".join(outcome.sev2) or "-") for outcome in ill
    ]
    return [("healthy, but flagged", "sev0 or sev1", "sev2"), *lines]


def alarms(board: Board) -> Table:
    """Return the rules that find something in healthy runs, and in how many runs."""
    return [(rule, str(count)) for rule, count in board.healthy.rules.items()]


def peers(board: Board, *, interval: bool = True) -> Table:
    """Return the heading and a line for each tool."""
    return [PEER_HEAD, *(_peer(peer, interval=interval) for peer in board.peers)]


def log_alone(board: Board) -> Table:
    """Return a table with a column for each tool that reads a log, ours first, and a row for each measure."""
    tools = [peer for peer in board.peers if peer.reads == "log" and peer.runs == board.peers[0].runs]
    rows = (
        ("any alarm", [tool.flagged for tool in tools]),
        ("right kind", [tool.right_kind for tool in tools]),
        ("first cause", [tool.first_right for tool in tools]),
        ("healthy runs flagged", [tool.healthy_flagged for tool in tools]),
        ("of them failed", [tool.healthy_failed for tool in tools]),
    )
    return [("", *(f"{tool.name} {tool.version}" for tool in tools)), *((name, *map(_count, shares)) for name, shares in rows)]


def _detected_word(outcome: FaultOutcome) -> str:
    if outcome.error:
        return "broke"
    if outcome.detected:
        return "yes"
    return "note" if outcome.noted else "no"


def _peer(peer: PeerScore, *, interval: bool) -> tuple[str, ...]:
    shares = (peer.failed, peer.flagged, peer.first_right, peer.top3, peer.healthy_failed, peer.healthy_flagged)
    percentages = (percent(share, interval=interval) for share in shares)
    return (f"{peer.name} {peer.version}", peer.reads, str(peer.runs), *percentages, str(peer.errors))


def _line(faults: Faults, *, interval: bool) -> tuple[str, ...]:
    shares = (faults.detected, faults.first_right, faults.acceptable, faults.top3, faults.place_right, faults.false)
    return (faults.name, str(faults.detected.of), *(percent(share, interval=interval) for share in shares), _delay(faults))


def _delay(faults: Faults) -> str:
    if faults.delay_steps is None or faults.delay_checkpoints is None:
        return "-"
    return f"{faults.delay_steps:g} / {faults.delay_checkpoints:g}"


def _count(share: Share) -> str:
    return f"{share.hits} of {share.of}: {percent(share)}"
