"""`ckaudit hash`: is this still the same evaluation, tokenizer or data manifest?"""

import re
from pathlib import Path
from typing import Annotated

import typer

from ckaudit.cli.say import say
from ckaudit.errors import UnreadableError, UsageError

EPILOG = """
\b
Examples:
  ckaudit hash eval/ tokenizer.json > artifacts.txt
  ckaudit hash --check artifacts.txt
\b
Exit codes:
  0  every artifact was hashed, or is as it was
  1  with --check: an artifact changed or is missing
  2  something could not be read
"""

MAX_LIST_BYTES = 64 * 2**20

Artifacts = Annotated[
    list[str] | None, typer.Argument(metavar="ARTIFACT", help="Files or folders: prompts, tasks, tokenizers.", show_default=False)
]
Check = Annotated[
    str, typer.Option("--check", "-c", metavar="FILE", help="Compare with the lines of FILE instead.", show_default=False)
]
Raw = Annotated[bool, typer.Option("--raw", help="Hash bytes as they are, also of text and JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="With --check: print only what is not as it was.")]

_LINE = re.compile(r"(?P<form>sha256|sha256-raw):(?P<digest>[0-9a-f]{64})  (?P<name>.+)")


def command(artifacts: Artifacts = None, *, check: Check = "", raw: Raw = False, quiet: Quiet = False) -> int:
    """Print the canonical hash of evaluation artifacts: line ends of text and the layout of JSON do not count."""
    if bool(artifacts) == bool(check):
        raise UsageError("name artifacts to hash, or a list to --check", hint="ckaudit hash --help")
    return _check(Path(check), quiet=quiet) if check else _print(artifacts or [], raw=raw)


def _print(names: list[str], *, raw: bool) -> int:
    from ckaudit.contract.artifact_hash import artifact_hash

    broken = 0
    for name in names:
        try:
            typer.echo(f"{artifact_hash(Path(name), raw=raw)}  {_escaped(name)}")
        except UnreadableError as error:
            _tell(error)
            broken += 1
    return 2 if broken else 0


def _check(path: Path, *, quiet: bool) -> int:
    from ckaudit.contract.artifact_hash import RAW, artifact_hash

    changed = broken = 0
    for form, digest, name in _expected(path):
        try:
            if not Path(name).exists():
                outcome = "missing"
            else:
                outcome = "ok" if artifact_hash(Path(name), raw=form == RAW) == f"{form}:{digest}" else "changed"
        except UnreadableError as error:
            _tell(error)
            broken += 1
            continue
        changed += outcome != "ok"
        if not quiet or outcome != "ok":
            typer.echo(f"{_escaped(name)}: {outcome}")
    return 1 if changed else 2 if broken else 0


def _expected(path: Path) -> list[tuple[str, str, str]]:
    """Read a list as `ckaudit hash` prints it."""
    from ckaudit.contract.files import BrokenFile, read_bytes

    try:
        text = read_bytes(path, str(path), max_bytes=MAX_LIST_BYTES).decode()
    except BrokenFile as broken:
        raise UnreadableError(f"{path} {broken.finding.message}") from None
    except UnicodeDecodeError:
        raise UnreadableError(f"{path} is not UTF-8 text") from None
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        match = _LINE.fullmatch(line)
        if match is None and line.strip():
            raise UnreadableError(f"{path}: line {number} is not a hash and a name", hint="ckaudit hash ARTIFACT... prints them.")
        if match:
            found.append((match["form"], match["digest"], _unescaped(match["name"])))
    if not found:
        raise UnreadableError(f"{path} lists no artifact")
    return found


def _tell(error: UnreadableError) -> None:
    say(f"error: {error}")
    say(f"hint: {error.hint}" if error.hint else "")


def _escaped(name: str) -> str:
    r"""Return a name on one line that reads back as itself; what steers a terminal becomes `\uNNNN`.

    >>> print(_escaped("a\\b\x1b"))
    a\\b\u001b
    """
    from ckaudit.reports.escape import UNSAFE

    return UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", name.replace("\\", "\\\\"))


def _unescaped(name: str) -> str:
    return re.sub(r"\\(?:u([0-9a-f]{4})|\\)", lambda found: chr(int(found[1], 16)) if found[1] else "\\", name)
