"""The input files of a command line, which must not be overwritten."""

import os
from collections.abc import Sequence
from pathlib import Path

from ckaudit.errors import UsageError

_OUTPUTS = ("--output", "-o", "--write-checksums", "--html", "--reports", "--prometheus")
_REPORTS = (".html", ".svg", ".png", ".md", ".sarif", ".xml")  # no log has these endings: a report may be in its run's folder

_inputs: list[Path] = []


def remember_inputs(arguments: Sequence[str]) -> None:
    """Remember every word of a command line that names an existing path and is not the output."""
    _inputs[:] = [Path(word) for word in _words_read(arguments) if os.path.lexists(word)]


def _words_read(arguments: Sequence[str]) -> list[str]:
    words, is_output = [], False
    for word in arguments:
        option, equals, value = word.partition("=")
        if not is_output and not (equals and option in _OUTPUTS):
            words += [word, value] if value else [word]
        is_short = word.startswith("-") and not word.startswith("--")
        is_output = not is_output and (word in _OUTPUTS or (is_short and word.endswith("o")))
    return words


def refuse_inputs(target: Path) -> None:
    """Raise `UsageError` if writing to a file would destroy an input of the command."""
    for path in _inputs:
        if _is_same(target, path) or (path.is_dir() and _is_part(target, path)) or _is_sibling(target, path):
            raise UsageError(f"{target} is read by this command, and would be overwritten", hint="choose another --output")


def _is_same(target: Path, path: Path) -> bool:
    return target.is_file() and path.is_file() and target.samefile(path)


def _is_sibling(target: Path, path: Path) -> bool:
    """Tell whether a file belongs to the same run as an input file."""
    return path.is_file() and _is_of_run(target.name) and path.resolve().parent == target.resolve().parent


def _is_part(target: Path, folder: Path) -> bool:
    """Tell whether an audit of a folder reads a file in it, or would read it the next time."""
    place = target.resolve()
    if not place.is_relative_to(folder.resolve()):
        return False
    from ckaudit.contract.io.folder import holds_run

    return _is_of_run(place.name) or (place.is_file() and place.suffix not in _REPORTS and not holds_run(folder))


def _is_of_run(name: str) -> bool:
    from ckaudit.contract.io.files import CHECKPOINT_NAME, MANIFEST_NAME, REFERENCE_NAME, SCALARS_PATTERN

    return name in (MANIFEST_NAME, REFERENCE_NAME) or any(pattern.match(name) for pattern in (CHECKPOINT_NAME, SCALARS_PATTERN))
