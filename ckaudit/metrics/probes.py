"""Probes: what the model continues by heart."""

from ckaudit.metrics.metric import metric
from ckaudit.run.run import Run
from ckaudit.run.series import Floats, Series, empty


@metric(
    unit="1", reads=["probes.*.exact_match", "probes.*.held_out"], source="playbook, memorization protocol MP-2 to MP-4", memory=1
)
def probe_accuracy(run: Run) -> Series:
    r"""Share of a probe's tokens continued exactly, averaged over the probes of training and over the held-out ones.

    $$a_g = \tfrac{1}{|g|} \sum_{p \in g} m_p$$

    Shape (C, 2): "train" and "held_out", as far as each has probes. A probe that never says is one of training.
    Not recorded where a probe seen before is missing.
    """
    match, held = run.series("probes", "exact_match"), run.series("probes", "held_out")
    if not match:
        return empty("probe_accuracy")
    outside = {label for column, label in enumerate(held.labels) if (held.values[held.recorded[:, column], column] == 1).any()}
    return match.grouped(["held_out" if label in outside else "train" for label in match.labels], _mean)


def _mean(values: Floats) -> Floats:
    """Return the mean over the last axis, shape (T,)."""
    means: Floats = values.mean(axis=-1)
    return means
