"""The most that can be found in few points: tests that know all but what no log tells, at one false alarm in a hundred.

    python benchmarks/floors/curve_floor.py [--draws 300]

Of a climb and a jump the oracle knows the shapes, how the noise grows with the level, and that the curve before is of the family
of benchmarks/curves.py: a floor, a height, a pace and a form that it has to fit, as anybody has to. Of the noise it knows that it
lies between 1 and 10 % of the level. It does not know the place. It compares the best likelihoods with and without an illness;
its limit is such that one healthy curve in a hundred is accused, at the noise where that is most.

Of a flat curve it knows the same of the noise, and that a healthy one falls by 5 % within its first quarter, as a fine-tuning
may: it compares the best likelihoods of a level and of such a fall, and takes for flat what one healthy curve in a hundred looks
like.
"""

import argparse
import math
import sys
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).parents[2])]

from benchmarks import curves  # noqa: E402  stands beside this folder
from ckaudit.run.series import Floats  # noqa: E402

NOISES = np.geomspace(0.01, 0.1, 11)
PACES, POWERS = np.geomspace(0.015, 0.7, 24), (0.25, 0.4, 0.6, 0.8, 1.0, 1.25)
FINE_TUNING, FIRST_QUARTER, FALSE_ALARMS = 0.05, 0.25, 0.01


def designs(count: int) -> tuple[Floats, Floats]:
    """Return the columns of healthy curves, shape (H, N, 2), and of ill ones of every place and shape, shape (I, N, 3)."""
    time, ones = np.linspace(0, 1, count), np.ones(count)
    forms = [np.exp(-time / pace) for pace in PACES] + [(1 + time / pace) ** -power for pace in PACES for power in POWERS]
    ill = []
    for onset in range(2, count - (2 if count < 10 else 3) + 1):
        for illness in ("climb", "jump"):
            ramp = np.zeros(count)
            ramp[onset:] = 1.0 if illness == "jump" else np.linspace(0, 1, count - onset + 1)[1:]
            stopped = (np.concatenate([form[:onset], np.full(count - onset, form[onset - 1])]) for form in forms)
            ill += [np.stack([ones, form, ramp], axis=1) for form in stopped]
    return np.array([np.stack([ones, form], axis=1) for form in forms]), np.array(ill)


def best_log_likelihood(tables: Floats, values: Floats, weights: Floats) -> float:
    """Return the best log likelihood of all designs whose coefficients but the floor are not negative, or of a constant."""
    weighted, target = tables * weights[None, :, None], values * weights
    products = np.einsum("kni,knj->kij", weighted, weighted) + 1e-9 * np.eye(tables.shape[2])
    found = np.linalg.solve(products, np.einsum("kni,n->ki", weighted, target)[..., None])[..., 0]
    fits = (found[:, 1:] >= 0).all(axis=1)
    squares = np.square(np.einsum("kni,ki->kn", weighted, found) - target).sum(axis=1)[fits]
    constant = float(np.square(target - weights * (weights @ target) / (weights @ weights)).sum())
    least = min(float(squares.min(initial=math.inf)), constant)
    return max(-len(values) * math.log(noise) - least / (2 * noise**2) for noise in NOISES)


def log_likelihood_ratio(healthy: Floats, ill: Floats, values: Floats, levels: Floats) -> float:
    """Return the log likelihood ratio of an illness anywhere over none, where the noise is a share of `levels`."""
    unit = float(levels.mean())
    return best_log_likelihood(ill, values / unit, unit / levels) - best_log_likelihood(healthy, values / unit, unit / levels)


def rise_rows(count: int, draws: int) -> list[str]:
    """Return how often a climb and a jump are found in so many points, by noise."""
    rng, (healthy, ill) = np.random.default_rng(count), designs(count)
    limits = []
    for noise in curves.NOISES:
        clean = [curves.clean(rng, count, noise) for _ in range(draws)]
        ratios = [log_likelihood_ratio(healthy, ill, curves.noisy(rng, each, noise), each) for each in clean]
        limits.append(float(np.quantile(ratios, 1 - FALSE_ALARMS)))
    rows = []
    kinds: tuple[curves.Illness, ...] = ("climb", "jump")
    for illness in kinds:
        cells = []
        for noise in curves.NOISES:
            risen = [
                curves.risen(rng, curves.clean(rng, count, noise), curves.onset_of(rng, count), noise, illness)
                for _ in range(draws)
            ]
            hits = sum(log_likelihood_ratio(healthy, ill, curves.noisy(rng, each, noise), each) > max(limits) for each in risen)
            cells.append(f"{100 * hits / draws:.1f}")
        rows.append(f"| {count} | {illness} | " + " | ".join(cells) + " |")
    return rows


def flat_log_likelihood(values: Floats, shape: Floats) -> float:
    """Return the best log likelihood of a level times a shape, where the noise is a share of the level."""
    level = float(shape @ values) / float(shape @ shape)
    squares = float(np.square(values / (level * shape) - 1).sum())
    return max(-len(values) * math.log(noise) - squares / (2 * noise**2) for noise in NOISES)


def flat_row(count: int, draws: int) -> str:
    """Return how often a flat curve is told from a fine-tuning, by noise."""
    rng, ones = np.random.default_rng(count), np.ones(count)
    tuned = 1 - FINE_TUNING * np.minimum(1, np.linspace(0, 1, count) / FIRST_QUARTER)

    def ratios(shape: Floats, noise: float) -> Floats:
        made = (curves.noisy(rng, shape, noise) for _ in range(draws))
        return np.array([flat_log_likelihood(each, ones) - flat_log_likelihood(each, tuned) for each in made])

    limit = max(float(np.quantile(ratios(tuned, noise), 1 - FALSE_ALARMS)) for noise in curves.NOISES)
    cells = [f"{100 * float(np.mean(ratios(ones, noise) > limit)):.1f}" for noise in curves.NOISES]
    return f"| {count:,} | flat | " + " | ".join(cells) + " |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--draws", type=int, default=300)
    draws = parser.parse_args().draws
    print("| points | illness | noise 1% | 3% | 10% |")
    print("|---|---|---|---|---|")
    for count in (5, 7, 10, 15, 20, 30):
        print(*rise_rows(count, draws), sep="\n", flush=True)
    for count in curves.LENGTHS:
        print(flat_row(count, draws), flush=True)


if __name__ == "__main__":
    main()
