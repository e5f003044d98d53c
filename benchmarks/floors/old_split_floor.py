"""Which recorded number of an ill run no healthy run shows: what a limit on a single metric could find without a false alarm.

    python benchmarks/floors/old_split_floor.py RECORDINGS HEALTHY... --only 'sgd_instead.*' [--beyond 1.5]

RECORDINGS is the lab's cache, HEALTHY are caches of `ckaudit lab wild`, with twins of other families. Of each metric the
smallest, the median and the largest value of a run, and the median at its last step, are held against their range over all
healthy runs; what leaves that range by less than a factor of `--beyond` would be a limit drawn around these recordings.
"""

import argparse
import sys
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

sys.path[:0] = [str(Path(__file__).parents[2])]

from ckaudit.audit.measure import measure  # noqa: E402
from ckaudit.errors import CkauditError  # noqa: E402
from ckaudit.lab import archive  # noqa: E402

FEWEST_HEALTHY = 50
OF_THE_TASK = ("lr_*", "learning_rate*", "playbook_numbers", "unigram_entropy", "target_equals_input", "recording_*")
"""What follows from the plan, the texts and the clock, and says nothing of an illness."""


def summaries_of(folder: Path) -> dict[tuple[str, str], float]:
    """Return the least, median, largest and last value of each metric of a run."""
    found = {}
    for measured in measure(folder).measured:
        values = measured.series.values
        known, last = values[np.isfinite(values)], values[-1][np.isfinite(values[-1])]
        if known.size and not any(Path(measured.name).match(pattern) for pattern in OF_THE_TASK):
            for name, value in (("least", known.min()), ("median", np.median(known)), ("largest", known.max())):
                found[measured.name, name] = float(value)
            found[measured.name, "last"] = float(np.median(last)) if last.size else float(known[-1])
    return found


def ranges_of(caches: list[Path]) -> dict[tuple[str, str], list[float]]:
    """Return what the healthy twins of wild draws show of each metric, rising."""
    values = defaultdict[tuple[str, str], list[float]](list)
    for folder in (each for cache in caches for each in sorted(cache.glob("*/healthy"))):
        try:
            summaries = summaries_of(folder)
        except CkauditError:
            continue
        for name, value in summaries.items():
            values[name].append(value)
    return {name: sorted(known) for name, known in values.items() if len(known) >= FEWEST_HEALTHY}


def beyond(value: float, low: float, high: float, factor: float) -> bool:
    """Tell whether a value lies outside of a range by a factor; where the range has both signs, by its width."""
    if low > 0:
        return value < low / factor or value > high * factor
    width = (high - low) * (factor - 1)
    return value < low - width or value > high + width


def main() -> None:
    """Print, for each recording, what leaves the range of the healthy."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("recordings", type=Path)
    parser.add_argument("healthy", type=Path, nargs="+")
    parser.add_argument("--only", default="*")
    parser.add_argument("--beyond", type=float, default=1.5)
    given = parser.parse_args()
    ranges = ranges_of(given.healthy)
    for path in sorted(given.recordings.glob(f"{given.only}.tar.zst")):
        with TemporaryDirectory() as folder:
            archive.unpack(path, Path(folder))
            summaries = {name: value for name, value in summaries_of(Path(folder)).items() if name in ranges}
        outside = [
            f"{what} {metric} {value:.3g} (healthy {ranges[metric, what][0]:.3g} to {ranges[metric, what][-1]:.3g})"
            for (metric, what), value in summaries.items()
            if beyond(value, ranges[metric, what][0], ranges[metric, what][-1], given.beyond)
        ]
        metrics = len({metric for metric, _ in summaries})
        print(f"{path.name}: of {metrics} metrics {'; '.join(outside) or 'none'} beyond what is healthy")


if __name__ == "__main__":
    main()
