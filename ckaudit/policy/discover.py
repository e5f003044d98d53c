"""Where the policy is: `ckaudit.toml`, or `[tool.ckaudit]` of a pyproject.toml, in this folder or one above it."""

import re
from pathlib import Path

from ckaudit.errors import UsageError

OWN, SHARED = "ckaudit.toml", "pyproject.toml"
OURS = re.compile(rb"tool\s*\.\s*[\"']?ckaudit|^\s*[\"']?ckaudit[\"']?\s*[.=]", re.MULTILINE)


def find(folder: Path) -> Path | None:
    """Return the nearest policy file at or above a folder, or None.

    The search ends at the top of a repository. A run's own folder is not searched: a run must not bring its judge along.

    Args:
        folder: Where the search begins: the working folder.
    """
    for path in (folder, *folder.parents):
        if (path / OWN).is_file():
            return path / OWN
        if _holds_a_policy(path / SHARED):
            return path / SHARED
        if (path / ".git").exists():
            return None
    return None


def named(path: Path) -> Path:
    """Return a policy file that the user named, or raise `UsageError`."""
    if not path.is_file():
        raise UsageError(f"--config: there is no file {path}", hint=f"name a {OWN} or a {SHARED} with [tool.ckaudit]")
    return path


def _holds_a_policy(path: Path) -> bool:
    """Tell whether a pyproject.toml has our table; only one with a key of our name need be read as TOML, which takes time."""
    try:
        data = path.read_bytes()
    except OSError:
        return False
    if not OURS.search(data):
        return False
    import tomllib

    try:
        return "ckaudit" in tomllib.loads(data.decode()).get("tool", {})
    except (ValueError, AttributeError):
        return b"tool.ckaudit" in data  # reading it says what is wrong with it
