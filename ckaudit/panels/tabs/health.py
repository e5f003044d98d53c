"""The tab on activations and weights: whether anything is dead or explodes."""

import numpy as np

from ckaudit.contract.schema.panels import Chart, Matrix, Trace
from ckaudit.metrics.activations import activation_mean, activation_std
from ckaudit.panels.annotations import marks, threshold
from ckaudit.panels.downsample import kept_columns, kept_points
from ckaudit.panels.metric_charts import OF_COLOURS, chosen, column, in_forward_order
from ckaudit.panels.scene import Scene
from ckaudit.panels.tab import TabBuilder, tab

READS = (
    "gradient_norm",
    "gradient_zero_fraction",
    "dead_unit_fraction",
    "activation_mean",
    "activation_std",
    "activation_max_abs",
    "activation_saturation",
    "activation_outlier_rate",
    "residual_rms",
    "spectral_norm",
    "nan_inf_events",
    "weight_norm",
    "expert_entropy",
    "moe_util_entropy",
    "moe_drop_rate",
    "expert_imbalance",
    "activation_mean_abs",
    "weight_std",
)


@tab(30, asks=("D1.3", "D3.5", "D4.5"), rules=("router_imbalance", "dropped_tokens", "curvature_jump"), reads=READS)
def health(builder: TabBuilder) -> None:
    """Is anything dead or exploding?"""
    builder.heat("tensor_gradients", "Does any tensor get no gradient?", "gradient_norm", log=True)
    builder.curves(
        "dead_units",
        "How many units never answer?",
        "dead_unit_fraction",
        lines=threshold("ACT001", "note_dead_share", "max_dead_share"),
    )
    builder.add_of_both(bands, "activation_mean", "activation_std")
    builder.heat("activation_size", "Do activations drift or explode?", "activation_max_abs", log=True)
    builder.curves(
        "saturation",
        "Do units saturate?",
        "activation_saturation",
        lines=threshold("ACT003", "note_saturation", "max_saturation"),
        max_curves=6,
    )
    builder.curves("spectral_norm", "How far can a matrix stretch a vector?", "spectral_norm")
    builder.curves("nonfinite", "Where is anything not finite?", "nan_inf_events")
    builder.heat("weight_size", "Do weights grow or shrink?", "weight_norm", log=True)
    builder.ridges("activation_ridges", "How are activations spread, over time?", "activations")
    builder.add_of_both(loads, "expert_entropy")
    builder.curves(
        "routing", "Are the experts used evenly?", "moe_util_entropy", lines=threshold("MOE001", "sev2_entropy", "sev1_entropy")
    )
    builder.curves("dropped", "Do tokens find no expert with room?", "moe_drop_rate", lines=threshold("MOE002", "usual_percent"))


def bands(scene: Scene, *, max_layers: int = 8, points: int = 200) -> Chart | None:
    """Return the mean activation of some modules with one standard deviation on both sides; None where not recorded."""
    mean, std = activation_mean(scene.run).recorded_rows(), activation_std(scene.run)
    if not mean or not std:
        return None
    wide = {label: place for place, label in enumerate(std.labels)}
    both = [place for place in in_forward_order(scene.run.tensors, mean.labels) if mean.labels[place] in wide]
    traces = []
    for place in chosen(both, mean.labels, scene.places("activation_rms", "activation_std"), max_layers):
        label = mean.labels[place]
        rows = np.flatnonzero(mean.recorded[:, place] & np.isin(mean.steps, std.steps))
        rows = rows[kept_points(mean.values[rows, place], points)]
        at = np.searchsorted(std.steps, mean.steps[rows])
        middle, spread = mean.values[rows, place], std.values[at, wide[label]]
        known = std.recorded[at, wide[label]]
        low, high = column(middle - spread, known), column(middle + spread, known)
        there = mean.recorded[rows, place]
        traces.append(Trace(name=label, x=mean.steps[rows].tolist(), y=column(middle, there), low=low, high=high))
    left = f"{len(traces)} of {len(both)} modules are drawn" if len(traces) < len(both) else ""
    names = ["activation_mean", "activation_std"]
    return Chart(
        id="activation_bands",
        title="Do activations stay in their band?",
        shape="lines",
        metrics=names,
        traces=traces,
        formula=r"\mu \pm \sigma",
        unit="1",
        marks=marks(scene, ["activation_rms", *names]),
        note=left,
    )


def loads(scene: Scene, *, rows: int = 120, columns: int = 100) -> Chart | None:
    """Return the share of a layer's tokens that each expert got, by steps; None where nothing was routed."""
    counts = scene.run.series("moe", "counts").recorded_rows()
    if not counts:
        return None
    layers = [label.rpartition("/")[0] or label for label in counts.labels]
    totals = {layer: np.zeros(len(counts.steps)) for layer in layers}
    for place, layer in enumerate(layers):
        totals[layer] += np.where(counts.finite_in(place), counts.values[:, place], 0.0)
    order = chosen(in_forward_order(scene.run.tensors, counts.labels), counts.labels, [], rows)
    with np.errstate(all="ignore"):
        shares = np.stack([counts.values[:, place] / totals[layers[place]] for place in order], axis=1)
    known = counts.recorded[:, order]
    picked = kept_columns(shares, known, columns)
    return Chart(
        id="expert_load",
        title="Which expert gets how many tokens?",
        shape="heatmap",
        metrics=["expert_entropy"],
        formula=r"c_e / \textstyle\sum_j c_j",
        unit="1",
        marks=marks(scene, ["expert_entropy", "moe_util_entropy"]),
        matrix=Matrix(
            rows=[counts.labels[place] for place in order],
            columns=[str(step) for step in counts.steps[picked].tolist()],
            values=[column(shares[picked, row], known[picked, row], OF_COLOURS) for row in range(len(order))],
        ),
    )
