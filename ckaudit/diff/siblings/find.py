"""The runs that the user names as siblings: paths, and patterns of them."""

from collections.abc import Iterator, Sequence
from glob import glob, has_magic
from pathlib import Path

from ckaudit.errors import UsageError

MAX_SIBLINGS = 20
"""More tell hardly more, and each is read whole."""


def find_siblings(patterns: Sequence[str], *, run: Path | None = None, max_siblings: int = MAX_SIBLINGS) -> list[Path]:
    """Return the runs that patterns mean, in the order of their names, the newest where they are too many.

    Args:
        patterns: Paths, or patterns such as "good/*"; ** stands for folders at any depth.
        run: The audited run, which is no sibling of its own.
        max_siblings: So many at most.

    Raises:
        UsageError: Where one of them means nothing.
    """
    own = None if run is None else run.resolve()
    found = {path.resolve(): path for pattern in patterns for path in _matches(pattern)}
    found.pop(own, None) if own is not None else None
    newest = sorted(found.values(), key=lambda path: path.stat().st_mtime, reverse=True)[:max_siblings]
    return sorted(newest)


def _matches(pattern: str) -> Iterator[Path]:
    """Yield what a pattern means: a path as it is; of what is matched the folders, where there are any."""
    if Path(pattern).exists():
        yield Path(pattern)
        return
    paths = [Path(match) for match in glob(pattern, recursive=True)] if has_magic(pattern) else []
    if not paths:
        raise UsageError(
            f"--like {pattern!r} means no run that is there", hint="name a run, or a pattern in quotes: --like 'good/*'"
        )
    folders = [path for path in paths if path.is_dir()]
    yield from folders or paths
