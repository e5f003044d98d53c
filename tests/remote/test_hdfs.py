"""Runs in Hadoop's file system: what its addresses mean, and reading, writing and failing at a real server."""

import json
import logging
import socket
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ckaudit import Writer, fleet
from ckaudit.cli.run import run
from ckaudit.errors import UnreadableError, UsageError
from ckaudit.remote import filesystem
from ckaudit.remote.filesystem import open_filesystem
from ckaudit.remote.hdfs import Hdfs, Patience, _as_error, path_of
from ckaudit.remote.mirror import local_copy
from ckaudit.remote.put import RemoteFolder
from tests.hadoop import Hadoop, hadoop
from tests.object_storage import free_port

__all__ = ["hadoop"]

ROOT = Path(__file__).parents[2]
HEALTHY = ROOT / "fixtures/runs/healthy"
PATIENCE = Patience(5, 20)


def test_a_path_is_taken_as_it_is_written() -> None:
    assert path_of("hdfs://node:8020/runs/lr=1e-3%20?#") == "/runs/lr=1e-3%20?#"
    assert path_of("webhdfs://node") == "/"


@pytest.mark.parametrize("uri", ["hdfs://{}/runs", "webhdfs://{}/runs"])
def test_a_server_that_is_not_there_is_told_at_once(uri: str, tmp_path) -> None:
    start = time.monotonic()
    with pytest.raises(UnreadableError, match="the connection failed, tried 4 times") as told:
        local_copy(uri.format(f"127.0.0.1:{free_port()}"), cache=tmp_path)
    assert "refused" in str(told.value)
    assert time.monotonic() - start < 5


def test_a_name_that_no_machine_has_is_told() -> None:
    with pytest.raises(ConnectionError, match=r"^no-such-node\.invalid:8020: "):
        Hdfs("hdfs://no-such-node.invalid/runs", PATIENCE)


@pytest.mark.parametrize("scheme", ["hdfs", "webhdfs"])
def test_a_server_that_says_nothing_is_asked_once(scheme: str, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(filesystem, "ANSWER_SECONDS", 0.5)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(64)
        address = f"{scheme}://127.0.0.1:{silent.getsockname()[1]}/runs"
        start = time.monotonic()
        with pytest.raises(UnreadableError, match=r"the server did not answer within 0\.5 seconds$") as told:
            local_copy(address, cache=tmp_path)
    assert time.monotonic() - start < 1.5
    assert "name node" in told.value.hint


def test_an_address_without_a_name_node_says_where_settings_are_found(monkeypatch, tmp_path) -> None:
    for name in ("HADOOP_CONF_DIR", "HADOOP_HOME"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UsageError, match="hdfs:///runs/nano names no name node") as told:
        local_copy("hdfs:///runs/nano", cache=tmp_path)
    assert "HADOOP_CONF_DIR" in told.value.hint


def test_a_user_in_an_address_is_not_passed_over() -> None:
    with pytest.raises(UsageError, match="hdfs://node/runs is read as one user") as told:
        Hdfs("hdfs://ann@node/runs", PATIENCE)
    assert "HADOOP_USER_NAME" in told.value.hint


@pytest.mark.parametrize("scheme", ["hdfs", "webhdfs"])
@pytest.mark.parametrize("library", ["hdfs_native", "requests"])
def test_a_missing_client_is_named_with_what_installs_it(scheme: str, library: str, monkeypatch, tmp_path) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(UnreadableError, match=f"to read it takes {library}, which is not installed") as told:
        local_copy(f"{scheme}://node/runs", cache=tmp_path)
    assert "[hdfs]" in told.value.hint


@pytest.mark.parametrize(
    ("message", "kind", "words"),
    [
        (
            'RPCError("org.apache.hadoop.security.AccessControlException", "Permission denied: user=ann\\n\\tat o.a.h")',
            "denied",
            "user=ann",
        ),
        (
            'RPCError("org.apache.hadoop.hdfs.server.namenode.SafeModeException", "Name node is in safe mode.")',
            "passing",
            "safe mode",
        ),
        ('RPCError("java.io.IOException", "No lease on \\"x\\"\\n\\tat o.a.h")', "other", 'IOException: No lease on "x"'),
        ('OperationFailed("block is missing")', "passing", "block is missing"),
    ],
)
def test_what_a_name_node_answers_has_its_own_kind_of_error(message: str, kind: str, words: str) -> None:
    error = _as_error(RuntimeError(message))
    assert words in str(error)
    assert "\tat" not in str(error)
    assert isinstance(error, PermissionError) == (kind == "denied")
    assert filesystem.is_passing(error) == (kind == "passing")


# Before a real server.
@pytest.fixture
def place(hadoop: Hadoop, monkeypatch, tmp_path) -> Callable[[str], str]:
    """Give an address below a folder of this test's own, by protocol."""
    monkeypatch.setenv("CKAUDIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CKAUDIT_SPOOL", str(tmp_path / "spool"))
    monkeypatch.delenv("HADOOP_USER_NAME", raising=False)
    own = f"tests-{time.monotonic_ns()}"
    servers = {"hdfs": hadoop.hdfs, "webhdfs": hadoop.webhdfs}
    return lambda scheme, name="": f"{servers[scheme]}/{own}/{name}".rstrip("/")


def put(address: str, folder: Path) -> str:
    """Write the files of a folder, many at once: the name node takes half a second for each."""
    there = open_filesystem(address)[0]
    there.makedirs(path_of(address))
    with ThreadPoolExecutor(16) as pool:
        files = [file for file in folder.iterdir() if file.is_file()]
        list(pool.map(lambda file: there.pipe_file(f"{path_of(address)}/{file.name}", file.read_bytes()), files))
    return address


SCHEMES = pytest.mark.parametrize("scheme", ["hdfs", "webhdfs"])


@SCHEMES
def test_a_run_is_read_as_if_it_lay_here(scheme: str, place, capfd) -> None:
    address = put(place(scheme, "healthy"), HEALTHY)
    copy = local_copy(address)
    assert {file.name: file.read_bytes() for file in copy.iterdir()} == {
        file.name: file.read_bytes() for file in HEALTHY.iterdir() if file.is_file()
    }
    capfd.readouterr()
    for command in ("triage", "validate"):
        outputs = []
        for place_of_run in (address, str(HEALTHY)):
            assert run([command, place_of_run, "--format", "json"]) == 0
            outputs.append(capfd.readouterr().out.replace(place_of_run, "RUN"))
        assert outputs[0] == outputs[1]


@SCHEMES
def test_only_what_has_changed_is_fetched_again(scheme: str, place) -> None:
    address, there = place(scheme, "run"), RemoteFolder(place(scheme, "run"))
    there.put("a.csv", b"step,loss\n1,2\n")
    there.put("b.csv", b"step,loss\n1,2\n")
    copy = local_copy(address)
    before = {file.name: file.stat().st_ino for file in copy.iterdir()}
    time.sleep(0.01)  # the time of a file is its version, in milliseconds
    there.put("b.csv", b"step,loss\n1,3\n")
    again = local_copy(address)
    assert (again / "b.csv").read_bytes() == b"step,loss\n1,3\n"
    assert (again / "a.csv").stat().st_ino == before["a.csv"]


@SCHEMES
def test_a_part_of_a_file_is_read(scheme: str, place) -> None:
    there = RemoteFolder(place(scheme, "run"))
    there.put("x", bytes(range(100)))
    there.put("empty", b"")
    assert there.read("x", 10, 20) == bytes(range(10, 20))
    assert there.read("x") == bytes(range(100))
    assert there.read("x", 90, 200) == bytes(range(90, 100))
    assert there.read("empty") == b""
    assert there.sizes() == {"x": 100, "empty": 0}
    there.remove("x")
    there.remove("x")
    assert there.sizes() == {"empty": 0}
    assert RemoteFolder(place(scheme, "none")).sizes() == {}


def test_what_is_being_written_is_not_listed(place) -> None:
    there = RemoteFolder(place("hdfs", "run"))
    there.put("run.json", b"{}")
    there.put(".run.json.tmp-17", b"{")
    assert there.sizes() == {"run.json": 2}


@SCHEMES
def test_a_fleet_is_found_by_a_pattern(scheme: str, place, tmp_path) -> None:
    for name in ("healthy", "lr_too_high"):
        put(place(scheme, f"deep/{name}"), ROOT / "fixtures/runs" / name)
    found = fleet(place(scheme, "deep/*"), output=tmp_path / "rows")
    assert {row.run.rpartition("/")[2]: row.status for row in found.runs} == {"healthy": "audited", "lr_too_high": "audited"}
    assert fleet(place(scheme, "deep/*"), output=tmp_path / "rows").fleet.unchanged == 2


def test_many_files_are_listed_page_by_page(place, monkeypatch) -> None:
    monkeypatch.setattr("ckaudit.remote.hdfs.PAGE", 2)
    there = RemoteFolder(place("hdfs", "many"))
    for number in range(5):
        there.put(f"{number}", b"x")
    assert len(there.sizes()) == 5


@SCHEMES
def test_nothing_there_and_no_permission_are_told_at_once(scheme: str, place, hadoop: Hadoop, monkeypatch) -> None:
    with pytest.raises(UnreadableError, match="does not exist"):
        local_copy(place(scheme, "none"))
    address = put(place(scheme, "closed"), HEALTHY)
    Hdfs(hadoop.hdfs, PATIENCE)._client.set_permission(path_of(address), 0o700)
    monkeypatch.setenv("HADOOP_USER_NAME", "nobody")
    with pytest.raises(UnreadableError, match=r"may not be read.*Permission denied: user=nobody") as told:
        local_copy(address)
    assert "HADOOP_USER_NAME" in told.value.hint
    assert "\tat" not in str(told.value)


@SCHEMES
def test_a_closed_folder_is_not_left_out_of_a_fleet(scheme: str, place, hadoop: Hadoop, monkeypatch, tmp_path) -> None:
    for name in ("open", "closed"):
        RemoteFolder(place(scheme, f"fleet/{name}")).put("scalars.jsonl", b'{"step": 1, "train_loss_raw": 1.0}\n')
    from hdfs_native import Client

    Client(hadoop.hdfs).set_permission(path_of(place(scheme, "fleet/closed")), 0o700)
    monkeypatch.setenv("HADOOP_USER_NAME", "nobody")
    with pytest.raises(UnreadableError, match=r'may not be read \(Permission denied: user=nobody.*fleet/closed"'):
        fleet(place(scheme, "fleet/*"), output=tmp_path / "rows")


@SCHEMES
@pytest.mark.parametrize("command", [["triage"], ["validate"], ["watch", "--format", "text"]])
def test_commands_say_what_is_not_there(scheme: str, command: list[str], place, capfd) -> None:
    address = place(scheme, "none")
    assert run([command[0], address, *command[1:]]) == 2
    assert f"error: {address} does not exist" in capfd.readouterr().err


@SCHEMES
def test_two_runs_are_compared_and_a_run_is_watched(scheme: str, place, capfd) -> None:
    first, second = (put(place(scheme, name), ROOT / "fixtures/runs" / name) for name in ("healthy", "lr_too_high"))
    assert run(["diff", first, second]) == 1
    assert "WORSE  B is worse than A" in capfd.readouterr().out
    assert run(["watch", second, "--until", "sev1", "--format", "text"]) == 1
    assert f"ended    {second} step 300: the run has ended" in capfd.readouterr().out


def test_settings_of_the_cluster_say_where_the_name_node_is(place, hadoop: Hadoop, monkeypatch) -> None:
    address = put(place("hdfs", "run"), HEALTHY)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(hadoop.settings))
    assert (local_copy(f"hdfs://{path_of(address)}") / "run.json").is_file()


@SCHEMES
def test_a_run_goes_up_while_it_is_written(scheme: str, place, tmp_path) -> None:
    address = place(scheme, "nano")
    for folder in (address, tmp_path / "here"):
        with Writer(folder, planned_steps=50) as writer:
            for step in range(1, 51):
                writer.step(step, loss=3 / step, learning_rate=1e-3)
    copy = local_copy(address)
    assert {file.name for file in copy.iterdir()} == {file.name for file in (tmp_path / "here").iterdir()}
    steps = [json.loads(line)["step"] for line in (copy / "scalars.jsonl").read_text().splitlines()]
    assert steps == list(range(1, 51))


@SCHEMES
def test_a_training_goes_on_where_it_may_not_write(scheme: str, place, monkeypatch, caplog) -> None:
    there = RemoteFolder(place(scheme, "closed"))
    there.put("mine", b"x")
    monkeypatch.setenv("HADOOP_USER_NAME", "nobody")
    with caplog.at_level(logging.WARNING), Writer(place(scheme, "closed/nano")) as writer:
        writer.step(1, loss=1.0)
    assert "Permission denied: user=nobody" in caplog.text
    monkeypatch.delenv("HADOOP_USER_NAME")
    assert run(["push", place(scheme, "closed/nano")]) == 0
    assert "scalars.jsonl" in RemoteFolder(place(scheme, "closed/nano")).sizes()
