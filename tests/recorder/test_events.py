import pytest
import torch

from ckaudit.contract.schema.manifest import Cadence
from ckaudit.recorder import EventThresholds, Recorder


def test_the_cadence_and_both_ends_have_a_checkpoint(tiny, train, tmp_path, steps_of, read):
    train(tiny(), 23, tmp_path, limits=EventThresholds(at_most=0))
    assert steps_of(tmp_path) == [0, 10, 20, 23]
    assert [read(tmp_path, step).triggers for step in (0, 10, 23)] == [["first"], ["cadence"], ["last"]]


def test_a_planned_last_step_is_whole(tiny, train, tmp_path, read):
    train(tiny(), 13, tmp_path, planned_steps=13)
    last = read(tmp_path, 13)
    assert last.triggers == ["last"]
    assert last.activations
    assert last.cost.ms > 0
    assert last.history.steps == list(range(1, 13))


def test_a_run_that_ends_on_a_due_step_keeps_its_checkpoint_and_adds_the_black_box(tiny, train, tmp_path, read):
    train(tiny(), 10, tmp_path)
    last = read(tmp_path, 10)
    assert last.triggers == ["cadence", "last"]
    assert last.activations
    assert last.weight_deltas["embed.weight"].norm > 0
    assert last.history.steps == list(range(1, 10))


def test_a_spike_has_its_checkpoint_at_the_next_step(tiny, train, tmp_path, read, steps_of):
    train(tiny(), 36, tmp_path, spoil=lambda step, loss: loss * 9 if step == 33 else loss)
    found = read(tmp_path, 34)
    assert (found.triggers, found.event_step) == (["loss_spike"], 33)
    assert found.activations
    assert found.history.steps == list(range(1, 34))
    assert found.history.loss[-1] > 2 * found.history.loss[-2]
    assert set(found.history.gradient_norms) == set(found.gradients)
    assert steps_of(tmp_path) == [0, 10, 20, 30, 34, 36]


def test_an_event_before_a_due_step_is_told_there(tiny, train, tmp_path, read):
    train(tiny(), 31, tmp_path, spoil=lambda step, loss: loss * 9 if step == 29 else loss)
    assert read(tmp_path, 30).triggers == ["cadence", "loss_spike"]
    assert read(tmp_path, 30).event_step == 29


def test_an_event_of_the_last_step_is_told_at_the_end(tiny, train, tmp_path, read):
    train(tiny(), 25, tmp_path, spoil=lambda step, loss: loss * 9 if step == 25 else loss)
    found = read(tmp_path, 25)
    assert (found.triggers, found.event_step) == (["last", "loss_spike"], 25)
    assert found.gradients["embed.weight"].norm > 0
    assert not found.gradients["embed.weight"].std


def test_a_nan_is_seen_in_the_history_of_the_next_step(tiny, train, tmp_path, read, lines):
    train(tiny(), 60, tmp_path, spoil=lambda step, loss: loss * float("nan") if step == 12 else loss)
    found = read(tmp_path, 13)
    assert (found.triggers, found.event_step) == (["nonfinite"], 12)
    assert found.history.loss[-1] == "NaN"
    assert found.loss == "NaN"
    assert found.weights["embed.weight"].mean == "NaN"
    assert found.gradients["embed.weight"].norm == "NaN"
    assert found.optimizer.state_finite is False
    assert lines(tmp_path)[11]["train_loss_raw"] == "NaN"
    assert lines(tmp_path)[11]["grad_global_norm"] == "NaN"
    assert len(list(tmp_path.glob("analysis_checkpoint_*"))) <= 7 + 4


def test_a_dead_parameter_is_an_event_once(tiny, train, tmp_path, read, steps_of):
    model = tiny()
    model.blocks[0].mlp[2].weight.data.zero_()
    model.blocks[0].mlp[0].register_forward_hook(lambda _m, _i, output: output * 0)
    train(model, 25, tmp_path)
    assert read(tmp_path, 2).triggers == ["dead_parameter"]
    assert steps_of(tmp_path) == [0, 2, 10, 20, 25]


def test_weights_that_are_written_to_have_a_checkpoint_at_the_next_step(tiny, train, tmp_path, read, steps_of):
    model = tiny()

    def halve(step, loss):
        if step == 43:
            with torch.no_grad():
                model.embed.weight.mul_(0.5)
        return loss

    train(model, 50, tmp_path, spoil=halve, cadence=[Cadence(until=None, every=25)])
    assert steps_of(tmp_path) == [0, 25, 44, 50]
    found = read(tmp_path, 44)
    assert (found.triggers, found.event_step, found.optimizer.written) == (["weights_written"], 43, ["embed.weight"])
    assert not read(tmp_path, 50).optimizer.written


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW, torch.optim.NAdam])
def test_a_write_within_the_closure_of_an_update_has_a_checkpoint_too(tiny, tmp_path, read, steps_of, optimizer):
    model = tiny()
    update = optimizer(model.parameters(), lr=1e-3)
    with Recorder(
        model, tmp_path, optimizer=update, cadence=[Cadence(until=None, every=25)], limits=EventThresholds(dead_gradient_norm=0.0)
    ) as recorder:
        for step in range(1, 51):
            batch = torch.randint(0, 13, (2, 6))

            def closure(step=step, batch=batch):
                update.zero_grad()
                loss = model(batch).square().mean()
                loss.backward()
                if step == 33:
                    with torch.no_grad():
                        model.embed.weight.mul_(0.5)
                return loss

            recorder.step(update.step(closure))
    told = [step for step in steps_of(tmp_path) if "weights_written" in read(tmp_path, step).triggers]
    assert told == [34]
    assert read(tmp_path, 34).optimizer.written == ["embed.weight"]


def test_weights_that_are_thawed_are_no_event(tiny, train, tmp_path, steps_of, read):
    model = tiny()
    model.embed.weight.requires_grad_(False)

    def thaw(step, loss):
        if step == 43:
            model.embed.weight.requires_grad_(True)
        return loss

    train(model, 75, tmp_path, spoil=thaw, cadence=[Cadence(until=None, every=25)])
    assert not [step for step in steps_of(tmp_path) if "weights_written" in read(tmp_path, step).triggers]


@pytest.mark.parametrize("every", [1, 7])
def test_weights_that_are_held_in_bounds_again_and_again_are_no_event(tiny, train, tmp_path, steps_of, every):
    model = tiny()

    def bound(step, loss):
        if step % every == 0:
            with torch.no_grad():
                model.embed.weight.clamp_(-3, 3)
        return loss

    train(model, 50, tmp_path, spoil=bound, cadence=[Cadence(until=None, every=25)])
    assert steps_of(tmp_path) == [0, 25, 50]


def test_weights_that_are_swapped_at_each_evaluation_are_an_event_three_times(tiny, train, tmp_path, steps_of, read):
    model = tiny()

    def swap(step, loss):
        if step % 30 == 0:
            with torch.no_grad():
                kept = model.embed.weight.clone()
                model.embed.weight.mul_(0.9)
                model.embed.weight.copy_(kept)
        return loss

    train(model, 190, tmp_path, spoil=swap, cadence=[Cadence(until=None, every=95)])
    told = [step for step in steps_of(tmp_path) if "weights_written" in read(tmp_path, step).triggers]
    assert told == [31, 61, 91]
