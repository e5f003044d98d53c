"""The optimizer: learning rate, clipping and loss scaler."""

import numpy as np
from msgspec import UNSET
from msgspec.structs import replace

from ckaudit.metrics.gradients import grad_global_norm
from ckaudit.metrics.metric import metric
from ckaudit.metrics.pairs import filled, higher, logged_as, relabelled
from ckaudit.run.run import Run
from ckaudit.run.series import Floats, Mask, Series, at, empty


@metric(unit="1", reads=["learning_rate", "optimizer.groups"], source="catalogue M06", memory=1)
def learning_rate(run: Run) -> Series:
    r"""Learning rate of each step's update.

    $$\eta_t$$

    Shape (T, G): logged steps by parameter groups, one column if the log does not distinguish groups. If it is not logged, that
    of the checkpoints.
    """
    return run.scalar("learning_rate") or relabelled(
        replace(run.value("optimizer.groups"), name="learning_rate"), "learning_rate"
    )


@metric(
    unit="1",
    reads=["optimizer.clip_coefficient", "clip_coefficient", "optimizer.clip_norm", "optimizer.gradient_norm", grad_global_norm],
    source="Pascanu et al. 2013, algorithm 1",
)
def clip_coefficient(run: Run) -> Series:
    r"""Factor by which clipping by global norm multiplied the gradients.

    $$c = \min(1, \tau / \lVert g \rVert)$$

    Shape (T, 1): logged steps and checkpoints; 1 if nothing was clipped. The recorded factor counts. Else it is computed from the
    limit (of the checkpoints, else of run.json) and grad_global_norm. If no limit is known either, it is the ratio of the
    optimizer's input norm to grad_global_norm, for any kind of clipping, by element or whole. Not recorded if none of these is
    known; NaN if the norm is NaN.
    """
    recorded = filled(relabelled(run.value("optimizer.clip_coefficient"), "clip_coefficient"), logged_as(run, "clip_coefficient"))
    return filled(filled(recorded, _clipped_by_norm(run)), _left_over(run))


@metric(unit="1", reads=[clip_coefficient, "grad_clip_rate"], source="catalogue M10", memory=100)
def grad_clip_rate(run: Run, *, window: int = 100, min_points: int = 10) -> Series:
    r"""Share of recent steps with clipped gradients.

    $$r_t = \tfrac{1}{n} \sum_{i=t-n+1}^{t} \mathbb{1}[\,c_i < 1\,], \qquad n = \min(t, 100)$$

    Shape (T, 1): 0 to 1. Not recorded before `min_points` points. A NaN norm counts as not clipped. The trainer's own rate counts
    if no limit is known.

    Args:
        run: The run.
        window: Number of past points (catalogue M10 asks for a window; 100 is the recorder's own).
        min_points: Smallest number of points for a share.
    """
    factor = clip_coefficient(run).recorded_rows()
    series = share_of_last(factor, factor.values < 1, window=window, min_points=min_points)
    return filled(series, relabelled(run.scalar("grad_clip_rate"), "clip_coefficient"))


@metric(unit="1", reads=["loss_scale", "optimizer.loss_scale"], source="catalogue M13; Micikevicius et al. 2018", memory=1)
def loss_scale(run: Run) -> Series:
    r"""Factor by which mixed-precision training multiplies the loss.

    $$s_t$$

    Shape (T, 1): logged steps; checkpoints fill what the log lacks.
    """
    checkpoints = relabelled(run.value("optimizer.loss_scale"), "loss_scale")
    return filled(logged_as(run, "loss_scale"), checkpoints)


@metric(unit="updates", reads=["skipped_updates", "optimizer.found_inf"], source="catalogue M15", memory=1)
def skipped_updates(run: Run) -> Series:
    r"""Number of updates that the loss scaler skipped at each step because a gradient overflowed.

    $$k_t \in \{0, 1\}$$

    Shape (T, 1): logged steps; checkpoints fill what the log lacks.
    """
    checkpoints = relabelled(run.value("optimizer.found_inf"), "skipped_updates")
    return filled(logged_as(run, "skipped_updates"), checkpoints)


@metric(unit="1", reads=["optimizer.state_finite", "opt_state_finite"], source="catalogue M12", memory=1, worst="low")
def opt_state_finite(run: Run) -> Series:
    r"""Whether every sampled moment of the optimizer is finite: 1 if so, 0 if not.

    $$\mathbb{1}[\,|m| < \infty,\ |v| < \infty\,]$$

    Shape (T, 1): logged steps; checkpoints fill what the log lacks.
    """
    checkpoints = relabelled(run.value("optimizer.state_finite"), "opt_state_finite")
    return filled(logged_as(run, "opt_state_finite"), checkpoints)


@metric(
    unit="%", reads=[skipped_updates, loss_scale, "overflow_rate"], source="catalogue M14; Micikevicius et al. 2018", memory=150
)
def overflow_rate(run: Run, *, window: int = 100, min_points: int = 10) -> Series:
    r"""Share of recent steps with overflowing gradients.

    $$r_t = \tfrac{100}{n} \sum_{i=t-n+1}^{t} k_i, \qquad n = \min(t, 100)$$

    Shape (T, 1). A step overflowed if its update was skipped; a line for several steps counts a share of them. If that is not
    recorded, a step overflowed if the loss scale is lower at the next point. The trainer's own rate counts if it is higher,
    because it may see more steps. Windows are counted in points; not recorded before `min_points` of them.

    Args:
        run: The run.
        window: Number of past points.
        min_points: Smallest number of points for a share.
    """
    source, hits = overflows(skipped_updates(run), loss_scale(run))
    series = share_of_last(source, hits, window=window, min_points=min_points)
    series = series.mapped(lambda share: 100 * share, "overflow_rate", "%")
    return higher(relabelled(series, "overflow_rate"), logged_as(run, "overflow_rate"))


def overflows(skipped: Series, scale: Series) -> tuple[Series, Floats]:
    """Return the series that shows overflows, and the share of an attempt that each of its cells reports, 0 to 1.

    A skipped update is an overflow; a running total is recognised because it exceeds 1 and never falls. Without skipped updates,
    a fall of the loss scale from one point to the next is an overflow.
    """
    skipped, scale = skipped.recorded_rows(), scale.recorded_rows()
    if not skipped and scale:
        scale = replace(scale, recorded=scale.finite).recorded_rows()
        return scale, (np.diff(scale.values, axis=0, prepend=scale.values[:1]) < 0).astype(float)
    counts = np.where(skipped.finite, skipped.values, 0.0)
    is_total = counts.max(initial=0.0) > 1 and bool((np.diff(counts, axis=0) >= 0).all())
    return skipped, np.clip(np.diff(counts, axis=0, prepend=0.0) if is_total else counts, 0.0, 1.0)


def is_set_back(rate: Series | None, since: int, until: int, *, raised: float = 1.5) -> bool:
    """Tell whether the learning rate rose between two steps to no more than an earlier value: a planned restart."""
    if rate is None:
        return False
    steps, values = rate.finite_points()
    before, after = values[steps <= since], values[(steps > since) & (steps <= until)]
    return bool(len(before) and len(after) and after.max() >= raised * before[-1] and before.max() * 1.01 >= after.max())


def share_of_last(series: Series, hits: Mask | Floats, *, window: int, min_points: int) -> Series:
    """Return the share of hits among the last `window` points of each point, shape (T, P).

    Args:
        series: Gives the steps and labels.
        hits: Points to count, or the share of each point to count, shape (T, P).
        window: Number of past points.
        min_points: Smallest number of points for a share; earlier points are not recorded.
    """
    counted = np.zeros((len(series.steps) + 1, len(series.labels)))
    np.cumsum(hits, axis=0, out=counted[1:])
    ends = np.arange(1, len(series.steps) + 1)
    starts = np.maximum(ends - window, 0)
    rates = (counted[ends] - counted[starts]) / (ends - starts)[:, None]
    recorded = np.broadcast_to((ends >= min_points)[:, None], rates.shape)
    return replace(series, values=np.where(recorded, rates, np.nan), recorded=recorded.copy())


def _clipped_by_norm(run: Run) -> Series:
    norms = grad_global_norm(run)
    limits = run.value("optimizer.clip_norm")
    planned = run.manifest.clip_norm if run.manifest else UNSET
    constant = np.nan if planned is UNSET else float(planned)
    limit = at(limits, norms.steps).values if limits else np.full((len(norms.steps), 1), constant)
    known = norms.recorded & (limit > 0)
    with np.errstate(all="ignore"):
        factors = np.where(np.isnan(norms.values), np.nan, np.minimum(1.0, limit / norms.values))
    return replace(relabelled(norms, "clip_coefficient"), values=np.where(known, factors, np.nan), recorded=known)


def _left_over(run: Run, *, rounding: float = 1e-3) -> Series:
    """Return the optimizer's input norm relative to the norm before it, at most 1, if no clipping limit is known.

    Args:
        run: The run.
        rounding: Relative difference of the norms up to which nothing was clipped.
    """
    given = run.value("optimizer.gradient_norm").recorded_rows()
    norms = grad_global_norm(run)
    if not given or not norms or run.value("optimizer.clip_norm"):
        return empty("clip_coefficient")
    before = at(norms, given.steps)
    known = given.recorded & (before.age == 0) & (before.values > 0)
    with np.errstate(all="ignore"):
        factors = given.values / before.values
    factors = np.where(factors > 1 - rounding, 1.0, factors)
    return replace(relabelled(given, "clip_coefficient"), values=np.where(known, factors, np.nan), recorded=known)
