"""The dashboards: numbers to check every step, minute, day and checkpoint, and the seven panels."""

from msgspec.structs import replace

from ckaudit.contract.schema.panels import Chart
from ckaudit.metrics import metrics
from ckaudit.metrics.catalogue import PER_MINUTE, PER_STEP
from ckaudit.panels.annotations import baselines, threshold
from ckaudit.panels.metric_charts import activation_bands
from ckaudit.panels.scene import Scene
from ckaudit.panels.tab import TabBuilder, tab

DAY = (
    ("source_mix_share", "language_share"),
    ("filter_reject_rate",),
    ("seq_len_p50_p95", "pad_fraction"),
    ("token_kl_drift",),
    ("near_dup_rate", "train_val_overlap", "doc_repeat_hotspots"),
)
CHECKPOINT = (
    ("val_loss",),
    ("slice_val_loss",),
    ("microbench_score",),
    ("rtp_toxicity_prob",),
    ("memorization_rate",),
    ("output_kl_to_prev", "logit_entropy_probe"),
)
PANELS = (
    "train_loss_raw",
    "val_loss",
    "learning_rate",
    "grad_global_norm",
    "activation_mean",
    "activation_std",
    "activation_mean_abs",
    "spectral_norm",
    "dead_unit_fraction",
    "dead_head_fraction",
    "slice_val_loss",
    "tau",
    "unigram_entropy",
)
LOGARITHMIC = ("grad_global_norm", "update_to_weight_global", "loss_scale", "max_attn_logit")
POINTS = 240


@tab(110, kind="dashboard", reads=PER_STEP)
def per_step(builder: TabBuilder) -> None:
    """What does every step say?"""
    _each(builder, "step", [(name,) for name in PER_STEP])


@tab(120, kind="dashboard", reads=PER_MINUTE)
def per_minute(builder: TabBuilder) -> None:
    """What does every minute say?"""
    _each(builder, "minute", [(name,) for name in PER_MINUTE])


@tab(130, kind="dashboard", reads=tuple(name for names in DAY for name in names))
def per_day(builder: TabBuilder) -> None:
    """What does every day say?"""
    _each(builder, "day", DAY)


@tab(140, kind="dashboard", reads=tuple(name for names in CHECKPOINT for name in names))
def per_checkpoint(builder: TabBuilder) -> None:
    """What does every checkpoint say?"""
    _each(builder, "checkpoint", CHECKPOINT)


@tab(150, kind="dashboard", reads=PANELS)
def seven_panels(builder: TabBuilder) -> None:
    """What do the seven panels show?"""
    scene = builder.scene
    builder.curves(
        "panel_1_loss", "1 Loss", "train_loss_raw", also=("val_loss",), log=True, lines=baselines(scene), points=POINTS
    )
    builder.curves("panel_2_rate", "2 Learning rate", "learning_rate", points=POINTS)
    builder.curves("panel_3_gradient", "3 Gradient norm", "grad_global_norm", log=True, points=POINTS)
    builder.add_of_both(_activations, "activation_mean", "activation_std")
    builder.curves("panel_5_spectral", "5 Spectral norms", "spectral_norm", max_curves=4, points=POINTS)
    builder.curves(
        "panel_6_dead",
        "6 Dead units and heads",
        "dead_unit_fraction",
        "dead_head_fraction",
        max_curves=4,
        points=POINTS,
        lines=threshold("ACT001", "note_dead_share", "max_dead_share"),
    )
    builder.curves("panel_7_slices", "7 Loss by class, and tau", "slice_val_loss", also=("tau",), points=POINTS)


def _activations(scene: Scene) -> Chart | None:
    chart = activation_bands(scene, max_layers=4, points=100)
    return replace(chart, id="panel_4_activations", title="4 Activations") if chart else None


def _each(builder: TabBuilder, prefix: str, groups: "tuple[tuple[str, ...], ...] | list[tuple[str, ...]]") -> None:
    """Add one chart per group of metrics; metrics with another unit than the first use the right axis."""
    for group in groups:
        unit = metrics()[group[0]].unit
        left = [name for name in group if metrics()[name].unit == unit]
        right = [name for name in group if name not in left]
        title = metrics()[group[0]].title.rstrip(".")
        builder.curves(
            f"{prefix}_{group[0]}", title, *left, right=right, log=group[0] in LOGARITHMIC, max_curves=6, points=POINTS
        )
