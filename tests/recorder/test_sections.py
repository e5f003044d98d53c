from time import monotonic

import msgspec
import numpy as np
import pytest
import torch
from msgspec import UNSET
from torch import nn

from ckaudit.audit import triage
from ckaudit.contract.check import check_checkpoint
from ckaudit.contract.io.files import read_bytes
from ckaudit.contract.schema.manifest import Cadence
from ckaudit.contract.schema.scalars import ScalarLine
from ckaudit.recorder import Recorder


def test_spectral_norms_are_measured_where_chosen(tiny, train, tmp_path, read):
    train(tiny(), 1, tmp_path, spectral_norms=("*.attn.q.weight",))
    measured = {name for name, stats in read(tmp_path, 1).weights.items() if stats.spectral_norm is not msgspec.UNSET}
    assert measured == {"blocks.0.attn.q.weight", "blocks.1.attn.q.weight"}


@pytest.mark.parametrize(
    ("suffix", "grids"), [(".json", "q8"), (".json", "none"), (".json.gz", "nested"), (".json.zst", "none"), (".json.zst", "q8")]
)
def test_every_file_keeps_the_contract(tiny, train, tmp_path, suffix, grids, manifest, lines):
    def spoil(step, loss):
        return loss * float("nan") if step == 14 else loss

    train(
        tiny(), 31, tmp_path, suffix=suffix, grids=grids, exact=True, spoil=spoil, vocabulary=17, sequence_length=8, clip_norm=1.0
    )
    paths = sorted(tmp_path.glob("analysis_checkpoint_*"))
    assert len(paths) >= 5
    for path in paths:
        assert path.name.endswith(suffix)
        checked = check_checkpoint(read_bytes(path, path.name), path.name)
        assert checked.document is not None
        assert checked.findings == []
    assert manifest(tmp_path).schema_version == "ck.run.v1"
    for line in lines(tmp_path):
        msgspec.convert(line, ScalarLine)


def test_a_checkpoint_holds_what_the_tensors_show(tiny, batches, loss_of, tmp_path, read):
    model = tiny()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.01)
    start = {name: p.detach().double().numpy().copy() for name, p in model.named_parameters()}
    recorder = Recorder(model, tmp_path, optimizer=optimizer, cadence=[Cadence(until=None, every=2)], clip_norm=0.3)
    for batch in batches(2):
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        recorder.after_backward()
        gradients = {name: p.grad.double().numpy().copy() for name, p in model.named_parameters()}
        before = {name: p.detach().double().numpy().copy() for name, p in model.named_parameters()}
        nn.utils.clip_grad_norm_(model.parameters(), 0.3)
        optimizer.step()
        recorder.step(loss, batch=batch)
    recorder.close()
    found, after = read(tmp_path, 2), {name: p.detach().double().numpy() for name, p in model.named_parameters()}
    total = np.sqrt(sum((g**2).sum() for g in gradients.values()))
    assert found.loss == pytest.approx(loss.item(), rel=1e-7)
    for name in found.weights:
        delta = np.linalg.norm(after[name] - before[name])
        moved = np.linalg.norm(after[name] - start[name])
        assert found.weights[name].mean == pytest.approx(after[name].mean(), rel=1e-6, abs=1e-12)
        assert found.gradients[name].norm == pytest.approx(np.linalg.norm(gradients[name]), rel=1e-6)
        assert found.weight_deltas[name].norm == pytest.approx(delta, rel=1e-5)
        assert found.weight_deltas[name].relative == pytest.approx(delta / np.linalg.norm(after[name]), rel=1e-5)
        if np.linalg.norm(start[name]):
            assert found.weight_deltas[name].moved == pytest.approx(moved / np.linalg.norm(start[name]), rel=1e-5)
    changes = np.sqrt(sum(((after[name] - before[name]) ** 2).sum() for name in after))
    sizes = np.sqrt(sum((value**2).sum() for value in after.values()))
    assert found.scalars["update_to_weight"] == pytest.approx(changes / sizes, rel=1e-5)
    assert found.scalars["grad_global_norm"] == pytest.approx(total, rel=1e-6)
    assert found.scalars["top_gradient_share"] == pytest.approx(
        max((g**2).sum() for g in gradients.values()) / total**2, rel=1e-5
    )
    entropies = [value for layer in found.attention.values() for value in layer.normalized_entropy_per_head]
    assert found.scalars["min_normalized_entropy"] == min(entropies)
    assert found.scalars["train_loss_raw"] == found.loss
    assert found.scalars["learning_rate"] == 0.1
    assert found.optimizer.clip_coefficient == pytest.approx(0.3 / (total + 1e-6), rel=1e-5)
    assert (found.optimizer.name, found.optimizer.groups[0].weight_decay) == ("SGD", 0.01)
    assert {delta.decay for delta in found.weight_deltas.values()} == {0.001}
    assert found.optimizer.gradient_norm == pytest.approx(0.3, rel=1e-5)
    assert found.gradients_source == "pre_clip"


def test_what_the_optimizer_is_given_is_recorded_whatever_clips_it(tiny, batches, loss_of, tmp_path, read):
    model = tiny()
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "lr": 0.01, "weight_decay": 0.2}, {"params": others, "lr": 0.02, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, eps=1e-3)
    recorder = Recorder(model, tmp_path, optimizer=optimizer, cadence=[Cadence(until=None, every=2)])
    for batch in batches(2):
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        recorder.after_backward()
        nn.utils.clip_grad_value_(model.parameters(), 1e-3)
        given = np.sqrt(sum(float((p.grad.double() ** 2).sum()) for p in model.parameters()))
        optimizer.step()
        recorder.step(loss, batch=batch)
    recorder.close()
    found = read(tmp_path, 2)
    assert found.optimizer.epsilon == 1e-3
    assert found.optimizer.gradient_norm == pytest.approx(given, rel=1e-5)
    assert found.scalars["grad_global_norm"] > 2 * given
    decays = {name: found.weight_deltas[name].decay for name, p in model.named_parameters() if name in found.weight_deltas}
    dims = {name: p.dim() for name, p in model.named_parameters()}
    assert {dims[name] > 1: decay for name, decay in decays.items()} == {True: pytest.approx(0.002), False: UNSET}


def test_activations_and_attention_are_those_of_the_step(tiny, batches, loss_of, tmp_path, read):
    model, seen = tiny(), {}
    recorder = Recorder(model, tmp_path, cadence=[Cadence(until=None, every=3)])
    watched = {"block": model.blocks[1], "hidden": model.blocks[0].mlp[1], "logits": model.blocks[0].attn.logits}
    for name, module in watched.items():
        module.register_forward_hook(lambda _m, _i, output, name=name: seen.update({name: output.detach().double().numpy()}))
    for batch in batches(3):
        loss = loss_of(model, batch)
        loss.backward()
        recorder.after_backward()
        recorder.step(loss)
    recorder.close()
    found = read(tmp_path, 3)
    assert found.activations["blocks.1"].rms == pytest.approx(np.sqrt((seen["block"] ** 2).mean()), rel=1e-6)
    dead = (np.abs(seen["hidden"]).max((0, 1)) < 1e-3).sum()
    assert (found.activations["blocks.0.mlp.1"].units, found.activations["blocks.0.mlp.1"].dead_units) == (16, dead)
    weights = np.exp(seen["logits"] - seen["logits"].max(-1, keepdims=True))
    p = (weights / weights.sum(-1, keepdims=True))[:2]  # two sequences are looked at
    entropy = -np.where(p > 0, p * np.log(np.where(p > 0, p, 1)), 0).sum(-1).mean((0, 2))
    assert list(found.attention) == ["layer.0", "layer.1"]
    layer = found.attention["layer.0"]
    assert layer.entropy_per_head == pytest.approx(entropy, rel=1e-5)
    assert layer.max_logit_per_head == pytest.approx(seen["logits"].max((0, 2, 3)), rel=1e-6)
    assert (layer.causal, layer.heads, layer.keys) == (True, 2, 8)


def test_validation_inside_a_step_is_not_taken_for_training(tiny, batches, loss_of, tmp_path, read):
    values = []
    for validate in (False, True):
        model, folder = tiny(), tmp_path / str(validate)
        recorder = Recorder(model, folder, cadence=[Cadence(until=None, every=1)])
        if validate:
            with torch.no_grad():
                model(batches(1, seed=5)[0][0])
        loss = loss_of(model, batches(1)[0])
        loss.backward()
        recorder.step(loss)
        recorder.close()
        values.append(read(folder, 1).activations)
    assert values[0] == values[1]


def test_accumulated_gradients_are_those_of_the_whole_update(tiny, batches, loss_of, tmp_path, read, lines):
    model = tiny()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Recorder(model, tmp_path, optimizer=optimizer, cadence=[Cadence(until=None, every=1)]) as recorder:
        for batch in batches(3):
            (loss_of(model, batch) / 3).backward()
        recorder.after_backward()
        expected = np.linalg.norm(model.embed.weight.grad.double().numpy())
        optimizer.step()
        recorder.step(1.0)
    assert len(lines(tmp_path)) == 1
    assert read(tmp_path, 1).gradients["embed.weight"].norm == pytest.approx(expected, rel=1e-6)


def test_frozen_and_unused_parameters_have_no_gradient_entry(tiny, train, tmp_path, read, manifest):
    model = tiny()
    model.unused = nn.Linear(2, 2)
    model.blocks[0].requires_grad_(False)
    train(model, 10, tmp_path)
    found = read(tmp_path, 10)
    assert not any(name.startswith(("blocks.0.", "unused.")) for name in found.gradients)
    assert any(name.startswith("blocks.1.") for name in found.gradients)
    assert not any(name.startswith("blocks.0.") for name in found.weight_deltas)
    assert found.weight_deltas["unused.weight"].norm == 0.0
    assert manifest(tmp_path).tensors["blocks.0.norm1.weight"].trainable is False
    assert set(found.weights) == {name for name, _ in model.named_parameters()}


def test_a_parameter_that_no_group_holds_is_named(tiny, train, tmp_path, read):
    model = tiny()
    optimizer = torch.optim.AdamW([p for name, p in model.named_parameters() if not name.startswith("norm.")], lr=1e-2)
    train(model, 10, tmp_path, optimizer=optimizer)
    found = read(tmp_path, 10)
    assert found.optimizer.trainable_without_optimizer == ["norm.weight", "norm.bias"]
    assert found.weight_deltas["norm.weight"].norm == 0.0


def test_tied_weights_appear_once(tiny, train, tmp_path, read, manifest):
    model = tiny(tied=True)
    train(model, 10, tmp_path)
    found = read(tmp_path, 10)
    for section in (found.weights, found.gradients, found.weight_deltas):
        assert "head.weight" in section
        assert "embed.weight" not in section
    assert manifest(tmp_path).parameters == sum(p.numel() for p in model.parameters())
    assert manifest(tmp_path).tensors["embed.weight"].tied_to == "head.weight"


def test_the_table_is_in_forward_order_from_the_first_step(tiny, train, tmp_path, manifest):
    recorder = train(tiny(), 1, tmp_path, close=False)
    deadline = monotonic() + 10  # it is written while the training goes on
    while next(iter(manifest(tmp_path).tensors)) != "embed.weight":
        assert monotonic() < deadline
    assert list(manifest(tmp_path).tensors)[-1] == "head.weight"
    recorder.close()


def test_several_optimizers_are_one_training(tiny, batches, loss_of, tmp_path, read, lines):
    model = tiny()
    first = torch.optim.SGD(model.blocks.parameters(), lr=0.1)
    second = torch.optim.Adam([*model.embed.parameters(), *model.head.parameters(), *model.norm.parameters()], lr=0.01)
    with Recorder(model, tmp_path, optimizer=[first, second], planned_steps=1) as recorder:
        loss_of(model, batches(1)[0]).backward()
        first.step()
        second.step()
        recorder.step(1.0)
    found = read(tmp_path, 1)
    assert found.optimizer.name == "SGD+Adam"
    assert [group.learning_rate for group in found.optimizer.groups] == [0.1, 0.01]
    assert found.optimizer.trainable_without_optimizer == []
    assert min(delta.norm for name, delta in found.weight_deltas.items() if "attn.k.bias" not in name) > 0
    assert lines(tmp_path)[0]["steps_seen"] == 1


def _in_two_parts(tiny, tmp_path, batches, loss_of, passes):
    """Record a training of two optimizers, with one backward pass for both or one for each."""
    model = tiny()
    some = [*model.parameters()]
    first, second = torch.optim.SGD(some[:2], lr=0.01), torch.optim.SGD(some[2:], lr=0.01)
    recorder = Recorder(model, tmp_path, optimizer=[first, second], cadence=[Cadence(until=None, every=2)])
    for batch in batches(4):
        for optimizer in (first, second):
            if passes == 2 or optimizer is first:
                model.zero_grad()
                loss = loss_of(model, batch)
                loss.backward()
            if passes == 1 and optimizer is second:
                nn.utils.clip_grad_norm_(some[2:], 0.1)
            optimizer.step()
        recorder.step(loss, batch=batch)
    recorder.close()


def test_optimizers_that_take_turns_are_told_from_those_that_share_a_pass(tiny, tmp_path, batches, loss_of, manifest):
    for name, passes, expected in (("turns", 2, True), ("shared", 1, UNSET)):
        _in_two_parts(tiny, tmp_path / name, batches, loss_of, passes)
        assert manifest(tmp_path / name).takes_turns is expected


def _beside_another(tiny, folder, batches, loss_of, order):
    """Record one of two models of which each has its own optimizer, and only that one is known to the recorder."""
    model, other = tiny(), nn.Linear(1, 1)
    of_model, of_other = torch.optim.SGD(model.parameters(), lr=0.01), torch.optim.SGD(other.parameters(), lr=0.01)
    recorder = Recorder(model, folder, optimizer=of_model)

    def update_model(batch, *, against=True):
        of_model.zero_grad()
        loss = loss_of(model, batch)
        (other(loss.reshape(1, 1)).sum() if against else loss).backward()
        of_model.step()
        return loss

    def update_other(through=None):
        of_other.zero_grad()
        given = torch.ones(1, 1) if through is None else loss_of(model, through).reshape(1, 1)
        other(given).sum().backward()
        of_other.step()

    for batch in batches(3):
        if order == "one pass":
            of_model.zero_grad()
            of_other.zero_grad()
            loss = loss_of(model, batch)
            other(loss.reshape(1, 1)).sum().backward()
            of_model.step()
            of_other.step()
        elif order == "other first":
            update_other()
            loss = update_model(batch)
        else:
            loss = update_model(batch, against=order == "model first")
            update_other(batch if order == "other through the model" else None)
        recorder.step(loss, batch=batch)
    recorder.close()


@pytest.mark.parametrize(
    ("order", "expected"),
    [("other first", True), ("model first", True), ("other through the model", True), ("apart", UNSET), ("one pass", UNSET)],
)
def test_an_opponent_that_nobody_told_of_is_seen(tiny, tmp_path, batches, loss_of, manifest, order, expected):
    _beside_another(tiny, tmp_path, batches, loss_of, order)
    assert manifest(tmp_path).takes_turns is expected


def test_an_opponent_in_the_same_model_is_seen_where_the_recorder_has_one_of_two_optimizers(tmp_path, manifest):
    model = nn.ModuleDict({"generator": nn.Linear(4, 2), "critic": nn.Linear(2, 1)})
    of_generator, of_critic = (torch.optim.Adam(part.parameters(), lr=0.01) for part in model.values())
    recorder = Recorder(model, tmp_path, optimizer=of_generator)
    for _ in range(30):
        made = model["generator"](torch.randn(8, 4))
        of_critic.zero_grad()
        (model["critic"](made.detach()).exp() - model["critic"](torch.randn(8, 2))).mean().backward()
        of_critic.step()
        of_generator.zero_grad()
        loss = -model["critic"](made).mean()
        loss.backward()
        of_generator.step()
        recorder.step(loss)
    recorder.close()
    assert manifest(tmp_path).takes_turns is True
    assert {finding.code for finding in triage(tmp_path).findings} & {"OPT001", "MOVE001", "D1.5", "LOSS001", "LOSS004"} == set()


def test_each_tensor_has_the_rate_of_its_group_where_groups_differ(tiny, tmp_path, batches, loss_of, read):
    for folder, rates in ((tmp_path / "apart", (0.5, 0.01)), (tmp_path / "alike", (0.01, 0.01))):
        model = tiny()
        names = [name for name, _ in model.named_parameters()]
        tensors = dict(model.named_parameters())
        groups = [{"params": [tensors[name]], "lr": rates[place > 0]} for place, name in enumerate(names)]
        optimizer = torch.optim.SGD(groups, lr=0.1)
        recorder = Recorder(model, folder, optimizer=optimizer, cadence=[Cadence(until=None, every=1)])
        loss_of(model, batches(1)[0]).backward()
        for _ in range(2):
            optimizer.step()
            recorder.step()
        recorder.close()
        found = {name: delta.learning_rate for name, delta in read(folder, 2).weight_deltas.items()}
        expected = (
            {name: rates[place > 0] for place, name in enumerate(names)} if rates[0] != rates[1] else dict.fromkeys(names, UNSET)
        )
        assert found == {name: expected[name] for name in found}
