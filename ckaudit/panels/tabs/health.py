"""The tab on activations and weights: whether anything is dead or explodes."""

import numpy as np

from ckaudit.contract.schema.panels import Chart, Matrix
from ckaudit.panels.annotations import marks, threshold
from ckaudit.panels.downsample import kept_columns
from ckaudit.panels.metric_charts import OF_COLOURS, activation_bands, chosen, column, in_forward_order
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
    builder.add_of_both(activation_bands, "activation_mean", "activation_std")
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


def loads(scene: Scene, *, rows: int = 120, columns: int = 100) -> Chart | None:
    """Return the share of a layer's tokens per expert, by steps; None if nothing is routed."""
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
