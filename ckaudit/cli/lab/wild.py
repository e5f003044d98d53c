"""`ckaudit lab wild`: trainings of many families, each with a fault and with a healthy twin, recorded and kept."""

from typing import TYPE_CHECKING, Annotated

import typer

from ckaudit.cli.lab.record import Cache, Fresh, Jobs, ProgressLines, cache_folder, count, failures
from ckaudit.cli.options import checked_choice
from ckaudit.cli.output import say
from ckaudit.errors import UsageError

if TYPE_CHECKING:
    from ckaudit.lab.zoo import WildSplit

EPILOG = """
\b
Examples:
  ckaudit lab wild --draws 40
  ckaudit lab wild --split wild-test --draws 300 --seed 5 --jobs 4
\b
A draw is a family of the zoo, a way to train it, and a fault. It depends only
on split, seed and number, so that a stopped command continues where it ended.
Score it with: ckaudit lab score --split wild-dev --seed 0
\b
Exit codes:
  0  everything is recorded
  1  some trainings failed, the others are recorded
  2  could not train: a missing library, or a cache that cannot be written
"""

WILD_SPLITS = ("wild-dev", "wild-test")
LIBRARIES = ("torch", "transformers", "lightning", "accelerate", "trl")  # the zoo needs all of them

Split = Annotated[
    str,
    typer.Option(
        "--split",
        metavar="SPLIT",
        help="wild-dev (families for improving rules) or wild-test (only scored, under a new seed each time).",
        autocompletion=lambda: list(WILD_SPLITS),
    ),
]
Draws = Annotated[str, typer.Option("--draws", "-n", metavar="N", help="Number of draws.")]
Seed = Annotated[str, typer.Option("--seed", metavar="N", help="Seed of the draws.")]
Pairs = Annotated[bool, typer.Option("--pairs", help="Groups of runs to compare, instead of ill runs and healthy twins.")]


def command(
    *,
    split: Split = "wild-dev",
    draws: Draws = "40",
    seed: Seed = "0",
    pairs: Pairs = False,
    cache: Cache = "",
    jobs: Jobs = "2",
    fresh: Fresh = False,
) -> int:
    """Train draws of many families, each with and without a fault, on one thread each."""
    checked_choice(split, WILD_SPLITS, "split")
    wanted, drawing, workers = count(draws, "--draws"), seed_number(seed), count(jobs, "--jobs")
    from ckaudit.lab.record import need, writable
    from ckaudit.lab.wild.groups import group_folder, read_group
    from ckaudit.lab.wild.pair import pair_folder, read_note

    folder = cache_folder(cache)
    chosen: WildSplit = "wild-test" if split == "wild-test" else "wild-dev"
    if pairs:
        due = [index for index in range(wanted) if fresh or read_group(group_folder(folder, split, drawing, index)) is None]
    else:
        due = [index for index in range(wanted) if fresh or read_note(pair_folder(folder, split, drawing, index)) is None]
    say(f"{len(due)} of {wanted} {'groups' if pairs else 'draws'} to record in {folder}")
    if not due:
        return 0
    for library in LIBRARIES:
        need(library, "zoo")
    writable(folder, option="--cache")
    from ckaudit.lab.wild.record import record_draws, record_groups

    progress = ProgressLines(len(due), workers)
    if not pairs:
        return 1 if failures(record_draws(chosen, drawing, due, folder, jobs=workers, on_done=progress)) else 0
    return 1 if failures(record_groups(chosen, drawing, due, folder, jobs=workers, fresh=fresh, on_done=progress)) else 0


def seed_number(word: str) -> int:
    """Return a number of at least 0, or raise `UsageError`."""
    if not (word.isascii() and word.isdecimal()):
        raise UsageError(f"--seed {word!r} is not a number", hint="write it as digits, such as --seed 5")
    return int(word)
