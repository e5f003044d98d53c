"""Seams: the steps at which a run was taken up again, as run.json tells."""

from msgspec import UNSET

from ckaudit.contract.schema.manifest import Manifest, Session


def seams(manifest: Manifest | None) -> list[int]:
    """Return the last step before each later session, in order of sessions; one that does not say where it began is left out.

    >>> seams(None)
    []
    """
    return [int(session.resumed_from or 0) for session in resumed(manifest)]


def resumed(manifest: Manifest | None) -> list[Session]:
    """Return the sessions that took the run up again and say from which step, in order."""
    if manifest is None or manifest.sessions is UNSET:
        return []
    return [session for session in manifest.sessions[1:] if session.resumed_from is not UNSET]
