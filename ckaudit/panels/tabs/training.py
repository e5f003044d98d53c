"""The tab on the loss: whether the run trains at all."""

import numpy as np
from msgspec.structs import replace

from ckaudit.contract.schema.panels import Chart, Trace
from ckaudit.panels.annotations import baselines, threshold
from ckaudit.panels.first_page import is_wide
from ckaudit.panels.metric_charts import column, curves
from ckaudit.panels.scene import Scene
from ckaudit.panels.tab import TabBuilder, tab
from ckaudit.run.run_facts import planned_rate

READS = (
    "train_loss_raw",
    "train_loss_ema",
    "val_loss",
    "learning_rate",
    "loss_excess",
    "loss_over_median",
    "train_loss_slope",
    "unigram_entropy",
    "tokens_seen",
    "loss_scale",
    "overflow_rate",
    "skipped_updates",
    "learning_rate_over_peak",
)


@tab(
    10,
    asks=("D1.1", "D2.1", "D4.1", "D4.6"),
    related_questions=("D1.4", "D1.6"),
    rules=("schedule_off_plan", "skipped_updates", "overflow", "repeated_batch", "impossible_value"),
    reads=READS,
)
def training(builder: TabBuilder) -> None:
    """Is it training?"""
    lines = baselines(builder.scene)
    builder.curves(
        "loss",
        "Does the loss fall, and what happened on the way?",
        "train_loss_raw",
        also=("val_loss", "train_loss_ema"),
        right=("learning_rate",),
        lines=lines,
        log=is_wide(builder.scene),
        marked=True,
        note="" if len(lines) > 1 else "no n-gram baseline was recorded",
    )
    builder.curves("loss_excess", "Does the loss spike?", "loss_excess", lines=threshold("LOSS001", "k"))
    builder.add(planned(builder.scene), "learning_rate")
    builder.curves("loss_slope", "How fast does it still fall?", "train_loss_slope", lines=[("no change", 0.0)])
    builder.curves("tokens", "Does every step bring new tokens?", "tokens_seen")
    builder.curves("loss_scale", "Do gradients overflow in half precision?", "loss_scale", right=("overflow_rate",), log=True)


def planned(scene: Scene) -> Chart | None:
    """Return the learning rate with the planned one, if run.json has a plan; None if no rate is recorded."""
    chart = curves(scene, "learning_rate", "Is the schedule as it was meant?", ["learning_rate"])
    if chart is None:
        return None
    steps = np.array([int(step) for step in chart.traces[0].x], np.int64)
    plan = planned_rate(scene.run.manifest, steps)
    if plan is None:
        return replace(chart, note="run.json tells no plan")
    return replace(chart, traces=[*chart.traces, Trace(name="planned", x=steps.tolist(), y=column(plan, np.isfinite(plan)))])
