"""Observability: whether the training is alive, its checkpoints are complete, and its numbers arrive."""

import numpy as np
from msgspec import UNSET
from msgspec.structs import replace

from ckaudit.metrics.counters import session_starts, shared_points
from ckaudit.metrics.gradients import grad_global_norm
from ckaudit.metrics.loss import train_loss_raw, val_loss
from ckaudit.metrics.metric import Metric, metric
from ckaudit.metrics.nonfinite import nonfinite_activations, nonfinite_gradients, nonfinite_weights
from ckaudit.metrics.optimizer import skipped_updates
from ckaudit.metrics.pairs import filled, logged_as, relabelled
from ckaudit.run.cancelled_gradients import never_applied, never_applied_counts
from ckaudit.run.run import Run
from ckaudit.run.series import Floats, Mask, Series, empty, merged_steps, single

DAY = 86_400.0


_PLACES = (
    train_loss_raw,
    val_loss,
    grad_global_norm,
    nonfinite_weights,
    nonfinite_gradients,
    nonfinite_activations,
    skipped_updates,
)


@metric(unit="places", reads=[*_PLACES, "nan_inf_events"], source="catalogue M60", memory=1)
def nan_inf_events(run: Run) -> Series:
    r"""Number of places with a NaN or an infinity at each step: losses, the gradient norm, tensors and modules.

    $$\sum_p \mathbb{1}[\,\neg\,\mathrm{isfinite}(x_p)\,]$$

    Shape (T, 1): logged steps and checkpoints. A tensor or module counts once, however many of its elements are not finite.
    Gradients of an update that the loss scaler skipped do not count, because overflow is how it finds its scale. If no scaler is
    recorded, gradients that become finite again later do not count, because none was applied. The logged number counts if it is
    larger, because a trainer checks more places.
    """
    counted, series = bad_places(run), run.scalar("nan_inf_events").recorded_rows()
    if not len(series.steps):
        return single("nan_inf_events", "places", counted.steps, counted.values[:, 0])
    steps = merged_steps(counted.steps, series.steps)
    events = np.zeros(len(steps))
    events[np.searchsorted(steps, counted.steps)] = counted.values[:, 0]
    logged = np.where(series.finite, series.values, 0.0).sum(axis=1)
    np.maximum.at(events, np.searchsorted(steps, series.steps), logged)
    return single("nan_inf_events", "places", steps, events)


def bad_places(run: Run) -> Series:
    """Return the number of recorded places with a NaN or an infinity at each recorded step, shape (T, 1)."""
    norm, counted = grad_global_norm(run), nonfinite_gradients(run)
    gradients = _unless_skipped(run, norm, never_applied(norm)), _unless_skipped(run, counted, never_applied_counts(counted))
    numbers = [train_loss_raw(run), val_loss(run), gradients[0]]
    counts = [nonfinite_weights(run), nonfinite_activations(run), gradients[1]]
    bad = [(number, number.nonfinite) for number in numbers] + [
        (count, count.recorded & ~(count.values <= 0)) for count in counts
    ]
    steps = merged_steps(*(series.recorded_rows().steps for series in [*numbers, *counts] if len(series.steps)))
    events = np.zeros(len(steps))
    for series, hits in bad:
        rows = np.flatnonzero(hits.any(axis=1))
        events[np.searchsorted(steps, series.steps[rows])] += hits[rows].sum(axis=1)
    return single("bad_places", "places", steps, events)


def places_read() -> tuple[Metric, ...]:
    """Return the metrics that bad_places reads."""
    return _PLACES


@metric(unit="1", reads=["checkpoint_ok", "file_ok"], source="catalogue M61", memory=1)
def checkpoint_ok(run: Run) -> Series:
    r"""Whether a checkpoint is complete and readable: 1 if so, 0 if not.

    $$\mathbb{1}[\,\text{readable}\,]$$

    Shape (T, 1): as logged by the trainer for its own checkpoints; else whether the analysis checkpoint of the step is readable.
    """
    return filled(*_of_file(run, "checkpoint_ok", "file_ok"))


@metric(unit="1", reads=["file_ok"], source="catalogue M61", memory=1)
def checkpoint_written(run: Run) -> Series:
    r"""Steps with an analysis checkpoint: 1 if its file is readable, 0 if it exists but is not.

    $$\mathbb{1}[\,\text{readable}\,]$$

    Shape (C, 1). A step without a file is not recorded.
    """
    return run.scalar("file_ok")


@metric(unit="s", reads=["checkpoint_time", "cost.ms"], source="catalogue M62", memory=1)
def checkpoint_time(run: Run) -> Series:
    r"""Time that the training waited for a checkpoint.

    $$\tau_{end} - \tau_{begin}$$

    Shape (T, 1): as logged by the trainer for its own checkpoints; else the cost of the step's analysis checkpoint.
    """
    cost = run.value("cost.ms").mapped(lambda ms: ms / 1e3, "checkpoint_time", "s")
    return filled(logged_as(run, "checkpoint_time"), relabelled(cost, "checkpoint_time"))


@metric(unit="bytes", reads=["checkpoint_size", "file_bytes"], source="catalogue M63", memory=1)
def checkpoint_size(run: Run) -> Series:
    r"""Size of a checkpoint on disk.

    $$\text{bytes}$$

    Shape (T, 1): as logged by the trainer for its own checkpoints; else the file size of the step's analysis checkpoint.
    """
    return filled(*_of_file(run, "checkpoint_size", "file_bytes"))


@metric(unit="restarts/day", reads=["time", "restart_rate"], source="catalogue M64")
def restart_rate(run: Run) -> Series:
    r"""Number of restarts of the training in the last 24 hours.

    $$|\{s : \tau_t - 86400 < \tau_s \le \tau_t\}|$$

    Shape (T, 1): logged steps with a time, from the sessions in run.json without the first. The logged rate counts if run.json
    lists none.
    """
    starts = session_starts(run)
    series = _events_of_last_day(run, starts[1:], "restart_rate", "restarts/day") if len(starts) else empty("x")
    return filled(series, logged_as(run, "restart_rate"))


@metric(unit="events/day", reads=["error_event_rate"], source="catalogue M65", memory=1)
def error_event_rate(run: Run) -> Series:
    r"""Number of errors in the last 24 hours: out of memory, collectives, input and output.

    $$|\{e : \tau_t - 86400 < \tau_e \le \tau_t\}|$$

    Shape (T, K): logged steps, by kinds if the log distinguishes them. Interrupted sessions do not show the errors of the others;
    restart_rate counts them.
    """
    return run.scalar("error_event_rate")


@metric(unit="s", reads=["metrics_ingest_lag", "time", "file_time"], source="catalogue M66", memory=1)
def metrics_ingest_lag(run: Run) -> Series:
    r"""Time from the end of a step until its numbers can be read.

    $$\tau_{line} - \tau_{step}$$

    Shape (T, 1): as logged; else from the end of the step, as recorded in its checkpoint, to the log line.
    """
    ended, written = run.scalar("file_time"), run.scalar("time")
    steps, times = shared_points([ended, written])
    series = single("metrics_ingest_lag", "s", steps, np.maximum(times[:, 1] - times[:, 0], 0.0))
    return filled(logged_as(run, "metrics_ingest_lag"), series)


@metric(unit="ranks", reads=["rank_facts.heartbeat", "heartbeat_missing"], source="catalogue M67")
def heartbeat_missing(run: Run, *, patience: float = 300.0) -> Series:
    r"""Number of ranks without a sign of life.

    $$R - |\{r : \tau_r > \max_q \tau_q - 300\}|$$

    Shape (T, 1): checkpoints with per-rank files; R is the world size in run.json or the number of ranks seen so far, whichever
    is larger. The logged number counts elsewhere.

    Args:
        run: The run.
        patience: Seconds behind the latest rank up to which a rank counts as alive; ranks write at the same step.
    """
    beats = run.value("rank_facts.heartbeat")
    world = run.manifest.world_size if run.manifest else UNSET
    seen = np.logical_or.accumulate(beats.recorded, axis=0).sum(axis=1)
    expected = np.maximum(seen, world if isinstance(world, int) else 0)
    times = np.where(beats.finite, beats.values, -np.inf)
    latest = times.max(axis=1, initial=-np.inf)[:, None]
    alive = (beats.finite & (times >= latest - patience)).sum(axis=1)
    known = np.flatnonzero(beats.recorded.any(axis=1))
    series = single("heartbeat_missing", "ranks", beats.steps[known], (expected - alive)[known].astype(float))
    return filled(series, logged_as(run, "heartbeat_missing"))


def _unless_skipped(run: Run, series: Series, is_unapplied: Mask) -> Series:
    """Return a series without the steps whose update was skipped: by the loss scaler, or by anybody if no scaler is recorded."""
    skipped = skipped_updates(run)
    if not skipped:
        return replace(series, recorded=series.recorded & ~is_unapplied)
    steps = skipped.steps[(skipped.values > 0).any(axis=1)]
    return replace(series, recorded=series.recorded & ~np.isin(series.steps, steps)[:, None])


def _of_file(run: Run, name: str, fact: str) -> tuple[Series, Series]:
    return logged_as(run, name), relabelled(run.scalar(fact), name)


def _events_of_last_day(run: Run, events: Floats, name: str, unit: str) -> Series:
    """Count the `events`, sorted Unix seconds, in the 24 hours before each log line."""
    steps, times = shared_points([run.scalar("time")])
    until, since = (np.searchsorted(events, times[:, 0] - back, side="right") for back in (0.0, DAY))
    return single(name, unit, steps, (until - since).astype(float))
