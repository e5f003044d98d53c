"""How many harmful changes of `lab wild --pairs` Student's test finds by the last losses alone, against so many good runs.

    python benchmarks/floors/pairs_floor.py CACHE --seed 6 [--split wild-dev]

The test is told what each run ends at, and nothing else. It is wrong of a good run in one case of a hundred, by definition, as a
question of `ckaudit diff` may be. One good run tells it nothing of chance: there it finds none.
"""

import argparse
import sys
from collections.abc import Iterator
from math import inf, isfinite
from pathlib import Path
from statistics import fmean, stdev

sys.path[:0] = [str(Path(__file__).parents[2])]

from ckaudit.lab.wild.groups import read_group  # noqa: E402
from ckaudit.lab.wild.pair import logged  # noqa: E402
from ckaudit.lab.wild.pair_score import LAST, STRONG  # noqa: E402

STUDENT = {2: 63.66, 3: 9.925, 5: 4.604}
"""How many deviations hold all but one in a hundred, on both sides, by the number of good runs: a table of Student's t."""
LOSSES = {"train_loss_raw": LAST, "val_loss": 1}


def ends_of(folder: Path) -> list[float]:
    """Return what a run's losses end at: the mean of the last ones."""
    found = []
    for name, last in LOSSES.items():
        values = logged(folder, name)
        found.append(fmean(values[-min(last, max(1, len(values) // 4)) :]) if values else float("nan"))
    return found


def tests_of(folder: Path) -> Iterator[tuple[float, dict[int, bool]]]:
    """Yield the effect of each change of a group, and whether it is found against each number of good runs."""
    group = read_group(folder)
    if group is None:
        return
    good = [ends_of(folder / member.name) for member in group.of("good")]
    for member in group.of("change"):
        ends = ends_of(folder / member.name)
        effect = max((_deviations(end, levels) for end, *levels in zip(ends, *good, strict=True)), default=0.0)
        yield (
            effect,
            {
                count: any(
                    _deviations(end, levels[:count]) > limit * (1 + 1 / count) ** 0.5
                    for end, *levels in zip(ends, *good, strict=True)
                )
                for count, limit in STUDENT.items()
            },
        )


def _deviations(end: float, levels: list[float]) -> float:
    """Return how far a loss ends above the mean of others, in their standard deviations; 0 where they have none."""
    if not all(map(isfinite, levels)) or (spread := stdev(levels)) == 0:
        return 0.0
    return (end - fmean(levels)) / spread if isfinite(end) else inf


def main() -> None:
    """Test every group of a cache, and print how many of the changes that harm are found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("cache", type=Path)
    parser.add_argument("--split", default="wild-dev")
    parser.add_argument("--seed", type=int, required=True)
    given = parser.parse_args()
    folders = sorted(given.cache.glob(f"{given.split}.group.{given.seed}.*"))
    harmful = [found for folder in folders for effect, found in tests_of(folder) if effect >= STRONG]
    for count in STUDENT:
        print(f"{count} good runs: {sum(found[count] for found in harmful)} of {len(harmful)}")


if __name__ == "__main__":
    main()
