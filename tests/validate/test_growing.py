"""A file that is being written while we read is no error."""

import json
import os
import threading
import time
from functools import partial

import pytest

from ckaudit.validate import validate
from ckaudit.validate.run_reader import ReadPatience
from tests.validate.material import checkpoint, healthy_run, name_of


def test_a_young_file_that_becomes_whole_while_we_wait_is_judged(tmp_path):
    run = healthy_run(tmp_path / "run")
    text = json.dumps(checkpoint(50))
    (run / name_of(50)).write_text(text[:100])
    finish = threading.Timer(0.15, (run / name_of(50)).write_text, [text])
    finish.start()
    report = validate([run])
    finish.join()
    assert (report.findings, report.notes) == ([], [])


@pytest.fixture
def short_patience(monkeypatch):
    """Wait for writers a quarter of the time."""
    monkeypatch.setattr("ckaudit.validate.ReadPatience", partial(ReadPatience, left=ReadPatience().left / 4))


def test_a_young_file_that_keeps_growing_is_left_out_with_a_note(tmp_path, short_patience):
    run = healthy_run(tmp_path / "run")
    stop = threading.Event()

    def grow() -> None:
        with (run / name_of(50)).open("w") as stream:
            stream.write('{"schema_version": "ck.analysis.v1", "loss": [')
            while not stop.is_set():
                stream.write("1,")
                stream.flush()
                time.sleep(0.02)

    writer = threading.Thread(target=grow)
    writer.start()
    time.sleep(0.05)
    start = time.perf_counter()
    report = validate([run])
    waited = time.perf_counter() - start
    stop.set()
    writer.join()
    assert report.findings == []
    assert report.notes == [f"{name_of(50)}: still being written, so it was not judged"]
    assert waited < 4


def test_an_old_file_that_is_cut_is_broken_at_once(tmp_path):
    run = healthy_run(tmp_path / "run")
    (run / name_of(50)).write_text("{")
    os.utime(run / name_of(50), (1, 1))
    start = time.perf_counter()
    assert [finding.code for finding in validate([run]).findings] == ["SYN005"]
    assert time.perf_counter() - start < 0.3


def test_many_young_broken_files_share_one_patience(tmp_path, short_patience):
    for step in range(0, 600, 10):
        (tmp_path / name_of(step)).write_text("{")
    start = time.perf_counter()
    assert [finding.code for finding in validate([tmp_path]).findings] == ["SYN005"] * 60
    assert time.perf_counter() - start < 5


def test_a_file_that_goes_away_while_the_folder_is_read_is_a_note(tmp_path):
    run = healthy_run(tmp_path / "run")

    def take_away(done: int, total: int) -> None:
        (run / name_of(50)).unlink(missing_ok=True)

    report = validate([run], progress=take_away)
    assert report.findings == []
    assert report.notes == [f"{name_of(50)}: went away while the folder was read"]
