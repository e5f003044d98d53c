"""How many draws of wild-dev harm their loss by more than another seed does: what could be told of a run by its losses at all.

    python benchmarks/floors/wild_floor.py CACHE --seed 28 [--draws 40] [--jobs 2]

An effect in `ckaudit lab score` is held against a twin of the same seed, which nobody has whose training is ill. This oracle
knows three healthy trainings more, of other seeds, and with them what chance does to the last tenth of each loss. It tells of a
draw where the ill training ends further above their mean than three deviations, by the training loss or by the held-out one. A
fault that is a fact, as a changed weight, shows in a record whatever the losses say, and is counted apart.
"""

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from shutil import rmtree
from statistics import mean, median, stdev
from tempfile import mkdtemp

sys.path[:0] = [str(Path(__file__).parents[2])]

from ckaudit.lab.score.scoreboard import share  # noqa: E402
from ckaudit.lab.wild.pair import HEALTHY, ILL, has_effect, logged, pair_folder, read_note, twin_learns  # noqa: E402

LOSSES = ("train_loss_raw", "val_loss")
OTHER_SEEDS = (1, 2, 3)
SEEDS_APART = 50_021
DEVIATIONS = 3.0


def end_of(folder: Path, name: str) -> float | None:
    """Return the median of the last tenth of a loss; None where there is none."""
    values = logged(folder, name)
    return median(values[-max(1, len(values) // 10) :]) if values else None


def is_beyond_chance(cache: Path, seed: int, index: int) -> bool:
    """Tell whether an ill training ends above its healthy twins of other seeds by more than chance does."""
    from ckaudit.lab.wild.draw import draw
    from ckaudit.lab.zoo.trainers import train

    drawn, folder, place = (
        draw("wild-dev", seed, index),
        pair_folder(cache, "wild-dev", seed, index),
        Path(mkdtemp(prefix="twins-")),
    )
    twins = [folder / HEALTHY]
    try:
        for other in OTHER_SEEDS:
            train(drawn.healthy, place / str(other), drawn.training_seed + other * SEEDS_APART)
            twins.append(place / str(other))
        return any(_is_above(end_of(folder / ILL, name), [end_of(twin, name) for twin in twins]) for name in LOSSES)
    finally:
        rmtree(place, ignore_errors=True)


def _is_above(ill: float | None, healthy: list[float | None]) -> bool:
    known = [value for value in healthy if value is not None]
    if len(known) < len(healthy):
        return False
    return ill is None or not ill <= mean(known) + DEVIATIONS * stdev(known)


def main() -> None:
    """Count the draws with an effect that an oracle could tell, and print the shares."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("cache", type=Path)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--draws", type=int, default=10_000, help="the first so many with an effect")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    facts, others = list[int](), list[int]()
    for folder in sorted(given.cache.glob(f"wild-dev.{given.seed}.*")):
        pair = read_note(folder)
        if pair is None or not twin_learns(folder / HEALTHY):
            continue
        if pair.is_fact or has_effect(pair, folder / ILL, folder / HEALTHY):
            (facts if pair.is_fact else others).append(int(folder.name.rpartition(".")[2]))
    others = others[: given.draws]
    with ProcessPoolExecutor(given.jobs, mp_context=get_context("spawn")) as trainers:
        told = list(trainers.map(is_beyond_chance, [given.cache] * len(others), [given.seed] * len(others), others))
    known = share(sum(told), len(told))
    print(
        f"{len(facts)} draws are facts; of {known.of} others with an effect the oracle tells of {known.hits}: {known.share:.0%}"
    )


if __name__ == "__main__":
    main()
