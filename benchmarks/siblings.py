"""What healthy siblings are worth: findings on healthy and on ill draws of the wild split with and without `--like`.

    python benchmarks/siblings.py CACHE... --recordings FOLDER [--record] [--healthy 20] [--ill 30]

CACHE holds draws as `ckaudit lab wild` records them: an ill training and its healthy twin. A sibling is the healthy one trained
again on the same rows under another seed. With `--record` siblings are trained for every draw whose twin has a false finding in
any form, for quick draws with an effect in which nothing is found, and for `--healthy` healthy and `--ill` ill quick draws
besides; they stay in FOLDER. Then every draw that has siblings is judged alone and beside them, in each form. Each sibling is
also compared with the twin and the other siblings, which shows how often the band itself accuses.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from random import Random
from shutil import rmtree
from tempfile import TemporaryDirectory

from msgspec import Struct, field

sys.path[:0] = [str(Path(__file__).parents[1])]

from ckaudit.audit.engine import open_judged, triage_reads, triage_run  # noqa: E402
from ckaudit.contract.schema.report import Report  # noqa: E402
from ckaudit.diff.siblings.bands import SiblingRun, all_bands  # noqa: E402
from ckaudit.diff.siblings.yardstick import OpenedSibling, compare_with_siblings, with_siblings  # noqa: E402
from ckaudit.lab.wild.forms import FORMS, Form, as_form  # noqa: E402
from ckaudit.lab.wild.pair import HEALTHY, ILL, PairNote, has_effect, read_note, twin_learns  # noqa: E402
from ckaudit.lab.wild.score import counting_findings  # noqa: E402
from ckaudit.lab.zoo import WildSplit  # noqa: E402
from ckaudit.policy.acceptance import OPEN  # noqa: E402
from ckaudit.run.run import Run  # noqa: E402

SEEDS_APART = 50_021
SIBLINGS = 2
SPLIT: WildSplit = "wild-dev"
OF_THE_CLOCK = "SIB006"  # these were trained while the machine had other work


class Judged(Struct, frozen=True, kw_only=True):
    """The verdict on one recording alone and beside its siblings.

    Attributes:
        name: Name of the recording.
        alone: Codes of the findings that count without siblings, sev0 to sev2.
        beside: The same with siblings.
        quieted: Codes of findings that are normal among the siblings.
        siblings: How many siblings count.
    """

    name: str
    alone: tuple[str, ...]
    beside: tuple[str, ...]
    quieted: tuple[str, ...]
    siblings: int


def draws(caches: Iterable[Path]) -> Iterator[tuple[Path, PairNote]]:
    """Yield the draws of some caches whose healthy twin learns anything."""
    for cache in caches:
        for folder in sorted(cache.glob(f"{SPLIT}.*")):
            pair = read_note(folder)
            if pair is not None and twin_learns(folder / HEALTHY):
                yield folder, pair


def opened(path: Path, form: Form, folder: Path) -> Run:
    """Read a recording in a form, which is written below a folder, with everything that an audit reads."""
    return open_judged(as_form(path, form, folder / form / path.parent.name / path.name), reads=triage_reads())


def codes_of(path: Path, form: Form, since: int = 0) -> tuple[str, ...]:
    """Return the codes of the findings that count in a recording by itself."""
    with TemporaryDirectory(prefix="run-") as folder:
        return _codes(triage_run(opened(path, form, Path(folder))), since)


def judged(name: str, run: Run, siblings: Sequence[Run], *, since: int = 0) -> Judged:
    """Judge a run alone and beside siblings."""
    criteria = with_siblings(OPEN, [OpenedSibling(sibling.name, sibling) for sibling in siblings])
    alone, beside = triage_run(run), triage_run(run, criteria=criteria)
    return Judged(
        name=name,
        alone=_codes(alone, since),
        beside=_codes(beside, since),
        quieted=tuple(sorted({suppressed.finding.code for suppressed in beside.suppressed})),
        siblings=sum(sibling.counts for sibling in beside.siblings or ()),
    )


def leaves(run: Run, siblings: Sequence[Run]) -> tuple[str, ...]:
    """Return the codes of departures from the band of healthy runs of the same draw, without notes and the clock."""
    beside = [SiblingRun(sibling) for sibling in siblings]
    findings = compare_with_siblings(run, beside, all_bands(run, beside)).findings
    codes = {finding.code for finding in findings if finding.severity != "note"}
    return tuple(sorted(codes - {OF_THE_CLOCK}))


def _codes(report: Report, since: int) -> tuple[str, ...]:
    codes = {finding.code for finding in counting_findings(report, since)}
    return tuple(sorted(codes - {OF_THE_CLOCK}))


def siblings_of(folder: Path, recordings: Path) -> list[Path]:
    """Return the recorded siblings of a draw."""
    return sorted(path for path in (recordings / folder.name).glob("[0-9]*") if path.is_dir())


# Recording: which draws get siblings, and how siblings are trained.
def record(folder: Path, recordings: Path, count: int) -> None:
    """Train the missing healthy siblings of a draw."""
    from ckaudit.lab.wild.draw import draw
    from ckaudit.lab.zoo.trainers import train

    _, seed, index = folder.name.split(".")
    drawn = draw(SPLIT, int(seed), int(index))
    for number in range(1, count + 1):
        target = recordings / folder.name / str(number)
        partial = target.with_name(f".{number}")
        if target.exists():
            continue
        rmtree(partial, ignore_errors=True)
        train(drawn.healthy, partial, drawn.training_seed + number * SEEDS_APART, data_seed=drawn.training_seed)
        rmtree(partial.with_name(f"{partial.name}.out"), ignore_errors=True)
        partial.rename(target)


def chosen(known: Sequence[tuple[Path, PairNote]], healthy: int, ill: int, *, max_seconds: float = 8.0) -> list[Path]:
    """Return the draws that get siblings.

    Args:
        known: The draws.
        healthy: How many draws to choose whose twin has no false finding.
        ill: How many draws to choose in which something is found.
        max_seconds: Longest training of a draw, except of those whose twin has a false finding.
    """
    source = Random("siblings")
    quick = [(folder, pair) for folder, pair in known if pair.seconds <= max_seconds]
    source.shuffle(quick)
    flagged = [folder for folder, _ in known if any(codes_of(folder / HEALTHY, form) for form in FORMS)]
    felt = [(folder, pair) for folder, pair in quick if has_effect(pair, folder / ILL, folder / HEALTHY)]
    found = {folder: bool(codes_of(folder / ILL, "recorder", _since(pair))) for folder, pair in felt}
    missed = [folder for folder, is_found in found.items() if not is_found]
    others = [folder for folder, is_found in found.items() if is_found]
    well = [folder for folder, _ in quick if folder not in flagged]
    return list(dict.fromkeys([*flagged, *missed, *others[:ill], *well[:healthy]]))


def _since(pair: PairNote) -> int:
    return pair.onset if pair.onset > 1 else 0


# Scoring.
class Scores(Struct):
    """The judgements in one form.

    Attributes:
        form: The form.
        healthy: The healthy twins beside two siblings.
        ill: The ill ones, likewise.
        bands: Codes of departures of healthy runs from the band of others, by the number of others and by their names.
    """

    form: Form
    healthy: list[Judged] = field(default_factory=list)
    ill: list[Judged] = field(default_factory=list)
    bands: dict[int, dict[str, tuple[str, ...]]] = field(default_factory=dict)


def scored(known: Sequence[tuple[Path, PairNote]], recordings: Path, form: Form) -> Scores:
    """Judge all draws that have siblings, and the siblings, in one form."""
    scores = Scores(form)
    for folder, pair in known:
        paths = siblings_of(folder, recordings)
        if len(paths) < SIBLINGS:
            continue
        with TemporaryDirectory(prefix="run-") as temporary:
            runs = [opened(path, form, Path(temporary)) for path in (folder / HEALTHY, *paths)]
            scores.healthy.append(judged(folder.name, runs[0], runs[1 : 1 + SIBLINGS]))
            for place, run in enumerate(runs):
                others = [other for other in runs if other is not run]
                for count in sorted({1, 2, len(others)}):
                    scores.bands.setdefault(count, {})[f"{folder.name}/{place}"] = leaves(run, others[:count])
            if has_effect(pair, folder / ILL, folder / HEALTHY):
                run = opened(folder / ILL, form, Path(temporary))
                scores.ill.append(judged(f"{folder.name} {pair.fault}", run, runs[1 : 1 + SIBLINGS], since=_since(pair)))
    return scores


def lines_of(scores: Scores) -> Iterator[str]:
    """Yield what siblings change, one line each."""
    healthy, ill = scores.healthy, scores.ill
    alone, beside = sum(bool(each.alone) for each in healthy), sum(bool(each.beside) for each in healthy)
    yield f"{scores.form}: {len(healthy)} healthy twins; with a false finding alone {alone}, beside siblings {beside}"
    yield from (f"  {each.name}: {_both(each)}" for each in healthy if each.alone or each.beside)
    for count, by_name in sorted(scores.bands.items()):
        accused = {name: codes for name, codes in by_name.items() if codes}
        named = "".join(f"; {name} {' '.join(codes)}" for name, codes in accused.items())
        yield f"  healthy runs that leave the band of {count}: {len(accused)} of {len(by_name)}{named}"
    alone, beside = sum(bool(each.alone) for each in ill), sum(bool(each.beside) for each in ill)
    told = sum(bool(each.siblings) for each in ill)
    yield f"{scores.form}: {len(ill)} ill draws, siblings count for {told}; found alone {alone}, beside siblings {beside}"
    for each in ill:
        word = "LOST" if each.alone and not each.beside else "more" if each.beside and not each.alone else "less"
        if word != "less" or each.quieted:
            yield f"  {word} {each.name}: {_both(each)}; normal: {' '.join(each.quieted) or '-'}"


def _both(each: Judged) -> str:
    return f"alone {' '.join(each.alone) or '-'}; beside siblings {' '.join(each.beside) or '-'}"


def main() -> None:
    """Train siblings if asked, and print what they change."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("cache", type=Path, nargs="+")
    parser.add_argument("--recordings", type=Path, required=True)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--healthy", type=int, default=20)
    parser.add_argument("--ill", type=int, default=30)
    given = parser.parse_args()
    known = list(draws(given.cache))
    for folder in chosen(known, given.healthy, given.ill) if given.record else ():
        record(folder, given.recordings, SIBLINGS)
    for form in FORMS:
        for line in lines_of(scored(known, given.recordings, form)):
            print(line, flush=True)


if __name__ == "__main__":
    main()
