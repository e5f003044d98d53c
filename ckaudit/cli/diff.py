"""`ckaudit diff`: where do two runs part, and which of them is worse?"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ckaudit.cli import options
from ckaudit.cli.comparison_options import AXES, WORDS_BY_GRAVITY, Align, exit_code, requested
from ckaudit.cli.options import Map, Output, Verbose, checked_choice, file_format_option
from ckaudit.cli.output import progress
from ckaudit.diff.operands import Operand, are_checkpoints, named_twice, parse_operand
from ckaudit.errors import UsageError
from ckaudit.reports import FORMATS, render

if TYPE_CHECKING:
    from ckaudit.contract.schema.diff import Comparison, Pair

EPILOG = """
\b
Examples:
  ckaudit diff runs/before runs/after
  ckaudit diff runs/before runs/after --noise runs/seed1 --noise runs/seed2
  ckaudit diff sweep/* --align tokens
  ckaudit diff runs/nano@500 runs/nano@last
  ckaudit diff runs/first runs/second --exact
  ckaudit diff runs/nano --resume
\b
The first is the reference; every other is compared with it. docs/diff.md
describes the questions, their limits and the verdicts.
\b
Exit codes:
  0  same, within noise, or better
  1  worse or different (--fail-on)
  2  incomparable, or unreadable
"""

Runs = Annotated[
    list[str],
    typer.Argument(
        metavar="A B [C ...]",
        help="Run folders, logs of other programs, checkpoint files, or RUN@STEP and RUN@last for one checkpoint of a run.",
        show_default=False,
    ),
]
NoiseRuns = Annotated[
    list[str] | None,
    typer.Option(
        "--noise",
        metavar="RUN",
        help="A run that differs from the first only in its seed; such differences are noise. May be repeated.",
        show_default=False,
    ),
]
Exact = Annotated[
    bool, typer.Option("--exact", help="Is the second bit-identical to the first? If not, show the first difference.")
]
Parity = Annotated[bool, typer.Option("--parity", help="Do two implementations agree within their precision?")]
Resume = Annotated[bool, typer.Option("--resume", help="For one run: did each resume continue as if without a stop?")]
Replicas = Annotated[bool, typer.Option("--replicas", help="For one run: do all ranks hold the same parameters?")]
Step = Annotated[str, typer.Option("--step", metavar="N", help="Compare the runs as they were at step N.", show_default=False)]
FailOn = Annotated[
    str,
    typer.Option(
        "--fail-on",
        metavar="WORD",
        help="Exit with 1 at this verdict or a later one: within_noise, better, different, worse.",
        autocompletion=lambda: list(WORDS_BY_GRAVITY),
    ),
]
Format = Annotated[str, file_format_option(FORMATS)]


def command(
    runs: Runs,
    *,
    align: Align = "step",
    noise: NoiseRuns = None,
    exact: Exact = False,
    parity: Parity = False,
    resume: Resume = False,
    replicas: Replicas = False,
    step: Step = "",
    format: Format = "",  # noqa: A002  what the option is called
    output: Output = "",
    fail_on: FailOn = "different",
    verbose: Verbose = False,
    map: Map = None,  # noqa: A002  what the option is called
) -> int:
    """Show where runs or checkpoints diverge, what differs first, and whether the later one is better or worse."""
    from ckaudit.cli.deliver import write_output

    request = requested(format, output, verbose=verbose)
    checked_choice(align, AXES, "axis")
    checked_choice(fail_on, WORDS_BY_GRAVITY, "word")
    mode = chosen_mode(exact=exact, parity=parity, resume=resume, replicas=replicas)
    at = options.step(step or None)
    subjects = [parse_operand(word) for word in runs]
    alone = mode in ("resume", "replicas")
    if len(subjects) < 2 and not alone:
        raise UsageError("there is nothing to compare it with", hint=f"name a second run: ckaudit diff {runs[0]} OTHER")
    if alone and len(subjects) > (2 if mode == "resume" else 1):
        raise UsageError(f"--{mode} is asked of one run", hint=f"ckaudit diff {runs[0]} --{mode}")
    asked = {"--align": align != "step", "--noise": noise, "--step": step, "--map": map}
    if are_checkpoints(subjects):
        _refuse(asked | {f"--{mode}": mode}, "between checkpoints")
        comparison = _checkpoints(subjects)
    elif mode:
        _refuse(asked, f"with --{mode}")
        comparison = _audited(mode, subjects)
    else:
        comparison = _compared(subjects, align=align, noise=noise or [], step=at, import_options=options.import_options(map, ""))
    from msgspec.structs import replace

    comparison = replace(comparison, notes=[*named_twice(subjects), *comparison.notes])
    write_output(lambda view: render(comparison, request.format, view), request)
    return exit_code(comparison, fail_on)


def chosen_mode(**modes: bool) -> str:
    """Return the requested mode, or an empty string.

    Raises:
        UsageError: If two modes are requested.
    """
    asked = [name for name, given in modes.items() if given]
    if len(asked) > 1:
        raise UsageError(f"--{asked[0]} and --{asked[1]} are two questions", hint="ask one at a time")
    return asked[0] if asked else ""


def _refuse(asked: dict[str, Any], where: str) -> None:
    for option, given in asked.items():
        if given:
            raise UsageError(f"{option} has no meaning {where}", hint="leave it away")


def _compared(subjects: list[Operand], **asked: Any) -> "Comparison":
    from ckaudit.diff.compare import compare

    noise = [Path(name) for name in asked.pop("noise")]
    with progress("reading") as tick:
        return compare([operand.path for operand in subjects], axis=asked.pop("align"), noise=noise, progress=tick, **asked)


def _checkpoints(subjects: list[Operand]) -> "Comparison":
    from ckaudit.diff.checkpoint_diff import compare_documents
    from ckaudit.diff.combine import combine_pairs

    names = [operand.name for operand in subjects]
    pairs = [compare_documents(subjects[0].path, operand.path) for operand in subjects[1:]]
    return combine_pairs(names, pairs, files=len(names))


def _audited(mode: str, subjects: list[Operand]) -> "Comparison":
    """Run one of the four modes, whose answers have their own words."""
    from ckaudit.diff.combine import combine_pairs

    names, paths = [operand.name for operand in subjects], [operand.path for operand in subjects]
    if mode == "replicas":
        from ckaudit.diff.replica_check import replicas

        return combine_pairs([f"{names[0]} (rank 0)", f"{names[0]} (other ranks)"], [replicas(paths[0])])
    if mode == "resume":
        from ckaudit.diff.resumed import resumed

        sides = names if len(names) > 1 else [f"{names[0]} (before)", f"{names[0]} (after its resumes)"]
        return combine_pairs(sides, [resumed(*paths)])
    from ckaudit.diff.exact import exact
    from ckaudit.diff.parity import parity

    ask: Callable[[Path, Path], Pair] = exact if mode == "exact" else parity
    return combine_pairs(names, [ask(paths[0], path) for path in paths[1:]])
