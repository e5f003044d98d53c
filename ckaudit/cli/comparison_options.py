"""What `diff` and `gate` share: the axis that runs are compared along, what was asked for, and the exit code of a comparison."""

from typing import TYPE_CHECKING, Annotated

import typer

from ckaudit.reports import FORMATS

if TYPE_CHECKING:
    from ckaudit.cli.deliver import OutputRequest
    from ckaudit.contract.schema.diff import Comparison

AXES = ("step", "tokens", "loss")
WORDS_BY_GRAVITY = ("within_noise", "better", "different", "worse")  # the least grave first

Align = Annotated[
    str, typer.Option("--align", metavar="AXIS", help="Compare at equal step, tokens or loss.", autocompletion=lambda: list(AXES))
]


def requested(format: str, output: str, *, verbose: bool, base: str = "") -> "OutputRequest":  # noqa: A002  what the option is called
    """Return what was asked for of the product, findings being of the folder `base`, or raise `UsageError`."""
    from ckaudit.cli.deliver import OutputRequest

    return OutputRequest(
        format=format, output=output, fail_on=None, allow_empty=True, verbose=verbose, formats=FORMATS, base=base
    )


def exit_code(comparison: "Comparison", fail_on: str) -> int:
    """Return 1 where any pair's word is as grave as asked, 2 where one cannot be judged, else 0; a gate has codes of its own."""
    if comparison.gate is not None:
        return {"passed": 0, "failed": 1, "incomparable": 2}[comparison.gate.outcome]
    words = {pair.word for pair in comparison.pairs} or {comparison.word}
    if words & set(WORDS_BY_GRAVITY[WORDS_BY_GRAVITY.index(fail_on) :]):
        return 1
    return 2 if words & {"incomparable", "not_recorded"} else 0
