"""SHA-256 of checkpoint files, in the line format of `sha256sum`."""

import hashlib
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from ckaudit.errors import UnreadableError
from ckaudit.resume.open_file import OpenFile

MAX_LIST = 64 * 2**20
_LINE = re.compile(r"(?P<escaped>\\?)(?P<digest>[0-9a-fA-F]{64})(?: [ *](?P<name>.+))?")


def digest(source: OpenFile, tick: Callable[[int], None]) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits.

    Raises:
        FileFault: If the file cannot be read to its end.
    """
    sha256 = hashlib.sha256()
    for block in source.blocks(0, source.size):
        sha256.update(block)
        tick(len(block))
    return sha256.hexdigest()


def read_list(path: Path) -> dict[Path, str]:
    """Return the digests of a list by file; names are relative to the folder of the list.

    A line without a name is for the file beside the list with the name of the list without `.sha256`.

    Raises:
        UnreadableError: If a line is no digest.
    """
    try:
        if path.exists() and not path.is_file():
            raise UnreadableError(f"{path} is not a regular file", hint="Name a list that sha256sum or --write-checksums wrote.")
        with path.open("rb") as stream:
            data = stream.read(MAX_LIST + 1)
    except OSError as error:
        raise UnreadableError(f"cannot read {path}: {error.strerror or error}") from None
    if len(data) > MAX_LIST:
        raise UnreadableError(f"{path} is larger than {MAX_LIST:,} bytes")
    digests: dict[Path, str] = {}
    for number, line in enumerate(os.fsdecode(data).split("\n"), 1):
        match = _LINE.fullmatch(line.rstrip("\r"))
        if match is None and line.strip() and not line.startswith("#"):
            raise UnreadableError(
                f"{path}: line {number} is not a checksum and a name", hint="sha256sum FILE... and --write-checksums print them."
            )
        if match:
            name = _unescaped(match["name"]) if match["escaped"] else match["name"]
            digests[_absolute(path.parent / (name or path.stem))] = match["digest"].lower()
    return digests


def write_list(digests: Mapping[Path, str], list_file: Path) -> str:
    """Return lines in the format of `sha256sum`, with names relative to the folder of the list."""
    folder = _absolute(list_file.parent)
    return "".join(_line(os.path.relpath(_absolute(path), folder), digests[path]) for path in sorted(digests))


def look_up(path: Path, expected: Mapping[Path, str]) -> str | None:
    """Return the digest of a file in a list; None if the list does not have it."""
    return expected.get(_absolute(path))


def _line(name: str, hex_digest: str) -> str:
    escaped = name.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    mark = "\\" if escaped != name else ""
    return f"{mark}{hex_digest}  {escaped}\n"


def _unescaped(name: str) -> str:
    return re.sub(r"\\(n|r|\\)", lambda match: {"n": "\n", "r": "\r", "\\": "\\"}[match[1]], name)


def _absolute(path: Path) -> Path:
    return Path(os.path.abspath(path))  # noqa: PTH100  links stay what they are called
