"""How often `ckaudit diff` calls replicas different and real changes the same, over trainings with one change of known effect.

python benchmarks/calibration.py FOLDER [--tune] [--write]

Trains what FOLDER lacks first (a quarter of an hour on one core).
--tune scores the set that thresholds are chosen on; --write puts the tables into docs/diff-calibration.md.
"""

import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import combinations
from pathlib import Path

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from calibration_runs import SETS, Case, cases, train  # noqa: E402

from ckaudit.audit.engine import triage_reads, triage_run  # noqa: E402
from ckaudit.audit.load_run import open_run  # noqa: E402
from ckaudit.contract.schema.diff import Pair  # noqa: E402
from ckaudit.diff.compare import JudgedRun, compare_pair  # noqa: E402
from ckaudit.diff.divergence import RUN_NUMBERS, reads  # noqa: E402
from ckaudit.diff.noise import Stretches  # noqa: E402
from ckaudit.diff.run_pair import RunPair, RunSide  # noqa: E402
from ckaudit.lab.score.scoreboard import share  # noqa: E402
from ckaudit.metrics import Metric  # noqa: E402
from ckaudit.metrics.loss import slice_val_loss, train_loss_raw, val_loss  # noqa: E402
from ckaudit.run.series import Floats  # noqa: E402

CLOCK = ("time", "step_time", "tokens_per_sec", "dataloader_stall_frac", "compute_time_frac", "file_time")
OUT = HERE.parent / "docs" / "diff-calibration.md"
BLIND = ("same", "within_noise")
PAIRS = 60
STRONG = 3.0
MARKS = ("<!-- apart -->", "<!-- scored -->")


class Scored(Struct, frozen=True):
    """One pair with its verdict and the true effect.

    Attributes:
        case: The training that is judged.
        pair: The result of the comparison.
        effect: Difference of its smoothed final loss from that of the replicas, over their standard deviation.
    """

    case: Case
    pair: Pair
    effect: float = 0.0


def read(case: Case, folder: Path) -> JudgedRun:
    """Return a recording without its clock, because the machine that trained it was shared."""
    run = open_run(folder / case.name, reads=triage_reads() | reads())
    run = replace(run, scalars={name: series for name, series in run.scalars.items() if name not in CLOCK})
    return JudgedRun(folder / case.name, RunSide(run, tuple(triage_run(run).findings)))


def smoothed(subject: JudgedRun) -> float:
    """Return the mean of the last 20 losses."""
    return float(subject.side.run.scalar("train_loss_raw").values[-20:, 0].mean())


def score(which: str, folder: Path, *, replicas: int) -> tuple[list[Scored], list[Scored]]:
    """Compare all pairs of a set.

    Args:
        which: The set.
        folder: Where its recordings are.
        replicas: How many replicas of the reference give the noise; 0: none.
    """
    known = {case.name: (case, read(case, folder)) for case in cases(which)}
    same = [subject for case, subject in known.values() if not case.reference]
    levels = np.array([smoothed(subject) for subject in same])
    center, spread = float(levels.mean()), float(levels.std(ddof=1))
    alike = [
        Scored(case=known[right.path.name][0], pair=compare_pair(left, right, replicas=_others(same, left, right, replicas)))
        for left, right in list(combinations(same, 2))[:PAIRS]
    ]
    changed = [
        Scored(
            case=case,
            effect=(smoothed(subject) - center) / spread,
            pair=compare_pair(left, subject, replicas=_others(same, left, subject, replicas)),
        )
        for case, subject in known.values()
        if case.reference and (left := known[case.reference][1])
    ]
    return alike, changed


def _others(same: list[JudgedRun], left: JudgedRun, right: JudgedRun, count: int) -> list[JudgedRun]:
    place = same.index(left)
    turned = [*same[place + 1 :], *same[:place]]
    return [each for each in turned if each is not right][:count]


def rows(alike: list[Scored], changed: list[Scored]) -> Iterator[tuple[str, str]]:
    """Yield each measured quantity as its name and its value."""
    yield "replicas called different", _told(alike, missed=False)
    strong = [each for each in changed if abs(each.effect) >= STRONG]
    yield f"changes of effect {STRONG:g} and more called same", _told(strong, missed=True)
    hidden = [each for each in strong if not _is_given_away(each)]
    yield "of those, in no learning rate and batch size, called same", _told(hidden, missed=True)
    weak = [each for each in changed if abs(each.effect) < STRONG and not _is_given_away(each)]
    yield "smaller ones, in no learning rate and batch size, called different", _told(weak, missed=False)
    late = [each for each in changed if each.case.onset]
    hit = [each for each in late if each.pair.parting and each.pair.parting.step == each.case.onset]
    yield "late changes whose step is found to the step", _share(len(hit), len(late))


def _told(scored: list[Scored], *, missed: bool) -> str:
    return _share(sum((each.pair.word in BLIND) == missed for each in scored), len(scored))


def _is_given_away(each: Scored) -> bool:
    """Tell whether a quantity without noise differs: such a change is found whatever its effect."""
    return each.case.name.startswith(("rate", "batch", "warmup", "late_rate"))


def _share(count: int, total: int) -> str:
    found = share(count, total)
    return f"{count} of {total}, {count / max(1, total):.1%} ({found.low:.1%} to {found.high:.1%})"


def excess(folder: Path) -> Iterator[str]:
    """Yield the table of how far replicas of the tuning set are apart, over the deviation that the bands assume."""
    same = [read(case, folder) for case in cases("tune") if not case.reference]
    pairs = [RunPair(left.side, right.side) for left, right in combinations(same, 2)]
    asked: dict[str, Callable[[RunPair], Floats | None]] = {
        **{f"{metric.name}, every stretch": partial(_whole, metric, seed) for metric, seed in RUN_NUMBERS.items()},
        "last loss": lambda both: _last(both.stretches(train_loss_raw, size=1, last=100, ahead=0.0)),
        "median of the last losses": lambda both: _last(both.level(train_loss_raw)),
        "last evaluation": lambda both: _last(both.evaluation(val_loss)),
        **{f"last evaluation of slice {column + 1}": partial(_slice, column) for column in range(4)},
    }
    yield "| quantity | root mean square | largest |\n|---|---|---|"
    for name, ask in asked.items():
        values = np.concatenate([np.ravel(found) for both in pairs if (found := ask(both)) is not None])
        yield f"| {name} | {np.sqrt(np.mean(values**2)):.2f} | {np.abs(values).max():.1f} |"


def _whole(metric: Metric, seed: float, both: RunPair) -> Floats | None:
    found = both.stretches(metric, seed=seed)
    return None if found is None else found.excess


def _slice(column: int, both: RunPair) -> Floats | None:
    return _last(both.evaluation(slice_val_loss, column))


def _last(found: Stretches | None) -> Floats | None:
    return None if found is None else found.excess[-1:]


def changes(scored: dict[int, list[Scored]]) -> Iterator[str]:
    """Yield the table of all changes, the weakest first."""
    yield "| change | effect | residuals | 2 replicas | parts at | in |\n|---|---|---|---|---|---|"
    for each, other in sorted(zip(scored[0], scored[2], strict=True), key=lambda one: abs(one[0].effect)):
        parting = each.pair.parting
        place = f"{parting.step} | {parting.statistic}" if parting else "- | -"
        yield f"| {each.case.name} | {each.effect:+.1f} | {each.pair.word} | {other.pair.word} | {place} |"


def page(which: str, root: Path) -> str:
    """Return the results as Markdown."""
    found = {replicas: score(which, root / which, replicas=replicas) for replicas in (0, 2)}
    tables = [dict(rows(*each)) for each in found.values()]
    lines = ["| measured | residuals | `--noise` with 2 replicas |", "|---|---|---|"]
    lines += [f"| {name} | {tables[0][name]} | {tables[1][name]} |" for name in tables[0]]
    lines += ["", *changes({replicas: each[1] for replicas, each in found.items()})]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Train what is missing, score, and print or write the tables."""
    root, which = Path(sys.argv[1]), "tune" if "--tune" in sys.argv else "score"
    for set_ in SETS:
        (root / set_).mkdir(parents=True, exist_ok=True)
        for number, case in enumerate(cases(set_), 1):
            train(case, root / set_)
            print(f"\r{set_} {number} ", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    measured = page(which, root)
    apart = "\n".join(excess(root / "tune")) + "\n"
    if "--write" not in sys.argv:
        print(measured, apart, sep="\n")
        return
    head, first, *_ = OUT.read_text(encoding="utf-8").partition(MARKS[0])
    middle = OUT.read_text(encoding="utf-8").partition(MARKS[0])[2].partition(MARKS[1])[0].partition("\n<!-- end -->\n")[2]
    OUT.write_text(f"{head}{first}\n{apart}<!-- end -->\n{middle}{MARKS[1]}\n{measured}<!-- end -->\n", encoding="utf-8")


if __name__ == "__main__":
    main()
