import logging
import platform

import pytest
import torch

from ckaudit.contract.schema.manifest import Cadence
from ckaudit.recorder import Recorder
from tests.forked import training


@pytest.mark.parametrize("options", [{}, {"exact": True, "grids": "nested"}, {"cadence": [Cadence(until=None, every=1)]}])
def test_training_is_bit_identical_with_and_without(tiny, train, tmp_path, options):
    bare, recorded = tiny(), tiny()
    train(bare, 30, clip=0.5)
    expected = torch.get_rng_state()
    torch.manual_seed(0)
    recorded = tiny()
    recorder = train(recorded, 30, tmp_path, clip=0.5, **options)
    assert torch.equal(torch.get_rng_state(), expected)
    assert all(torch.equal(a, b) for a, b in zip(bare.parameters(), recorded.parameters(), strict=True))
    assert recorder._guard.failures == 0
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in recorded.modules())


def test_a_closed_recorder_does_nothing_more(tiny, train, tmp_path, lines):
    model = tiny()
    recorder = train(model, 3, tmp_path)
    files = {path: path.read_bytes() for path in tmp_path.iterdir()}
    recorder.close()
    recorder.step(1.0)
    recorder.log(a=1)
    recorder.after_backward()
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == files


def test_a_manifest_says_what_the_run_is(tiny, train, tmp_path, manifest):
    facts = {"seed": 7, "name": "n", "warmup_steps": 3, "planned_learning_rate": [[0, 0.0], [3, 0.1]], "slices": ["regular"]}
    train(
        tiny(), 2, tmp_path, config={"lr": 1e-2, "path": tmp_path, "size": torch.Size([2])}, vocabulary=17, clip_norm=1.0, **facts
    )
    found = manifest(tmp_path)
    assert (found.seed, found.name, found.warmup_steps, found.vocabulary, found.clip_norm) == (7, "n", 3, 17, 1.0)
    assert found.planned_learning_rate == [[0, 0.0], [3, 0.1]]
    assert found.config == {"lr": 1e-2, "path": str(tmp_path), "size": [2]}
    assert [(stretch.until, stretch.every) for stretch in found.cadence] == [(100, 10), (1000, 50), (10000, 200), (None, 1000)]
    assert found.triggers.loss_spike_factor == 2.0
    (session,) = found.sessions
    assert session.start <= session.end
    assert (session.checkpoint_ok, session.write_errors, session.look_errors, session.world_size) == (True, 0, 0, 1)
    assert session.node == platform.node()


def test_a_fact_of_the_wrong_type_is_left_out_and_counted(tiny, train, tmp_path, manifest, caplog):
    train(tiny(), 1, tmp_path, vocabulary="many", seed=3)
    assert not manifest(tmp_path).vocabulary
    assert manifest(tmp_path).seed == 3
    (session,) = manifest(tmp_path).sessions
    assert (session.checkpoint_ok, session.write_errors, session.look_errors) == (True, 0, 1)
    assert session.first_look_error.startswith("the fact vocabulary failed: ")
    assert "the fact vocabulary" in caplog.text


@pytest.mark.parametrize(
    ("wrong", "error"), [({"vocabluary": 3}, TypeError), ({"grids": "jpeg"}, ValueError), ({"suffix": ".xml"}, ValueError)]
)
def test_a_call_that_cannot_be_meant_raises_before_anything_is_done(tiny, tmp_path, wrong, error):
    with pytest.raises(error):
        Recorder(tiny(), tmp_path / "run", **wrong)
    assert not (tmp_path / "run").exists()


def test_values_that_are_no_scalars_are_left_out_and_counted(tiny, tmp_path, lines, manifest, caplog):
    with Recorder(tiny(), tmp_path) as recorder:
        for _ in range(3):
            recorder.log(val_loss=[1], good=1.0)
            recorder.log(time=3)
            recorder.step(torch.ones(2))
    assert [line["good"] for line in lines(tmp_path)] == [1.0] * 3
    assert not any({"val_loss", "train_loss_raw"} & set(line) for line in lines(tmp_path))
    (session,) = manifest(tmp_path).sessions
    assert (session.checkpoint_ok, session.write_errors, session.look_errors) == (True, 0, 9)
    assert caplog.text.count("logging val_loss failed") == 1


def test_an_interrupt_passes_through(tiny, tmp_path, monkeypatch):
    recorder = Recorder(tiny(), tmp_path)

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(recorder._session._folder, "append", interrupt)
    with pytest.raises(KeyboardInterrupt):
        recorder.step(1.0)
    monkeypatch.undo()
    recorder.step(1.0)
    recorder.close()


def test_the_end_of_the_program_closes_the_run(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, torch; from ckaudit.recorder import Recorder\n"
        "recorder = Recorder(torch.nn.Linear(2, 2), sys.argv[1])\n"
        "for _ in range(3): recorder.step(1.0)\n"
        "raise SystemExit('crashed')"
    )
    assert "crashed" in training(program, tmp_path).stderr
    assert (tmp_path / "analysis_checkpoint_step_00000003.json").exists()
    assert b'"checkpoint_ok":true' in (tmp_path / "run.json").read_bytes()


@pytest.mark.usefixtures("no_waits")
def test_nothing_but_the_first_failure_of_a_kind_is_logged(tiny, train, tmp_path, caplog):
    caplog.set_level(logging.WARNING, "ckaudit.recorder")
    (tmp_path / "file").touch()
    recorder = train(tiny(), 30, tmp_path / "file" / "run")
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == len(set(messages)) < 10
    assert recorder._guard.failures > 30


def test_a_program_that_goes_to_another_folder_keeps_its_run(tiny, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recorder = Recorder(tiny(), "run")
    (tmp_path / "another_folder").mkdir()
    monkeypatch.chdir(tmp_path / "another_folder")
    recorder.step(1.0)
    recorder.close()
    assert (tmp_path / "run" / "analysis_checkpoint_step_00000001.json").exists()
