"""Other tools on the runs of the lab: attached to its trainings, or shown their logs, and scored beside ours.

    python -m benchmarks.peers record --in-loop PYTHON [--split SPLIT] [--only PATTERNS] [--cache DIR] [--jobs N] [--fresh]
    python -m benchmarks.peers score [--peers PYTHON] [--split SPLIT] [--only PATTERNS] [--cache DIR] [--jobs N] [--bare]
                                     [--format FORMAT] [-o FILE] [--verbose] [--write]

`record` does each training once more with other tools attached, and keeps what they say beside its recording; recordings are
left alone. `score` is `ckaudit lab score` with a table of tools: those that an interpreter has and that read a log, and those
that were attached. `--write` puts the tables into docs/benchmark.md.
"""

import argparse
import sys
from collections.abc import Sequence
from functools import partial

from benchmarks.peers import installed, train_many
from benchmarks.peers.peer_cache import is_due
from benchmarks.peers.score import score
from ckaudit.cli.lab.record import SPLITS, ProgressLines, cache_folder, count, failures, splits
from ckaudit.cli.output import check_folder, fit_to_stdout, progress, say, write_text
from ckaudit.errors import CkauditError
from ckaudit.lab.record import writable
from ckaudit.lab.score.publish import add_history, write_document
from ckaudit.lab.score.score import chosen
from ckaudit.reports import FEW_FORMATS, render
from ckaudit.reports.lab.markdown import log_alone
from ckaudit.reports.view import View


def main(arguments: Sequence[str]) -> int:
    """Run a command line and return its exit code: 1: trainings failed, or a run broke our audit; 2: nothing was done."""
    options = _parser().parse_args(arguments)
    try:
        return _record(options) if options.command == "record" else _score(options)
    except CkauditError as error:
        say(f"error: {error}")
        say(f"hint: {error.hint}" if error.hint else "")
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__.partition("\n")[0])
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--split", choices=SPLITS, default="dev")
    shared.add_argument("--only", metavar="PATTERNS", default="")
    shared.add_argument("--cache", metavar="DIR", default="")
    shared.add_argument("--jobs", "-j", metavar="N", default="2")
    commands = parser.add_subparsers(dest="command", required=True)
    record = commands.add_parser("record", parents=[shared])
    record.add_argument(
        "--in-loop", metavar="PYTHON", required=True, help="an interpreter with torchmortem, trainscope or torch-audit"
    )
    record.add_argument("--fresh", action="store_true", help="train everything again, also what is there")
    scored = commands.add_parser("score", parents=[shared])
    scored.add_argument("--peers", metavar="PYTHON", default="", help="an interpreter that has trainproof, runmedic or runwise")
    scored.add_argument("--bare", action="store_true", help="show our auditor only the log that other tools read")
    scored.add_argument("--format", choices=FEW_FORMATS, default="terminal")
    scored.add_argument("--output", "-o", metavar="FILE", default="")
    scored.add_argument("--verbose", "-v", action="store_true")
    scored.add_argument("--write", action="store_true", help="write the tables into docs/benchmark.md")
    return parser


def _record(options: argparse.Namespace) -> int:
    """Train with other tools attached, where what they say is not kept yet, or everywhere."""
    python, jobs = options.in_loop, count(options.jobs, "--jobs")
    folder, there = cache_folder(options.cache), train_many.attachable(python)
    wanted = chosen(splits(options.split), options.only)
    due = [recipe for recipe in wanted if options.fresh or is_due(folder, recipe, there)]
    tools = ", ".join(f"{package} {version}" for package, version in there.items())
    say(f"{len(due)} of {len(wanted)} trainings to do with {tools} attached; what they say goes into {folder}")
    if not due:
        return 0
    writable(folder, option="--cache")
    return 1 if failures(train_many.gather(python, due, folder, jobs=jobs, on_done=ProgressLines(len(due), jobs))) else 0


def _score(options: argparse.Namespace) -> int:
    """Score our auditor and others, and print how often they are right."""
    check_folder(options.output)
    chosen_splits, jobs = splits(options.split), count(options.jobs, "--jobs")
    peers = installed(options.peers) if options.peers else []
    folder, bare = cache_folder(options.cache), options.bare
    with progress("auditing run") as tick:
        found = score(folder, chosen_splits, only=options.only, bare=bare, peers=peers, jobs=jobs, progress=tick)
    view, encoding = fit_to_stdout(View(verbose=options.verbose), drawn=options.format == "terminal" and not options.output)
    write_text(render(found, options.format, view), encoding, options.output)
    say(f"wrote {options.output}" if options.output else "")
    say(add_history(found) if "test" in chosen_splits else "")
    if options.write:
        command = f"python -m benchmarks.peers score{' --peers PYTHON' if peers else ''}"
        say(write_document(found, log_alone if bare else partial(render, format="markdown"), command=command))
    return 1 if found.broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
