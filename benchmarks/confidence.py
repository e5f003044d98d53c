"""Fits how far the evidence for a cause can be trusted, on families of wild-dev, and measures it on families left out.

The log odds that a cause's prior and evidence add up to are scaled and moved, for all causes alike, and moved once more for each
cause: a logistic regression whose coefficients are drawn to 1 and 0 (ridge, as of normal priors). Each sixth of the families is
predicted by a fit on the others; that prediction is what the table of reliability shows.

    python benchmarks/confidence.py CACHE --seed 2 --seed 3 --write
"""

import argparse
import math
from collections import Counter
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
DATA, TABLE = ROOT / "ckaudit" / "audit" / "confidence.toml", ROOT / "docs" / "wild.md"
FOLDS = 6
SCALE_SPREAD, OFFSET_SPREAD, CAUSE_SPREAD = 0.5, 2.0, 0.4
"""Standard deviations of the normal priors: of the scale around 1, of the offset around 0, of each cause's own around 0."""
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


def fit(data: Sequence[Named], names: Sequence[str]) -> NDArray[np.float64]:
    """Return offset, scale and what each cause is moved by: the most likely under the priors, by Newton's method."""
    data = [one for one in data if not one.is_other]
    table, right = _design(data, names), np.array([one.is_right for one in data], float)
    center = np.zeros(table.shape[1])
    center[1] = 1.0
    spread = np.full(table.shape[1], CAUSE_SPREAD)
    spread[:2] = OFFSET_SPREAD, SCALE_SPREAD
    weights = center.copy()
    for _ in range(100):
        chance = _chance(table, weights)
        slope = table.T @ (chance - right) + (weights - center) / spread**2
        curvature = (table * (chance * (1 - chance))[:, None]).T @ table + np.diag(spread**-2)
        step = np.linalg.solve(curvature, slope)
        weights -= step
        if np.abs(step).max() < 1e-9:
            break
    return weights


def _design(data: Sequence[Named], names: Sequence[str]) -> NDArray[np.float64]:
    table = np.zeros((len(data), 2 + len(names)))
    table[:, 0] = 1.0
    for row, one in enumerate(data):
        table[row, 1] = one.log_odds
        table[row, 2 + names.index(one.cause)] = 1.0
    return table


def _chance(table: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(1 / (1 + np.exp(-table @ weights)))


def left_out(data: Sequence[Named], names: Sequence[str]) -> NDArray[np.float64]:
    """Return of each cause that was named how likely it is, by a fit on other families than its own."""
    families = sorted({one.family for one in data})
    np.random.default_rng(0).shuffle(families)
    chances = np.zeros(len(data))
    for fold in range(FOLDS):
        out = set(families[fold::FOLDS])
        weights = fit([one for one in data if one.family not in out], names)
        rows = [row for row, one in enumerate(data) if one.family in out]
        chances[rows] = _chance(_design([data[row] for row in rows], names), weights)
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


def as_toml(weights: NDArray[np.float64], names: Sequence[str], data: Sequence[Named], told: str) -> str:
    """Return the fit as a file that a person can read: what each cause is moved by, and how often it was named and right."""
    data = [one for one in data if not one.is_other]
    count, right = Counter(one.cause for one in data), Counter(one.cause for one in data if one.is_right)
    lines = [
        "# How far the evidence for a cause can be trusted: its log odds are scaled, moved by the offset, and by its own number.",
        f"# Written by benchmarks/confidence.py: {told}.",
        f"offset = {weights[0]:.2f}",
        f"scale = {weights[1]:.2f}",
        "",
        "[causes]  # named, of which right",
    ]
    for name, weight in zip(names, weights[2:], strict=True):
        lines.append(f"{name} = {weight:.2f}  # {count[name]}, {right[name]}")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Fit, print the table of reliability, and write both if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cache", type=Path, help="folder of the draws that ckaudit lab wild has recorded")
    parser.add_argument("--seed", type=int, action="append", required=True, help="number of a drawing of wild-dev")
    parser.add_argument("--write", action="store_true", help="write confidence.toml, and the table into docs/wild.md")
    given = parser.parse_args()
    draws = [folder for seed in given.seed for folder in sorted(given.cache.glob(f"wild-dev.{seed}.*"))]
    pairs = [(folder, pair) for folder in draws if (pair := read_note(folder))]
    data = [one for folder, pair in pairs for one in named_in(folder, pair)]
    names = sorted({one.cause for one in data})
    told = f"{len(data)} causes named in {len(pairs)} draws of wild-dev, seeds {', '.join(map(str, given.seed))}"
    raw = np.array([1 / (1 + math.exp(-one.log_odds)) for one in data])
    lines = ["Of the evidence as it is:", "", *reliability(data, raw), ""]
    lines += ["Fitted, each family by a fit on others:", "", *reliability(data, left_out(data, names))]
    print("\n".join([told, "", *lines]))
    if given.write:
        DATA.write_text(as_toml(fit(data, names), names, data, told), encoding="utf-8")
        text = TABLE.read_text(encoding="utf-8")
        part = "\n".join([MARK, "", told + ".", "", *lines, "", END])
        TABLE.write_text(text[: text.index(MARK)] + part + text[text.index(END) + len(END) :], encoding="utf-8")


if __name__ == "__main__":
    main()
