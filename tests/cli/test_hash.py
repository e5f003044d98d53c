"""`ckaudit hash`: what it prints can be checked, here and elsewhere."""

import hashlib
import os

import pytest

from ckaudit.cli.run import run

WRITTEN, CANONICAL = b'{"b": 1, "a": 2}', b'{"a":2,"b":1}'


def sha(data):
    return hashlib.sha256(data).hexdigest()


@pytest.fixture(autouse=True)
def artifacts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts/a.txt").write_bytes(b"one\n")
    (tmp_path / "tasks.json").write_bytes(WRITTEN)
    return tmp_path


def test_a_list_is_printed_and_checked(artifacts, capfd):
    assert run(["hash", "prompts", "tasks.json"]) == 0
    listed = capfd.readouterr().out
    assert listed.splitlines()[1] == f"sha256:{sha(CANONICAL)}  tasks.json"
    (artifacts / "list.txt").write_text(listed)
    (artifacts / "tasks.json").write_bytes(b'{\r\n  "a": 2,\r\n  "b": 1.0\r\n}')
    assert run(["hash", "--check", "list.txt"]) == 0
    assert capfd.readouterr().out == "prompts: ok\ntasks.json: ok\n"


def test_a_change_and_a_missing_artifact_are_told(artifacts, capfd):
    run(["hash", "prompts", "tasks.json"])
    (artifacts / "list.txt").write_text(capfd.readouterr().out)
    (artifacts / "prompts/a.txt").write_bytes(b"two\n")
    (artifacts / "tasks.json").unlink()
    assert run(["hash", "-q", "--check", "list.txt"]) == 1
    assert capfd.readouterr().out == "prompts: changed\ntasks.json: missing\n"


def test_raw_hashes_are_checked_as_raw(artifacts, capfd):
    assert run(["hash", "--raw", "tasks.json"]) == 0
    listed = capfd.readouterr().out
    assert listed.startswith(f"sha256-raw:{sha(WRITTEN)}")
    (artifacts / "list.txt").write_text(listed)
    assert run(["hash", "-c", "list.txt"]) == 0
    (artifacts / "tasks.json").write_bytes(b'{"b":1,"a":2}')
    assert run(["hash", "-c", "list.txt"]) == 1


def test_a_name_that_steers_a_terminal_is_printed_harmless_and_found_again(artifacts, capfd):
    name = "a\\u001b\x1b[31m\n.txt"
    (artifacts / name).write_bytes(b"x")
    assert run(["hash", name]) == 0
    listed = capfd.readouterr().out
    assert "\x1b" not in listed
    assert listed.count("\n") == 1
    (artifacts / "list.txt").write_text(listed)
    assert run(["hash", "-c", "list.txt"]) == 0


def test_what_cannot_be_read_is_told_and_the_rest_is_hashed(artifacts, capfd):
    os.mkfifo(artifacts / "pipe")
    assert run(["hash", "pipe", "prompts"]) == 2
    out, err = capfd.readouterr()
    assert out.endswith("  prompts\n")
    assert "error: pipe is not a regular file" in err


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["prompts", "--check", "tasks.json"],
        ["--check", "tasks.json"],
        ["-c", "nothing"],
        ["--raw", "--check", "list.txt"],
        ["tasks.json", "--into", "trained", "--step", "11"],
    ],
)
def test_a_request_without_sense_is_an_error(arguments, artifacts, capfd):
    (artifacts / "list.txt").write_text(f"sha256:{sha(CANONICAL)}  tasks.json\n")
    (artifacts / "trained").mkdir()
    (artifacts / "trained/scalars.jsonl").write_text('{"step": 10, "train_loss_raw": 1.0}\n')
    assert run(["hash", *arguments]) == 2
    assert "error: " in capfd.readouterr().err


def test_a_folder_without_files_has_no_hash_and_one_that_was_emptied_is_missing(artifacts, capfd):
    (artifacts / "empty/deeper").mkdir(parents=True)
    (artifacts / "empty/.DS_Store").write_bytes(b"?")
    assert run(["hash", "empty"]) == 2
    out, err = capfd.readouterr()
    assert not out
    assert "error: empty holds no file" in err
    (artifacts / "list.txt").write_text(f"sha256:{sha(CANONICAL)}  empty\nsha256:{sha(CANONICAL)}  tasks.json\n")
    assert run(["hash", "-c", "list.txt"]) == 1
    assert capfd.readouterr().out == "empty: missing\ntasks.json: ok\n"


def test_hashes_join_a_run_by_the_names_of_their_artifacts(artifacts, capfd):
    from ckaudit.run.read import read_run

    (artifacts / "run").mkdir()
    assert run(["hash", "prompts/", "tasks.json", "--into", "run", "--step", "1"]) == 0
    (artifacts / "prompts/a.txt").write_bytes(b"two\n")
    assert run(["hash", "prompts", "tasks.json", "--into", "run", "--step", "3"]) == 0
    found = read_run(artifacts / "run").texts
    prompts, tasks = found["eval_artifact_hash/prompts"], found["eval_artifact_hash/tasks.json"]
    assert prompts.steps == tasks.steps == (1, 3)
    assert prompts.values[0] != prompts.values[1]
    assert tasks.values == (f"sha256:{sha(CANONICAL)}",) * 2
    assert run(["hash", "tasks.json", "--into", "run", "--step", "3"]) == 0
    assert "added 1 hash at step 3" in capfd.readouterr().err
    assert run(["hash", "missing", "tasks.json", "--into", "run", "--step", "9"]) == 2
    assert run(["hash", "tasks.json", "./tasks.json", "--into", "run", "--step", "9"]) == 2
    assert read_run(artifacts / "run").texts["eval_artifact_hash/prompts"].steps == (1, 3)
