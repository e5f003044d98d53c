"""An event checkpoint as the contract's own example has it: triggers and event_step, and no history."""

import json

import pytest

from ckaudit.audit.autopsy import autopsy
from ckaudit.cli.run import run
from ckaudit.errors import UsageError

EVENT = 60


def written(folder, *, steps=80, head=None, loss=lambda step: 3.0 + 0.01 * (step % 5), checkpoints=(20, 40)):
    """Write lines of every step, planned checkpoints, and the event's."""
    lines = [{"step": step, "train_loss_raw": loss(step), "learning_rate": 1e-3} for step in range(1, steps + 1)]
    (folder / "scalars.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    event = {"triggers": ["loss_spike"], "event_step": EVENT} if head is None else head
    for step, more in [*((step, {"triggers": ["cadence"]}) for step in checkpoints), (EVENT + 1, event)]:
        document = {"schema_version": "ck.analysis.v1", "step": step, "loss": loss(step), **more}
        document["gradients"] = {"a.w": {"norm": 1.0}, "b.w": {"norm": 2.0}}
        (folder / f"analysis_checkpoint_step_{step:08d}.json").write_text(json.dumps(document))
    return folder


def spike(step):
    return 9.0 if step == EVENT else 3.0 + 0.01 * (step % 5)


def test_it_is_told_from_the_lines_before_it(tmp_path):
    found = autopsy(written(tmp_path, loss=spike))
    assert (found.event.step, found.event.event_step, found.event.triggers) == (EVENT + 1, EVENT, ("loss_spike",))
    assert not found.boxed
    assert found.steps == tuple(range(1, EVENT + 1))
    assert found.onset == EVENT
    assert found.verdict.startswith(
        "First the loss goes to 9, 2.98 times its median of 3.02 at step 60, the step of the event itself"
    )


def test_the_last_64_recorded_steps_are_the_box(tmp_path):
    found = autopsy(written(tmp_path, steps=200, head={"triggers": ["loss_spike"], "event_step": 61}))
    assert (len(found.steps), found.steps[-1]) == (61, 61)
    long = autopsy(written(tmp_path, steps=200, head={"triggers": ["manual"]}, checkpoints=(20, 40, 100)), event=EVENT + 1)
    assert long.event.event_step == EVENT + 1


@pytest.mark.parametrize("head", [{"triggers": ["loss > 2x"]}, {"event_step": EVENT}, {"triggers": ["grad_norm", "cadence"]}])
@pytest.mark.parametrize("wanted", ["last", str(EVENT + 1)])
def test_any_of_the_fields_makes_it_an_event(tmp_path, head, wanted, capsysbinary):
    assert run(["triage", str(written(tmp_path, head=head)), "--event", wanted, "--no-config"]) == 0
    assert b"Record without a black box: steps 1 to " in capsysbinary.readouterr().out


def test_a_planned_checkpoint_without_a_box_is_no_event(tmp_path):
    with pytest.raises(UsageError, match="no event checkpoint"):
        autopsy(written(tmp_path, head={"triggers": ["cadence", "last"]}))


def test_the_file_alone_opens_and_says_that_it_is_too_little(tmp_path):
    found = autopsy(written(tmp_path, loss=spike) / f"analysis_checkpoint_step_{EVENT + 1:08d}.json")
    assert found.verdict == (
        "Nothing in the record left its own range before the event at step 60 (loss_spike): the record is too short to know "
        "what is usual"
    )
