"""How often `ckaudit diff` calls replicas different and changes the same: replicas and one-change trainings of known effect.

python benchmarks/calibration.py FOLDER [--tune] [--write]

Trains what FOLDER lacks first (a quarter of an hour on one core). --tune scores the set that thresholds are chosen on.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from calibration_runs import Case, cases, train  # noqa: E402

from ckaudit.audit.open import open_run  # noqa: E402
from ckaudit.audit.report import triage_reads, triage_run  # noqa: E402
from ckaudit.contract.diff import Pair  # noqa: E402
from ckaudit.diff.both import Side  # noqa: E402
from ckaudit.diff.compare import Subject, compare_pair  # noqa: E402
from ckaudit.diff.watched import reads  # noqa: E402
from ckaudit.lab.score.wilson import share  # noqa: E402

CLOCK = ("time", "step_time", "tokens_per_sec", "dataloader_stall_frac", "compute_time_frac", "file_time")
OUT = HERE.parent / "docs" / "diff-calibration.md"
BLIND = ("same", "within_noise")
PAIRS = 60
STRONG = 3.0


class Scored(Struct, frozen=True):
    """One pair and what is known of it.

    Attributes:
        case: The training that is judged.
        pair: What was said.
        effect: Difference of its smoothed final loss from that of the replicas, over their standard deviation.
    """

    case: Case
    pair: Pair
    effect: float = 0.0


def read(case: Case, folder: Path) -> Subject:
    """Return a recording without its clock: the machine that trained was shared."""
    run = open_run(folder / case.name, reads=triage_reads() | reads())
    run = replace(run, scalars={name: series for name, series in run.scalars.items() if name not in CLOCK})
    return Subject(folder / case.name, Side(run, tuple(triage_run(run).findings)))


def smoothed(subject: Subject) -> float:
    """Return the mean of the last 20 losses."""
    return float(subject.side.run.scalar("train_loss_raw").values[-20:, 0].mean())


def score(which: str, folder: Path, *, replicas: int) -> tuple[list[Scored], list[Scored]]:
    """Compare all pairs of a set.

    Args:
        which: The set.
        folder: Where its recordings are.
        replicas: How many replicas of the reference tell the noise; 0: none.
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
            case=case, effect=(smoothed(subject) - center) / spread,
            pair=compare_pair(left, subject, replicas=_others(same, left, subject, replicas)),
        )
        for case, subject in known.values()
        if case.reference and (left := known[case.reference][1])
    ]  # fmt: skip
    return alike, changed


def _others(same: list[Subject], left: Subject, right: Subject, count: int) -> list[Subject]:
    place = same.index(left)
    turned = [*same[place + 1 :], *same[:place]]
    return [each for each in turned if each is not right][:count]


def rows(alike: list[Scored], changed: list[Scored]) -> Iterator[tuple[str, str]]:
    """Yield what was measured, a name and a number each."""
    told = [each for each in alike if each.pair.word not in BLIND]
    yield "replicas called different", _share(len(told), len(alike))
    strong = [each for each in changed if abs(each.effect) >= STRONG]
    missed = [each for each in strong if each.pair.word in BLIND]
    yield f"changes of effect {STRONG:g} and more called same", _share(len(missed), len(strong))
    weak = [each for each in changed if abs(each.effect) < STRONG]
    yield "smaller changes called different", _share(sum(each.pair.word not in BLIND for each in weak), len(weak))
    wrong = [each for each in strong if (each.pair.word == "better") != (each.effect < 0) and each.pair.word != "different"]
    yield (
        "of those told, better and worse mixed up",
        _share(sum(each.pair.word not in BLIND for each in wrong), len(strong) - len(missed)),
    )
    late = [each for each in changed if each.case.onset]
    hit = [each for each in late if each.pair.parting and each.pair.parting.step == each.case.onset]
    yield "late changes whose step is found to the step", f"{len(hit)} of {len(late)}"


def _share(count: int, total: int) -> str:
    found = share(count, total)
    return f"{count} of {total}: {count / max(1, total):.1%} ({found.low:.1%} to {found.high:.1%})"


def questions_of(scored: list[Scored]) -> Counter[str]:
    """Return how often each question said better or worse, and how often runs were said to part."""
    counts = Counter(a.question for each in scored for a in each.pair.answers if a.word in ("better", "worse"))
    counts.update(f"parting in {each.pair.parting.statistic}" for each in scored if each.pair.parting)
    return counts


def main() -> None:
    """Train what is missing, score, and print or write the table."""
    root, which = Path(sys.argv[1]), "tune" if "--tune" in sys.argv else "score"
    (root / which).mkdir(parents=True, exist_ok=True)
    for case in cases(which):
        train(case, root / which)
    for replicas in (0, 2):
        alike, changed = score(which, root / which, replicas=replicas)
        print(f"\n== noise from {f'{replicas} replicas' if replicas else 'residuals'}")
        for name, value in rows(alike, changed):
            print(f"{name}: {value}")
        print("replicas:", dict(questions_of(alike)))
        for each in sorted(changed, key=lambda one: abs(one.effect)):
            told = " ".join(f"{a.question[:12]}:{a.word}" for a in each.pair.answers if a.word in ("better", "worse"))
            parted = f"{each.pair.parting.statistic}@{each.pair.parting.step}" if each.pair.parting else ""
            print(f"{each.case.name:22} {each.effect:8.1f} {each.pair.word:13} {parted:28} {told}")


if __name__ == "__main__":
    main()
