"""The least that a run of a fleet costs: decoded into types, its numbers put into arrays, a median and a maximum of each series.

    python benchmarks/floors/fleet_floor.py [--runs 10] [--checkpoints 160]

It keeps the fields that rules ask for and nothing of what makes them a run: no step, no name, no cell that is missing, no rule,
no verdict. What it takes, over `orjson.loads` of the same checkpoints and lines in turn, is a bound for `benchmarks/fleet.py`.
"""

import argparse
import gc
import sys
import tempfile
from collections.abc import Iterable
from itertools import chain
from operator import attrgetter
from pathlib import Path
from statistics import median
from struct import Struct as Packer
from time import process_time
from typing import Any

import msgspec
import numpy as np
import orjson

sys.path.insert(0, str(Path(__file__).parents[1]))

from fleet import write_fleet

from ckaudit.audit.engine import triage_reads
from ckaudit.run.column_builder import decoder

NUMBERS = {
    "weights": ("min", "mean", "max", "std", "frobenius_norm", "numel"),
    "gradients": ("norm", "zero_fraction"),
    "weight_deltas": ("norm", "relative", "moved"),
    "activations": ("mean", "std", "rms", "sparsity", "mean_abs", "outlier_rate"),
}
LISTS = {
    "weights": ("percentiles",),
    "attention": ("entropy_per_head", "normalized_entropy_per_head", "max_attn_per_head", "max_logit_per_head"),
}


def arrays_of(document: Any) -> Iterable[np.ndarray]:
    """Yield an array for each section of numbers and for each list of numbers that every tensor of a checkpoint has."""
    for section, names in NUMBERS.items():
        rows = getattr(document, section) or {}
        numbers = list(map(number_or_nan, chain.from_iterable(map(attrgetter(*names), rows.values()))))
        yield np.frombuffer(Packer(f"{len(numbers)}d").pack(*numbers)).reshape(-1, len(names))
    for section, names in LISTS.items():
        for name in names:
            values = list(chain.from_iterable(map(attrgetter(name), (getattr(document, section) or {}).values())))
            yield np.frombuffer(Packer(f"{len(values)}d").pack(*values))


def audit(folder: Path, narrow: msgspec.json.Decoder[Any]) -> None:
    """Decode a run, and take the median and the maximum of each series over its steps."""
    documents = [list(arrays_of(narrow.decode(path.read_bytes()))) for path in folder.glob("analysis*")]
    for series in zip(*documents, strict=True):
        if len({each.shape for each in series}) == 1:
            stacked = np.stack(series)
            np.median(stacked, axis=0)
            np.max(stacked, axis=0)
    lines = msgspec.json.Decoder(dict[str, float | str | bool | None]).decode_lines((folder / "scalars.jsonl").read_bytes())
    for name in lines[0]:
        column = np.array([number_or_nan(line.get(name)) for line in lines])
        np.median(column)
        np.max(column)


def parse(folder: Path) -> None:
    """Parse the same files."""
    for path in folder.glob("analysis*"):
        orjson.loads(path.read_bytes())
    for line in (folder / "scalars.jsonl").read_bytes().splitlines():
        orjson.loads(line)


def number_or_nan(value: Any) -> float:
    """Return a number as it is, and NaN for what was not recorded."""
    return value if value.__class__ is float or value.__class__ is int else np.nan


def main() -> None:
    """Measure both, run by run in turn, and print the medians."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for option, default in (("--runs", 10), ("--checkpoints", 160)):
        parser.add_argument(option, type=int, default=default)
    wanted = parser.parse_args()
    narrow = decoder(frozenset(triage_reads()))
    floor, parsed = [], []
    with tempfile.TemporaryDirectory() as temporary:
        write_fleet(Path(temporary), wanted.runs, wanted.checkpoints)
        gc.disable()
        for folder in sorted(Path(temporary).iterdir()):
            start = process_time()
            audit(folder, narrow)
            middle = process_time()
            parse(folder)
            floor.append(middle - start)
            parsed.append(process_time() - middle)
    ours, theirs = median(floor), median(parsed)
    print(f"medians and maxima: {ours * 1e3:.0f} ms a run, parsed: {theirs * 1e3:.0f} ms, ratio {ours / theirs:.2f}")


if __name__ == "__main__":
    main()
