"""The least that a validation in Python can do: read, decode into types, count keys, test bounds in the tightest loops.

It says nothing of what it finds, knows only files as the benchmark makes them, and tests fewer bounds than `ckaudit validate`:
its time is what typed decoding and looking at every number cost, without any of the care.
"""

import gc
import sys
from itertools import chain, starmap
from operator import attrgetter
from pathlib import Path
from struct import Struct as Packer

import msgspec
import numpy as np

from ckaudit.contract.schema.checkpoint import Checkpoint, WeightStats

NUMBERS = attrgetter("min", "mean", "max", "std", "frobenius_norm", "numel")
ROW = Packer("32d")


def bounds(weights: dict[str, WeightStats]) -> bool:
    """Test norms, means, percentiles, histograms and grids of all weights."""
    rows = list(weights.values())
    packed = Packer(f"{6 * len(rows)}d").pack(*chain.from_iterable(map(NUMBERS, rows)))
    low, mean, high, std, norm, size = np.frombuffer(packed).reshape(-1, 6).T
    good = bool((low <= mean).all() and (mean <= high).all() and np.allclose(norm**2, size * (mean**2 + std**2), rtol=0.04))
    levels = np.frombuffer(Packer(f"{7 * len(rows)}d").pack(*chain.from_iterable(map(attrgetter("percentiles"), rows))))
    good &= bool((np.diff(levels.reshape(-1, 7)) >= 0).all())
    good &= all(total > 0 for total in map(sum, map(attrgetter("histogram.counts"), rows)))
    for row in rows:
        if row.sampled_grid_32x32 is not msgspec.UNSET:
            values = np.frombuffer(b"".join(starmap(ROW.pack, row.sampled_grid_32x32)))
            good &= bool(values.min() > -np.inf)
    return good


def main() -> None:
    """Judge every file of the folders named, and end with 1 where one is bad."""
    gc.disable()
    decoder = msgspec.json.Decoder(Checkpoint)
    good = True
    for folder in sys.argv[1:]:
        for name in sorted(Path(folder).iterdir()):
            data = name.read_bytes()
            document = decoder.decode(data)
            good &= int(np.count_nonzero(np.frombuffer(data, np.uint8) == ord(":"))) > len(document.weights or ())
            good &= bounds(document.weights or {})
    sys.exit(not good)


if __name__ == "__main__":
    main()
