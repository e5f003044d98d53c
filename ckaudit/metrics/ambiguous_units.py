"""Shares of which nobody can tell whether they were logged as percent or as fractions."""

from ckaudit.metrics.metric import metric
from ckaudit.metrics.playbook import side_by_side
from ckaudit.run.run import Run
from ckaudit.run.series import Series

OPEN_RATES = (
    "overflow_rate",
    "moe_drop_rate",
    "activation_outlier_rate",
    "near_dup_rate",
    "train_val_overlap",
    "data_toxicity_rate",
    "pii_hit_rate",
    "memorization_rate",
)
"""Rates that the catalogue has in percent and that are usually below one."""


@metric(unit="%", reads=OPEN_RATES, source="catalogue, the unit of each share", memory=1)
def undecided_share(run: Run) -> Series:
    r"""What each rate would be in percent if it was logged as a fraction.

    $$100 \cdot x_t$$

    Shape (T, K): steps by rates; above 100 % it was no fraction. Rates whose unit `--unit`, a value above 1 or the other
    shares of the same log decide are left out.
    """
    logged = (run.scalar(name) for name in OPEN_RATES if name not in run.units)
    shares = (series.mapped(lambda share: 100 * share, series.name, "%") for series in logged)
    return side_by_side("undecided_share", "%", shares)
