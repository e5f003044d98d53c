"""Routing: how a mixture of experts distributes its tokens, and how many are dropped."""

from collections.abc import Callable

import numpy as np
from msgspec.structs import replace

from ckaudit.metrics.metric import metric
from ckaudit.metrics.pairs import filled, logged_as, ratio, together
from ckaudit.metrics.reductions import across
from ckaudit.run.run import Run
from ckaudit.run.series import Floats, Series, single


@metric(unit="%", reads=["moe.*.dropped", "moe.*.routed", "moe_drop_rate"], source="catalogue M26; Fedus et al. 2022", memory=1)
def moe_drop_rate(run: Run) -> Series:
    r"""Share of the token assignments of all layers that are dropped because their expert is full.

    $$100 \cdot \textstyle\sum_\ell d_\ell / \sum_\ell r_\ell$$

    Shape (T, 1): checkpoints, over the layers that counted both; the logged rate elsewhere. Below 1 % is usual.
    """
    dropped, routed = together(run.series("moe", "dropped"), run.series("moe", "routed"))
    both = dropped.finite & routed.finite
    lost, asked = (np.where(both, series.values, 0.0).sum(axis=1) for series in (dropped, routed))
    with np.errstate(all="ignore"):
        of_counts = single("moe_drop_rate", "%", dropped.steps, np.where(asked > 0, 100 * lost / asked, np.nan), asked > 0)
    return filled(of_counts, logged_as(run, "moe_drop_rate"))


@metric(unit="1", reads=["moe.*.counts"], source="catalogue M27", memory=1, worst="low")
def expert_entropy(run: Run) -> Series:
    r"""Normalized entropy of each layer's expert use.

    $$-\tfrac{1}{\log E} \sum_e f_e \log f_e, \qquad f_e = c_e / \textstyle\sum_j c_j$$

    Shape (C, L): checkpoints by layers; 1 if all experts get equally many tokens, 0 if one gets all. Not recorded if nothing is
    routed.
    """
    return _by_layer(run, _entropy)


@metric(unit="1", reads=["moe.*.counts"], source="catalogue M27; Shazeer et al. 2017, equation 6", memory=1)
def expert_imbalance(run: Run) -> Series:
    r"""Coefficient of variation of the tokens per expert of each layer.

    $$\sigma(c) / \mu(c)$$

    Shape (C, L): checkpoints by layers; 0 if all experts get equally many tokens, $\sqrt{E - 1}$ if one gets all.
    """
    return _by_layer(run, _variation)


@metric(unit="1", reads=[expert_entropy, "moe_util_entropy"], source="catalogue M27", memory=1)
def moe_util_entropy(run: Run) -> Series:
    r"""Normalized entropy of expert use in the layer with the least even use.

    $$\min_\ell u_\ell$$

    Shape (T, 1): checkpoints with counts, 0 to 1; the logged value elsewhere.
    """
    series = across(expert_entropy(run), np.nanmin, "moe_util_entropy", "1")
    return filled(series, logged_as(run, "moe_util_entropy"))


@metric(
    unit="1",
    reads=["moe.*.counts", "moe.*.router_probability", "moe.*.aux_loss", "moe_load_balance_loss"],
    source="catalogue M28; Fedus et al. 2022, eq. 4",
    memory=1,
)
def moe_load_balance_loss(run: Run) -> Series:
    r"""Load-balance loss before its coefficient, mean over layers: 1 for an even distribution.

    $$E \sum_e f_e P_e$$

    Shape (T, 1): checkpoints, from f, the share of the assignments, and P, the router's mean probability; from the recorded loss
    for a layer that lacks one of them; the logged value elsewhere.
    """
    layers = filled(balance_losses(run), run.series("moe", "aux_loss"))
    series = across(layers, np.nanmean, "moe_load_balance_loss", "1")
    return filled(series, logged_as(run, "moe_load_balance_loss"))


def balance_losses(run: Run) -> Series:
    r"""Return the load-balance loss of each layer, (C, L), $E \sum_e f_e P_e$; recorded if both are and tokens are routed."""
    counts, shares = together(run.series("moe", "counts"), run.series("moe", "router_probability"))
    layers = [label.rpartition("/")[0] for label in counts.labels]
    both = counts.recorded & shares.recorded
    products = replace(counts, values=np.where(both, counts.values * shares.values, np.nan), recorded=both)
    summed = products.grouped(layers, lambda experts: experts.shape[-1] * experts.sum(axis=-1))
    return ratio(summed, replace(counts, recorded=both).grouped(layers, lambda experts: experts.sum(axis=-1)))


def _by_layer(run: Run, reduce: Callable[[Floats], Floats]) -> Series:
    counts = run.series("moe", "counts")
    with np.errstate(all="ignore"):
        layers = counts.grouped([label.rpartition("/")[0] for label in counts.labels], reduce)
        routed = counts.grouped([label.rpartition("/")[0] for label in counts.labels], lambda experts: experts.sum(axis=-1))
    recorded = layers.recorded & (routed.values != 0)
    return replace(layers, values=np.where(recorded, layers.values, np.nan), recorded=recorded)


def _entropy(counts: Floats) -> Floats:
    shares = counts / counts.sum(axis=-1, keepdims=True)
    terms = np.where(shares == 0, 0.0, shares * np.log(shares))
    return np.asarray(-terms.sum(axis=-1) / np.log(counts.shape[-1]))


def _variation(counts: Floats) -> Floats:
    return np.asarray(counts.std(axis=-1) / counts.mean(axis=-1))
