"""Runs in a real S3 server, read through a cache: what is fetched, what is kept, and what the network may do meanwhile."""

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ckaudit.errors import UnreadableError
from ckaudit.remote import fetch, filesystem, mirror
from ckaudit.remote.mirror import local_copy, objects_below
from tests.object_storage import Bucket, Fault, Proxy, forget_clients, s3, s3_server

__all__ = ["s3", "s3_server"]

ROOT = Path(__file__).parents[2]
HEALTHY = ROOT / "fixtures/runs/healthy"


def tree(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(params=["obstore", "s3fs"])
def client(request, monkeypatch):
    """Read by the fast client, and as if that one were not installed."""
    if request.param == "s3fs":
        monkeypatch.setattr(mirror, "serves", lambda uri: False)
    return request.param


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(filesystem, "ANSWER_SECONDS", 0.5)
    monkeypatch.setattr(filesystem, "CONNECT_SECONDS", 0.5)
    monkeypatch.setattr(filesystem, "LONGEST_WAIT", 0.05)
    forget_clients()


@pytest.fixture
def through(s3: Bucket, monkeypatch):
    """Lead the clients through a proxy."""
    with Proxy(s3.endpoint) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        yield proxy


def test_a_run_is_copied_as_it_is_and_only_what_changed_is_fetched_again(s3: Bucket, through: Proxy, client: str) -> None:
    uri = s3.put("runs/nano", HEALTHY)
    (s3.folder / "runs/nano2").mkdir()
    (s3.folder / "runs/nano2/run.json").write_text("{}")  # a neighbour whose name begins alike
    copy = local_copy(uri)
    assert copy.name == "nano"
    assert tree(copy) == tree(HEALTHY)
    through.asked.clear()
    assert local_copy(uri + "/").name == "nano"
    through.asked.clear()
    s3.put("runs/nano/scalars.jsonl", b'{"step": 1, "train_loss": 2.0}\n')
    s3.put("runs/nano/new/deep.txt", b"new")
    (s3.folder / "runs/nano/run.json").unlink()
    again = local_copy(uri)
    assert again == copy
    assert tree(again) == tree(s3.folder / "runs/nano")
    fetched = {path.partition("?")[0].rpartition("/")[2] for path in through.asked if "list-type" not in path}
    assert fetched == {"scalars.jsonl", "deep.txt"}


def test_one_object_and_a_bucket_itself_are_copied(s3: Bucket, client: str) -> None:
    s3.put("logs/train log.csv", b"step,loss\n1,2\n")
    assert local_copy(s3.uri("logs/train log.csv")).read_bytes() == b"step,loss\n1,2\n"
    assert tree(local_copy(f"s3://{s3.name}")) == {"logs/train log.csv": b"step,loss\n1,2\n"}
    s3.put("logs/no_ending", b"x")
    assert local_copy(s3.uri("logs/no_ending")).read_bytes() == b"x"


def test_large_objects_come_in_pieces(s3: Bucket, through: Proxy, client: str, monkeypatch) -> None:
    monkeypatch.setattr(fetch, "PIECE", 100_000)
    data = os.urandom(1_234_567)
    uri = s3.put("run/events.jsonl", data)
    assert local_copy(uri).read_bytes() == data
    (path,) = [path for path in through.asked if "events.jsonl" in path]
    assert through.asked[path] >= 13


def test_weights_stay_where_they_are_unless_asked_for(s3: Bucket) -> None:
    s3.put("run/scalars.jsonl", b'{"step": 1, "train_loss": 2.0}\n')
    s3.put("run/model.safetensors", bytes(2 * 2**20))
    assert set(tree(local_copy(s3.uri("run")))) == {"scalars.jsonl"}
    assert set(tree(local_copy(s3.uri("run"), everything=True))) == {"scalars.jsonl", "model.safetensors"}


def test_what_is_not_there_and_what_may_not_be_read_is_named(s3: Bucket, client: str, monkeypatch) -> None:
    s3.put("run/scalars.jsonl", b"{}")
    for uri in (s3.uri("nope"), s3.uri("nope.csv"), s3.uri("run/nope"), "s3://no-such-bucket/run", "s3://no-such-bucket"):
        with pytest.raises(UnreadableError, match=f"^{uri} does not exist$"):
            local_copy(uri)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    forget_clients()
    with pytest.raises(UnreadableError, match=rf"^{s3.uri('run')} may not be read \(.*signature") as refused:
        local_copy(s3.uri("run"))
    assert "AWS_PROFILE" in refused.value.hint
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    forget_clients()
    with pytest.raises(UnreadableError, match="there are no credentials to read it with"):
        local_copy(s3.uri("run"))


FAULTS = {
    "busy": Fault(busy=True),
    "cut": Fault(cut=0.4),
    "empty": Fault(cut=0.0),
    "reset": Fault(reset=True),
    "slow": Fault(delay=0.8),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_what_passes_is_tried_again(s3: Bucket, through: Proxy, client: str, quick: None, fault: Fault) -> None:
    uri = s3.put("run", HEALTHY)
    through.fault = lambda method, path, count: fault if count == 1 and ("run.json" in path or "list-type" in path) else None
    assert tree(local_copy(uri)) == tree(HEALTHY)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (Fault(busy=True), "the server is too busy"),
        (Fault(cut=0.4), "the connection failed"),
        (Fault(reset=True), "the connection failed"),
        (Fault(delay=0.8), "did not answer within 0.5 seconds"),
    ],
)
def test_what_lasts_is_told_by_the_name_of_the_object_and_soon(
    s3: Bucket, through: Proxy, client: str, quick: None, fault: Fault, message: str
) -> None:
    uri = s3.put("run", HEALTHY)
    through.fault = lambda method, path, count: fault if path.partition("?")[0].endswith("scalars.jsonl") else None
    began = time.monotonic()
    with pytest.raises(UnreadableError, match=rf"^{uri}/scalars.jsonl.*{message}") as told:
        local_copy(uri)
    assert time.monotonic() - began < 15
    assert told.value.hint
    through.fault = lambda method, path, count: None
    through.asked.clear()
    assert tree(local_copy(uri)) == tree(HEALTHY)
    assert len([path for path in through.asked if "list-type" not in path]) < 10  # what had come is not fetched again


def test_a_slow_line_is_no_silent_server(s3: Bucket, through: Proxy, client: str, quick: None, monkeypatch) -> None:
    monkeypatch.setattr(filesystem, "CONNECT_SECONDS", 20.0)
    monkeypatch.setattr(filesystem, "ANSWER_SECONDS", 1.2)
    uri = s3.put("run", HEALTHY)
    through.fault = lambda method, path, count: Fault(drip=0.2) if path.partition("?")[0].endswith("scalars.jsonl") else None
    assert tree(local_copy(uri)) == tree(HEALTHY)
    (count,) = {count for path, count in through.asked.items() if "scalars.jsonl" in path}
    assert count <= 2  # s3fs asks for the size first


def test_nobody_at_the_endpoint_is_told(s3: Bucket, client: str, quick: None, monkeypatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(UnreadableError, match=r"^s3://bucket/run: the connection failed, tried 4 times") as told:
        local_copy("s3://bucket/run")
    assert "endpoint" in told.value.hint


def test_an_object_that_changes_or_goes_while_the_run_is_read(s3: Bucket, through: Proxy, client: str) -> None:
    uri = s3.put("run", HEALTHY)

    def writer(method: str, path: str, count: int) -> None:
        if path.partition("?")[0].endswith("run.json") and count == 1:
            s3.put("run/run.json", b'{"longer": "than it was", "or": "shorter"}')
            (s3.folder / "run/reference.npz").unlink(missing_ok=True)
            next((s3.folder / "run").glob("analysis_*")).unlink()

    through.fault = writer
    assert tree(local_copy(uri)) == tree(s3.folder / "run")


def test_an_object_that_never_rests_is_told(s3: Bucket, through: Proxy, client: str) -> None:
    uri = s3.put("run", HEALTHY)

    def writer(method: str, path: str, count: int) -> None:
        if path.partition("?")[0].endswith("run.json"):
            s3.put("run/run.json", b" " * (time.monotonic_ns() % 10**4 + count))

    through.fault = writer
    with pytest.raises(UnreadableError, match=rf"^{uri}: run.json changes each time that it is read$"):
        local_copy(uri)


def test_a_cache_that_was_deleted_cut_or_changed_is_mended(s3: Bucket, client: str) -> None:
    uri = s3.put("run", HEALTHY)
    copy = local_copy(uri)
    (copy / "run.json").write_bytes(b"")
    (copy / "scalars.jsonl").unlink()
    (copy / "planted.json").write_text("{}")
    (copy / "link").symlink_to("/")
    assert tree(local_copy(uri)) == tree(HEALTHY)
    assert not (copy / "link").is_symlink()
    (copy.parent / "state.json").write_bytes(b'["torn')
    assert tree(local_copy(uri)) == tree(HEALTHY)
    shutil.rmtree(copy.parents[2])
    assert tree(local_copy(uri)) == tree(HEALTHY)


def test_a_process_killed_while_it_fetches_leaves_nothing_wrong(s3: Bucket, through: Proxy, tmp_path: Path) -> None:
    uri = s3.put("run", HEALTHY)
    through.fault = lambda method, path, count: Fault(delay=0.05)
    script = f"from ckaudit.remote import fetch, mirror; fetch.AT_ONCE = 2; fetch.NOTED_EVERY = 0; mirror.local_copy({uri!r})"
    process = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT)
    until = time.monotonic() + 30
    while time.monotonic() < until and len([path for path in through.asked if "analysis" in path]) < 6:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    through.fault = lambda method, path, count: None
    copy = local_copy(uri)
    assert tree(copy) == tree(HEALTHY)
    assert not list(copy.parent.glob("partial-*"))


def test_a_full_disk_is_told_and_nothing_half_written_stays(s3: Bucket) -> None:
    uri = s3.put("run", HEALTHY)
    script = (
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000));"
        f"from ckaudit.cli.run import run; raise SystemExit(run(['triage', {uri!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "cannot be written: File too large" in done.stderr
    assert "CKAUDIT_CACHE" in done.stderr
    assert not list(Path(os.environ["CKAUDIT_CACHE"]).rglob("partial-*"))
    assert tree(local_copy(uri)) == tree(HEALTHY)


def _read(uri: str, found: "multiprocessing.Queue[dict[str, bytes]]") -> None:
    found.put(tree(local_copy(uri)))


def test_processes_that_read_at_once_fetch_once(s3: Bucket, through: Proxy) -> None:
    uri = s3.put("run", HEALTHY)
    spawn = multiprocessing.get_context("spawn")
    found = spawn.Queue()
    processes = [spawn.Process(target=_read, args=(uri, found)) for _ in range(3)]
    for process in processes:
        process.start()
    copies = [found.get(timeout=60) for _ in processes]
    for process in processes:
        process.join()
    assert copies == [tree(HEALTHY)] * 3
    assert {count for path, count in through.asked.items() if "list-type" not in path and "/run/" in path} == {1}


def test_a_forked_process_reads_too(s3: Bucket) -> None:
    uri = s3.put("run", HEALTHY)
    local_copy(uri)  # the client's threads are in this process
    other = s3.put("other", HEALTHY)
    fork = multiprocessing.get_context("fork")
    found = fork.Queue()
    process = fork.Process(target=_read, args=(other, found))
    process.start()
    assert found.get(timeout=60) == tree(HEALTHY)
    process.join()


def test_the_least_recently_used_copy_goes_first_and_one_in_use_stays(s3: Bucket, monkeypatch) -> None:
    from ckaudit.remote import cache

    monkeypatch.setenv("CKAUDIT_CACHE_GB", "0.0001")  # 100 kB
    monkeypatch.setattr(cache, "_held", {})
    copies = []
    for number in range(4):
        s3.put(f"run{number}/scalars.jsonl", b" " * 40_000)
        copies.append(local_copy(s3.uri(f"run{number}")))
        if number == 0:
            continue
        cache.release(copies[-1].parent / "in_use")  # as if a process that had read it had ended
        time.sleep(0.01)
    assert [copy.exists() for copy in copies] == [True, False, False, True]
    s3.put("large/scalars.jsonl", b" " * 200_000)
    with pytest.raises(UnreadableError, match=r"holds 0\.0 GB, more than the cache takes"):
        local_copy(s3.uri("large"))


def test_a_listing_gives_names_sizes_and_versions_without_content(s3: Bucket, through: Proxy, client: str) -> None:
    s3.put("runs/a", HEALTHY)
    s3.put("runs/b/run.json", b"{}")
    found = {entry.name: entry for entry in objects_below(s3.uri("runs"), limit=1000)}
    assert set(found) == {f"a/{name}" for name in tree(HEALTHY)} | {"b/run.json"}
    assert found["b/run.json"].size == 2
    assert found["b/run.json"].version == "99914b932bd37a50b983c5e7c90ae93b"  # the MD5 of {}
    assert set(through.asked) == {path for path in through.asked if "list-type" in path}
    assert len(objects_below(s3.uri("runs"), limit=5)) >= 5
