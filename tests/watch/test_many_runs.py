"""Many runs under watch: what is new or changes is judged, each news is told once, and a storage that is away is waited for."""

import json
import os
import shutil
import sys
import threading
import time
from pathlib import Path

import pytest

from ckaudit.cli.run import run
from ckaudit.cli.watch_many import are_many, sources_of
from ckaudit.contract.schema.import_options import NO_IMPORT_OPTIONS
from ckaudit.policy.acceptance import OPEN
from ckaudit.watch import many_runs
from ckaudit.watch.many_runs import ManyRuns, WatchOptions
from ckaudit.watch.rounds import WatchRounds
from tests.object_storage import Fault, Proxy, forget_clients, s3, s3_server  # noqa: F401

RUNS = Path(__file__).parents[2] / "fixtures" / "runs"


@pytest.fixture(autouse=True)
def cache_here(tmp_path, monkeypatch):
    monkeypatch.setenv("CKAUDIT_CACHE", str(tmp_path / "cache"))


def watched(*patterns, **options):
    sources = sources_of(patterns, criteria=OPEN, import_options=NO_IMPORT_OPTIONS, patience=0, every=0.1)
    return ManyRuns(sources, WatchOptions(every=0.1, **options))


def told(rounds, times=2):
    """Look so often, and return what was said: names of events or codes of findings, by run."""
    words = {}
    for _ in range(times):
        for event in rounds.poll():
            words.setdefault(event.run, []).append(event.finding.code if event.finding else event.event)
    return words


def test_words_that_stand_for_many_runs(tmp_path):
    assert are_many(["s3://bucket/run"])
    assert are_many([str(tmp_path / "*")])
    assert not are_many([str(tmp_path), "file:///tmp/run"])
    (tmp_path / "run[1]").mkdir()
    assert not are_many([str(tmp_path / "run[1]")])


def test_only_what_is_new_or_changes_is_judged_and_told_once(tmp_path):
    shutil.copytree(RUNS / "healthy", tmp_path / "runs" / "a")
    shutil.copytree(RUNS / "lr_too_high", tmp_path / "runs" / "old and ill")
    pattern = str(tmp_path / "runs" / "*")
    rounds = watched(pattern)
    assert told(rounds) == {pattern: ["watching"]}
    shutil.copytree(RUNS / "nan_batch", tmp_path / "runs" / "b")
    new = told(rounds)
    assert list(new) == [str(tmp_path / "runs" / "b")]
    alone = WatchRounds([RUNS / "nan_batch"])
    codes = [event.finding.code if event.finding else event.event for event in alone.poll()]
    assert new[str(tmp_path / "runs" / "b")] == ["watching", *codes]
    assert "NUM001" in codes
    assert told(rounds) == {}
    log = tmp_path / "runs" / "a" / "scalars.jsonl"
    line = json.loads(log.read_bytes().splitlines()[-1])
    ill = {**line, "step": line["step"] + 1, "train_loss_raw": "NaN", "schema_version": "ck.scalars.v1"}
    with log.open("ab") as stream:
        stream.write(json.dumps(ill).encode() + b"\n")
    changed = told(rounds)
    assert list(changed) == [str(tmp_path / "runs" / "a")]
    assert any(code.startswith(("NUM", "LOSS")) for code in changed[str(tmp_path / "runs" / "a")])
    shutil.rmtree(tmp_path / "runs" / "b")
    assert told(rounds) == {}
    assert [each.run for each in rounds.snapshots()] == [str(tmp_path / "runs" / "a")]


def test_a_run_that_was_given_up_is_read_again_and_tells_nothing_twice(tmp_path, monkeypatch):
    monkeypatch.setattr(many_runs, "MAX_HELD", 1)
    (tmp_path / "none").mkdir()
    shutil.copytree(RUNS / "healthy", tmp_path / "runs" / "x")
    rounds = watched(str(tmp_path / "runs" / "*"))
    told(rounds)
    for name in ("a", "b", "c"):
        shutil.copytree(RUNS / "nan_batch", tmp_path / "runs" / name)
    first = told(rounds, 3)
    assert len(first) == 3
    assert len({tuple(codes) for codes in first.values()}) == 1
    for name in ("a", "b", "c"):
        os.utime(tmp_path / "runs" / name / "scalars.jsonl")
    assert told(rounds, 3) == {}


def test_runs_in_a_bucket_are_watched_as_those_of_a_folder(s3, tmp_path):  # noqa: F811
    s3.put("runs/a", RUNS / "healthy")
    rounds = watched(s3.uri("runs/*"))
    assert told(rounds) == {s3.uri("runs/*"): ["watching"]}
    s3.put("runs/b", RUNS / "nan_batch")
    here = tmp_path / "runs"
    shutil.copytree(RUNS / "healthy", here / "a")
    local = watched(str(here / "*"))
    told(local)
    shutil.copytree(RUNS / "nan_batch", here / "b")
    there, beside = told(rounds), told(local)
    assert list(there) == [s3.uri("runs/b")]
    assert there[s3.uri("runs/b")] == beside[str(here / "b")]
    assert str(tmp_path / "cache") not in str(rounds.alerts)


def test_a_run_that_grows_in_a_bucket_is_read_on_and_not_anew(s3):  # noqa: F811
    whole = {path.name: path.read_bytes() for path in (RUNS / "nan_batch").iterdir()}
    lines = whole.pop("scalars.jsonl").splitlines(keepends=True)
    manifest = json.loads(whole.pop("run.json"))
    ends = [session.pop("end", None) for session in manifest["sessions"]]
    s3.put("runs/other/scalars.jsonl", lines[0])
    rounds = watched(s3.uri("runs/*"))
    told(rounds)
    files = [name for name in sorted(whole) if name.startswith("analysis_checkpoint")]
    s3.put("runs/nano/run.json", json.dumps(manifest).encode())
    words = []
    for part in range(1, 5):
        for name in files[: len(files) * part // 4]:
            if not (s3.folder / "runs" / "nano" / name).exists():
                s3.put(f"runs/nano/{name}", whole[name])
        s3.put("runs/nano/scalars.jsonl", b"".join(lines[: len(lines) * part // 4]))
        words += told(rounds).get(s3.uri("runs/nano"), [])
    assert words[0] == "watching"
    assert "anew" not in words
    assert words.count("NUM001") == [event.finding.code for event in _alone("nan_batch") if event.finding].count("NUM001")
    for session, end in zip(manifest["sessions"], ends, strict=True):
        session["end"] = end or 1.0
    s3.put("runs/nano/run.json", json.dumps(manifest).encode())
    assert told(rounds)[s3.uri("runs/nano")][-1] == "ended"  # what it had fallen silent for, as an old log has, is over too


def _alone(name):
    return [*WatchRounds([RUNS / name]).poll()]


def test_a_storage_that_is_away_is_told_once_and_waited_for(s3, monkeypatch):  # noqa: F811
    lost = [False]
    with Proxy(s3.endpoint, lambda *_: Fault(reset=True) if lost[0] else None) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        forget_clients()
        s3.put("runs/a", RUNS / "healthy")
        rounds = watched(s3.uri("runs/*"))
        told(rounds, 1)
        lost[0] = True
        assert told(rounds, 2) == {s3.uri("runs/*"): ["error"]}
        s3.put("runs/b", RUNS / "nan_batch")
        lost[0] = False
        assert list(told(rounds)) == [s3.uri("runs/b")]


def test_an_address_that_was_named_is_judged_from_the_start_and_ends_the_watch(s3, capfd):  # noqa: F811
    address = s3.put("healthy", RUNS / "healthy").rstrip("/")
    assert run(["watch", address, "--every", "0.1", "--until", "sev1"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[0].startswith(f"watching {address} ")
    assert lines[-1].startswith(f"ended    {address} step 2000: the run has ended")
    assert run(["watch", s3.uri("nothing"), "--every", "0.1"]) == 2
    assert "does not exist" in capfd.readouterr().err


def test_a_command_is_run_for_each_run_that_becomes_ill(tmp_path, capfd):
    runs = tmp_path / "runs"
    shutil.copytree(RUNS / "healthy", runs / "a")
    heard = tmp_path / "heard"
    script = f"import os; open({str(heard)!r}, 'a').write(os.environ['CKAUDIT_RUN'] + '\\n')"

    def come():
        time.sleep(1)
        shutil.copytree(RUNS / "nan_batch", tmp_path / "b")
        (tmp_path / "b").rename(runs / "b")

    coming = threading.Thread(target=come)
    coming.start()
    words = ["watch", str(runs / "*"), "--every", "0.2", "--until", "sev0", "--exec", f'{sys.executable} -c "{script}"']
    assert run([*words, "--prometheus", str(tmp_path / "runs.prom")]) == 1
    coming.join()
    out, err = capfd.readouterr()
    assert out.splitlines()[0].startswith(f"watching {runs}/*")
    assert set(heard.read_text().splitlines()) == {str(runs / "b")}
    assert f"{runs / 'b'}: " in err
    text = (tmp_path / "runs.prom").read_text()
    assert f'ckaudit_run_step{{run="{runs / "b"}"}} ' in text


def test_a_pattern_that_matches_nothing_is_waited_for_as_long_as_was_asked(tmp_path, capfd):
    assert run(["watch", str(tmp_path / "*"), "--wait", "0.2", "--every", "0.1"]) == 2
    assert "matches nothing" in capfd.readouterr().err
    assert run(["watch", "s3://*/x"]) == 2
    assert "names no bucket" in capfd.readouterr().err
