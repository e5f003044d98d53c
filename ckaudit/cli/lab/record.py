"""`ckaudit lab record`: the recordings for the score, trained once and kept."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ckaudit.cli.options import checked_choice
from ckaudit.cli.output import say
from ckaudit.errors import UsageError
from ckaudit.wording import duration

if TYPE_CHECKING:
    from ckaudit.lab.record import FinishedTraining
    from ckaudit.lab.training_spec import Split

EPILOG = """
\b
Examples:
  ckaudit lab record
  ckaudit lab record --split test --only 'resume_*'
  ckaudit lab record --split both --fresh --jobs 4
\b
Existing recordings are kept, so that a stopped command continues where it
ended; a recording by another version of a fault is trained again.
\b
Exit codes:
  0  everything is recorded
  1  some trainings failed, the others are recorded
  2  could not train: no PyTorch, or a cache that cannot be written
"""

Fresh = Annotated[bool, typer.Option("--fresh", help="Train everything again, even if it is recorded.")]

# Options that `record` and `score` share.
SPLITS = ("dev", "test", "both")

SplitName = Annotated[
    str,
    typer.Option(
        "--split",
        metavar="SPLIT",
        help="dev (seeds 0, 1, 2: thresholds are tuned on it), test (10, 11: only scored), or both.",
        autocompletion=lambda: list(SPLITS),
    ),
]
Cache = Annotated[
    str,
    typer.Option(
        "--cache",
        metavar="DIR",
        help="Folder of the recordings. Default: $XDG_CACHE_HOME/ckaudit/lab, or ~/.cache/ckaudit/lab.",
        show_default=False,
    ),
]
Only = Annotated[
    str,
    typer.Option(
        "--only", metavar="PATTERNS", help="Only matching names, or name.seed, as in 'lr_*,healthy.0'.", show_default=False
    ),
]
Jobs = Annotated[str, typer.Option("--jobs", "-j", metavar="N", help="Parallel processes.")]


def command(*, split: SplitName = "dev", cache: Cache = "", only: Only = "", jobs: Jobs = "2", fresh: Fresh = False) -> int:
    """Train the recordings missing in the cache, each in its own process with one thread."""
    return 1 if train_missing(split, cache, only, jobs=count(jobs, "--jobs"), fresh=fresh) else 0


def train_missing(split: str, cache: str, only: str, *, jobs: int, fresh: bool) -> "list[FinishedTraining]":
    """Train what has no usable recording, or everything, and keep it; return the failures."""
    from ckaudit.lab.cache import cached_training
    from ckaudit.lab.record import gather, need, writable
    from ckaudit.lab.score.score import chosen

    folder = cache_folder(cache)
    entries = [cached_training(folder, recipe) for recipe in chosen(splits(split), only)]
    due = [entry for entry in entries if fresh or not entry.usable]
    older = sum(entry.state == "older" for entry in entries)
    say(f"{len(due)} of {len(entries)} trainings to record in {folder}")
    say(f"{older} are of an older loop or recorder; --fresh trains them again" if older and not fresh else "")
    if not due:
        return []
    need("torch", "torch")
    writable(folder, option="--cache")
    return failures(gather([entry.recipe for entry in due], folder, jobs=jobs, on_done=ProgressLines(len(due), jobs)))


def failures(done: "list[FinishedTraining]") -> "list[FinishedTraining]":
    """Print the results and return the failures."""
    failed = [result for result in done if result.error]
    for result in failed:
        say(f"failed: {result.name} under seed {result.seed}: {result.error}")
    say(f"{len(done) - len(failed)} recorded, {len(failed)} failed")
    return failed


class ProgressLines:
    """Prints a line for each finished training, with an estimate of the remaining time."""

    def __init__(self, total: int, jobs: int) -> None:
        self._total, self._jobs, self._done, self._seconds = total, jobs, 0, 0.0

    def __call__(self, done: "FinishedTraining") -> None:
        """Print how one training ended, and how long the others will take."""
        self._done += 1
        self._seconds += done.seconds
        left = self._seconds / self._done * (self._total - self._done) / self._jobs
        what = "failed" if done.error else f"{done.size / 1000:.0f} KB"
        line = f"{self._done} of {self._total}: {done.name} under seed {done.seed}, {done.seconds:.0f} s, {what}"
        say(f"{line}; about {duration(left)} left" if self._done < self._total else line)


def splits(word: str) -> "list[Split]":
    """Return the splits in a word, or raise `UsageError`."""
    checked_choice(word, SPLITS, "split")
    return ["dev", "test"] if word == "both" else [word]  # type: ignore[list-item]


def count(word: str, option: str) -> int:
    """Return a number of at least 1, or raise `UsageError`."""
    if not (word.isascii() and word.isdecimal() and int(word)):
        raise UsageError(f"{option} {word!r} is not a number of at least 1", hint=f"write it as digits, such as {option} 2")
    return int(word)


def cache_folder(word: str) -> Path:
    """Return the named folder of recordings, or the default one, which need not exist, or raise `UsageError`."""
    from ckaudit.lab.cache import default_folder
    from ckaudit.lab.record import within_reach

    folder = Path(word) if word else default_folder()
    with within_reach(folder, "look into", option="--cache"):
        folder.exists()
    return folder
