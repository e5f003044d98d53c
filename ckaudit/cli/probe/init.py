"""`ckaudit probe init`: passages reserved before training, to ask the model about while it trains."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ckaudit.cli import options
from ckaudit.cli.measured import Map, Quiet
from ckaudit.cli.probe.options import count, reading_of
from ckaudit.cli.progress import progress
from ckaudit.errors import CkauditError, UsageError

if TYPE_CHECKING:
    from ckaudit.probes.passages import Reserved

EPILOG = """
\b
Examples:
  ckaudit probe init corpus.jsonl --out probes.jsonl --held-out validation.jsonl
\b
Each text is cut in two: a prompt, and the truth behind it. Which texts are
taken follows from their content alone, so that the same corpus gives the
same probes everywhere. At each checkpoint let the model continue every
prompt greedily, write one line for each
  {"id": "train_00", "continuation": "...", "loss": 2.31}
(loss: mean nats per token of the truth; or perplexity, or logprobs), and
  ckaudit probe score generations.jsonl --probes probes.jsonl --into runs/nano
\b
Exit codes:
  0  reserved
  1  fewer passages than asked for
  2  could not be read or written, or nothing could be reserved
"""

Corpus = Annotated[
    list[str], typer.Argument(metavar="CORPUS", help="Text, JSON lines or Parquet that the model trains on.", show_default=False)
]
Out = Annotated[str, typer.Option("--out", metavar="FILE", help="Where the probes go; a file that is there stays.")]
Count = Annotated[str, typer.Option("--count", metavar="N", help="Passages of each kind; without it 16.", show_default=False)]
Tokens = Annotated[
    str,
    typer.Option(
        "--tokens", metavar="N", help="Words or tokens of a prompt and of its truth at most; without it 50.", show_default=False
    ),
]
HeldOut = Annotated[
    str,
    typer.Option("--held-out", metavar="FILE", help="Texts that training never sees; passages of it too.", show_default=False),
]


def command(
    corpus: Corpus,
    *,
    out: Out = "probes.jsonl",
    count_: Count = "",
    tokens: Tokens = "",
    held_out: HeldOut = "",
    map: Map = None,  # noqa: A002  what the option is called
    quiet: Quiet = False,
) -> int:
    """Reserve passages of the training data, and of texts that it never sees, before the training starts (MP-1)."""
    path, columns = Path(out), options.columns(map or [])
    if path.exists():
        raise UsageError(
            f"--out: {out} is there already", hint="scores compare only on the same probes: keep it, or name another"
        )
    if not path.parent.is_dir():
        raise UsageError(f"--out: there is no folder {path.parent}", hint="make it first")
    from ckaudit.probes import passages as module

    many, longest = count(count_, "--count") or module.COUNT, count(tokens, "--tokens") or module.TOKENS
    with progress("reading bytes", quiet=quiet) as tick:
        reading = reading_of(corpus, module.COLUMNS, columns)
        outside = reading_of([held_out], module.COLUMNS, columns) if held_out else None
        reserved = module.reserve(reading, outside, count=many, tokens=longest, progress=tick)
        reading.named.check(reading.files)
    return _written(reserved, path, many, with_held_out=bool(held_out))


def _written(reserved: "Reserved", path: Path, many: int, *, with_held_out: bool) -> int:
    """Write the probes, say what they are, and return the exit code."""
    from ckaudit.cli.output import send
    from ckaudit.cli.say import say
    from ckaudit.contract.io.artifact_hash import artifact_hash
    from ckaudit.contract.io.files import write_atomic
    from ckaudit.probes.passages import encoded

    for finding in reserved.faults.findings():
        say(f"warning: {finding.file}: {finding.message}")
    if not reserved.passages:
        raise CkauditError("no passage is long enough to be cut in two", hint="8 words or tokens are the least")
    try:
        write_atomic(path, encoded(reserved.passages))
    except OSError as error:
        raise CkauditError(f"cannot write {path}: {error.strerror or error}") from None
    groups = [passage.group for passage in reserved.passages]
    inside, outside = groups.count("train"), groups.count("held_out")
    lines = [f"{path}: {inside} passages of the training data, {outside} held out", f"hash {artifact_hash(path)}"]
    lines += [f"left out: {reserved.seen} held-out passages that the training data holds too"] if reserved.seen else []
    lines += [] if outside else ["without --held-out memory cannot be told from skill: their curve is the one to compare with"]
    send("".join(f"{line}\n" for line in lines))
    return int(inside < many or (with_held_out and outside < many))
