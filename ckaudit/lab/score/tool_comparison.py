"""Tools compared by one measure: any alarm counts, whenever and whatever for."""

from collections.abc import Mapping, Sequence

from ckaudit import __version__
from ckaudit.lab.peers.in_loop import known
from ckaudit.lab.peers.peer import Peer, Said, Tool
from ckaudit.lab.score.outcome import COUNTING, GRAVE, ControlOutcome, FaultOutcome
from ckaudit.lab.score.scoreboard import PeerScore
from ckaudit.lab.score.wilson import share
from ckaudit.lab.specs import Fault, faults

Run = tuple[str, int]  # name and seed


def rivals(
    heard: Mapping[Run, Mapping[str, Said]],
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
        at = [each for each in outcomes if (each.name, each.seed) in ridden]
        scores.append(our_score(at, [each for each in controls if (each.name, each.seed) in ridden], bare=bare))
    return scores + [_scored(peer, heard) for peer in attached if any(peer.name in others for others in heard.values())]


def _scored(peer: Tool, heard: Mapping[Run, Mapping[str, Said]]) -> PeerScore:
    return peer_score(
        peer, [(faults().get(name), others[peer.name]) for (name, _), others in heard.items() if peer.name in others]
    )


def peer_score(peer: Tool, heard: Sequence[tuple[Fault | None, Said]]) -> PeerScore:
    """Add up what a tool said: of faults that have a consequence, and of healthy runs, which have no fault."""
    ill = [(fault, said) for fault, said in heard if fault is not None and not fault.harmless]
    well = [said for fault, said in heard if fault is None]
    return PeerScore(
        name=peer.name,
        version=next((said.version for _, said in heard if said.version), ""),
        reads=peer.reads,
        runs=len(heard),
        failed=share(sum(said.level == "fail" for _, said in ill), len(ill)),
        flagged=share(sum(said.level in ("fail", "warn") for _, said in ill), len(ill)),
        right_kind=share(sum(is_right(said, fault) for fault, said in ill), len(ill)),
        first_right=share(sum(fault.truth in said.causes[:1] for fault, said in ill), len(ill)),
        top3=share(sum(fault.truth in said.causes[:3] for fault, said in ill), len(ill)),
        healthy_failed=share(sum(said.level == "fail" for said in well), len(well)),
        healthy_flagged=share(sum(said.level in ("fail", "warn") for said in well), len(well)),
        errors=sum(said.level == "error" for _, said in heard),
    )


def is_right(said: Said, fault: Fault) -> bool:
    """Tell whether an alarm is of the right kind, whenever it was: a symptom, the truth, or what may be taken for it."""
    return not {fault.truth, *fault.acceptable}.isdisjoint(said.causes) or not set(fault.symptoms).isdisjoint(said.symptoms)


def our_score(outcomes: Sequence[FaultOutcome], controls: Sequence[ControlOutcome], *, bare: bool) -> PeerScore:
    """Add up what our auditor said by the same measure: sev0 and sev1 fail a run, sev2 warns of it."""
    ill = [each for each in outcomes if not each.harmless]
    return PeerScore(
        name="ckaudit",
        version=__version__,
        reads="log" if bare else "run folder",
        runs=len(outcomes) + len(controls),
        failed=share(sum(each.worst in GRAVE for each in ill), len(ill)),
        flagged=share(sum(each.worst in COUNTING for each in ill), len(ill)),
        right_kind=share(sum(each.detected for each in ill), len(ill)),
        first_right=share(sum(each.first_right for each in ill), len(ill)),
        top3=share(sum(each.top3 for each in ill), len(ill)),
        healthy_failed=share(sum(bool(each.grave) for each in controls), len(controls)),
        healthy_flagged=share(sum(bool(each.grave or each.sev2) for each in controls), len(controls)),
        errors=sum(bool(each.error) for each in outcomes) + sum(bool(each.error) for each in controls),
    )
