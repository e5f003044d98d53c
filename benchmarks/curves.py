"""Made-up loss curves: healthy ones of many shapes, and the same with one illness of known position and size.

A healthy curve falls from its start to a floor, by a power of time or exponentially, at any pace and in any unit. Its noise is a
share of its level. An illness begins at a random point with at least two points before it and two from it on (three from ten
points on), and is as large as `smallest` says, or up to three times that.
"""

import math
from typing import Literal, get_args

import numpy as np
from msgspec import Struct

from ckaudit.run.run import Run
from ckaudit.run.series import Floats, Steps, single

Illness = Literal["climb", "jump", "flat at a guess", "flat elsewhere", "zero", "validation rise"]
ILLNESSES: tuple[Illness, ...] = get_args(Illness)
LENGTHS = (5, 7, 10, 15, 20, 30, 49, 50, 100, 1_000, 10_000)
NOISES = (0.01, 0.03, 0.1)
MIN_DEVIATIONS = 4.0
MIN_SHARE = 0.15
UNITS = (1e-3, 1.0, 1e6)
GUESSES = (math.log(2), math.log(10), math.log(1000), math.log(32_000), math.log(50_257), math.log(151_936))


class Draw(Struct, frozen=True, eq=False):
    """One made-up log: the steps, the training loss and, where it has one, the validation loss, all shape (N,)."""

    steps: Steps
    train: Floats | None
    val: Floats | None = None

    def run(self) -> Run:
        """Return the log as a run in memory."""
        scalars = {}
        if self.train is not None:
            scalars["train_loss_raw"] = single("train_loss_raw", "1", self.steps, self.train)
        if self.val is not None:
            scalars["val_loss"] = single("val_loss", "1", self.steps, self.val)
        return Run(name="drawn", scalars=scalars)


def steps_of(rng: np.random.Generator, count: int) -> Steps:
    """Return the steps of a log, for a run of a few thousand steps or more."""
    every = max(1, int(rng.choice([2_000, 10_000, 100_000])) // count)
    return every * np.arange(1, count + 1, dtype=np.int64)


def clean(rng: np.random.Generator, count: int, noise: float) -> Floats:
    """Return a healthy curve without noise: from its start to a floor of a sixth to half of it, shape (N,).

    It falls by at least the size of an illness, because a smaller fall cannot be told from none.
    """
    while True:
        values = _decay(rng, count)
        if values[0] - values[-1] >= smallest(noise) * values[-1]:
            return values


def _decay(rng: np.random.Generator, count: int) -> Floats:
    start = float(rng.choice(GUESSES)) if rng.random() < 0.5 else float(rng.choice(UNITS)) * rng.uniform(1, 10)
    floor = start / math.exp(rng.uniform(math.log(2), math.log(6)))
    time = np.linspace(0, 1, count)
    pace = math.exp(rng.uniform(math.log(0.02), math.log(0.5)))
    shape = np.exp(-time / pace) if rng.random() < 0.5 else (1 + time / pace) ** -rng.uniform(0.3, 1.2)
    return np.asarray(floor + (start - floor) * shape)


def noisy(rng: np.random.Generator, values: Floats, noise: float) -> Floats:
    """Return a curve with normal noise of a share of its level."""
    return np.asarray(values * (1 + noise * rng.standard_normal(len(values))))


def smallest(noise: float) -> float:
    """Return the least size of an illness, as a share of the level: four deviations of the noise, and 15 %."""
    return max(MIN_DEVIATIONS * noise, MIN_SHARE)


def healthy(rng: np.random.Generator, count: int, noise: float, *, with_val: bool) -> Draw:
    """Return a healthy log; its validation loss is at most a tenth above the training loss or a twentieth below."""
    values = clean(rng, count, noise)
    val = noisy(rng, values * (1 + rng.uniform(-0.05, 0.1)), noise) if with_val else None
    return Draw(steps_of(rng, count), noisy(rng, values, noise), val)


def onset_of(rng: np.random.Generator, count: int) -> int:
    """Return the first point of an illness: at least two are before it, and two from it on, three from ten points on."""
    return int(rng.integers(2, count - (2 if count < 10 else 3) + 1))


def risen(rng: np.random.Generator, values: Floats, onset: int, noise: float, illness: Illness) -> Floats:
    """Return a clean curve that stops falling at a point, and climbs to the end or jumps and stays."""
    size = smallest(noise) * rng.uniform(1, 3) * values[onset - 1]
    way = 1.0 if illness == "jump" else np.linspace(0, 1, len(values) - onset + 1)[1:]
    made = values.copy()
    made[onset:] = values[onset - 1] + size * way
    return made


def ill(rng: np.random.Generator, illness: Illness, count: int, noise: float) -> Draw:
    """Return a log with an illness."""
    values, onset, steps = clean(rng, count, noise), onset_of(rng, count), steps_of(rng, count)
    if illness == "validation rise":
        train = noisy(rng, values, noise) if rng.random() < 0.5 else None
        return Draw(steps, train, noisy(rng, risen(rng, values, onset, noise, "climb"), noise))
    if illness == "flat at a guess":
        return Draw(steps, noisy(rng, np.full(count, rng.choice(GUESSES[2:])), noise))
    if illness == "flat elsewhere":
        level = values[0] / (4 if GUESSES[2] <= values[0] <= 14 else 1)
        return Draw(steps, noisy(rng, np.full(count, level), noise))
    if illness == "zero":
        made = noisy(rng, values, noise)
        made[onset:] = 0.0
        return Draw(steps, made)
    return Draw(steps, noisy(rng, risen(rng, values, onset, noise, illness), noise))
