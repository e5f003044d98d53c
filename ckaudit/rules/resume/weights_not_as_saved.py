"""RESUME004: a resume begins with other weights than the checkpoint before it has."""

from collections.abc import Iterator

import numpy as np

from ckaudit.contract.schema.manifest import Manifest, Session
from ckaudit.metrics.weights import weight_norm
from ckaudit.rules.rule import FACTS, Hit, Skip, rule
from ckaudit.run.run_facts import later_sessions
from ckaudit.run.series import Floats, Series, Steps
from ckaudit.run.tensors import TensorTable, table_of


@rule("RESUME004", severity="sev1", needs=[FACTS], wants=[weight_norm], unit="1")
def weights_not_as_saved(
    facts: Manifest, size: Series | None, *, max_difference: float = 5e-3, max_drift_ratio: float = 5.0, min_norm: float = 1e-6
) -> Iterator[Hit | Skip]:
    """A resume begins with other weights than the checkpoint before it has.

    ## What it checks
    The norm of each tensor before the first update of a resume, against its last norm at or before the step of the resume. The
    weights are not as saved under these conditions:

    - The two norms differ by more than `max_difference` of the larger one.
    - Where the checkpoint is older than the resume, the norms also differ by more than `max_drift_ratio` times what the tensor
      changed over as many steps before.
    - For a tensor that takes no gradient and changes all the same, such as a moving average of other weights, the checkpoint
      counts as one step older: such a tensor changes after its step was recorded.
    - Norms below `min_norm` are not compared.
    ## Why it matters
    What was learnt in these tensors is gone, and a loss that soon recovers hides it. The cause may be a key that was not found, a
    file of another step, or averaged weights in place of the trained ones.
    ## False alarms
    Norms of the same weights agree in all their digits. `max_difference` leaves room for weights that were saved in half
    precision, whose rounding averages out (2^-8 for an element). Weights that were changed on purpose are reported rightly.
    """
    later = later_sessions(facts)
    if not later:
        yield Skip("not_applicable", "the run was not taken up again")
        return
    if size is None or not any(session.weight_norms for session in later):
        yield Skip("not_recorded", "needs weight_norm, and weight_norms of the session that took the run up again")
        return
    table = table_of(facts)
    for session in later:
        yield from _changed(size, session, table, max_difference, max_drift_ratio, min_norm)


def _changed(size: Series, session: Session, table: TensorTable, same: float, drift: float, min_norm: float) -> Iterator[Hit]:
    start = int(session.resumed_from or 0)
    norms = {name: float(value) for name, value in (session.weight_norms or {}).items()}
    for column, label in enumerate(size.labels):
        known = np.flatnonzero(size.finite_in(column) & (size.steps <= start))
        now = norms.get(label, np.nan)
        if not len(known) or not np.isfinite(now):
            continue
        saved = float(size.values[known[-1], column])
        larger = max(now, saved)
        until = start if table.is_trainable(label) else start + 1
        usual = _usual(size.values[known, column], size.steps[known], until)
        if larger > min_norm and abs(now - saved) > max(same * larger, drift * usual):
            yield Hit(
                severity="sev1",
                where=label,
                first=start + 1,
                last=start + 1,
                worst=start + 1,
                value=now,
                limit=saved,
                points=1,
                badness=abs(now - saved) / larger,
                message=f"{{where}} has a norm of {{value:.4g}} after the resume from step {start}; it had {{limit:.4g}} at step "
                f"{size.steps[known[-1]]}",
            )


def _usual(values: Floats, steps: Steps, until: int) -> float:
    """Return the change of a norm from the last checkpoint to a step at the pace of the last two; infinite where unknown."""
    age = until - int(steps[-1])
    if age == 0:
        return 0.0
    if len(values) < 2:
        return float("inf")
    return float(abs(values[-1] - values[-2]) / (steps[-1] - steps[-2]) * age)
