"""Runs recorded at an address: what is there is what lies here, whatever happens on the way."""

import json
import os
import shutil
import stat
import threading
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

import fsspec
import pytest
import torch

from ckaudit import Writer, read_run
from ckaudit.contract.schema.manifest import Cadence
from ckaudit.errors import CkauditError
from ckaudit.recorder import Recorder
from ckaudit.recorder.files import log_segments, remote_run, uploader
from ckaudit.remote.put import RemoteFolder
from ckaudit.remote.spool import Journal, Sent, Stretch, address_of, root, spool_of, spools

EVERY = [Cadence(until=None, every=5)]
ADDRESS = "memory://bucket/runs/nano"


@pytest.fixture(autouse=True)
def spool_here(tmp_path, monkeypatch):
    monkeypatch.setenv("CKAUDIT_SPOOL", str(tmp_path / "spools"))
    monkeypatch.setattr(uploader, "PAUSE", 0.02)
    monkeypatch.setattr(uploader, "CLOSE_PATIENCE", 0.3)
    storage = fsspec.filesystem("memory")
    storage.store.clear()
    storage.pseudo_dirs[:] = [""]
    return tmp_path / "spools"


def there(address=ADDRESS):
    """Return what lies at an address, by name."""
    storage = fsspec.filesystem("memory")
    start = address.removeprefix("memory:/") + "/"
    return {path.removeprefix(start): storage.cat_file(path) for path in storage.store if path.startswith(start)}


def here(folder=None):
    folder = folder or spool_of(ADDRESS).run
    return {path.name: path.read_bytes() for path in folder.iterdir()}


class Line:
    """The connection of all recorders: it can be cut, refuse, and remember what went through."""

    def __init__(self, monkeypatch):
        self.error, self.puts = None, []
        for name in ("sizes", "read", "put", "remove"):
            monkeypatch.setattr(RemoteFolder, name, self.guarded(name, getattr(RemoteFolder, name)))

    def guarded(self, name, method):
        def call(folder, *given):
            if self.error is not None:
                raise self.error
            if name == "put":
                self.puts.append((given[0], bytes(given[1])))
            return method(folder, *given)

        return call


@pytest.fixture
def line(monkeypatch):
    return Line(monkeypatch)


def wait_until(condition, seconds=20):
    end = monotonic() + seconds
    while not condition():
        assert monotonic() < end
        sleep(0.01)


def test_what_is_at_the_address_is_the_run_folder_to_the_byte(tiny, train, steps_of):
    train(tiny(), 25, ADDRESS, cadence=EVERY)
    assert there() == here()
    assert steps_of(spool_of(ADDRESS).run) == [0, 5, 10, 15, 20, 25]
    assert spool_of(ADDRESS).is_complete


def test_the_training_is_the_same_to_the_bit(tiny, train):
    bare, recorded = tiny(), tiny()
    train(bare, 25)
    train(recorded, 25, Path(ADDRESS), cadence=EVERY)  # a path has one stroke less
    assert all(torch.equal(a, b) for a, b in zip(bare.parameters(), recorded.parameters(), strict=True))
    assert there() == here()


def test_the_writer_writes_to_an_address_too():
    with Writer(ADDRESS, vocabulary=17) as writer:
        for step in range(1, 30):
            writer.step(step, loss=1 / step)
    assert there() == here()
    assert len(there()["scalars.jsonl"].splitlines()) == 29


@pytest.mark.parametrize("spool", ["kept", "lost"])
def test_a_resume_goes_on_with_what_is_at_the_address(tiny, train, tmp_path, spool):
    for folder in (ADDRESS, tmp_path / "local"):
        train(tiny(), 20, folder, cadence=EVERY)
        if spool == "lost":
            shutil.rmtree(root(), ignore_errors=True)
        train(tiny(), 20, folder, cadence=EVERY, start_step=12)
    assert there().keys() == here(tmp_path / "local").keys()
    remote, local = (
        [json.loads(line) for line in files["scalars.jsonl"].splitlines()] for files in (there(), here(tmp_path / "local"))
    )
    volatile = {"time", "step_time", "data_wait", "tokens_per_second"}
    assert [line["step"] for line in remote] == [line["step"] for line in local]
    assert [line["steps_seen"] for line in remote] == [line["steps_seen"] for line in local]
    assert [line.keys() - volatile for line in remote] == [line.keys() - volatile for line in local]
    sessions = json.loads(there()["run.json"])["sessions"]
    assert [session.get("resumed_from") for session in sessions] == [None, 12]
    old = json.loads(there()["analysis_checkpoint_step_00000015.session000.json"])
    assert (old["step"], old["session"]) == (15, 0)
    assert json.loads(there()["analysis_checkpoint_step_00000015.json"])["session"] == 1


def test_a_lost_connection_holds_nothing_up_and_loses_nothing(tiny, train, batches, line, caplog):
    recorder = train(tiny(), 5, ADDRESS, cadence=EVERY, close=False)
    wait_until(lambda: "scalars.jsonl" in there())
    line.error = ConnectionError("reset by peer")
    began = monotonic()
    for _ in range(60):
        recorder.step(1.0)
    assert monotonic() - began < 20
    assert len(there()["scalars.jsonl"].splitlines()) < 60
    line.error = None
    recorder.close()
    assert there() == here()
    assert len(there()["scalars.jsonl"].splitlines()) == 65
    session = json.loads(there()["run.json"])["sessions"][0]
    assert (session["write_errors"], session["checkpoint_ok"]) == (0, True)
    assert caplog.text.count("cannot be reached") <= 1


def test_no_step_waits_for_a_server_that_does_not_answer(tiny, train, lines, monkeypatch):
    answers, put = threading.Event(), RemoteFolder.put

    def put_late(*given):
        assert answers.wait(60)
        put(*given)

    monkeypatch.setattr(RemoteFolder, "put", put_late)
    monkeypatch.setattr(uploader, "CLOSE_PATIENCE", 20)
    recorder = train(tiny(), 30, ADDRESS, cadence=EVERY, close=False)
    recorder._session._folder.wait_for_writes()
    assert len(lines(spool_of(ADDRESS).run)) == 30
    assert there() == {}
    answers.set()
    recorder.close()
    assert there() == here()


def test_a_server_that_is_dead_at_the_end_is_left_after_a_while(tiny, train, line, caplog, capfd):
    from ckaudit.cli.run import run

    recorder = train(tiny(), 25, ADDRESS, cadence=EVERY, close=False)
    line.error = TimeoutError("no answer")
    began = monotonic()
    recorder.close()
    assert monotonic() - began < 10
    spool = spool_of(ADDRESS)
    (told,) = [record.message for record in caplog.records if "is not complete" in record.message]
    assert str(spool.run) in told
    assert f"ckaudit push {ADDRESS}" in told
    assert there() != here()
    assert not spool.is_complete
    assert run(["push", "--list"]) == 1
    line.error = None
    assert run(["push", ADDRESS]) == 0
    assert there() == here()
    assert run(["push", "--list"]) == 0
    assert "nothing waiting" in capfd.readouterr().out


def test_what_a_storage_refuses_is_told_and_counted_once(tiny, train, line, caplog, manifest):
    line.error = PermissionError("Access Denied")
    model, bare = tiny(), tiny()
    train(bare, 25)
    recorder = train(model, 25, ADDRESS, cadence=EVERY, close=False)
    sleep(0.2)  # it is tried again and again
    recorder.close()
    assert all(torch.equal(a, b) for a, b in zip(bare.parameters(), model.parameters(), strict=True))
    session = manifest(spool_of(ADDRESS).run).sessions[0]
    assert session.write_errors == 1
    assert "Access Denied" in session.first_write_error
    assert session.checkpoint_ok is True
    assert caplog.text.count("does not take the run") == 1
    assert caplog.text.count("putting the run up failed") == 1


def test_lines_come_after_their_checkpoints_and_the_end_comes_last(tiny, train, line):
    recorder = train(tiny(), 25, ADDRESS, cadence=EVERY, close=False)
    for _ in range(20):
        recorder.step(1.0)
        sleep(0.01)
    recorder.close()
    names = [name for name, _ in line.puts]
    assert names[0] == names[-1] == "run.json"
    there_by_now = set()
    for name, data in line.puts:
        there_by_now.add(name)
        if name == "scalars.jsonl":
            steps = [json.loads(text)["step"] for text in data.splitlines()]
            wanted = {f"analysis_checkpoint_step_{step:08d}.json" for step in steps if step % 5 == 0}
            assert wanted <= there_by_now
        if name == "run.json" and (name, data) != line.puts[-1]:
            assert "end" not in json.loads(data)["sessions"][-1]


def test_while_a_run_begins_its_files_wait_for_the_one_that_describes_it(line):
    spool = spool_of(ADDRESS)
    spool.make()
    spool.run.mkdir(exist_ok=True)
    run = remote_run.RemoteRun(spool)
    (spool.run / "reference.npz").write_bytes(b"weights")
    run.upload(may_lack_manifest=False)
    assert line.puts == []
    (spool.run / "run.json").write_bytes(b"{}")
    run.upload(may_lack_manifest=False)
    assert [name for name, _ in line.puts] == ["run.json", "reference.npz"]


def test_a_run_that_nothing_describes_goes_up_at_its_end(line):
    spool = spool_of(ADDRESS)
    spool.make()
    spool.run.mkdir(exist_ok=True)
    (spool.run / "reference.npz").write_bytes(b"weights")
    remote_run.RemoteRun(spool).upload()
    assert there() == here() == {"reference.npz": b"weights"}


@pytest.mark.parametrize("at_once", [2, 100])
def test_what_was_left_whole_goes_up_as_that_of_a_run_that_goes_on(tiny, train, line, monkeypatch, at_once):
    from ckaudit.recorder.files.upload_spool import push

    monkeypatch.setattr(remote_run, "PARALLEL_UPLOADS", at_once)
    line.error = ConnectionError()
    train(tiny(), 25, ADDRESS, cadence=EVERY)
    line.error, line.puts = None, []
    assert push(spool_of(ADDRESS), patience=1) == len(line.puts) == len(here()) + 1
    first, last = json.loads(line.puts[0][1]), json.loads(line.puts[-1][1])
    assert "end" not in first["sessions"][0]
    assert last["sessions"][0]["end"]
    assert [name for name, _ in line.puts][-2:] == ["scalars.jsonl", "run.json"]
    assert there() == here()


def test_one_of_many_files_that_cannot_be_put_up_keeps_its_lines_back(tiny, train, line, monkeypatch):
    from ckaudit.recorder.files.upload_spool import push

    monkeypatch.setattr(remote_run, "PARALLEL_UPLOADS", 2)
    line.error = ConnectionError()
    train(tiny(), 25, ADDRESS, cadence=EVERY)
    line.error, put = None, RemoteFolder.put

    def put_others(folder, name, data):
        if "00000015" in name:
            raise PermissionError("Access Denied")
        put(folder, name, data)

    with monkeypatch.context() as patch:
        patch.setattr(RemoteFolder, "put", put_others)
        with pytest.raises(CkauditError, match="Access Denied"):
            push(spool_of(ADDRESS), patience=1)
    assert "analysis_checkpoint_step_00000010.json" in there()
    assert "scalars.jsonl" not in there()
    push(spool_of(ADDRESS), patience=1)
    assert there() == here()


def test_a_long_log_goes_on_in_another_object(monkeypatch, line):
    monkeypatch.setattr(log_segments, "SEGMENT_BYTES", 2_000)
    writer = Writer(ADDRESS)
    for step in range(1, 201):
        writer.step(step, loss=1 / step)
        if step % 20 == 0:
            sleep(0.05)
    writer.close()
    logs = {name: data for name, data in there().items() if name.startswith("scalars")}
    assert sorted(logs)[:2] == ["scalars.jsonl", "scalars_000001.jsonl"]
    assert len(logs) > 5
    assert b"".join(logs[name] for name in sorted(logs)) == here()["scalars.jsonl"]
    assert all(data.endswith(b"\n") and len(data) < 2_500 for data in logs.values())
    assert max(len(data) for name, data in line.puts if name.startswith("scalars")) < 2_500


def test_objects_of_a_long_log_are_read_as_one(monkeypatch, tmp_path):
    monkeypatch.setattr(log_segments, "SEGMENT_BYTES", 2_000)
    with Writer(ADDRESS) as writer:
        for step in range(1, 101):
            writer.step(step, loss=1 / step)
    copy = tmp_path / "copy"
    copy.mkdir()
    for name, data in there().items():
        (copy / name).write_bytes(data)
    local, remote = read_run(spool_of(ADDRESS).run), read_run(copy)
    assert [*remote.scalars["train_loss_raw"].values[:, 0]] == [*local.scalars["train_loss_raw"].values[:, 0]]
    shutil.rmtree(root())
    with Writer(ADDRESS, start_step=100) as writer:
        for step in range(101, 121):
            writer.step(step, loss=1 / step)
    logs = {name: data for name, data in there().items() if name.startswith("scalars")}
    assert b"".join(logs[name] for name in sorted(logs)) == here()["scalars.jsonl"]
    assert [json.loads(text)["step"] for text in here()["scalars.jsonl"].splitlines()] == [*range(1, 121)]


def test_a_machine_whose_spool_is_old_goes_on_with_what_another_has_written(tiny, train, tmp_path, monkeypatch):
    train(tiny(), 10, ADDRESS, cadence=EVERY)
    monkeypatch.setenv("CKAUDIT_SPOOL", str(tmp_path / "another machine"))
    train(tiny(), 10, ADDRESS, cadence=EVERY, start_step=10)
    monkeypatch.setenv("CKAUDIT_SPOOL", str(tmp_path / "spools"))
    train(tiny(), 10, ADDRESS, cadence=EVERY, start_step=20)
    assert len(json.loads(there()["run.json"])["sessions"]) == 3
    assert [json.loads(text)["step"] for text in there()["scalars.jsonl"].splitlines()] == [*range(1, 31)]
    assert {f"analysis_checkpoint_step_{step:08d}.json" for step in range(0, 31, 5)} <= there().keys()


def test_a_run_that_could_not_be_seen_is_not_replaced(tiny, train, line, capfd, tmp_path, monkeypatch, caplog):
    from ckaudit.cli.run import run

    train(tiny(), 10, ADDRESS, cadence=EVERY)
    before = there()
    shutil.rmtree(root())
    line.error = ConnectionError()
    recorder = train(tiny(), 10, ADDRESS, cadence=EVERY, close=False)
    line.error = None
    recorder.close()
    assert there() == before
    assert "holds another run" in caplog.text
    assert run(["push", ADDRESS]) == 2
    assert "holds another run" in capfd.readouterr().err
    assert run(["push", str(spool_of(ADDRESS).run), "--to", "memory://bucket/runs/second"]) == 0
    assert there("memory://bucket/runs/second") == here()
    assert there() == before


def test_a_run_that_was_deleted_at_the_address_begins_anew(tiny, train):
    train(tiny(), 10, ADDRESS, cadence=EVERY)
    fsspec.filesystem("memory").store.clear()
    train(tiny(), 5, ADDRESS, cadence=EVERY)
    assert len(json.loads(there()["run.json"])["sessions"]) == 1
    assert there() == here()


def test_the_disk_here_is_bounded(tiny, train, monkeypatch, steps_of):
    monkeypatch.setenv("CKAUDIT_SPOOL_GB", "0.0001")
    train(tiny(), 60, ADDRESS, cadence=EVERY)
    names = there().keys()
    assert sum("checkpoint" in name for name in names) == 13
    assert len(steps_of(spool_of(ADDRESS).run)) < 8
    train(tiny(), 10, ADDRESS, cadence=EVERY, start_step=32)
    assert {name for name in names if "checkpoint" in name} <= there().keys() | {
        f"analysis_checkpoint_step_{step:08d}.json" for step in (45, 50, 55, 60)
    }
    old = {name for name in there() if ".session000" in name}
    assert {int(name[25:33]) for name in old} == {35, 40, 45, 50, 55, 60}
    assert all(json.loads(there()[name])["session"] == 0 for name in old)


def test_complete_spools_make_room_for_others(tiny, train, monkeypatch):
    train(tiny(), 20, "memory://bucket/first", cadence=EVERY)
    assert [spool.address for spool in spools()] == ["memory://bucket/first"]
    monkeypatch.setenv("CKAUDIT_SPOOL_GB", "0.0001")
    train(tiny(), 20, "memory://bucket/second", cadence=EVERY)
    assert [spool.address for spool in spools()] == ["memory://bucket/second"]


def test_a_full_disk_stops_files_and_not_the_training(tiny, train, monkeypatch, manifest):
    def full(*_):
        raise OSError(28, "No space left on device")

    model, bare = tiny(), tiny()
    train(bare, 25)
    recorder = train(model, 10, ADDRESS, cadence=EVERY, close=False)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        patch.setattr(os, "write", full)
        for _ in range(10):
            recorder.step(1.0)
        recorder._session._folder.wait_for_writes()
    recorder.close()
    session = manifest(spool_of(ADDRESS).run).sessions[0]
    assert session.write_errors >= 10
    assert there() == here()


@pytest.mark.usefixtures("no_waits")
def test_a_spool_that_cannot_be_made_leaves_the_training_alone(tiny, train, tmp_path, monkeypatch, caplog):
    (tmp_path / "file").touch()
    monkeypatch.setenv("CKAUDIT_SPOOL", str(tmp_path / "file" / "below"))
    bare, model = tiny(), tiny()
    train(bare, 10)
    train(model, 10, ADDRESS, cadence=EVERY)
    assert all(torch.equal(a, b) for a, b in zip(bare.parameters(), model.parameters(), strict=True))
    assert "preparing the way to the address failed" in caplog.text


def test_a_forked_process_puts_nothing_up(tiny, train):
    recorder = train(tiny(), 5, ADDRESS, cadence=EVERY, close=False)
    child = os.fork()
    if not child:
        alive = sum(thread.name == "ckaudit uploader" for thread in threading.enumerate())
        recorder.close()
        os._exit(alive)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    recorder.step(1.0)
    recorder.close()
    assert there() == here()
    assert len(there()["scalars.jsonl"].splitlines()) == 6


def test_each_rank_puts_its_own_files_up():
    spool = spool_of(ADDRESS)
    spool.make()
    for name in ("run.json", "analysis_checkpoint_step_00000005.json", "analysis_checkpoint_step_00000005.rank000.json"):
        (spool.run / name).write_bytes(b"{}")
    for name in ("analysis_checkpoint_step_00000005.rank003.json", "analysis_checkpoint_step_00000005.session000.rank003.json"):
        (spool.run / name).write_bytes(b"{}")
    (spool.run / ".analysis_checkpoint_step_00000006.json.tmp-12").write_bytes(b"{")
    of_third = remote_run.RemoteRun(spool, rank=3)
    of_third.upload()
    assert there().keys() == {"analysis_checkpoint_step_00000005.rank003.json"}
    of_first = remote_run.RemoteRun(spool)
    assert not of_first.fetch_earlier_run() - there().keys()
    of_first.upload()
    assert there() == {name: data for name, data in here().items() if not name.startswith(".")}


def test_a_torn_journal_is_read_up_to_there(tmp_path):
    journal = Journal(tmp_path / "journal")
    journal.add("a", sent=Sent(1, 2))
    with journal.path.open("ab") as stream:
        stream.write(b'\n{"name":"b","se')
    journal.add("c", sent=Sent(3, 4))
    assert Journal.load(journal.path).sent == {"a": Sent(1, 2), "c": Sent(3, 4)}


def test_a_long_journal_is_shortened_and_says_the_same(tmp_path):
    journal = Journal(tmp_path / "journal")
    for number in range(500):
        journal.add("scalars.jsonl", lines=Stretch(0, number))
        journal.add("run.json", manifest=str(number % 3), sessions=2)
    journal.add("a", sent=Sent(1, 2), is_freed=True)
    journal.add("b", is_aside=True)
    for _ in range(2):
        read = Journal.load(journal.path)
        assert {name: getattr(read, name) for name in read.__struct_fields__} == {
            name: getattr(journal, name) for name in read.__struct_fields__
        }
    assert len(journal.path.read_bytes().splitlines()) < 10


def test_a_spool_is_the_users_alone():
    spool = spool_of(ADDRESS)
    spool.make()
    assert stat.S_IMODE(spool.folder.stat().st_mode) == 0o700


def test_a_file_that_goes_away_while_a_spool_is_measured_counts_for_nothing(monkeypatch):
    spool = spool_of(ADDRESS)
    spool.make()
    stays, goes = spool.run / "a.json", spool.run / ".b.json.tmp-1"
    stays.write_bytes(b"12345")
    goes.touch()
    size = spool.size()
    scan = os.scandir

    @contextmanager
    def late(folder):
        with scan(folder) as entries:
            found = [*entries]
        goes.unlink(missing_ok=True)
        yield found

    monkeypatch.setattr(os, "scandir", late)
    assert spool.size() == size


def test_one_address_has_one_spool_and_shows_no_password():
    assert spool_of("s3://bucket/runs/nano/") == spool_of("s3://bucket/runs/nano")
    assert spool_of("s3://bucket/runs/nano").folder != spool_of("s3://bucket/runs/other").folder
    assert "secret" not in str(spool_of("https://ann:secret@example.org/a?sig=secret").folder)
    assert spool_of("s3://bucket/../../\x1b[31m").folder.parent == root()
    assert address_of("runs/nano") is None


def test_push_says_what_is_wrong_with_its_words(capfd, tmp_path):
    from ckaudit.cli.run import run

    (tmp_path / "run").mkdir()
    for words, message in (
        (["push", "s3://bucket/nothing"], "has no spool on this machine"),
        (["push", "--to", "s3://bucket/run"], "--to puts one run folder up"),
        (["push", str(tmp_path / "gone"), "--to", "s3://bucket/run"], "there is no folder"),
        (["push", str(tmp_path / "run"), "--to", "elsewhere"], "is no address"),
        (["push", "--timeout", "soon"], "--timeout 'soon' is no number of seconds"),
        (["push", "--time-out", "soon"], "is no number of seconds"),  # as it was called before
    ):
        assert run(words) == 2
        assert message in capfd.readouterr().err
    assert run(["push"]) == 0
    assert "nothing waits here" in capfd.readouterr().err


def test_a_recorder_of_a_local_folder_starts_no_uploader(tiny, train, tmp_path):
    recorder = train(tiny(), 5, tmp_path / "run", close=False)
    assert not [thread for thread in threading.enumerate() if thread.name == "ckaudit uploader"]
    recorder.close()
    assert isinstance(recorder, Recorder)
    assert not root().exists()
