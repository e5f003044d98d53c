"""Healthy logs that do not simply fall: planned restarts, curricula, losses that oscillate or cross zero, scores, other units."""

from collections.abc import Callable

import numpy as np

from benchmarks.curves import Draw, clean, noisy, steps_of
from ckaudit.run.run import Run
from ckaudit.run.series import Floats, single

Maker = Callable[[np.random.Generator, int, float], "Draw | WithRate"]


class WithRate(Draw, frozen=True):
    """A log with its learning rate."""

    rate: Floats | None = None

    def run(self) -> Run:
        """Return the log as a run in memory."""
        run = super().run()
        if self.rate is not None:
            run.scalars["learning_rate"] = single("learning_rate", "1", self.steps, self.rate)  # type: ignore[index]
        return run


def _time(count: int) -> Floats:
    return np.linspace(0, 1, count)


def warm_restarts(rng: np.random.Generator, count: int, noise: float) -> Draw:
    """Return a log of a cosine schedule of two to five cycles: a restart raises the loss by a tenth or so, then it falls."""
    phase = (_time(count) * rng.integers(2, 6)) % 1
    rate = 3e-4 * (1 + np.cos(np.pi * phase)) / 2
    return WithRate(steps_of(rng, count), noisy(rng, clean(rng, count, noise) * (0.9 + 0.1 * rate / 3e-4), noise), rate=rate)


def curriculum_up(rng: np.random.Generator, count: int, noise: float) -> Draw:
    """Return a log of a task made harder once: the loss steps up by a quarter, then falls to its former level or lower."""
    time, place = _time(count), rng.uniform(0.3, 0.5)
    values = 1 + 1.5 * np.exp(-8 * time) + np.where(time > place, 0.5 * np.exp(-12 * (time - place)), 0)
    return Draw(steps_of(rng, count), noisy(rng, values, noise))


def curriculum_down(rng: np.random.Generator, count: int, noise: float) -> Draw:
    """Return a log of a task that gets easier at each third: the loss steps down."""
    return Draw(steps_of(rng, count), noisy(rng, clean(rng, count, noise) * 0.8 ** np.floor(3 * _time(count)), noise))


def fine_tune(rng: np.random.Generator, count: int, noise: float) -> Draw:
    """Return a log of a fine-tuning that falls by 3 to 5 %, with a tenth of the noise of the others."""
    return Draw(
        steps_of(rng, count), noisy(rng, 1.8 * (1 - rng.uniform(0.03, 0.05) * (1 - np.exp(-3 * _time(count)))), noise / 10)
    )


def noisy_fine_tune(rng: np.random.Generator, count: int, noise: float) -> Draw:
    """Return a log of a fine-tuning with the noise of the others and a validation loss with a tenth of it, which falls."""
    values = 1.8 * (1 - rng.uniform(0.03, 0.05) * (1 - np.exp(-3 * _time(count))))
    return Draw(steps_of(rng, count), noisy(rng, values, noise), noisy(rng, values, noise / 10))


def around_zero(rng: np.random.Generator, count: int, noise: float) -> Draw:
    """Return a log of a policy gradient: noise around zero."""
    return Draw(steps_of(rng, count), noise * rng.standard_normal(count))


def adversarial(rng: np.random.Generator, count: int, noise: float) -> Draw:
    """Return a log of a generator's loss: an irregular walk around its level, after its first fall."""
    walk, last = np.empty(count), 0.0
    for row in range(count):
        last = 0.5 * last + noise * rng.standard_normal()
        walk[row] = last
    return Draw(steps_of(rng, count), (0.9 + 1.5 * np.exp(-12 * _time(count))) * np.exp(walk / 2))


def contrastive(rng: np.random.Generator, count: int, noise: float) -> Draw:
    """Return a log of a contrastive loss: it begins at the log of the batch size, falls at once, then slowly."""
    return Draw(steps_of(rng, count), noisy(rng, 0.4 + (np.log(512) - 0.4) * (1 + 60 * _time(count)) ** -0.6, noise))


def accuracy(rng: np.random.Generator, count: int, noise: float) -> Draw:
    """Return a log of an accuracy under the name of a loss."""
    values = noisy(rng, 0.1 + 0.8 * (1 - np.exp(-5 * _time(count))), noise / 10)
    return Draw(steps_of(rng, count), np.clip(values, 0, 1))


def reward(rng: np.random.Generator, count: int, noise: float) -> Draw:
    """Return a log of a reward under the name of a loss, from below zero."""
    return Draw(steps_of(rng, count), -20 + 60 * (1 - np.exp(-4 * _time(count))) + 60 * noise / 10 * rng.standard_normal(count))


def dropout(rng: np.random.Generator, count: int, noise: float) -> Draw:
    """Return a log with dropout: the training loss is a tenth above the validation loss throughout."""
    values = clean(rng, count, noise)
    return Draw(steps_of(rng, count), noisy(rng, values, noise), noisy(rng, values * 0.9, noise / 3))


def plateau(rng: np.random.Generator, count: int, noise: float) -> Draw:
    """Return a log of a curve that has converged after a twentieth of its points."""
    return Draw(steps_of(rng, count), noisy(rng, 1 + 2 * np.exp(-60 * _time(count)), noise))


def double_descent(rng: np.random.Generator, count: int, noise: float) -> Draw:
    """Return a log with a validation loss that rises by a third in the middle and later falls below its first minimum."""
    time = _time(count)
    val = 1 + 1.5 * np.exp(-10 * time) + 0.4 * np.exp(-(((time - 0.45) / 0.12) ** 2)) - 0.25 * time
    return Draw(steps_of(rng, count), noisy(rng, 0.6 + 2 * np.exp(-6 * time), noise), noisy(rng, val, noise / 3))


def resumed(rng: np.random.Generator, count: int, noise: float) -> Draw:
    """Return a log that begins late, at a level that hardly falls."""
    return Draw(steps_of(rng, count) + 500_000, noisy(rng, 2.4 - 0.05 * _time(count), noise))


SHAPES: dict[str, Maker] = {
    make.__name__.replace("_", " "): make
    for make in (
        warm_restarts,
        curriculum_up,
        curriculum_down,
        fine_tune,
        noisy_fine_tune,
        around_zero,
        adversarial,
        contrastive,
        accuracy,
        reward,
        dropout,
        plateau,
        double_descent,
        resumed,
    )
}
