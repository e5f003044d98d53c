"""Commands that read a run while the rest of it is still fetched say what they say of the folder, whatever happens meanwhile."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ckaudit.remote.mirror import local_copy
from tests.forked import ckaudit
from tests.object_storage import Bucket, Fault, Proxy, s3, s3_server

__all__ = ["s3", "s3_server"]

ROOT = Path(__file__).parents[2]
HEALTHY = ROOT / "fixtures/runs/healthy"
LAST = "analysis_checkpoint_step_00002000.json.zst"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only there a process is forked")

COMMAND = "from ckaudit.cli.run import run; raise SystemExit(run(sys.argv[1:]))"
FEW = "from ckaudit.remote import fetch; fetch.AT_ONCE = 1; "
QUICK = "from ckaudit.remote import filesystem as f; f.ANSWER_SECONDS = f.CONNECT_SECONDS = 0.5; f.LONGEST_WAIT = 0.05; "


def program(text: str, *words: str) -> subprocess.CompletedProcess:
    """Run a program of a few lines, and return what it said; the process of the tests has threads of its own."""
    command = [sys.executable, "-c", f"import sys; {text}", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)


def output_of(command: str, place: str, text: str = "") -> tuple[int, str, str]:
    """Return what a command says of a run, as if the address were its name; a text of its own needs a process of its own."""
    words = (command, place, "-f", "json")
    done = program(text, *words) if text else ckaudit(*words, cwd=ROOT, **os.environ)
    return done.returncode, done.stdout.replace(place, "RUN"), done.stderr.replace(place, "RUN")


def name_of(path: str) -> str:
    return path.partition("?")[0].rpartition("/")[2]


@pytest.fixture
def through(s3: Bucket, monkeypatch):
    """Lead the clients through a proxy that delays every checkpoint."""
    with Proxy(s3.endpoint) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        proxy.fault = lambda method, path, count: Fault(delay=0.1) if "analysis" in path else None
        yield proxy


@pytest.fixture
def uri(s3: Bucket) -> str:
    return s3.put("run", HEALTHY)


BEGUN = "from ckaudit.remote.ahead import copy_ahead; from ckaudit.remote import arrivals; copy = copy_ahead(sys.argv[1]); "


def test_a_run_can_be_read_before_its_checkpoints_are_there(uri: str, through: Proxy) -> None:
    text = (
        f"{BEGUN}first = sorted(path.name for path in copy.iterdir()); "
        "named = sorted({*first}.union(arrivals.names_to_come(copy))); "
        "[arrivals.wait_for(copy / name) or (copy / name).stat() for name in named]; "
        "arrivals.end_all(needed=True); print(first, named, sep='\\n')"
    )
    done = program(text, uri)
    assert done.stderr == ""
    first, named = map(eval, done.stdout.splitlines())
    assert {"run.json", "scalars.jsonl"} <= {*first}
    assert len(first) < len(named) / 2
    assert named == sorted(path.name for path in HEALTHY.iterdir())


@pytest.mark.parametrize("command", ["triage", "validate"])
def test_the_answer_is_that_of_the_folder_cold_and_warm(uri: str, through: Proxy, command: str) -> None:
    expected = output_of(command, str(HEALTHY))
    assert output_of(command, uri) == expected
    through.asked.clear()
    assert output_of(command, uri) == expected
    assert not [path for path in through.asked if "list-type" not in path]


def test_several_addresses_one_of_them_twice(s3: Bucket, uri: str, through: Proxy) -> None:
    other = s3.put("other", ROOT / "fixtures/runs/nan_batch")
    done = ckaudit("validate", uri, other, f"{uri}/", cwd=ROOT, **os.environ)
    assert done.returncode == 0, done.stderr
    count = len([*HEALTHY.glob("*.json*")]) + len([*(ROOT / "fixtures/runs/nan_batch").glob("*.json*")])
    assert f"{count} files" in done.stdout


def test_a_run_among_its_own_siblings_is_waited_for(s3: Bucket, through: Proxy) -> None:
    for name in ("replica", "replica_2", "base", "lr_doubled"):
        s3.put(f"pairs/{name}", ROOT / "fixtures/pairs" / name)
    done = ckaudit("triage", s3.uri("pairs/lr_doubled/"), "--like", s3.uri("pairs/*"), "-f", "json", cwd=ROOT, **os.environ)
    assert done.returncode == 0, done.stderr
    assert "held against 3 healthy siblings" in done.stdout


@pytest.mark.parametrize("command", ["triage", "validate"])
def test_what_changes_and_goes_meanwhile_is_read_as_it_is_then(s3: Bucket, uri: str, through: Proxy, command: str) -> None:
    def writer(method: str, path: str, count: int) -> Fault | None:
        if name_of(path) == LAST and count == 1:
            (s3.folder / "run" / LAST).rename(s3.folder / "run/analysis_checkpoint_step_00002000.session000.json.zst")
            changed = s3.folder / "run/analysis_checkpoint_step_00001800.json.zst"
            changed.write_bytes((HEALTHY / "analysis_checkpoint_step_00001600.json.zst").read_bytes())
        return Fault(delay=0.1) if "analysis" in path else None

    through.fault = writer
    found = output_of(command, uri)
    assert not (s3.folder / "run" / LAST).exists()
    assert found == output_of(command, str(s3.folder / "run"))


def test_what_cannot_be_fetched_is_named_while_others_are_read(uri: str, through: Proxy) -> None:
    through.fault = lambda method, path, count: Fault(cut=0.4) if name_of(path) == LAST else None
    began = time.monotonic()
    code, out, err = output_of("triage", uri, QUICK + COMMAND)
    assert (code, out) == (2, "")
    assert f"error: RUN/{LAST}: the connection failed" in err
    assert "hint: " in err
    assert time.monotonic() - began < 30
    through.fault = lambda method, path, count: None
    through.asked.clear()
    assert output_of("triage", uri) == output_of("triage", str(HEALTHY))
    assert len([path for path in through.asked if "list-type" not in path]) < 10  # what had come is not fetched again


@pytest.mark.parametrize("address", ["s3://no-such-bucket/run", "s3://no-such-bucket"])
def test_what_is_not_there_is_told_as_ever(s3: Bucket, address: str) -> None:
    code, out, err = output_of("validate", address)
    assert (code, out) == (2, "")
    assert err.startswith("error: RUN does not exist\nhint: ")


def test_a_fetching_process_that_is_killed_is_done_without(uri: str, through: Proxy) -> None:
    text = (
        "import os, signal; from ckaudit.remote.ahead import ProcessArrivals as A; begin = A.begin; "
        "A.begin = lambda self, progress: (begin(self, progress), os.kill(self._process, signal.SIGKILL))[0]; "
    )
    assert output_of("triage", uri, text + COMMAND) == output_of("triage", str(HEALTHY))


def test_nothing_goes_on_behind_a_command_that_was_killed(uri: str, through: Proxy) -> None:
    through.fault = lambda method, path, count: Fault(delay=0.2) if "analysis" in path else None
    process = subprocess.Popen([sys.executable, "-c", f"import sys; {FEW}{COMMAND}", "triage", uri], cwd=ROOT)
    _wait_until(lambda: len([path for path in through.asked if "analysis" in path]) > 3)
    process.send_signal(signal.SIGKILL)
    process.wait()
    time.sleep(0.5)
    asked = len(through.asked)
    time.sleep(1)
    assert len(through.asked) == asked < len([*HEALTHY.iterdir()])
    through.fault = lambda method, path, count: None
    copy = local_copy(uri)
    assert _content(copy) == _content(HEALTHY)
    assert not list(copy.parent.glob("partial-*"))


def _content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def _wait_until(is_so, *, seconds: float = 30) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until and not is_so():
        time.sleep(0.01)
    assert is_so()


def test_a_command_that_ends_early_gives_up_what_is_on_its_way(uri: str, through: Proxy) -> None:
    through.fault = lambda method, path, count: Fault(delay=0.5) if "analysis" in path else None
    began = time.monotonic()
    done = program(FEW + COMMAND, "triage", uri, "--nope")
    assert done.returncode == 2
    assert "--nope" in done.stderr
    assert time.monotonic() - began < 20
    assert len([path for path in through.asked if "analysis" in path]) < len([*HEALTHY.glob("analysis*")])


def test_a_copy_stays_while_it_is_read_though_the_process_that_fetched_it_has_ended(uri: str) -> None:
    give_up = "from pathlib import Path; from ckaudit.remote import cache; print(cache._give_up(Path(sys.argv[1])))"
    text = (
        f"import subprocess; {BEGUN}arrivals.end_all(needed=True); "
        f"subprocess.run([sys.executable, '-c', {'import sys; ' + give_up!r}, str(copy.parent)], check=True)"
    )
    done = program(text, uri)
    assert (done.stdout, done.stderr) == ("False\n", "")
    (copy,) = Path(os.environ["CKAUDIT_CACHE"]).glob("runs/*")
    assert program(give_up, str(copy)).stdout == "True\n"
