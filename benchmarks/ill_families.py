"""Faults that any training can have, in many families of models: what triage finds, and what it says is the cause.

    python benchmarks/ill_families.py [--families NAME,...] [--faults NAME,...] [--seed 7] [--jobs 2] [--cache FOLDER] [--write]

Every ill training is a folder FAMILY.FAULT.SEED of the cache, and its healthy twin FAMILY.healthy.SEED; only what is missing is
trained. A fault is harmless where the loss ends no further above its twin's than a twentieth of the twin's whole fall.
`--write` puts the table into docs/ill-families.md.
"""

import argparse
import json
import shutil
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from msgspec import Struct

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)]

from benchmarks.families import DONE, FAMILIES, train_apart, write_table  # noqa: E402  stands beside this
from benchmarks.healthy.damage import FAULTS  # noqa: E402
from benchmarks.healthy.recipe import train  # noqa: E402

PAGE = ROOT / "docs" / "ill-families.md"
MARK = "<!-- written by benchmarks/ill_families.py -->"
HARMLESS = 0.05
SURE = 0.7


class Outcome(Struct, frozen=True):
    """What became of one ill training.

    Attributes:
        family: Name of the family.
        fault: Name of the fault.
        has_effect: Whether the loss tells it from its healthy twin, or it was done to the weights or the code.
        is_found: Whether triage has a finding of sev2 or worse.
        first: The likeliest cause; empty for none.
        confidence: Of that.
    """

    family: str
    fault: str
    has_effect: bool
    is_found: bool
    first: str
    confidence: float

    @property
    def is_right(self) -> bool:
        """Whether the likeliest cause is the true one, or one that is as good."""
        fault = FAULTS[self.fault]
        return self.first in (fault.truth, *fault.acceptable)


def record(family: str, fault: str, seed: int, cache: Path) -> None:
    """Train one draw in this process."""
    folder = cache / f"{family}.{fault}.{seed}"
    if (folder / DONE).exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    healthy = FAMILIES[family]
    train(FAULTS[fault].done(healthy) if fault in FAULTS else healthy, folder, seed)
    shutil.rmtree(folder.with_name(f"{folder.name}.out"), ignore_errors=True)
    (folder / DONE).touch()


def losses(folder: Path) -> list[float]:
    """Return the training losses of a recording that are numbers."""
    lines = (json.loads(line) for line in (folder / "scalars.jsonl").read_text(encoding="utf-8").splitlines())
    return [line["train_loss_raw"] for line in lines if isinstance(line.get("train_loss_raw"), float)]


def has_effect(ill: Path, twin: Path, *, last: int = 20) -> bool:
    """Tell whether the last losses of an ill training lie apart from its twin's, by a share of how far that one fell."""
    from statistics import median

    sick, well = losses(ill), losses(twin)
    if len(sick) < last:
        return True
    fall = median(well[:5]) - median(well[-last:])
    return median(sick[-last:]) - median(well[-last:]) > HARMLESS * abs(fall)


def judged(family: str, fault: str, seed: int, cache: Path) -> Outcome:
    """Return what triage says of one ill training."""
    from ckaudit.audit import triage

    folder = cache / f"{family}.{fault}.{seed}"
    report = triage(folder)
    first = report.diagnoses[0] if report.diagnoses else None
    return Outcome(
        family,
        fault,
        FAULTS[fault].is_sudden or has_effect(folder, cache / f"{family}.healthy.{seed}"),
        any(finding.severity != "note" for finding in report.findings),
        first.cause if first else "",
        first.confidence if first else 0.0,
    )


def hits(values: Iterable[bool]) -> str:
    """Return how many are true, of how many.

    >>> hits([True, False])
    '1 of 2'
    """
    counted = list(values)
    return f"{sum(counted)} of {len(counted)}"


def row(name: str, outcomes: Sequence[Outcome]) -> str:
    """Return a line of the table."""
    felt = [each for each in outcomes if each.has_effect]
    wrong = sorted({each.first for each in felt if each.first and not each.is_right and each.confidence >= SURE})
    cells = [
        hits(each.is_found for each in felt),
        hits(each.is_right for each in felt),
        hits(bool(each.first) and not each.is_right and each.confidence >= SURE for each in felt),
        hits(each.is_found for each in outcomes if not each.has_effect),
        ", ".join(wrong),
    ]
    return f"| {name} | " + " | ".join(cells) + " |"


def table(outcomes: Sequence[Outcome]) -> str:
    """Return the table by fault and by family, and all together."""
    head = "| | found | cause right | confident and wrong | harmless and flagged | wrong causes |\n|---|---|---|---|---|---|"
    by_fault = [row(fault, [each for each in outcomes if each.fault == fault]) for fault in FAULTS]
    families = list(dict.fromkeys(each.family for each in outcomes))
    by_family = [row(family, [each for each in outcomes if each.family == family]) for family in families]
    return "\n".join([head, row("all", outcomes), *by_fault, "", head, *by_family])


def main() -> None:
    """Train what is missing, judge everything, and print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--families", default=",".join(FAMILIES))
    parser.add_argument("--faults", default=",".join(FAULTS))
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "ckaudit" / "ill_families")
    parser.add_argument("--record", action="store_true", help="train in this process, and judge nothing")
    parser.add_argument("--judge", action="store_true", help="judge what is there, and train nothing")
    parser.add_argument("--write", action="store_true", help="put the table into docs/ill-families.md")
    wanted = parser.parse_args()
    wanted.cache.mkdir(parents=True, exist_ok=True)
    pairs = [
        (family, fault)
        for family in wanted.families.split(",")
        for fault in ("healthy", *wanted.faults.split(","))
        if fault not in FAULTS or FAMILIES[family].through in (FAULTS[fault].through or (FAMILIES[family].through,))
    ]
    if wanted.record:
        for family, fault in pairs:
            record(family, fault, wanted.seed, wanted.cache)
        return

    def start(family: str) -> None:
        options = ["--families", family, "--faults", wanted.faults, "--seed", str(wanted.seed), "--cache", str(wanted.cache)]
        train_apart(__file__, family, options)

    if not wanted.judge:
        with ThreadPoolExecutor(wanted.jobs) as pool:
            list(pool.map(start, wanted.families.split(",")))
    there = [(family, fault) for family, fault in pairs if (wanted.cache / f"{family}.{fault}.{wanted.seed}" / DONE).exists()]
    outcomes = [judged(family, fault, wanted.seed, wanted.cache) for family, fault in there if fault in FAULTS]
    found = table(outcomes)
    print(found)
    if wanted.write:
        write_table(PAGE, MARK, found)


if __name__ == "__main__":
    main()
