"""What was wrong with the batches themselves: one without targets, and one unlike those before it."""

from collections.abc import Iterable, Iterator

import numpy as np
from msgspec import UNSET

from ckaudit.audit.autopsy.result import Departure
from ckaudit.contract.report import Finding
from ckaudit.contract.run_sections import History
from ckaudit.metrics.progress import tokens_seen
from ckaudit.rules.token_drift import token_drift
from ckaudit.run.medians import median
from ckaudit.run.run import Run
from ckaudit.run.series import Series, at


def batches(run: Run, history: History, findings: Iterable[Finding]) -> Iterator[Departure]:
    """Yield the batches of the black box that no token was counted of, or that hold text of another kind.

    Args:
        run: Has the count of tokens.
        history: The black box.
        findings: What triage says of the run; notes do not count.
    """
    names = _names(history)
    for step, usual in _empty(tokens_seen(run), history.steps):
        yield Departure(step=step, kind="batch", name=names.get(step, ""), how="empty", value=0.0, usual=usual)
    for each in findings:
        if each.code == token_drift.code and each.severity != "note" and each.first_step in history.steps:
            step = int(each.first_step or 0)
            yield Departure(step=step, kind="batch", name=names.get(step, ""), how="unlike", value=each.value)


def _names(history: History) -> dict[int, str]:
    """Return the hash of each step's batch, where one was made."""
    if history.batch_hash is UNSET or len(history.batch_hash) != len(history.steps):
        return {}
    return {step: word for step, word in zip(history.steps, history.batch_hash, strict=True) if word}


def _empty(tokens: Series, steps: list[int], *, rare: float = 0.2) -> Iterator[tuple[int, float]]:
    """Yield the steps that added no token, and how many the others add.

    Only steps whose predecessor was logged as well can tell. Where more than `rare` of them add nothing, the count is not
    one of every step.
    """
    if not tokens or len(steps) < 2:
        return
    known = at(tokens, np.array([steps[0] - 1, *steps], np.int64))
    here = (known.age[:, 0] == 0) & np.isfinite(known.values[:, 0])
    rows = [row for row in range(1, len(here)) if here[row] and here[row - 1]]
    added = {steps[row - 1]: float(known.values[row, 0] - known.values[row - 1, 0]) for row in rows}
    none = [step for step, count in added.items() if count == 0]
    if none and len(none) <= rare * len(added):
        usual = median([count for count in added.values() if count != 0])
        yield from ((step, usual) for step in none)
