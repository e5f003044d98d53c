"""A recorded run that is written again piece by piece: the watch tells what a triage of the whole finds, each thing once."""

import json
import shutil
from functools import cache
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from ckaudit.audit import triage
from ckaudit.contract.io.files import CHECKPOINT_NAME
from ckaudit.contract.schema.report import SEVERITIES, Finding
from ckaudit.contract.schema.watch import WatchEvent
from ckaudit.rules import rules
from ckaudit.watch.announcer import ClockReading
from ckaudit.watch.growing_run import NEWEST_VALUES
from ckaudit.watch.watcher import Watcher

RUNS = Path(__file__).parents[2] / "fixtures" / "runs"
ONSET = range(140, 161)
"""Lines about the bad batch of step 150, which are looked at one by one."""


@cache
def events_of(name: str, every: int, singly: range = range(0)) -> tuple[WatchEvent, ...]:
    """Return what the watch says of a recorded run that is written again."""
    with TemporaryDirectory() as folder:
        return tuple(replay(RUNS / name, Path(folder) / "run", every, singly))


def replay(run: Path, folder: Path, every: int, singly: range) -> list[WatchEvent]:
    """Write a run again, so many lines at a time, with a look at it after each part; the clock leaves time to judge.

    Args:
        run: What is written again.
        folder: Where.
        every: Lines of a part.
        singly: Lines that are written one at a time.
    """
    folder.mkdir()
    lines = (run / "scalars.jsonl").read_text().splitlines(keepends=True)
    files = {int(match["step"]): file for file in run.iterdir() if (match := CHECKPOINT_NAME.match(file.name))}
    started = json.loads((run / "run.json").read_text())
    started["sessions"] = [{name: value for name, value in each.items() if name != "end"} for each in started["sessions"]]
    (folder / "run.json").write_text(json.dumps(started))
    watcher, events, written = Watcher(folder, stall_after=1e9), [], -1
    for part, end in pairwise(sorted({*range(0, len(lines), every), *singly, len(lines)})):
        with (folder / "scalars.jsonl").open("a") as log:
            log.writelines(lines[part:end])
        last = json.loads(lines[end - 1])["step"]
        for step in sorted(files):
            if written < step <= last:
                shutil.copy(files[step], folder)
        written = last
        for half in (0.0, 0.5):  # a checkpoint is read when it was the same twice
            events += watcher.poll(ClockReading(1000.0 * (part + half), 0.0))
    shutil.copy(run / "run.json", folder)
    for more in range(3):
        events += watcher.poll(ClockReading(1000.0 * (len(lines) + more), 0.0))
    assert watcher.ended
    return events


def places(finding: Finding) -> set[str | None]:
    return {finding.where, *finding.also}


def is_told(finding: Finding, told: list[Finding]) -> bool:
    """Tell whether a finding of the whole was told, at least as grave, and of a place that it is about."""
    return any(
        each.code == finding.code
        and places(each) & places(finding)
        and SEVERITIES.index(each.severity) <= SEVERITIES.index(finding.severity)
        for each in told
    )


@pytest.mark.parametrize(
    ("name", "every", "singly"),
    [("nan_batch", 40, ONSET), ("lr_too_high", 20, range(0)), ("no_warmup_spike", 40, range(0)), ("overfit_tiny", 100, range(0))],
)
def test_what_triage_finds_of_the_whole_was_told_on_the_way(name: str, every: int, singly: range) -> None:
    events = events_of(name, every, singly)
    told = [event.finding for event in events if event.finding is not None]
    whole = [each for each in triage(RUNS / name).findings if each.severity != "note"]
    assert whole
    assert [each.message for each in whole if not is_told(each, told)] == []


def test_each_finding_is_told_once() -> None:
    events = events_of("lr_too_high", 20, range(0))
    spots = [
        (each.finding.code, each.finding.where, each.finding.first_step)
        for each in events
        if each.event == "finding" and each.finding is not None
    ]
    assert spots
    assert len(spots) == len(set(spots))


def test_as_many_are_told_as_there_are() -> None:
    events = events_of("nan_batch", 40, ONSET)
    whole = [each for each in triage(RUNS / "nan_batch").findings if each.severity != "note"]
    assert sum(each.event == "finding" for each in events) == len(whole) == 9


def test_nothing_is_told_of_a_healthy_run_at_any_time() -> None:
    events = events_of("healthy", 200)
    assert [(event.event, event.message) for event in events] == [("ended", "the run has ended")]


def test_a_grave_finding_is_told_at_the_step_where_it_begins() -> None:
    events = events_of("nan_batch", 40, ONSET)
    first = next(event for event in events if event.severity == "sev0")
    assert first.step == 150
    assert first.likely is not None
    assert first.likely.cause == "bad_batch"


def test_what_is_kept_in_full_is_longer_than_any_declared_memory() -> None:
    declared = [
        (each.memory or 0) + sum(metric.memory or 0 for metric in each.metrics) for each in rules().values() if each.memory
    ]
    assert declared
    assert max(declared) < NEWEST_VALUES
