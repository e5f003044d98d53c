"""Every command that answers about a run, asked in this process: what it must never do is break."""

import io
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ckaudit.cli.run import run

ABOUT_ONE = (
    ("triage", "RUN", "--format", "json"),
    ("triage", "RUN", "-v", "--no-pictures"),
    ("triage", "RUN", "--questions", "1-7"),
    ("triage", "RUN", "--step", "1"),
    ("validate", "RUN", "--format", "json"),
    ("metrics", "RUN", "--format", "csv"),
    ("metrics", "RUN", "-v"),
    ("coverage", "RUN"),
    ("report", "RUN", "-o", "OUT/report.html"),
    ("report", "RUN", "--format", "svg", "-o", "OUT/report.svg"),
    ("export", "RUN", "--to", "csv", "-o", "OUT/out.csv", "--force", "-q"),
    ("export", "RUN", "--to", "parquet", "-o", "OUT/out.parquet", "--force", "-q"),
    ("export", "RUN", "--to", "wandb-csv", "-o", "OUT/out2.csv", "--force", "-q"),
)
ABOUT_TWO = (
    ("diff", "RUN", "OTHER"),
    ("diff", "RUN", "OTHER", "--format", "json"),
    ("diff", "RUN", "RUN", "--exact"),
    ("gate", "RUN", "--against", "OTHER"),
    ("report", "RUN", "OTHER", "-o", "OUT/both.html"),
)
QUICK = (ABOUT_ONE[0], ABOUT_ONE[1], ABOUT_ONE[4], ABOUT_ONE[6], ABOUT_ONE[10], ABOUT_TWO[1], ABOUT_TWO[3])


@contextmanager
def streams() -> Iterator[tuple[io.TextIOWrapper, io.TextIOWrapper]]:
    """Put streams in memory in the place of those of the process."""
    kept = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    try:
        yield sys.stdout, sys.stderr
    finally:
        sys.stdout, sys.stderr = kept


def ask(words: Sequence[str], places: dict[str, Path]) -> str:
    """Run one command, and return what is wrong with how it ended; empty: nothing."""
    arguments = [_placed(word, places) for word in words]
    with streams() as (out, err):
        code = run(arguments)
    told, answer = (stream.buffer.getvalue().decode("utf-8", "replace") for stream in (err, out))
    line = " ".join(arguments)
    if code not in (0, 1, 2) or "bug in ckaudit" in told or "Traceback" in told or " broke:" in told:
        return f"{line}\nexit {code}\n{told}"
    if words[0] == "triage" and "json" in words and answer:
        errors = [check for check in json.loads(answer)["checks"] if check["outcome"] == "error"]
        if errors:
            return f"{line}\n{errors}"
    return ""


def _placed(word: str, places: dict[str, Path]) -> str:
    for name, path in places.items():
        if word == name or word.startswith(f"{name}/"):
            return str(path) + word[len(name) :]
    return word
