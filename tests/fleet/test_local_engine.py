"""Local processes: every source has its rows once, whatever becomes of the processes."""

import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shutil import copytree

import msgspec
import pytest

from ckaudit.contract.schema.fleet import Fleet
from ckaudit.fleet.dataset import read_stored
from ckaudit.fleet.engines.local import KILLED, LocalEngine, interrupts_later
from ckaudit.fleet.source import RunSource
from tests.fleet.crashing import crash, crash_then_hang, hang

RUNS = Path(__file__).parents[2] / "fixtures" / "runs"


def test_a_process_that_dies_costs_its_own_run_only_if_it_dies_again(tmp_path):
    names = [f"{number}-{'always' if number == 3 else 'once' if number == 7 else 'well'}" for number in range(12)]
    sources = [RunSource(name=name, path=str(tmp_path / name)) for name in names]
    rows = [row for rows in LocalEngine(2, work=crash).results(sources) for row in rows]
    assert sorted(row.run for row in rows) == sorted(names)
    assert [(row.run, row.problem) for row in rows if row.status != "audited"] == [("3-always", KILLED)]
    assert (tmp_path / "3-always").read_text() == "xx"


def test_a_source_that_never_ends_is_given_up_and_the_others_have_their_rows_once(tmp_path):
    words = {2: "asleep", 5: "busy", 6: "asleep"}
    names = [f"{number}-{words.get(number, 'well')}" for number in range(12)]
    sources = [RunSource(name=name, path=str(tmp_path / name)) for name in names]
    start = time.monotonic()
    rows = [row for rows in LocalEngine(2, seconds=1.5, work=hang).results(sources) for row in rows]
    assert time.monotonic() - start < 60
    assert sorted(row.run for row in rows) == sorted(names)
    told = {row.run: (row.status, row.problem) for row in rows if row.status != "audited"}
    message = "its audit took longer than 1.5 seconds, and was ended"
    assert told == {f"{number}-{word}": ("error", message) for number, word in words.items()}
    assert (tmp_path / "2-asleep").read_text() == "x"  # it is not tried again


def test_a_source_whose_process_dies_is_given_up_too_where_it_then_never_ends(tmp_path):
    def results(source):
        return [row.problem for rows in LocalEngine(1, seconds=1, work=crash_then_hang).results([source]) for row in rows]

    assert results(RunSource(name="x", path=str(tmp_path / "x"))) == ["its audit took longer than 1 second, and was ended"]


def test_no_source_is_no_work():
    assert list(LocalEngine(2).results([])) == []


FLEET = [sys.executable, "-m", "ckaudit", "fleet", "--jobs", "1", "--no-config", "--format", "json"]


def test_an_audit_that_is_killed_goes_on_where_it_was(tmp_path):
    for number in range(58):  # it takes seconds: nothing is written in the first
        copytree(RUNS / "nan_batch", tmp_path / f"run-{number:02}")
    patterns = [str(tmp_path / "run-*"), str(RUNS / "healthy"), str(RUNS / "nan_batch")]
    folder = tmp_path / "data"
    first = subprocess.Popen([*FLEET, *patterns, "-o", str(folder)], stdout=subprocess.DEVNULL)
    while not (known := [run.run for run in read_stored(folder).runs]) and first.poll() is None:
        time.sleep(0.02)
    workers = [int(pid) for pid in Path(f"/proc/{first.pid}/task/{first.pid}/children").read_text().split()]
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert 0 < len(known) < 60
    end = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in workers) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)  # nothing goes on without its parent
    told = read_stored(folder).runs
    second = subprocess.run([*FLEET, *patterns, "-o", str(folder)], capture_output=True, text=True, check=False)
    fleet = msgspec.json.decode(second.stdout, type=Fleet)
    assert (fleet.unchanged, fleet.audited) == (len(told), 60 - len(told))
    assert {run.run: run for run in fleet.runs}.items() >= {run.run: run for run in told}.items()
    assert len(fleet.runs) == 60
    assert read_stored(folder).problems == []


BLOCKED = """
from multiprocessing import forkserver
from pathlib import Path
from ckaudit.fleet.engines.local import _pool

with _pool(1) as (pool, _):
    status = Path(f"/proc/{forkserver._forkserver._forkserver_pid}/status").read_text()
    workers = pool.submit(Path.read_text, Path("/proc/self/status")).result()
    print(*(next(line.split()[1] for line in text.splitlines() if line.startswith("SigBlk")) for text in (status, workers)))
"""


def test_only_the_process_that_asked_hears_ctrl_c():
    """As long as the server and its processes load what they need, nothing else keeps them from answering it."""
    told = subprocess.run([sys.executable, "-c", BLOCKED], capture_output=True, text=True, check=True).stdout
    interrupt = 1 << (signal.SIGINT - 1)
    assert [int(mask, 16) & interrupt for mask in told.split()] == [interrupt, interrupt]


@pytest.fixture
def interruptible():
    """Answer Ctrl-C as a terminal's process does; a shell has one in the background ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_waits_until_a_process_has_begun():
    begun = []

    def begin():
        with interrupts_later():
            signal.raise_signal(signal.SIGINT)
            begun.append(1)

    with pytest.raises(KeyboardInterrupt):
        begin()
    assert begun == [1]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_is_none_of_a_thread():
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(_asked_in_a_thread).result() is signal.default_int_handler


def _asked_in_a_thread():
    with interrupts_later():
        return signal.getsignal(signal.SIGINT)
