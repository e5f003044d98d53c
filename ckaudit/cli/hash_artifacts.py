"""`ckaudit hash`: is this still the same evaluation, tokenizer or data manifest?"""

import re
from pathlib import Path
from typing import Annotated

import typer

from ckaudit.cli import options
from ckaudit.cli.measure_options import Into, Step, check_into
from ckaudit.cli.output import say
from ckaudit.errors import UnreadableError, UsageError
from ckaudit.remote.addresses import as_given
from ckaudit.wording import plural

EPILOG = """
\b
Examples:
  ckaudit hash eval/ tokenizer.json > artifacts.txt
  ckaudit hash --check artifacts.txt
  ckaudit hash eval/ --into runs/nano --step 500
\b
Exit codes:
  0  every artifact was hashed, or is unchanged
  1  with --check: an artifact changed or is missing
  2  something could not be read; nothing is added to a run
"""

MAX_LIST_BYTES = 64 * 2**20

Artifacts = Annotated[
    list[str] | None, typer.Argument(metavar="ARTIFACT", help="Files or folders: prompts, tasks, tokenizers.", show_default=False)
]
Check = Annotated[
    str, typer.Option("--check", "-c", metavar="FILE", help="Compare with the hashes in FILE instead.", show_default=False)
]
Raw = Annotated[bool, typer.Option("--raw", help="Hash raw bytes, even of text and JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="With --check: print only what differs.")]

_LINE = re.compile(r"(?P<form>sha256|sha256-raw):(?P<digest>[0-9a-f]{64})  (?P<name>.+)")


def command(
    artifacts: Artifacts = None, *, check: Check = "", raw: Raw = False, into: Into = "", step: Step = "", quiet: Quiet = False
) -> int:
    """Print the canonical hash of evaluation artifacts: line ends of text and the layout of JSON are ignored."""
    if bool(artifacts) == bool(check) or (check and into):
        raise UsageError("name artifacts to hash, or a list to --check", hint="ckaudit hash --help")
    if check and raw:
        raise UsageError("--raw has no meaning with --check", hint="each line of the list says how it was hashed")
    at = options.step(step or None)
    check_into(into, at)
    if check:
        return _check(Path(check), quiet=quiet)
    from ckaudit.contract.io.artifact_hash import artifact_hash

    hashes = []
    for name in artifacts or []:
        try:
            hashes.append((artifact_hash(Path(name), raw=raw), name))
        except UnreadableError as error:
            _tell(error)
        else:
            typer.echo(f"{hashes[-1][0]}  {_escaped(as_given(name))}")
    if len(hashes) < len(artifacts or []):
        return 2
    if into:
        _add(hashes, Path(into), at)
    return 0


def _add(hashes: list[tuple[str, str]], run: Path, step: int | None) -> None:
    """Add each hash to a run under its artifact's file name, as `eval_artifact_hash/prompts`."""
    from ckaudit.contract.io.add_line import add_line

    labels = [Path(name).resolve().name for _, name in hashes]
    if len(set(labels)) < len(labels):
        raise UsageError("two artifacts have one name, and --into tells them by it", hint="name the folder that holds both")
    values = {f"eval_artifact_hash/{label}": digest for label, (digest, _) in zip(labels, hashes, strict=True)}
    at = add_line(run, "scalars-hash.jsonl", values, step=step)
    say(f"added {plural(len(values), 'hash')} at step {at} to {run / 'scalars-hash.jsonl'}")


def _check(path: Path, *, quiet: bool) -> int:
    from ckaudit.contract.io.artifact_hash import RAW, artifact_hash, holds_content

    changed = broken = 0
    for form, digest, name in _expected(path):
        try:
            if not holds_content(Path(name)):
                outcome = "missing"
            else:
                outcome = "ok" if artifact_hash(Path(name), raw=form == RAW) == f"{form}:{digest}" else "changed"
        except UnreadableError as error:
            _tell(error)
            broken += 1
            continue
        changed += outcome != "ok"
        if not quiet or outcome != "ok":
            typer.echo(f"{_escaped(as_given(name))}: {outcome}")
    return 1 if changed else 2 if broken else 0


def _expected(path: Path) -> list[tuple[str, str, str]]:
    """Read a list in the format that `ckaudit hash` prints."""
    from ckaudit.contract.io.files import BrokenFile, read_bytes

    try:
        text = read_bytes(path, str(path), max_bytes=MAX_LIST_BYTES).decode()
    except BrokenFile as broken:
        raise UnreadableError(f"{path} {broken.finding.message}") from None
    except UnicodeDecodeError:
        raise UnreadableError(f"{path} is not UTF-8 text") from None
    lines = []
    for number, line in enumerate(text.splitlines(), 1):
        match = _LINE.fullmatch(line)
        if match is None and line.strip():
            raise UnreadableError(f"{path}: line {number} is not a hash and a name", hint="ckaudit hash ARTIFACT... prints them.")
        if match:
            lines.append((match["form"], match["digest"], _unescaped(match["name"])))
    if not lines:
        raise UnreadableError(f"{path} lists no artifact")
    return lines


def _tell(error: UnreadableError) -> None:
    say(f"error: {error}")
    say(f"hint: {error.hint}" if error.hint else "")


def _escaped(name: str) -> str:
    r"""Return a name escaped to one line, which can be read back; control characters become `\uNNNN`.

    >>> print(_escaped("a\\b\x1b"))
    a\\b\u001b
    """
    from ckaudit.reports.escape import UNSAFE

    return UNSAFE.sub(lambda character: f"\\u{ord(character[0]):04x}", name.replace("\\", "\\\\"))


def _unescaped(name: str) -> str:
    return re.sub(r"\\(?:u([0-9a-f]{4})|\\)", lambda escape: chr(int(escape[1], 16)) if escape[1] else "\\", name)
