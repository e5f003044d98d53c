"""The most that can be known of a rise in few points: a likelihood-ratio test that knows all but what no log tells.

    python benchmarks/floors/curve_floor.py [--draws 400]

The oracle knows the place and the shape of the illness, how the noise grows with the level, and that the curve before it is of
the family of benchmarks/curves.py: a floor, a height, a pace and a form that it has to fit, as anybody has to. Of the noise it
knows that it lies between 1 and 10 % of the level. It compares the best likelihoods with and without the illness; its limit is
set for each number of points so that one healthy curve in a hundred is accused, at the noise where that is most. Then it says
how often it finds a climb or a jump. A rule that knows neither place nor family can only do worse at that price.
"""

import argparse
import math
import sys
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).parents[2])]

from benchmarks import curves  # noqa: E402
from ckaudit.run.series import Floats  # noqa: E402

NOISES = np.geomspace(0.01, 0.1, 11)


def forms(count: int) -> list[Floats]:
    """Return the decays from 1 to 0 of the family, on a grid of paces and powers."""
    time = np.linspace(0, 1, count)
    paces = np.geomspace(0.02, 0.5, 8)
    powers = [(1 + time / pace) ** -power for pace in paces for power in (0.3, 0.75, 1.2)]
    return [*(np.exp(-time / pace) for pace in paces), *powers]


def best(values: Floats, levels: Floats, onset: int | None, ramp: Floats) -> float:
    """Return the best log likelihood of a healthy curve, or of one that stops at `onset` and rises along `ramp`.

    Args:
        values: What was logged, shape (N,).
        levels: What the noise is a share of, shape (N,).
        onset: First point of the illness; None: there is none.
        ramp: Its shape, shape (N,).
    """
    squares = math.inf
    for form in forms(len(values)):
        decay = form if onset is None else np.concatenate([form[:onset], np.full(len(form) - onset, form[onset - 1])])
        for columns in ([np.ones(len(values)), decay], [np.ones(len(values))]):
            table = np.stack(columns if onset is None else [*columns, ramp], axis=1) / levels[:, None]
            found = np.linalg.lstsq(table, values / levels, rcond=None)[0]
            if (found[1:] >= 0).all():
                squares = min(squares, float(np.square(table @ found - values / levels).sum()))
                break
    return max(-len(values) * math.log(noise) - squares / (2 * noise**2) for noise in NOISES) if squares < math.inf else -math.inf


def ratio(values: Floats, levels: Floats, onset: int, illness: str) -> float:
    """Return the log likelihood ratio of an illness of known shape and place over none."""
    ramp = np.zeros(len(values))
    ramp[onset:] = 1.0 if illness == "jump" else np.linspace(0, 1, len(values) - onset + 1)[1:]
    return max(0.0, best(values, levels, onset, ramp) - best(values, levels, None, ramp))


def row(count: int, illness: curves.Illness, draws: int) -> str:
    """Return how often the oracle finds an illness in so many points, by noise."""
    rng = np.random.default_rng(count)
    limits, cells = [], []
    for noise in curves.NOISES:
        ratios = []
        for _ in range(draws):
            clean = curves.clean(rng, count, noise)
            ratios.append(ratio(curves.noisy(rng, clean, noise), clean, curves.onset_of(rng, count), illness))
        limits.append(float(np.quantile(ratios, 0.99)))
    for noise in curves.NOISES:
        hits = 0
        for _ in range(draws):
            clean, onset = curves.clean(rng, count, noise), curves.onset_of(rng, count)
            risen = curves.risen(rng, clean, onset, noise, illness)
            hits += ratio(curves.noisy(rng, risen, noise), risen, onset, illness) > max(limits)
        cells.append(f"{100 * hits / draws:.1f}")
    return f"| {count} | {illness} | " + " | ".join(cells) + " |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--draws", type=int, default=400)
    draws = parser.parse_args().draws
    print("| points | illness | noise 1% | 3% | 10% |")
    print("|---|---|---|---|---|")
    kinds: tuple[curves.Illness, ...] = ("climb", "jump")
    for count in (5, 7, 10, 15, 20):
        for illness in kinds:
            print(row(count, illness, draws), flush=True)


if __name__ == "__main__":
    main()
