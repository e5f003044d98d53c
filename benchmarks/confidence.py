"""Fits how far several reasons for a cause can be trusted, on families of wild-dev, and measures it on families left out.

Log odds of 1, one strong reason, are worth what they say; what is beyond them is scaled by one number, the likeliest one. Each
sixth of the families is predicted by a fit on the others; that prediction is what the table of reliability shows. No cause is
moved by itself: families of wild-dev have few of some causes, and none of others.

    python benchmarks/confidence.py CACHE --seed 2 --seed 3 --write
"""

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from ckaudit.audit import triage
from ckaudit.causes.cause import causes, total
from ckaudit.lab.wild.faults import FAULTS
from ckaudit.lab.wild.forms import FORMS, Form, as_form
from ckaudit.lab.wild.pair import HEALTHY, ILL, Pair, has_effect, read_note, twin_learns

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "docs" / "wild.md"
FOLDS = 6
MARK, END = "<!-- written by benchmarks/confidence.py -->", "<!-- end of benchmarks/confidence.py -->"


@dataclass(frozen=True)
class Named:
    """A cause that was named for a recording.

    Attributes:
        run: Draw, form and which of the two recordings.
        family: Family of its model.
        cause: The cause.
        log_odds: What its prior and its evidence add up to.
        is_right: Whether it is what was done, or as good.
        is_other: Whether it is as good, and something else: nothing is learnt from that.
    """

    run: tuple[str, Form, str]
    family: str
    cause: str
    log_odds: float
    is_right: bool
    is_other: bool


def named_in(draw: Path, pair: Pair) -> list[Named]:
    """Return every cause that is named for the two recordings of a draw, in each form; none of the machine's clock."""
    found = []
    halves = [ILL] * (pair.is_fact or has_effect(draw / ILL, draw / HEALTHY)) + [HEALTHY] * twin_learns(draw / HEALTHY)
    catalogue = causes()
    for half in halves:
        as_good = {*pair.acceptable, *FAULTS[pair.fault].acceptable} if half == ILL else set()
        for form in FORMS:
            with TemporaryDirectory(prefix="run-") as temporary:
                report = triage(as_form(draw / half, form, Path(temporary) / "run"))
            for one in report.diagnoses:
                cause = catalogue[one.cause]
                if not cause.function.__module__.startswith("ckaudit.causes.systems"):
                    odds = cause.prior + total(one.evidence)
                    is_truth, is_other = half == ILL and one.cause == pair.truth, one.cause in as_good
                    found.append(Named((draw.name, form, half), pair.family, one.cause, odds, is_truth or is_other, is_other))
    return found


def chances_of(odds: NDArray[np.float64], scale: float) -> NDArray[np.float64]:
    """Return how likely causes of such log odds are the true ones, by a scale of what is beyond 1."""
    return np.asarray(1 / (1 + np.exp(-np.minimum(odds, 1) - scale * np.maximum(odds - 1, 0))))


def fit(data: Sequence[Named]) -> float:
    """Return the likeliest scale, of hundredths from 0 to 1; what is as good as the truth teaches nothing."""
    odds = np.array([one.log_odds for one in data if not one.is_other])
    right = np.array([one.is_right for one in data if not one.is_other])
    scales = np.arange(101) / 100
    likelihood = [np.log(np.where(right, chance, 1 - chance)).sum() for chance in (chances_of(odds, scale) for scale in scales)]
    return float(scales[int(np.argmax(likelihood))])


def left_out(data: Sequence[Named]) -> NDArray[np.float64]:
    """Return of each cause that was named how likely it is, by a fit on other families than its own."""
    families = sorted({one.family for one in data})
    np.random.default_rng(0).shuffle(families)
    chances = np.zeros(len(data))
    for fold in range(FOLDS):
        out = set(families[fold::FOLDS])
        rows = [row for row, one in enumerate(data) if one.family in out]
        scale = fit([one for one in data if one.family not in out])
        chances[rows] = chances_of(np.array([data[row].log_odds for row in rows]), scale)
    return chances


def reliability(data: Sequence[Named], chances: NDArray[np.float64], *, bands: int = 5) -> list[str]:
    """Return the lines of a table: of the likeliest cause of each recording, what is said of it and how often it is right."""
    best: dict[tuple[str, str, str], int] = {}
    for row, one in enumerate(data):
        if one.run not in best or chances[row] > chances[best[one.run]]:
            best[one.run] = row
    lines = ["| confidence | recordings | said | right |", "|---|---|---|---|"]
    for band in range(bands):
        rows = [row for row in best.values() if min(int(chances[row] * bands), bands - 1) == band]
        if rows:
            said, right = chances[rows].mean(), np.mean([data[row].is_right for row in rows])
            lines.append(f"| {band / bands:.1f} to {(band + 1) / bands:.1f} | {len(rows)} | {said:.0%} | {right:.0%} |")
    return lines


def main() -> None:
    """Fit, print the table of reliability, and write it if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cache", type=Path, help="folder of the draws that ckaudit lab wild has recorded")
    parser.add_argument("--seed", type=int, action="append", required=True, help="number of a drawing of wild-dev")
    parser.add_argument("--write", action="store_true", help="put the table into docs/wild.md")
    given = parser.parse_args()
    draws = [folder for seed in given.seed for folder in sorted(given.cache.glob(f"wild-dev.{seed}.*"))]
    pairs = [(folder, pair) for folder in draws if (pair := read_note(folder))]
    data = [one for folder, pair in pairs for one in named_in(folder, pair)]
    told = f"{len(data)} causes named in {len(pairs)} draws of wild-dev, seeds {', '.join(map(str, given.seed))}"
    raw = np.array([1 / (1 + math.exp(-one.log_odds)) for one in data])
    lines = ["Of the evidence as it is:", "", *reliability(data, raw), ""]
    lines += [
        f"The scale of all of them is {fit(data):.2f}. Fitted, each family by a fit on others:",
        "",
        *reliability(data, left_out(data)),
    ]
    print("\n".join([told, "", *lines]))
    if given.write:
        text = TABLE.read_text(encoding="utf-8")
        part = "\n".join([MARK, "", told + ".", "", *lines, "", END])
        TABLE.write_text(text[: text.index(MARK)] + part + text[text.index(END) + len(END) :], encoding="utf-8")


if __name__ == "__main__":
    main()
