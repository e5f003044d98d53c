"""Shared code of `diff` and `gate`: the axis of comparison, the output request, and the exit code."""

from typing import TYPE_CHECKING, Annotated

import typer

from ckaudit.reports import FORMATS

if TYPE_CHECKING:
    from ckaudit.cli.deliver import OutputRequest
    from ckaudit.contract.schema.diff import Comparison

AXES = ("step", "tokens", "loss")  # those of the schema, which loads too much for --help
WORDS_BY_GRAVITY = ("within_noise", "better", "different", "worse")  # the mildest first

Align = Annotated[
    str, typer.Option("--align", metavar="AXIS", help="Compare at equal step, tokens or loss.", autocompletion=lambda: list(AXES))
]


def requested(format: str, output: str, *, verbose: bool, base: str = "") -> "OutputRequest":  # noqa: A002  what the option is called
    """Return the output request, with file names in findings relative to the folder `base`, or raise `UsageError`."""
    from ckaudit.cli.deliver import OutputRequest

    return OutputRequest(
        format=format, output=output, fail_on=None, allow_empty=True, verbose=verbose, formats=FORMATS, base=base
    )


def exit_code(comparison: "Comparison", fail_on: str) -> int:
    """Return 1 if any pair's word is as severe as `fail_on`, 2 if one cannot be judged, else 0; a gate has its own codes."""
    if comparison.gate is not None:
        return {"passed": 0, "failed": 1, "incomparable": 2}[comparison.gate.outcome]
    words = {pair.word for pair in comparison.pairs} or {comparison.word}
    if words & set(WORDS_BY_GRAVITY[WORDS_BY_GRAVITY.index(fail_on) :]):
        return 1
    return 2 if words & {"incomparable", "not_recorded"} else 0
