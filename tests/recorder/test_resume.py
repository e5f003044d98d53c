import json

import msgspec
import numpy as np
import pytest

from ckaudit.contract.schema.manifest import Manifest, Session
from ckaudit.recorder import Recorder
from ckaudit.recorder.files.manifest import begin, join_earlier, set_aside
from ckaudit.recorder.files.run_folder import RunFolderWriter
from ckaudit.recorder.guard import Guard


def names(folder):
    return sorted(path.name.removeprefix("analysis_checkpoint_step_") for path in folder.glob("analysis_checkpoint_*"))


def test_a_resume_adds_a_session_and_goes_on_counting(tiny, train, tmp_path, manifest, lines, read):
    model = tiny()
    train(model, 20, tmp_path, seed=3, name="first")
    train(model, 10, tmp_path, start_step=20, clip_norm=1.0)
    found = manifest(tmp_path)
    assert (found.name, found.seed, found.clip_norm) == ("first", 3, 1.0)
    assert [session.resumed_from for session in found.sessions] == [msgspec.UNSET, 20]
    assert [line["step"] for line in lines(tmp_path)] == list(range(1, 31))
    assert [line["session"] for line in lines(tmp_path)] == [0] * 20 + [1] * 10
    assert [line["steps_seen"] for line in lines(tmp_path)] == list(range(1, 31))
    assert [line["step"] for line in lines(tmp_path) if "schema_version" in line] == [1, 21]
    assert (read(tmp_path, 20).session, read(tmp_path, 30).session) == (0, 1)


def test_movement_is_measured_from_the_very_first_step(tiny, train, tmp_path, read):
    model = tiny()
    start = model.embed.weight.detach().double().numpy().copy()
    train(model, 10, tmp_path)
    reference = (tmp_path / "reference.npz").read_bytes()
    train(model, 10, tmp_path, start_step=10)
    now = model.embed.weight.detach().double().numpy()
    expected = np.linalg.norm(now - start) / np.linalg.norm(start)
    assert read(tmp_path, 20).weight_deltas["embed.weight"].moved == pytest.approx(expected, rel=1e-6)
    assert (tmp_path / "reference.npz").read_bytes() == reference


def test_going_back_makes_later_checkpoints_history(tiny, train, tmp_path, read, lines):
    model = tiny()
    train(model, 30, tmp_path)
    train(model, 10, tmp_path, start_step=15)
    assert names(tmp_path) == [
        "00000000.json",
        "00000010.json",
        "00000020.json",
        "00000020.session000.json",
        "00000025.json",
        "00000030.session000.json",
    ]
    assert read(tmp_path, 10).session == 0
    old, new = (tmp_path / f"analysis_checkpoint_step_00000020{label}.json" for label in (".session000", ""))
    assert [json.loads(path.read_bytes())["session"] for path in (old, new)] == [0, 1]
    assert lines(tmp_path)[30]["steps_seen"] == 16


def test_a_second_way_back_keeps_each_writers_number(tiny, train, tmp_path):
    model = tiny()
    train(model, 30, tmp_path, suffix=".json.zst")
    train(model, 5, tmp_path, start_step=20, suffix=".json.zst")
    train(model, 2, tmp_path, start_step=10, suffix=".json.zst")
    assert names(tmp_path) == [
        "00000000.json.zst",
        "00000010.json.zst",
        "00000012.json.zst",
        "00000020.session000.json.zst",
        "00000025.session001.json.zst",
        "00000030.session000.json.zst",
    ]


def test_starting_again_at_zero_sets_everything_aside(tiny, train, tmp_path, lines):
    train(tiny(), 10, tmp_path)
    first = (tmp_path / "reference.npz").read_bytes()
    train(tiny(seed=1), 4, tmp_path)
    assert names(tmp_path) == ["00000000.json", "00000000.session000.json", "00000004.json", "00000010.session000.json"]
    assert (tmp_path / "reference.npz").read_bytes() != first
    assert lines(tmp_path)[-1]["steps_seen"] == 4


def test_an_unreadable_checkpoint_is_named_after_the_session_before(tmp_path):
    (tmp_path / "analysis_checkpoint_step_00000040.json").write_bytes(b"{")
    (tmp_path / "analysis_checkpoint_step_00000040.rank003.json").write_bytes(b"{}")
    assert set_aside(tmp_path, 30, 5) == [
        "analysis_checkpoint_step_00000040.session004.json",
        "analysis_checkpoint_step_00000040.session004.rank003.json",
    ]


def test_a_torn_line_of_a_killed_session_is_cut(tiny, train, tmp_path, lines):
    model = tiny()
    train(model, 5, tmp_path)
    with (tmp_path / "scalars.jsonl").open("ab") as stream:
        stream.write(b'{"step":6,"ti')
    train(model, 5, tmp_path, start_step=5)
    assert [line["step"] for line in lines(tmp_path)] == list(range(1, 11))


def test_leftovers_of_a_killed_writer_are_removed(tiny, tmp_path):
    leftover = tmp_path / ".run.json.tmp-999999999"
    leftover.touch()
    Recorder(tiny(), tmp_path).close()
    assert not leftover.exists()


def test_an_unreadable_manifest_is_counted_and_replaced(tiny, train, tmp_path, manifest, caplog):
    (tmp_path / "run.json").write_bytes(b"{")
    train(tiny(), 1, tmp_path)
    assert manifest(tmp_path).sessions[-1].write_errors == 1
    assert "reading the earlier run.json failed" in caplog.text


def test_an_unreadable_reference_costs_only_the_distance(tiny, train, tmp_path, read):
    model = tiny()
    train(model, 10, tmp_path)
    (tmp_path / "reference.npz").write_bytes(b"not a zip")
    train(model, 10, tmp_path, start_step=10)
    delta = read(tmp_path, 20).weight_deltas["embed.weight"]
    assert delta.norm > 0
    assert not delta.moved


def test_a_resume_without_the_earlier_folder_starts_where_it_says(tiny, train, tmp_path, lines, steps_of, manifest):
    train(tiny(), 3, tmp_path, start_step=500)
    assert [line["steps_seen"] for line in lines(tmp_path)] == [501, 502, 503]
    assert steps_of(tmp_path) == [503]
    assert not manifest(tmp_path).sessions[0].resumed_from


def test_facts_of_the_earlier_start_stay_unless_given_again():
    earlier = Manifest(schema_version="ck.run.v1", name="old", seed=1, sessions=[Session(start=1.0)])
    found = begin({"seed": 2}, Guard(), start=5.0)
    join_earlier(found, earlier, 40)
    assert (found.name, found.seed, len(found.sessions)) == ("old", 2, 2)
    assert (found.sessions[1].start, found.sessions[1].resumed_from) == (5.0, 40)


def test_the_hooks_of_a_resumed_start_are_there_for_its_first_due_step(tiny, train, tmp_path, read):
    train(tiny(), 1, tmp_path, start_step=9)
    assert read(tmp_path, 10).activations
    assert read(tmp_path, 10).triggers == ["cadence", "last"]


def test_a_line_made_while_the_number_of_its_start_becomes_known_is_of_that_start(tmp_path, monkeypatch):
    folder = RunFolderWriter(tmp_path, Guard(), suffix=".json", start_step=0)
    folder._is_ready, make = True, folder._scalars.line

    def late(*given):
        line = make(*given)
        folder.session = folder._scalars.session = 3
        return line

    monkeypatch.setattr(folder._scalars, "line", late)
    folder.append(1, 0.0, {})
    folder.wait_for_writes()
    assert json.loads((tmp_path / "scalars.jsonl").read_text())["session"] == 3
