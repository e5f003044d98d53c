"""The charts of the first page: the loss with all events, and three small ones selected by the findings."""

from collections.abc import Sequence
from itertools import islice

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from ckaudit.contract.schema.panels import Beside, Chart
from ckaudit.contract.schema.report import SEVERITIES, Finding
from ckaudit.metrics import metrics
from ckaudit.panels.annotations import Line, baselines, marks, threshold
from ckaudit.panels.metric_charts import curves
from ckaudit.panels.scene import Scene, metrics_of
from ckaudit.panels.tab import why_missing

LOSSES = ("train_loss_raw", "val_loss")

WIDE_SPAN = 10.0  # ratio of largest to smallest loss from which the axis is logarithmic

SMALL_PICTURES = 3

SMALL_CURVES = 4  # more would hide each other in a small chart

SMALL_POINTS = 160


class PictureSubject(Struct, frozen=True):
    """A possible subject of a small chart.

    Attributes:
        id: Id of its chart.
        shown: Metrics for it, each with its title; the first recorded one is drawn.
        about: Further metrics whose findings belong to it.
        log: Whether its axis is logarithmic.
        limits: A rule and its thresholds on the first metric, drawn as lines.
        if_found: Whether it is shown only with a finding.
    """

    id: str
    shown: dict[str, str]
    about: tuple[str, ...] = ()
    log: bool = False
    limits: tuple[str, ...] = ()
    if_found: bool = False


# In drawing order if no finding prefers one.
SUBJECTS = (
    PictureSubject(
        "gradient",
        {"block_gradient_norm": "Gradient norm by block", "grad_global_norm": "Gradient norm"},
        ("gradient_norm", "waterfall_ratio", "gradient_zero_fraction", "gradient_share", "top_gradient_share"),
        log=True,
    ),
    PictureSubject(
        "attention",
        {"normalized_attention_entropy": "Attention entropy by head", "attn_entropy": "Attention entropy by head"},
        ("min_normalized_entropy", "max_attn_logit", "dead_head_fraction", "uniform_head_fraction", "upper_triangle_mass"),
    ),
    PictureSubject(
        "update",
        {"update_to_weight_global": "Update over weight", "update_norm": "Norm of an update"},
        ("update_to_weight", "relative_movement", "moving_share"),
        log=True,
        limits=("MOVE002", "min_ratio", "max_ratio"),
    ),
    PictureSubject(
        "activations",
        {"activation_rms": "RMS of activations", "activation_std": "Deviation of activations"},
        ("activation_max_abs",),
        log=True,
    ),
    PictureSubject("dead_units", {"dead_unit_fraction": "Dead units"}),
    PictureSubject("stretch", {"spectral_norm": "Spectral norm"}, ("weight_norm", "weight_std"), log=True),
    PictureSubject("nonfinite", {"nan_inf_events": "NaN and infinity"}, if_found=True),
    PictureSubject("gap", {"train_val_gap": "Held-out less training loss"}),
    PictureSubject("rate", {"learning_rate": "Learning rate"}, ("learning_rate_over_peak",)),
    PictureSubject("whole_gradient", {"grad_global_norm": "Gradient norm"}, log=True),
    PictureSubject("scale", {"loss_scale": "Loss scale"}, ("overflow_rate", "skipped_updates"), log=True),
    PictureSubject("time", {"step_time": "Step time"}, ("tokens_per_sec", "dataloader_stall_frac", "mfu")),
)


def first_page(scene: Scene) -> list[Chart]:
    """Return the charts of the first page: the loss, without curves if none is recorded, and at most three others."""
    drawn: list[Chart] = []
    ranked = [(_gravity(subject, scene.report.findings), subject) for subject in SUBJECTS]
    for gravity, subject in sorted(ranked, key=lambda pair: pair[0]):
        chart = None if subject.if_found and gravity == len(SEVERITIES) else _small(scene, subject)
        if chart is not None and not {*chart.metrics} & {name for other in drawn for name in other.metrics}:
            drawn.append(chart)
    return [loss(scene), *islice(drawn, SMALL_PICTURES)]


def loss(scene: Scene) -> Chart:
    """Return the loss with findings and events marked; if it is not recorded, a chart without curves that says why."""
    chart = curves(scene, "front_loss", "Loss", LOSSES, lines=baselines(scene), points=400)
    if chart is None:
        why = why_missing(scene.run, LOSSES[0])
        if scene.report.to_judge_more:  # shows what would record it, for the program that wrote the run
            why, *_ = why.split("; to record it: ")
        return Chart(id="front_loss", title="Loss", shape="lines", note=why)
    everything = [mark for mark in marks(scene, None, max_findings=len(scene.report.findings)) if mark.kind != "spike"]
    return replace(chart, log=is_wide(scene), marks=everything, formula="")


def is_wide(scene: Scene) -> bool:
    """Return whether the loss of any run spans a power of ten; zero and negative values have no logarithm."""
    sides = [scene, scene.other] if scene.other else [scene]
    losses = [series for side in sides for name in LOSSES if (series := metrics()[name](side.run))]
    values = np.concatenate([series.values[series.finite] for series in losses] or [np.empty(0)])
    return bool(len(values) and values.min() > 0 and values.max() >= WIDE_SPAN * values.min())


def _gravity(subject: PictureSubject, findings: Sequence[Finding]) -> int:
    """Return the severity index of the most severe finding on a subject, 0 for the most severe."""
    about = {*subject.shown, *subject.about}
    ranks = [SEVERITIES.index(finding.severity) for finding in findings if about & {*metrics_of(finding)[:1]}]
    return min(ranks, default=len(SEVERITIES))


def _small(scene: Scene, subject: PictureSubject) -> Chart | None:
    limits: list[Line] = threshold(subject.limits[0], *subject.limits[1:]) if subject.limits else []
    name = next((name for name in subject.shown if metrics()[name](scene.run)), None)
    if name is None:
        return None
    chart = curves(
        scene,
        f"front_{subject.id}",
        subject.shown[name],
        [name],
        lines=limits if name == next(iter(subject.shown)) else (),
        log=subject.log,
        max_curves=SMALL_CURVES if scene.other is None else SMALL_CURVES // 2,
        points=SMALL_POINTS,
    )
    return replace(chart, formula="") if chart else None


def other_run_summary(scene: Scene) -> Beside | None:
    """Return the first page's summary of the other run; None if there is none."""
    if scene.other is None or scene.comparison is None or not scene.comparison.pairs:
        return None
    pair, report = scene.comparison.pairs[0], scene.other.report
    cause = next(iter(report.diagnoses), None)
    return Beside(severity=report.severity, verdict=report.verdict, word=pair.word, message=pair.verdict, cause=cause)
