"""How many ill runs are in the first 30 rows of a fleet of 300 wild trainings, 30 of which are ill.

    python benchmarks/fleet_wild.py CACHE... [--like RECORDINGS] [--fleets 20] [--jobs 2]

CACHE holds draws as `ckaudit lab wild` records them. A draw is ill if its fault has an effect; the twin of any draw that learns
is healthy. Every recording is audited once, as `ckaudit fleet` does it; then fleets are drawn at random. With 30 ill among the
first 30 rows precision and recall are one number. RECORDINGS holds healthy siblings of some draws, as `benchmarks/siblings.py`
records them: with them every run is compared with those of its configuration, as `ckaudit fleet --like` does it.
"""

import argparse
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

sys.path[:0] = [str(Path(__file__).parents[1])]

from ckaudit.contract.schema.fleet import FleetRun  # noqa: E402
from ckaudit.fleet.engines.local import LocalEngine  # noqa: E402
from ckaudit.fleet.fleet import ranked  # noqa: E402
from ckaudit.fleet.like import with_own_siblings  # noqa: E402
from ckaudit.fleet.source import RunSource  # noqa: E402
from ckaudit.lab.wild.pair import HEALTHY, ILL, has_effect, read_note, twin_learns  # noqa: E402

RUNS, ILL_RUNS = 300, 30


def recordings(caches: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Return the ill recordings and the healthy ones."""
    ill, healthy = [], []
    for folder in sorted(folder for cache in caches for folder in cache.glob("wild-dev.*")):
        pair = read_note(folder)
        if pair is None or not twin_learns(folder / HEALTHY):
            continue
        healthy.append(folder / HEALTHY)
        if has_effect(pair, folder / ILL, folder / HEALTHY):
            ill.append(folder / ILL)
    return ill, healthy


def hits(rows: dict[Path, list[FleetRun]], ill: Sequence[Path], healthy: Sequence[Path], seed: int) -> int:
    """Return how many of the first rows of one drawn fleet are ill runs."""
    drawn = random.Random(seed)
    chosen = drawn.sample(ill, ILL_RUNS)
    fleet = [row for path in [*chosen, *drawn.sample(healthy, RUNS - ILL_RUNS)] for row in rows[path]]
    drawn.shuffle(fleet)
    names = set(map(str, chosen))
    return sum(row.run in names for row in ranked(fleet)[:ILL_RUNS])


def main() -> None:
    """Audit, draw, count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("caches", nargs="+", type=Path)
    parser.add_argument("--like", type=Path, help="healthy siblings of draws")
    parser.add_argument("--fleets", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    ill, healthy = recordings(options.caches)
    sources = [RunSource(name=str(path), path=str(path)) for path in [*ill, *healthy]]
    if options.like:
        siblings = sorted(path for path in options.like.glob("wild-dev.*/[0-9]*") if path.is_dir())
        sources = with_own_siblings(sources, [RunSource(name=str(path), path=str(path)) for path in siblings])
    rows: dict[Path, list[FleetRun]] = {}
    for group in LocalEngine(options.jobs).results(sources):
        rows.setdefault(Path(group[0].run), []).extend(group)
    counts = [hits(rows, ill, healthy, seed) for seed in range(options.fleets)]
    held = sum(row.siblings > 0 for group in rows.values() for row in group)
    print(f"{len(ill)} ill and {len(healthy)} healthy recordings, {held} of them held against siblings")
    print(f"{options.fleets} fleets of {RUNS} with {ILL_RUNS} ill")
    print(f"ill among the first {ILL_RUNS}: {mean(counts) / ILL_RUNS:.1%} on average, {min(counts)} to {max(counts)}")


if __name__ == "__main__":
    main()
