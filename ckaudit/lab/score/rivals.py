"""What other tools said, held against the labels."""

from collections.abc import Sequence

from ckaudit.lab.peers.peer import Peer, Said
from ckaudit.lab.score.board import PeerScore
from ckaudit.lab.score.wilson import share
from ckaudit.lab.story import Fault


def peer_score(peer: Peer, heard: Sequence[tuple[Fault | None, Said]]) -> PeerScore:
    """Add up what a tool said: of faults that have a consequence, and of healthy runs, which have no fault."""
    ill = [(fault, said) for fault, said in heard if fault is not None and not fault.harmless]
    well = [said for fault, said in heard if fault is None]
    return PeerScore(
        name=peer.name,
        version=next((said.version for _, said in heard if said.version), ""),
        reads=peer.reads,
        failed=share(sum(said.level == "fail" for _, said in ill), len(ill)),
        flagged=share(sum(said.level in ("fail", "warn") for _, said in ill), len(ill)),
        first_right=share(sum(fault.truth in said.causes[:1] for fault, said in ill), len(ill)),
        top3=share(sum(fault.truth in said.causes[:3] for fault, said in ill), len(ill)),
        healthy_failed=share(sum(said.level == "fail" for said in well), len(well)),
        healthy_flagged=share(sum(said.level in ("fail", "warn") for said in well), len(well)),
        errors=sum(said.level == "error" for _, said in heard),
    )
