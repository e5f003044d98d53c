"""Claims that a checkpoint can judge: norms, movement, entropies and drops, against those of its tensors and layers."""

from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from ckaudit.metrics.claims import Bounds, claim
from ckaudit.metrics.counters import shared_points
from ckaudit.metrics.gradients import gradient_norm
from ckaudit.metrics.observability import bad_places, places_read
from ckaudit.metrics.pairs import ratio, together, total
from ckaudit.metrics.reductions import across
from ckaudit.metrics.routing import balance_losses
from ckaudit.metrics.weights import update_norm, weight_norm
from ckaudit.run.run import Run
from ckaudit.run.series import Floats, Series


@claim("grad_global_norm", reads=[gradient_norm])
def _grad_global_norm(run: Run, *, precision: float = 5e-2) -> Iterator[Bounds]:
    """At least the root sum of squares over the tensors of the same step (F4): one taken after clipping is less.

    More is no contradiction, for not every tensor need be recorded. `precision` covers norms in bfloat16, summed in
    another order by sharded trainers.
    """
    steps, both = shared_points([run.scalar("grad_global_norm"), total(gradient_norm(run), "x")])
    yield Bounds("grad_global_norm", steps, both[:, 0], both[:, 1] * (1 - precision), np.full(len(steps), np.inf))


@claim("update_to_weight", reads=[update_norm, weight_norm])
def _update_to_weight(run: Run, *, factor: float = 2.0) -> Iterator[Bounds]:
    """Between the smallest and the largest ratio of a tensor (M11), whichever tensors were looked at.

    A `factor` of two is left for ratios of a sample of each tensor's elements.
    """
    yield from _between(run, "update_to_weight", ratio(update_norm(run), weight_norm(run)), factor, 0.0)


@claim("attn_entropy", reads=["attention.*.entropy_per_head"])
def _attn_entropy(run: Run, *, factor: float = 1.1, nats: float = 0.05) -> Iterator[Bounds]:
    """Between the sharpest and the flattest head (M20), whichever mean of them was taken.

    A tenth and `nats` are left for other queries of the same batch.
    """
    yield from _between(run, "attn_entropy", run.series("attention", "entropy_per_head"), factor, nats)


@claim("max_attn_logit", reads=["attention.*.max_logit_per_head"])
def _max_attn_logit(run: Run, *, factor: float = 2.0) -> Iterator[Bounds]:
    """The largest logit over all heads, of the same step: a sample of queries may miss half of it, or the log another half."""
    heads = across(run.series("attention", "max_logit_per_head"), np.nanmax, "max_attn_logit", "logit")
    steps, both = shared_points([run.scalar("max_attn_logit"), heads])
    size = np.abs(both[:, 1])
    yield Bounds("max_attn_logit", steps, both[:, 0], both[:, 1] - size / factor, both[:, 1] + (factor - 1) * size)


@claim("moe_drop_rate", reads=["moe.*.dropped", "moe.*.routed"])
def _moe_drop_rate(run: Run, *, factor: float = 2.0, points: float = 1.0) -> Iterator[Bounds]:
    """Between the smallest and the largest rate of a layer in percent (M26), whichever mean of them was taken.

    A `factor` and one percent point are left for means over other steps; a fraction lies beyond where drops are many.
    """
    rates = ratio(run.series("moe", "dropped"), run.series("moe", "routed")).mapped(lambda share: 100 * share, "rate", "%")
    yield from _between(run, "moe_drop_rate", rates, factor, points)


@claim("moe_load_balance_loss", reads=["moe.*.counts", "moe.*.router_probability"])
def _moe_load_balance_loss(run: Run, *, factor: float = 1.5) -> Iterator[Bounds]:
    """At most the largest loss of a layer (M28), at least the smallest, or 1 if that is less: one loss of all layers evens out.

    Where each token has k experts, some count shares of tokens in place of assignments, which gives k times as much; no
    expert has more assignments than there are tokens, which bounds k. A `factor` is left for means over other steps.
    """
    name, counts = "moe_load_balance_loss", run.series("moe", "counts")
    choices = counts.grouped([label.rpartition("/")[0] for label in counts.labels], _most_choices)
    losses, possible = together(balance_losses(run), choices)
    if len(run.scalar(name).labels) != 1:
        return
    raised = replace(losses, values=losses.values * possible.values, recorded=losses.recorded & possible.recorded)
    low, high = across(losses, np.nanmin, name, "1"), across(raised, np.nanmax, name, "1")
    steps, values = shared_points([run.scalar(name), low, high])
    yield Bounds(name, steps, values[:, 0], np.minimum(values[:, 1], 1.0) / factor, values[:, 2] * factor)


def _most_choices(counts: Floats) -> Floats:
    """Return assignments over those of the busiest expert, from shape (K, E) to (K,)."""
    with np.errstate(all="ignore"):
        return np.asarray(counts.sum(axis=-1) / counts.max(axis=-1))


@claim("nan_inf_events", reads=places_read())
def _nan_inf_events(run: Run) -> Iterator[Bounds]:
    """At least 1 where a loss, a norm or a tensor of the same step is not finite (M60)."""
    steps, both = shared_points([run.scalar("nan_inf_events"), bad_places(run)])
    yield Bounds("nan_inf_events", steps, both[:, 0], np.minimum(both[:, 1], 1.0), np.full(len(steps), np.inf))


def _between(run: Run, name: str, parts: Series, factor: float, slack: float) -> Iterator[Bounds]:
    """Compare a number with the smallest and the largest of its parts at the same step."""
    if len(run.scalar(name).labels) != 1:
        return
    low, high = (across(parts, reduce, name, "1") for reduce in (np.nanmin, np.nanmax))
    steps, values = shared_points([run.scalar(name), low, high])
    yield Bounds(name, steps, values[:, 0], values[:, 1] / factor - slack, values[:, 2] * factor + slack)
