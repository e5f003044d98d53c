"""Seams: the steps at which a run was taken up again, as run.json tells."""

from msgspec import UNSET

from ckaudit.contract.manifest import Manifest


def seams(manifest: Manifest | None) -> list[int]:
    """Return the last step before each later session, in order of sessions; one that does not say where it began is left out.

    >>> seams(None)
    []
    """
    if manifest is None or manifest.sessions is UNSET:
        return []
    return [each.resumed_from for each in manifest.sessions[1:] if each.resumed_from is not UNSET]
