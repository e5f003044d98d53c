"""One number written twice: a checkpoint's loss and gradient norm against the line of the same step in the scalar log."""

from collections.abc import Iterator
from math import isclose

from ckaudit.contract.numbers import Number
from ckaudit.contract.report import Finding
from ckaudit.contract.violations import Kind
from ckaudit.validate.catalogue import GRAD_NORM_MISMATCH, LOSS_MISMATCH
from ckaudit.validate.file_facts import CheckpointFacts, RunFacts


def disagreements(run: RunFacts, *, tolerance: float = 1e-3) -> Iterator[Finding]:
    """Yield checkpoints that contradict their line.

    Args:
        run: The run.
        tolerance: Relative difference that is still rounding: four digits in either file.
    """
    for each in run.merged():
        for kind, name, value in (
            (LOSS_MISMATCH, "train_loss_raw", each.loss),
            (GRAD_NORM_MISMATCH, "grad_global_norm", each.grad_norm),
        ):
            if value is not None:
                yield from _compare(kind, name, value, each, run, tolerance)


def _compare(kind: Kind, name: str, value: Number, each: CheckpointFacts, run: RunFacts, tolerance: float) -> Iterator[Finding]:
    line = line_of(run, each, name)
    if line is not None and not agree(value, line[0], tolerance=tolerance):
        said, number, log = line
        message = f"{name} of step {each.step} is {value} here, but {said} in line {number} of {log}"
        pointer = "/loss" if name == "train_loss_raw" else f"/scalars/{name}"
        yield kind.at(each.shown, message, first_step=each.step, pointer=pointer, expected=str(said), found=str(value))


def line_of(run: RunFacts, each: CheckpointFacts, name: str) -> tuple[Number, int, str] | None:
    """Return value, line and log of a name at a checkpoint's step: of its session, or of the last one where it names none."""
    sessions = [each.session] if each.session is not None else sorted({s for log in run.logs for s in log.sessions}, reverse=True)
    for session in sessions:
        for log in reversed(run.logs):
            if found := log.values.get((each.step, session, name)):
                return *found, log.shown
    return None


def agree(one: Number, other: Number, *, tolerance: float) -> bool:
    """Tell whether two numbers can be one number, rounded twice.

    >>> agree(2.3478, 2.3, tolerance=1e-3), agree(2.3478, 2.4, tolerance=1e-3), agree("NaN", "NaN", tolerance=1e-3)
    (True, False, True)
    """
    if isinstance(one, str) or isinstance(other, str):
        return one == other
    if isclose(one, other, rel_tol=tolerance):
        return True
    digits = max(0, min(_decimals(one), _decimals(other)))
    return abs(one - other) <= 0.5000001 * 10.0**-digits


def _decimals(value: float) -> int:
    from decimal import Decimal

    exponent = Decimal(repr(float(value))).as_tuple().exponent
    return -exponent if isinstance(exponent, int) else 0
