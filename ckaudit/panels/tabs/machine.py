"""The tab on the machine: where the time of a step goes."""

import numpy as np

from ckaudit.contract.schema.panels import Chart, Trace
from ckaudit.metrics import metrics
from ckaudit.panels.annotations import marks, threshold
from ckaudit.panels.downsample import kept_points
from ckaudit.panels.metric_charts import column
from ckaudit.panels.scene import Scene
from ckaudit.panels.tab import TabBuilder, tab
from ckaudit.run.series import Floats, Series, Steps

PARTS = {"dataloader_stall_frac": "waiting for data", "comm_time_frac": "communication", "compute_time_frac": "computing"}
RULES = (
    "slow_input",
    "step_time_jump",
    "throughput_drop",
    "low_utilization",
    "memory_creep",
    "straggler",
    "communication_rising",
    "recording_overhead",
    "late_metrics",
    "monitoring_blackout",
    "restart_storm",
    "error_events",
    "heavy_checkpoints",
    "missing_checkpoint",
    "broken_checkpoint",
    "missing_heartbeat",
    "rank_divergence",
    "tokens_stand_still",
)
READS = (
    *PARTS,
    "step_time",
    "step_time_tail",
    "tokens_per_sec",
    "mfu",
    "gpu_util",
    "gpu_mem_used",
    "straggler_ratio",
    "rank_step_time",
    "rank_memory",
    "recording_share",
    "log_silence",
    "checkpoint_size",
    "checkpoint_time",
)


@tab(70, rules=RULES, reads=READS)
def machine(builder: TabBuilder) -> None:
    """Is the machine the bottleneck?"""
    builder.add_of_both(parts, *PARTS)
    builder.curves("step_time", "Does a step take longer than it did?", "step_time", marked=True)
    builder.curves("throughput", "How many tokens go through?", "tokens_per_sec")
    builder.curves("utilization", "How much of the arithmetic is used?", "mfu")
    builder.curves(
        "device", "Is the accelerator busy?", "gpu_util", right=("gpu_mem_used",), lines=threshold("SYS004", "min_percent")
    )
    builder.curves("straggler", "Does one rank hold up the others?", "straggler_ratio", lines=threshold("RANK001", "max_ratio"))
    builder.heat("rank_times", "Which rank takes how long?", "rank_step_time")
    builder.curves(
        "recording",
        "What does recording cost?",
        "recording_share",
        lines=threshold("COST001", "min_time_share", "max_time_share"),
    )
    builder.curves("silence", "How long was nothing heard?", "log_silence", lines=threshold("SYS003", "min_seconds"))


def parts(scene: Scene, *, points: int = 400) -> Chart | None:
    """Return the step time as the sum of its parts and a rest, at the steps that record all parts.

    None without a step time or any part. Overlapping parts may add up to more than the step.
    """
    whole = metrics()["step_time"](scene.run)
    known = {name: series for name in PARTS if (series := metrics()[name](scene.run))}
    if not whole or not known:
        return None
    steps = whole.steps[whole.finite[:, 0]]
    for series in known.values():
        steps = np.intersect1d(steps, series.steps[series.finite[:, 0]], assume_unique=True)
    if not len(steps):
        return None
    seconds = _at(whole, steps)
    rows = kept_points(seconds, points)
    steps, seconds = steps[rows], seconds[rows]
    times = {PARTS[name]: _at(series, steps) * seconds for name, series in known.items()}
    times["the rest"] = np.maximum(seconds - sum(times.values()), 0.0)
    whole_part = np.ones(len(steps), bool)
    return Chart(
        id="step_parts",
        title="Where does the time of a step go?",
        shape="lines",
        metrics=["step_time", *known],
        unit="s",
        formula=r"t_p = f_p \cdot t",
        stacked=True,
        marks=marks(scene, ["step_time", *known]),
        traces=[Trace(name=name, x=steps.tolist(), y=column(values, whole_part)) for name, values in times.items()],
        note="of the steps that recorded every part",
    )


def _at(series: Series, steps: Steps) -> Floats:
    """Return the values of a series at steps that it has."""
    return np.asarray(series.values[np.searchsorted(series.steps, steps), 0])
