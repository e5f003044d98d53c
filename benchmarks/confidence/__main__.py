"""Fits how likely causes are on recordings whose truth is known, and measures it on families left out.

    python -m benchmarks.confidence --wild CACHE --everyday CACHE --lab CACHE [--jobs 2] [--write]

CACHE is a folder that `ckaudit lab wild`, `python -m benchmarks.everyday` or `ckaudit lab record` has filled; each may be given
several times. Each sixth of the families is predicted by a fit on the others, which is what the first tables show; the second
are of the numbers that `ckaudit/audit/confidence.py` holds. `--write` puts both into docs/confidence.md.
"""

import argparse
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from msgspec.structs import asdict

from benchmarks.confidence import recordings
from benchmarks.confidence.fit import fit_confidences, likeliest, predict_left_out, reliability_table
from benchmarks.confidence.recordings import JudgedRecording, LabelledRecording
from ckaudit.audit.confidence import confidences
from ckaudit.lab.wild.forms import FORMS

PAGE = Path(__file__).parents[2] / "docs" / "confidence.md"
MARK = "<!-- written by benchmarks/confidence -->"
BANDS = (0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.01)
SURE = 0.7


def tables_by_form(data: Sequence[JudgedRecording], chances: Sequence[Sequence[float]]) -> Iterator[str]:
    """Yield the lines of a table of reliability for each form and for all, of the first cause of each recording."""
    for name, forms in (*((form, (form,)) for form in FORMS), ("all forms", FORMS)):
        confidences, right = [], []
        for each, likely in zip(data, chances, strict=True):
            if each.form in forms and (best := likeliest(likely)) is not None:
                confidences.append(likely[best])
                right.append(each.candidates[best].cause in each.recording.right)
        sure, true = np.array(confidences) >= SURE, np.array(right, bool)
        counts = f"{true.sum()} of {len(confidences)} first causes are right"
        yield f"{name}: {counts}; {(sure & ~true).sum()} of {sure.sum()} sure ones are wrong."
        yield ""
        yield from reliability_table(np.array(confidences), true, bands=BANDS)
        yield ""


def read_recordings(given: argparse.Namespace) -> list[LabelledRecording]:
    """Return every recording of the caches that were given, each name once."""
    found = [
        recording
        for source in ("wild", "everyday", "lab")
        for cache in getattr(given, source)
        for recording in getattr(recordings, f"{source}_recordings")(cache)
    ]
    return list({(recording.source, recording.name): recording for recording in found}.values())


def main() -> None:
    """Weigh the causes of every recording, fit, print the tables of reliability, and write them if asked."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.confidence", description=(__doc__ or "").partition("\n")[0])
    for source in ("wild", "everyday", "lab"):
        parser.add_argument(f"--{source}", type=Path, action="append", default=[], metavar="CACHE")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--write", action="store_true", help="put the tables into docs/confidence.md")
    given = parser.parse_args()
    found = read_recordings(given)
    with ProcessPoolExecutor(given.jobs, mp_context=get_context("spawn")) as auditors:
        data = [one for weighed in auditors.map(recordings.judge_in_each_form, found, chunksize=4) for one in weighed]
    made = fit_confidences(data)
    count = {source: sum(recording.source == source for recording in found) for source in ("wild", "everyday", "lab")}
    lines = [
        ", ".join(f"{number} recordings of {source}" for source, number in count.items()) + ", each in three forms.",
        "",
        "Fitted to all of them: " + ", ".join(f"{name} {value:.3f}" for name, value in asdict(made).items()) + ".",
        "",
        "## Families left out",
        "",
        *tables_by_form(data, predict_left_out(data)),
        "## As it is",
        "",
        *tables_by_form(data, [confidences(each.candidates) for each in data]),
    ]
    print("\n".join(lines))
    if given.write:
        text = PAGE.read_text(encoding="utf-8")
        PAGE.write_text("\n".join([text[: text.index(MARK)] + MARK, "", *lines]).rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
