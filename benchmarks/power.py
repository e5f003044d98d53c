"""How often the rules on curves find an illness in a made-up log, and how often they find one in a healthy log.

    python benchmarks/power.py [--draws 40] [--lengths 5,7,...] [--only power,healthy,shapes,logs] [--write]

Its tables are: illnesses that are found, healthy logs of the same curves and of other shapes that are accused, and public logs of
fixtures/real thinned to a few points in twenty ways. `--write` puts them into docs/power.md.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)]

from benchmarks import curves, thinned  # noqa: E402  stand beside this
from benchmarks.shapes import SHAPES  # noqa: E402
from ckaudit.audit.judge import apply_rules  # noqa: E402
from ckaudit.rules import rules  # noqa: E402
from ckaudit.run.run import Run  # noqa: E402

PAGE = ROOT / "docs" / "power.md"
MARK = "<!-- written by benchmarks/power.py -->"
CODES = ("LOSS001", "LOSS002", "LOSS003", "LOSS004", "LOSS005", "LOSS006", "LOSS007", "LOSS008", "EVL001", "EVL003")
ON_ILLNESS = {
    "climb": {"LOSS001", "LOSS003", "LOSS004"},
    "jump": {"LOSS001", "LOSS003", "LOSS004"},
    "flat at a guess": {"LOSS003"},
    "flat elsewhere": {"LOSS003"},
    "zero": {"LOSS007"},
    "validation rise": {"LOSS002"},
}
SEVERE = ("sev0", "sev1", "sev2")
Cell = tuple[float, Counter[str]]


def found(run: Run) -> dict[str, str]:
    """Return the worst severity of each rule that fires, without notes; an error of a rule counts as one."""
    judgement = apply_rules(run, [rules()[code] for code in CODES if code in rules()])
    gravest = {check.code: f"error {check.detail}" for check in judgement.checks if check.outcome == "error"}
    for finding in reversed(judgement.findings):  # the findings are ordered worst first
        if finding.severity in SEVERE:
            gravest[finding.code] = finding.severity
    return gravest


def power(lengths: Sequence[int], draws: int) -> Iterator[str]:
    """Yield the table of illnesses: share of draws in which a rule on the illness fires, in percent."""
    yield "| points | noise | " + " | ".join(curves.ILLNESSES) + " |"
    yield "|---|---|" + "---|" * len(curves.ILLNESSES)
    for count in lengths:
        for noise in curves.NOISES:
            cells = []
            for illness in curves.ILLNESSES:
                rng = np.random.default_rng([count, int(1000 * noise), curves.ILLNESSES.index(illness)])
                some = draws if count < 1_000 else max(1, draws // 5)
                hits = sum(
                    bool(ON_ILLNESS[illness] & found(curves.ill(rng, illness, count, noise).run()).keys()) for _ in range(some)
                )
                cells.append(f"{100 * hits / some:.1f}")
            yield f"| {count:,} | {noise:.0%} | " + " | ".join(cells) + " |"


def accused(runs: Iterator[Run]) -> str:
    """Return the share of healthy runs with sev2 and with worse, and the rules that fire, in percent."""
    total, worse, sev2 = 0, 0, 0
    by: Counter[str] = Counter()
    for run in runs:
        told = found(run)
        total += 1
        worse += any(each != "sev2" for each in told.values())
        sev2 += bool(told)
        by.update(f"{severity} {code}" for code, severity in told.items())
    names = ", ".join(f"{name} {100 * count / total:.1f}" for name, count in sorted(by.items()))
    return f"{100 * worse / total:.1f} | {100 * sev2 / total:.1f} | {names} |"


def healthy(lengths: Sequence[int], draws: int) -> Iterator[str]:
    """Yield the table of healthy logs of the same curves."""
    yield "| points | noise | validation | sev0, sev1 | any | by rule |"
    yield "|---|---|---|---|---|---|"
    for count in lengths:
        for noise in curves.NOISES:
            for with_val in (False, True):
                rng = np.random.default_rng([7, count, int(1000 * noise), with_val])
                runs = (
                    curves.healthy(rng, count, noise, with_val=with_val).run()
                    for _ in range(draws if count < 1_000 else max(1, draws // 5))
                )
                yield f"| {count:,} | {noise:.0%} | {'yes' if with_val else 'no'} | {accused(runs)}"


def shapes(lengths: Sequence[int], draws: int) -> Iterator[str]:
    """Yield the table of healthy logs of other shapes, over all noises."""
    yield "| shape | points | sev0, sev1 | any | by rule |"
    yield "|---|---|---|---|---|"
    for name, make in SHAPES.items():
        for count in [length for length in lengths if length <= 1_000]:
            rng = np.random.default_rng([11, count])
            runs = (make(rng, count, curves.NOISES[draw % 3]).run() for draw in range(draws))
            yield f"| {name} | {count:,} | {accused(runs)}"


def logs(ways: int) -> Iterator[str]:
    """Yield the table of public logs, thinned."""
    yield "| log | points | sev0, sev1 | any | by rule |"
    yield "|---|---|---|---|---|"
    for name, count, runs in thinned.healthy(ways):
        yield f"| {name} | {count} | {accused(iter(runs))}"
    yield ""
    yield "| ill log | points | found |"
    yield "|---|---|---|"
    for name, count, codes, runs in thinned.ill(ways):
        hits = sum(bool(codes & found(run).keys()) for run in runs)
        yield f"| {name} | {count} | {100 * hits / max(1, len(runs)):.0f} % of {len(runs)} |"


def main() -> None:
    """Print the requested tables, and write them if asked."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--draws", type=int, default=40)
    parser.add_argument("--lengths", default=",".join(map(str, curves.LENGTHS)))
    parser.add_argument("--only", default="power,healthy,shapes,logs")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/power.md")
    wanted = parser.parse_args()
    lengths = [int(part) for part in wanted.lengths.split(",")]
    makers = {
        "power": ("Illnesses found, in percent", lambda: power(lengths, wanted.draws)),
        "healthy": ("Healthy curves accused, in percent", lambda: healthy(lengths, wanted.draws)),
        "shapes": ("Other healthy shapes accused, in percent", lambda: shapes(lengths, wanted.draws)),
        "logs": ("Public logs, thinned in twenty ways, in percent", lambda: logs(20)),
    }
    text = []
    for name in wanted.only.split(","):
        title, make = makers[name]
        text += ["", f"## {title}", ""]
        for line in make():
            print(line, flush=True)
            text.append(line)
    if wanted.write:
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(page[: page.index(MARK) + len(MARK)] + "\n" + "\n".join(text) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
