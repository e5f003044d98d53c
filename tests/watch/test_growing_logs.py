"""Packed logs and logs of other programs that grow under watch: what is added is seen, a cut-off end is waited for."""

import gzip
import json
import os
import shutil
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import zstandard

from ckaudit.audit import triage
from ckaudit.cli.run import run as command
from ckaudit.contract.schema.import_options import NO_IMPORT_OPTIONS, ImportOptions
from ckaudit.contract.schema.watch import WatchEvent
from ckaudit.errors import UsageError
from ckaudit.watch.announcer import Announcer, ClockReading
from ckaudit.watch.foreign_watcher import CORE_SHARE, ForeignWatcher
from ckaudit.watch.rounds import WatchRounds
from ckaudit.watch.watcher import Watcher

ROOT = Path(__file__).parents[2]
HEALTHY = ROOT / "fixtures" / "runs" / "healthy"
FRAME = {".gz": partial(gzip.compress, mtime=0), ".zst": zstandard.ZstdCompressor().compress}


def lines(steps: range, *, ill: int = -1) -> bytes:
    rows = (
        {"step": step, "time": 1e9 + step, "train_loss_raw": "NaN" if step == ill else 2.0 + 20 / (10 + step) + step % 7 / 100}
        for step in steps
    )
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def looks(watcher: Announcer, *moments: float) -> list[WatchEvent]:
    return [event for moment in moments for event in watcher.poll(ClockReading(moment, moment))]


def codes(events: list[WatchEvent]) -> list[str]:
    return [event.finding.code if event.finding else event.event for event in events]


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_frames_that_are_added_to_a_packed_log_are_read_as_they_come(suffix: str, tmp_path: Path) -> None:
    log = tmp_path / f"scalars.jsonl{suffix}"
    log.write_bytes(FRAME[suffix](lines(range(1, 200))))
    watcher = Watcher(tmp_path)
    assert codes(looks(watcher, 0.0)) == []
    assert watcher.step == 199
    whole = FRAME[suffix](lines(range(200, 400), ill=300))
    for end in (7, len(whole) // 2, len(whole) - 1):  # as a writer leaves it who is not done
        log.write_bytes(FRAME[suffix](lines(range(1, 200))) + whole[:end])
        assert "anew" not in codes(looks(watcher, 1.0))
    log.write_bytes(FRAME[suffix](lines(range(1, 200))) + whole)
    told = codes(looks(watcher, 2.0, 4.0, 60.0))
    assert watcher.step == 399
    assert told.count("NUM001") + codes(looks(watcher, 90.0)).count("NUM001") <= 1
    assert "SYN012" not in told


def test_what_a_packer_flushes_is_read_before_its_frame_ends(tmp_path: Path) -> None:
    packer = zstandard.ZstdCompressor().compressobj()
    log = tmp_path / "scalars.jsonl.zst"
    watcher = Watcher(tmp_path)
    with log.open("wb", buffering=0) as stream:
        for start in range(1, 600, 100):
            stream.write(packer.compress(lines(range(start, start + 100))) + packer.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK))
            looks(watcher, float(start))
            assert watcher.step == start + 99


def test_every_line_is_read_once(tmp_path: Path) -> None:
    log, text = tmp_path / "scalars.jsonl.zst", lines(range(1, 3_000))
    packed = b"".join(FRAME[".zst"](text[start : start + 1_111]) for start in range(0, len(text), 1_111))
    watcher, taken = Watcher(tmp_path), 0
    for end in range(97, len(packed) + 977, 977):
        log.write_bytes(packed[:end])
        looks(watcher, float(end))
        assert watcher._history.lines >= taken
        taken = watcher._history.lines
    looks(watcher, 1e6)
    assert watcher._history.lines == 2_999


def test_a_packed_log_that_is_broken_is_told_once(tmp_path: Path) -> None:
    log = tmp_path / "scalars.jsonl.zst"
    log.write_bytes(FRAME[".zst"](lines(range(1, 300))) + b"this is no frame")
    watcher = Watcher(tmp_path)
    told = codes(looks(watcher, 0.0, 10.0))
    with log.open("ab") as stream:
        stream.write(FRAME[".zst"](lines(range(300, 400))))
    told += codes(looks(watcher, 20.0, 30.0, 60.0))
    assert told.count("SYN012") == 1
    assert "anew" not in told
    assert watcher.step == 299


def test_a_packed_log_that_is_packed_anew_is_read_anew(tmp_path: Path) -> None:
    log = tmp_path / "scalars.jsonl.zst"
    log.write_bytes(FRAME[".zst"](lines(range(1, 200))))
    watcher = Watcher(tmp_path)
    looks(watcher, 0.0)
    other = tmp_path / "other"
    other.write_bytes(FRAME[".zst"](lines(range(1, 400))))
    other.rename(log)
    assert codes(looks(watcher, 10.0, 20.0)).count("anew") == 1
    assert (watcher.step, watcher._history.lines) == (399, 399)


def test_a_bomb_is_told_and_left(tmp_path: Path) -> None:
    (tmp_path / "scalars.jsonl.zst").write_bytes(FRAME[".zst"](b"\n" * 300_000_000))
    told = looks(Watcher(tmp_path), 0.0, 10.0)
    assert [(each.finding.code, "times as large" in each.message) for each in told if each.finding] == [("SYN012", True)]


def csv(steps: range, *, ill: int = -1) -> str:
    return "".join(f"{step},{'nan' if step == ill else 3 / step + 1},{1 + 1 / step}\n" for step in steps)


def test_a_csv_that_grows_stops_what_burns_the_budget(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text("step,loss,gnorm\n" + csv(range(1, 200)))
    words = [str(log), "--map", "loss=loss", "--until", "sev0", "--format", "jsonl"]
    watch = subprocess.Popen(
        [sys.executable, "-m", "ckaudit", "watch", *words],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    for start in range(200, 1_000, 20):
        with log.open("a") as stream:
            stream.write(csv(range(start, start + 20), ill=510))
        time.sleep(0.1)
        if watch.poll() is not None:
            break
    out, _ = watch.communicate(timeout=60)
    events = [json.loads(line) for line in out.splitlines()]
    assert watch.returncode == 1
    told = next(event for event in events if event.get("severity") == "sev0")
    assert told["finding"]["code"] == "NUM001"
    assert told["step"] >= 510


def tensorboard(folder: Path) -> Path:
    """Return the event file of a recorded run."""
    target = folder / "whole"
    assert command(["export", str(ROOT / "fixtures" / "runs" / "nan_batch"), "--to", "tensorboard", "-o", str(target)]) == 0
    (file,) = target.iterdir()
    return file


REAL = ROOT / "fixtures" / "real"
LOGS = {
    "text": lambda _: REAL / "modded_nanogpt" / "track3_muon_311d7833.txt",
    "megatron": lambda _: REAL / "bigscience" / "tr8b-104B__chronicles__it6502-8600.log",
    "csv": lambda _: REAL / "pythia" / "160m-6.first5000.csv",
    "tensorboard": tensorboard,
}


@pytest.mark.parametrize("kind", LOGS)
def test_what_triage_finds_in_a_log_of_another_program_is_told_while_it_grows(kind: str, tmp_path: Path) -> None:
    source = LOGS[kind](tmp_path)
    whole = source.read_bytes()
    folder = tmp_path / "grows"
    folder.mkdir()
    log = folder / source.name
    path = folder if kind == "tensorboard" else log
    watcher, told = ForeignWatcher(path), []
    for turn in range(1, 6):
        log.write_bytes(whole[: len(whole) * turn // 5])
        told += looks(watcher, 1e3 * turn)
    shutil.rmtree(tmp_path / "whole", ignore_errors=True)
    found = [each for each in triage(path).findings if each.severity != "note"]
    assert {each.code for each in found} <= {*codes(told)}
    assert watcher.step == triage(path).step
    assert looks(watcher, 1e5) == []


def test_a_log_that_is_written_anew_each_time_is_followed_and_its_torn_state_passed_over(tmp_path: Path) -> None:
    log = tmp_path / "trainer_state.json"
    history = [{"step": step, "loss": 3 / step + 1, "learning_rate": 1e-3} for step in range(1, 400)]
    watcher = ForeignWatcher(log)
    for turn, count in enumerate((150, 250, 399)):
        text = json.dumps({"global_step": count, "log_history": history[:count]})
        log.write_text(text[: len(text) // 2])
        assert "error" not in codes(looks(watcher, 1e3 * turn))
        log.write_text(text)
        looks(watcher, 1e3 * turn + 500)
        assert watcher.step == history[count - 1]["step"]


def test_what_stays_unreadable_is_told_once(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text("<html>")
    events = looks(ForeignWatcher(log), 0.0, 10.0, 20.0, 30.0)
    assert codes(events) == ["error"]
    assert "is a web page" in events[0].message


def test_a_choice_is_asked_for_at_the_start_and_does_not_end_a_watch_later(tmp_path: Path) -> None:
    two = (REAL / "parameter_golf" / "gdn_hybrid_seq32768_two_runs.txt").read_bytes()
    log = tmp_path / "train.log"
    log.write_bytes(two)
    with pytest.raises(UsageError, match="holds 2 runs"):
        looks(ForeignWatcher(log), 0.0)
    assert codes(looks(ForeignWatcher(log, import_options=ImportOptions(run="1")), 0.0)).count("error") == 0
    log.write_bytes(two[: len(two) // 3])
    watcher = ForeignWatcher(log)
    looks(watcher, 0.0)
    assert watcher.step is not None
    log.write_bytes(two)
    events = looks(watcher, 1e3, 2e3, 3e3, 4e3)
    assert [each.message.partition(" holds")[0] for each in events if each.event == "error"] == ["train.log"]


def test_reading_again_costs_its_share_of_a_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("ckaudit.watch.foreign_watcher.process_time", lambda: clock[0])

    class Slow(ForeignWatcher):
        def _read(self, moment):
            clock[0] += 0.6
            yield from super()._read(moment)

    log = tmp_path / "log.csv"
    watcher = Slow(log)
    for second in range(600):
        log.write_text("step,loss,gnorm\n" + csv(range(1, 50 + second)))
        looks(watcher, float(second))
    assert 0.9 * CORE_SHARE * 600 <= clock[0] <= CORE_SHARE * 600 + 0.6


def test_silence_of_a_log_is_a_stall(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text("step,loss,gnorm\n" + csv(range(1, 50)))
    os.utime(log, (0, 0))
    watcher = ForeignWatcher(log, stall_after=100)
    assert codes(looks(watcher, 0.0, 90.0)) == []
    assert codes(looks(watcher, 101.0, 102.0)) == ["WATCH001"]


def test_a_folder_that_turns_out_to_be_of_another_program_is_followed(tmp_path: Path) -> None:
    source = tensorboard(tmp_path)
    folder = tmp_path / "grows"
    folder.mkdir()
    rounds = WatchRounds([folder], import_options=NO_IMPORT_OPTIONS)
    assert list(rounds.poll()) == []
    shutil.copy(source, folder)
    told = [event for _ in range(3) for event in rounds.poll()]
    assert "NUM001" in codes(told)
