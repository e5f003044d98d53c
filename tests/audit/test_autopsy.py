"""The autopsy of an event: recorded events against slow loops over the raw files, and built ones whose course is known."""

import json
import math
import statistics
from pathlib import Path

import pytest
import zstandard
from jsonschema import Draft202012Validator

from ckaudit.audit.autopsy import autopsy, departure_text
from ckaudit.audit.autopsy.black_box import batch_distances, repeated_batches
from ckaudit.cli.run import run
from ckaudit.contract.schema.checkpoint import History
from ckaudit.errors import UsageError
from ckaudit.reports.schemas import output_schema

RUNS = Path(__file__).parents[2] / "fixtures" / "runs"


def checkpoint(name, step):
    """Read a checkpoint as plain JSON."""
    (path,) = (RUNS / name).glob(f"analysis_checkpoint_step_{step:08d}.json*")
    data = path.read_bytes()
    return json.loads(zstandard.ZstdDecompressor().decompress(data, max_output_size=2**27) if path.suffix == ".zst" else data)


def written(
    folder, *, steps=40, event=40, loss=None, gradients=None, rates=None, hashes=None, updates=None, triggers=("grad_norm",)
):
    """Write a run whose only event checkpoint has the black box given: functions of the step, or None for quiet ones."""
    box = range(event - steps + 1, event + 1)
    quiet = {step: 1 + 0.01 * math.sin(step) for step in box}
    made = gradients or {"a.0.w": None, "a.1.w": None}
    history = {
        "steps": list(box),
        "loss": [loss(step) if loss else 2 * quiet[step] for step in box],
        "learning_rate": [rates(step) if rates else 0.001 for step in box],
        "batch_hash": [hashes(step) if hashes else f"h{step}" for step in box],
        "gradient_norms": {name: [each(step) if each else quiet[step] for step in box] for name, each in made.items()},
        **({"update_norms": {name: [each(step) for step in box] for name, each in updates.items()}} if updates else {}),
    }
    head = {"schema_version": "ck.analysis.v1", "step": event + 1, "event_step": event, "triggers": ["grad_norm"]}
    text = json.dumps({**head, "history": history})
    (folder / f"analysis_checkpoint_step_{event + 1:08d}.json").write_text(text)
    return folder


def after(folder, lines):
    (folder / "scalars.jsonl").write_text("".join(json.dumps({"step": step, **line}) + "\n" for step, line in lines.items()))
    return folder


def test_a_nan_batch_is_told_from_the_raw_box():
    found = autopsy(RUNS / "nan_batch", event=150)
    box = checkpoint("nan_batch", 151)["history"]
    assert list(found.steps) == box["steps"]
    first = {
        name: next((step for step, value in zip(box["steps"], column, strict=True) if value == "NaN"), None)
        for name, column in {"loss": box["loss"], **box["gradient_norms"]}.items()
    }
    assert found.onset == min(step for step in first.values() if step) == 150
    (moment,) = found.moments
    lines = [json.loads(line) for line in (RUNS / "nan_batch" / "scalars.jsonl").read_text().splitlines()]
    tokens = {line["step"]: line["tokens_seen"] for line in lines if "tokens_seen" in line}
    assert [step for step in found.steps if tokens[step] == tokens[step - 1]] == [150]  # its batch had no targets
    assert found.verdict.startswith(f"First the batch {box['batch_hash'][-1]} holds no token to learn from (others hold 2048) at")
    assert next(departure_text(each) for each in moment.departures if each.kind != "batch") == "the loss is NaN"
    assert found.earlier == ()  # single tensors a little out of their range, at steps 111, 112 and 149, are noise
    told = {each.name for each in moment.departures if each.kind == "gradient"}
    assert told == {name for name, step in first.items() if step == 150} - {"loss"}
    assert len(told) == found.tensors
    assert {each.step for each in found.returns if each.kind == "loss"} == {None}  # the weights are NaN: nothing comes back
    assert {each.code for each in found.findings if each.severity == "sev0"} == {"NUM001"}
    assert found.diagnoses[0].cause == "bad_batch"
    assert [each.event_step for each in found.others if "nonfinite" in each.triggers] == [165, 181]


def slow_outs(column, steps, above):
    """Return {step: value over median} of what stands above its range, the definition spelt out."""
    found = {}
    for row, value in enumerate(column):
        earlier = column[:row][-24:]
        if len(earlier) < 8:
            continue
        middle = statistics.median(earlier)
        spread = 1.4826 * statistics.median([abs(each - middle) for each in earlier])
        if value > above * middle and value > middle + 8 * spread:
            found[steps[row]] = value / middle
    return found


def test_a_growing_gradient_is_told_tensor_by_tensor():
    found = autopsy(RUNS / "lr_too_high", event=77)
    box = checkpoint("lr_too_high", 78)["history"]
    rows_out = {name: slow_outs(column, box["steps"], 2.0) for name, column in box["gradient_norms"].items()}
    for moment in found.moments:
        for each in moment.departures:
            if each.kind == "gradient":
                assert each.times == pytest.approx(rows_out[each.name][moment.step])
    told = {(moment.step, each.name) for moment in found.moments for each in moment.departures if each.kind == "gradient"}
    later = {name: [step for step in steps if step >= found.onset] for name, steps in rows_out.items()}
    expected = {(min(steps), name) for name, steps in later.items() if steps}
    assert told == expected
    assert (found.onset, found.moments[0].departures[0].name) == (66, "blocks.2.attn.q.weight")
    norm = [math.sqrt(sum(column[row] ** 2 for column in box["gradient_norms"].values())) for row in range(len(box["steps"]))]
    (track,) = (each for each in found.tracks if each.kind == "gradient_norm")
    assert list(track.values) == pytest.approx(norm)
    assert set(track.out) == set(slow_outs(norm, box["steps"], 2.0))
    assert {each.cause for each in found.diagnoses} >= {"learning_rate_too_high"}


def test_what_was_dead_from_the_start_is_the_story_where_nothing_else_is():
    found = autopsy(RUNS / "zeroed_projection")
    dead = {name for name, column in checkpoint("zeroed_projection", 2)["history"]["gradient_norms"].items() if column == [0]}
    assert {each.name for each in found.moments[0].departures} == dead
    assert "from the first step of the black box on" in found.verdict
    assert found.diagnoses[0].cause == "dead_path"


def test_what_was_dead_from_the_start_is_not_the_story_where_something_else_is(tmp_path):
    gradients = {"a.0.w": lambda step: 50.0 if step == 40 else 1.0, "a.1.w": lambda step: 0.0}
    found = autopsy(written(tmp_path, gradients=gradients))
    assert (found.onset, found.moments[0].departures[0].name) == (40, "a.0.w")
    assert [each.name for each in found.standing] == ["a.1.w"]


def test_the_order_is_that_of_time_and_in_a_step_that_of_its_making(tmp_path):
    written(
        tmp_path,
        rates=lambda step: 0.01 if step >= 37 else 0.001,
        loss=lambda step: 9.0 if step >= 39 else 2.0,
        gradients={"a.0.w": lambda step: 30.0 if step >= 39 else 1.0, "a.1.w": lambda step: 90.0 if step >= 39 else 1.0},
        updates={"a.0.w": lambda step: 5.0 if step >= 37 else 1.0, "a.1.w": lambda step: 1.0},
    )
    found = autopsy(tmp_path)
    assert [(moment.step, each.kind, each.name) for moment in found.moments for each in moment.departures] == [
        (37, "learning_rate", ""),
        (37, "update", "a.0.w"),
        (39, "loss", ""),
        (39, "gradient", "a.1.w"),
        (39, "gradient", "a.0.w"),
        (39, "gradient_norm", ""),
    ]
    assert found.verdict.startswith("First the learning rate goes from 0.001 to 0.01 at step 37, 3 steps before the event")
    assert found.moments[1].departures[0].times == pytest.approx(4.5)


def test_a_stray_step_long_before_is_no_part_of_it(tmp_path):
    found = autopsy(written(tmp_path, loss=lambda step: 9.0 if step in (20, 39) else 2.0))
    assert (found.onset, found.earlier) == (39, (20,))


def test_nothing_out_of_its_range_is_said(tmp_path, capfd):
    found = autopsy(written(tmp_path))
    assert (found.onset, found.moments, found.returns) == (None, (), ())
    assert found.verdict == "Nothing in the black box left its own range before the event at step 40 (grad_norm)"
    assert "too short" in autopsy(written(tmp_path, steps=5, event=50), event=50).verdict
    assert run(["triage", str(tmp_path), "--event", "40"]) == 0
    assert "Triage finds nothing in these steps" in capfd.readouterr().out


def test_a_loader_that_stands_still_is_told_and_an_epoch_is_not(tmp_path):
    stuck = autopsy(written(tmp_path, hashes=lambda step: f"h{min(step, 38)}"))
    assert [(moment.step, departure_text(moment.departures[0])) for moment in stuck.moments] == [
        (39, "the batch is one of 1 steps before")
    ]
    assert autopsy(written(tmp_path, hashes=lambda step: f"h{step % 20}")).onset is None


def test_distances_of_batches_are_counted_in_steps():
    box = History(steps=[5, 6, 8, 9], batch_hash=["a", "b", "a", None])
    assert batch_distances(box) == [None, None, 3, None]
    assert batch_distances(History(steps=[1, 2])) == [None, None]
    assert repeated_batches([None] * 12 + [4, None, 9]) == [12, 14]


def test_columns_of_another_length_are_left_out(tmp_path):
    path = next(written(tmp_path, gradients={"a.0.w": lambda step: 50.0 if step == 40 else 1.0}).iterdir())
    document = json.loads(path.read_text())
    document["history"] |= {"batch_hash": ["x"], "loss": [1.0], "update_norms": {"a.0.w": []}}
    document["history"]["gradient_norms"]["a.1.w"] = [1.0, 2.0]
    path.write_text(json.dumps(document))
    found = autopsy(tmp_path)
    assert [(each.kind, each.name) for each in found.moments[0].departures] == [("gradient", "a.0.w"), ("gradient_norm", "")]
    assert found.tensors == 1


def test_what_came_back_and_what_did_not(tmp_path):
    written(
        tmp_path,
        loss=lambda step: 9.0 if step == 40 else 2.0,
        rates=lambda step: 0.01 if step == 40 else 0.001,
        gradients={"a.0.w": lambda step: 50.0 if step == 40 else 1.0},
    )
    later = {step: {"train_loss_raw": 2.1 if step >= 44 else 7.0, "learning_rate": 0.01} for step in range(41, 60)}
    found = {(each.kind, each.name): each for each in autopsy(after(tmp_path, later)).returns}
    assert (found["loss", ""].step, found["loss", ""].seen_until) == (44, 59)
    assert (found["learning_rate", ""].step, found["learning_rate", ""].seen_until) == (None, 59)
    assert (found["gradient", "a.0.w"].step, found["gradient", "a.0.w"].seen_until) == (None, None)


def test_a_later_black_box_says_what_came_back(tmp_path):
    written(tmp_path, gradients={"a.0.w": lambda step: 50.0 if step == 40 else 1.0})
    written(tmp_path, event=70, gradients={"a.0.w": lambda step: 50.0 if step in (40, 41, 42, 70) else 1.0})
    found = autopsy(tmp_path, event=40)
    assert {(each.kind, each.step) for each in found.returns} == {("gradient", 43), ("gradient_norm", 43)}
    assert [each.event_step for each in found.others] == [70]


def test_by_default_the_last_event_and_by_either_of_its_steps(tmp_path):
    written(tmp_path, event=40)
    written(tmp_path, event=70)
    assert autopsy(tmp_path).event.event_step == 70
    assert autopsy(tmp_path, event=40).event == autopsy(tmp_path, event=41).event


def test_where_there_is_none_those_there_are_get_listed():
    with pytest.raises(UsageError, match="no event checkpoint for step 500") as told:
        autopsy(RUNS / "nan_batch", event=500)
    assert told.value.hint == "There are events at 150 (nonfinite), 165 (nonfinite), 181 (nonfinite)."
    with pytest.raises(UsageError, match="the run has no event checkpoint") as told:
        autopsy(RUNS / "healthy")
    assert "--event 2000" in told.value.hint
    assert autopsy(RUNS / "healthy", event=2000).onset is None


def test_the_command_in_every_format(capfd):
    path = str(RUNS / "nan_batch")
    assert run(["triage", path, "--event", "150"]) == 1
    out = capfd.readouterr().out
    assert "150  the batch blake2b:" in out
    assert "the loss is NaN" in out
    assert "DATA004 step 150" in out  # what each rule says first stands before what one says of many places
    assert "Other events: 165 (nonfinite), 181 (nonfinite)." in out
    assert run(["triage", path, "--event", "last", "-f", "json"]) == 1
    told = json.loads(capfd.readouterr().out)
    assert (told["schema_version"], told["event"]["event_step"]) == ("ck.autopsy.v1", 181)
    Draft202012Validator(output_schema("ck.autopsy.v1")).validate(told)
    assert run(["triage", path, "--event", "150", "-f", "markdown"]) == 1
    assert "<br>the loss is NaN<br>" in capfd.readouterr().out
    for words in (["--event", "x"], ["--event", "7"], ["--event", "last", "--step", "5"], ["--event", "last", "-f", "junit"]):
        assert run(["triage", path, *words]) == 2


def test_a_log_without_checkpoints_has_no_black_box(tmp_path):
    after(tmp_path, {1: {"train_loss_raw": 2.0}})
    with pytest.raises(UsageError, match="no checkpoints"):
        autopsy(tmp_path)


def counted(steps, empty=(), each=100):
    """Return log lines with a count of tokens that some steps add nothing to."""
    total, lines = 0, {}
    for step in steps:
        total += 0 if step in empty else each
        lines[step] = {"tokens_seen": total}
    return lines


def test_a_batch_without_a_token_goes_first(tmp_path):
    written(tmp_path, loss=lambda step: 9.0 if step == 40 else 2.0)
    assert not batches_of(after(tmp_path, counted(range(1, 41))))
    assert batches_of(after(tmp_path, counted(range(1, 41), empty=[40]))) == [
        (40, "the batch h40 holds no token to learn from (others hold 100)")
    ]


def test_a_count_that_is_not_one_of_every_step_says_nothing_of_batches(tmp_path):
    written(tmp_path, loss=lambda step: 9.0 if step == 40 else 2.0)
    assert not batches_of(after(tmp_path, counted(range(1, 41), empty=range(1, 41, 2))))
    assert not batches_of(after(tmp_path, counted(range(1, 41, 3), empty=[40])))


def batches_of(folder):
    return [
        (moment.step, departure_text(each))
        for moment in autopsy(folder).moments
        for each in moment.departures
        if each.kind == "batch"
    ]
