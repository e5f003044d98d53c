"""Progress: numbers of tokens and updates, and the position in the schedule."""

import numpy as np
from msgspec import UNSET
from msgspec.structs import replace

from ckaudit.metrics.counters import increments, shared_points
from ckaudit.metrics.metric import metric
from ckaudit.metrics.optimizer import skipped_updates
from ckaudit.metrics.pairs import filled, logged_as
from ckaudit.run.run import Run
from ckaudit.run.series import Series, empty, single


@metric(unit="tokens", reads=["tokens_seen", "tokens_per_update"], source="catalogue M01")
def tokens_seen(run: Run) -> Series:
    r"""Target tokens that the training has seen so far, without padding.

    $$n_t = \sum_{s \le t} n_s$$

    Shape (T, 1): logged steps, as counted by the trainer. If it is not logged, the tokens of each update are summed from step 0
    on; a step without a line counts like the next line. A line that is not finite adds nothing.
    """
    sizes = run.scalar("tokens_per_update")
    steps, values = shared_points([sizes])
    series = single("tokens_seen", "tokens", steps, np.cumsum(values[:, 0] * np.diff(steps, prepend=0)))
    return filled(logged_as(run, "tokens_seen"), series)


@metric(unit="updates", reads=["steps_seen", skipped_updates], source="catalogue M02")
def steps_seen(run: Run) -> Series:
    r"""Updates applied so far: attempts minus those that the loss scaler skipped.

    $$u_t = t - \sum_{s \le t} k_s$$

    Shape (T, 1): logged steps. Recomputed as long as every step from the first on has a line that records whether it was skipped;
    elsewhere as counted by the trainer.
    """
    skipped, series = skipped_updates(run), logged_as(run, "steps_seen")
    if not skipped:
        return series
    known = skipped.recorded[:, 0]
    unbroken = skipped.steps[known] == np.arange(1, known.sum() + 1)
    steps = skipped.steps[known][np.logical_and.accumulate(unbroken)]
    lost = np.cumsum(np.where(skipped.finite[:, :1], skipped.values[:, :1], 0.0)[known, 0][: len(steps)])
    return filled(single("steps_seen", "updates", steps, steps - lost), series)


@metric(unit="tokens/update", reads=["tokens_per_update", "tokens_seen"], source="catalogue M08")
def tokens_per_update(run: Run) -> Series:
    r"""Tokens of one update, over all ranks and accumulated micro-batches.

    $$\frac{n_t - n_{t'}}{t - t'}$$

    Shape (T, 1): logged steps, as counted by the trainer; else the mean increase of tokens seen per step between two counts. Not
    recorded at the first count, nor if the count falls.
    """
    steps, values = shared_points([run.scalar("tokens_seen")])
    with np.errstate(all="ignore"):
        sizes = increments(values)[:, 0] / np.diff(steps, prepend=-1)
    series = single("tokens_per_update", "tokens/update", steps[sizes >= 0], sizes[sizes >= 0])
    return filled(logged_as(run, "tokens_per_update"), series)


@metric(unit="%", reads=["learning_rate", "lr_phase"], source="catalogue M07; Goyal et al. 2017, section 2.2", memory=1)
def lr_phase(run: Run) -> Series:
    r"""Share of the planned warm-up that is done.

    $$100 \cdot \min(1, t / T_{warmup})$$

    Shape (T, 1): steps with a learning rate; 100 once the warm-up is over. The trainer's own number counts only if run.json plans
    no warm-up.
    """
    rate = run.scalar("learning_rate")
    planned = run.manifest.warmup_steps if run.manifest else UNSET
    series = empty("lr_phase")
    if planned is not UNSET and planned and rate:
        known = rate.recorded.any(axis=1)
        series = single("lr_phase", "%", rate.steps[known], 100 * np.minimum(1.0, rate.steps[known] / planned))
    return filled(series, logged_as(run, "lr_phase"))


@metric(unit="1", reads=["learning_rate"], source="playbook D4.6")
def learning_rate_over_peak(run: Run) -> Series:
    r"""Learning rate relative to its largest so far: 1 while it warms up or stays constant, less while it decays.

    $$\eta_t / \max_{s \le t} \eta_s$$

    Shape (T, G): logged steps by parameter groups. Not recorded as long as the rate is 0; NaN if it is not finite.
    """
    rate = run.scalar("learning_rate")
    peak = np.maximum.accumulate(np.where(rate.finite, rate.values, -np.inf), axis=0)
    recorded = rate.recorded & (peak > 0)
    with np.errstate(all="ignore"):
        values = np.where(rate.finite & recorded, rate.values / peak, np.nan)
    return replace(rate, values=values, recorded=recorded)
