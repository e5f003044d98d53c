"""Logged numbers whose playbook names a bad shape, with those shapes, and shares of unknown unit.

A bad shape has a direction, a size, and a smallest value that matters.
"""

import math
from collections.abc import Iterable
from typing import Literal, NamedTuple

import numpy as np

from ckaudit.metrics.metric import metric
from ckaudit.run.run import Run
from ckaudit.run.series import Series, merged_steps

Kind = Literal[
    "rises",
    "falls",
    "is never back",
    "is never back up",
    "shifts",
    "humps",
    "slides up",
    "slides down",
    "surges",
    "spikes",
    "warms up again",
    "goes back",
    "differs",
    "stays high",
]


class BadShape(NamedTuple):
    """The bad shape of one number.

    Attributes:
        kind: Kind of the shape.
        size: Size of the change: a share of the level for a rise or fall, a factor for a hump, slide or surge, else an amount in
            its unit.
        floor: Smallest final value that matters, in its unit; for the mass of the top tokens, all but a twentieth.
        unless: Better names for the same quantity; if one is logged, its own rules judge.
        note: Whether the playbook calls it guidance only.
        top: Upper bound of the value; if given, the distance to it is judged instead.
    """

    kind: Kind
    size: float
    floor: float = 0.0
    unless: tuple[str, ...] = ()
    note: bool = False
    top: float | None = None


DOUBLING = 2.0
"""Growth over the second half of a run; linear growth at most doubles in it."""

_LOSSES = ("train_loss_raw", "train_loss_ema")
BAD_SHAPES: dict[str, tuple[BadShape, ...]] = {
    "train_ppl": (BadShape("rises", 1.0, unless=_LOSSES), BadShape("is never back", 0.5)),
    "val_ppl": (BadShape("rises", 0.3, unless=("val_loss",)), BadShape("is never back", 0.15)),
    "train_val_gap": (BadShape("rises", 1.0, floor=0.5, unless=("val_loss",)),),
    "learning_rate": (BadShape("warms up again", 0.0),),
    "lr_phase": (BadShape("goes back", 0.2),),
    "tokens_per_update": (BadShape("falls", 0.15), BadShape("is never back up", 0.1)),
    "grad_clip_rate": (BadShape("rises", 0.5, floor=0.5), BadShape("stays high", 0.5, note=True)),
    "update_to_weight": (BadShape("surges", 2.5, floor=0.005),),
    "grad_noise_scale": (BadShape("humps", 4.0), BadShape("humps", 2.5, note=True)),
    "scaling_law_residual": (BadShape("shifts", 0.05, floor=-math.inf),),
    "curvature_trace_est": (BadShape("slides up", DOUBLING),),
    "spectral_norm": (BadShape("slides up", DOUBLING),),
    "residual_rms": (BadShape("slides up", DOUBLING),),
    "activation_outlier_rate": (BadShape("slides up", DOUBLING),),
    "logit_entropy_probe": (BadShape("slides down", DOUBLING),),
    "topk_mass_probe": (BadShape("slides down", DOUBLING, floor=95.0, top=100.0),),
    "output_kl_to_prev": (BadShape("spikes", 2.5, unless=("fixed_probe_loss",)),),
    "fixed_probe_loss": (BadShape("rises", 0.15), BadShape("is never back", 0.08)),
    "moe_load_balance_loss": (BadShape("rises", 0.5),),
    "near_dup_rate": (BadShape("rises", 0.5, floor=1.0),),
    "compute_time_frac": (BadShape("falls", 0.2),),
    "checkpoint_time": (BadShape("rises", 1.0, floor=10.0),),
    "checkpoint_size": (BadShape("rises", 0.5), BadShape("falls", 0.3)),
    "eval_artifact_hash": (BadShape("differs", 0.0),),
    "rtp_prompt_stats": (BadShape("differs", 0.005),),
}
"""Shapes that no rule of their own judges at every length. Sizes are those of the playbook, rounded towards the good shapes."""


_BETTER = dict.fromkeys(name for shapes in BAD_SHAPES.values() for name in shapes[0].unless)


@metric(unit="1", reads=(*BAD_SHAPES, *_BETTER), source="catalogue, the good and bad pattern of each playbook")
def playbook_numbers(run: Run) -> Series:
    r"""Logged values of each number whose playbook names a bad shape.

    $$x_t$$

    Shape (T, K): steps by names, "checkpoint_time", followed by a slash and a label if there are several; each in its own unit. A
    name is left out if a better name for the same quantity is logged, such as val_loss for val_ppl.
    """
    logged = {name: run.scalar(name) for name in BAD_SHAPES}
    better = {name for name in _BETTER if run.scalar(name)}
    judged = (logged_series for name, logged_series in logged.items() if not better.intersection(BAD_SHAPES[name][0].unless))
    return side_by_side("playbook_numbers", "1", judged)


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
    r"""Each rate of unknown unit in percent, if it was logged as a fraction.

    $$100 \cdot x_t$$

    Shape (T, K): steps by rates; above 100 % it was no fraction. Rates are left out if `--unit`, a value above 1 or the other
    shares of the same log decide their unit.
    """
    logged = (run.scalar(name) for name in OPEN_RATES if name not in run.units)
    shares = (series.mapped(lambda share: 100 * share, series.name, "%") for series in logged)
    return side_by_side("undecided_share", "%", shares)


def side_by_side(name: str, unit: str, logged: Iterable[Series]) -> Series:
    """Return logged numbers as the columns of one series, each under its name, followed by a slash and a label if needed."""
    columns = [
        (series.name if label == series.name else f"{series.name}/{label}", series, column)
        for series in logged
        for column, label in enumerate(series.labels)
    ]
    steps = merged_steps(*(series.steps for _, series, _ in columns))
    values = np.full((len(steps), len(columns)), np.nan)
    recorded = np.zeros(values.shape, bool)
    for index, (_, series, column) in enumerate(columns):
        rows = np.searchsorted(steps, series.steps)
        values[rows, index], recorded[rows, index] = series.values[:, column], series.recorded[:, column]
    return Series(name, unit, steps, tuple(label for label, _, _ in columns), values, recorded)
