import math
import random

import numpy as np
import pytest
import torch
from torch import nn

from ckaudit.recorder import Recorder
from ckaudit.recorder.checks.fixed_batch import FixedBatch, divergence, next_token_stats, shifted_twin, shorten_batch
from ckaudit.recorder.checks.side_effect_free import no_side_effects, own_loss
from ckaudit.validate import validate


def shares(logits):
    rows = logits.detach().double().numpy().reshape(-1, logits.shape[-1])
    powers = np.exp(rows - rows.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


class Noisy(nn.Module):
    """A language model with everything that a forward pass may disturb: dropout, running statistics, a counter."""

    def __init__(self, size=8, vocabulary=17):
        super().__init__()
        self.embed, self.head = nn.Embedding(vocabulary, size), nn.Linear(size, vocabulary)
        self.dropout, self.norm = nn.Dropout(0.3), nn.BatchNorm1d(size)
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))
        self.frozen = nn.BatchNorm1d(size).eval()

    def forward(self, tokens):
        self.calls += 1
        x = self.dropout(self.embed(tokens)).transpose(1, 2)
        return self.head(self.frozen(self.norm(x)).transpose(1, 2))


def train_noisy(folder, batches, loss_of, *, pin, steps=50):
    torch.manual_seed(3)
    random.seed(3)
    model = Noisy()
    model.train()
    model.frozen.eval()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    with Recorder(model, folder, optimizer=optimizer, vocabulary=17) as recorder:
        if pin:
            recorder.pin(batches(1, seed=9)[0])
            recorder.pin(batches(1, seed=8)[0], name="early", shift=0, held_out=True)
        for batch in batches(steps):
            optimizer.zero_grad()
            loss = loss_of(model, batch)
            loss.backward()
            recorder.after_backward()
            optimizer.step()
            recorder.step(loss, batch=batch)
    assert recorder._guard.failures == 0
    return model, torch.get_rng_state(), random.getstate()


def test_training_with_dropout_is_bit_identical_with_and_without(batches, loss_of, tmp_path):
    bare, numbers, own = train_noisy(tmp_path / "bare", batches, loss_of, pin=False)
    pinned, after, own_after = train_noisy(tmp_path / "pinned", batches, loss_of, pin=True)
    assert torch.equal(numbers, after)
    assert own == own_after
    assert pinned.state_dict().keys() == bare.state_dict().keys()
    assert all(torch.equal(value, pinned.state_dict()[name]) for name, value in bare.state_dict().items())
    assert [module.training for module in pinned.modules()] == [module.training for module in bare.modules()]
    assert not any(module._forward_hooks for module in pinned.modules())


def test_a_run_with_pinned_batches_follows_the_contract(batches, loss_of, tmp_path, read, lines):
    train_noisy(tmp_path, batches, loss_of, pin=True)
    assert not validate([tmp_path]).findings
    found = {line["step"]: line for line in lines(tmp_path) if "fixed_probe_loss" in line}
    assert sorted(found) == [0, 10, 20, 30, 40, 50]
    assert "output_kl_to_prev" not in found[0]
    assert found[10]["output_kl_to_prev"] > 0
    assert found[50]["fixed_probe_loss"] == read(tmp_path, 50).scalars["fixed_probe_loss"]
    assert [line["step"] for line in lines(tmp_path) if "fixed_probe_loss/early" in line] == sorted(found)
    probes = read(tmp_path, 20).probes
    assert list(probes) == ["pinned", "pinned.shifted", "early"]
    assert (probes["pinned.shifted"].shift, probes["pinned.shifted"].shifted_by) == (2, "prepended")
    assert probes["early"].held_out is True
    assert probes["pinned"].hash == probes["pinned.shifted"].hash != probes["early"].hash


def test_what_is_said_of_the_last_step_is_true_of_its_weights(batches, loss_of, tmp_path, read):
    model, *_ = train_noisy(tmp_path, batches, loss_of, pin=True)
    model.eval()
    inputs, targets = batches(1, seed=8)[0]
    p = shares(model(inputs))
    scalars, probe = read(tmp_path, 50).scalars, read(tmp_path, 50).probes["early"]
    loss = -np.log(p[np.arange(len(p)), targets.numpy().ravel()]).mean()
    assert math.isclose(scalars["fixed_probe_loss/early"], loss, rel_tol=1e-5)
    assert math.isclose(probe.perplexity, math.exp(loss), rel_tol=1e-5)
    assert math.isclose(scalars["logit_entropy_probe/early"], -(p * np.log(p)).sum(1).mean(), rel_tol=1e-5)
    assert math.isclose(scalars["topk_mass_probe/early"], 100 * np.sort(p)[:, -10:].sum(1).mean(), rel_tol=1e-5)
    assert probe.entropy == scalars["logit_entropy_probe/early"]


def test_entropy_and_mass_of_many_rows_are_those_of_float64():
    logits = 5 * torch.randn(3, 50, 101, generator=torch.Generator().manual_seed(0))
    logits[0, 0, 5:] = -torch.inf
    p = shares(logits)
    found = next_token_stats(logits, top=7)
    entropy = -(p * np.log(np.where(p > 0, p, 1))).sum(1).mean()
    assert math.isclose(found.entropy, entropy, rel_tol=1e-6)
    assert math.isclose(found.top_mass, 100 * np.sort(p)[:, -7:].sum(1).mean(), rel_tol=1e-6)
    assert found.log_probabilities.shape == (50, 101)
    assert np.allclose(found.log_probabilities.exp().numpy(), p[::3], atol=1e-6)


def test_only_positions_with_a_target_count():
    logits = torch.randn(2, 4, 5, generator=torch.Generator().manual_seed(0))
    counted = torch.tensor([[True, False, True, True], [False, False, False, True]])
    p = shares(logits[counted])
    assert math.isclose(next_token_stats(logits, counted).entropy, -(p * np.log(p)).sum(1).mean(), rel_tol=1e-6)
    assert next_token_stats(logits, torch.zeros_like(counted)) is None


def test_divergence_is_that_of_float64_in_the_order_now_before():
    source = torch.Generator().manual_seed(0)
    now, before = (torch.randn(6, 9, generator=source) for _ in range(2))
    p, q = shares(now), shares(before)
    assert math.isclose(divergence(now.log_softmax(-1), before.log_softmax(-1)), (p * np.log(p / q)).sum(1).mean(), rel_tol=1e-5)
    assert divergence(now.log_softmax(-1), now.log_softmax(-1)) == 0
    assert divergence(now, before[:3]) is None


def test_something_impossible_that_becomes_possible_is_infinitely_far():
    certain = torch.tensor([[0.0, -torch.inf]])
    assert divergence(certain, certain) == 0
    assert divergence(torch.full((1, 2), 0.5).log(), certain) == math.inf


class ByPlace(nn.Module):
    """Predicts the next token from the position alone."""

    def __init__(self, targets):
        super().__init__()
        self.table = nn.Parameter(20 * nn.functional.one_hot(targets[0], 17).float())

    def forward(self, tokens):
        return self.table[: tokens.shape[1]].expand(len(tokens), -1, -1)


class ByContent(nn.Module):
    """Predicts the next token from the token alone."""

    def __init__(self, inputs, targets):
        super().__init__()
        self.table = nn.Parameter(torch.zeros(17, 17))
        self.table.data[inputs[0], targets[0]] = 20.0

    def forward(self, tokens):
        return self.table[tokens]


def test_the_twin_tells_knowledge_by_place_from_knowledge_by_content():
    inputs, targets = torch.arange(8)[None], torch.arange(1, 9)[None] % 17
    for model, same in ((ByPlace(targets), False), (ByContent(inputs, targets), True)):
        probes = FixedBatch((inputs, targets), own_loss, shift=2).read(model, "p").probes
        assert probes["p"].loss < 1e-6
        assert (probes["p.shifted"].loss < 1e-6) == same
        assert probes["p.shifted"].loss < 1e-6 or probes["p.shifted"].loss > 19


def test_the_twin_is_no_longer_than_the_batch_and_has_the_same_targets():
    inputs = torch.arange(20).reshape(2, 10)
    batch = shorten_batch((inputs, inputs + 1), 3)
    (tokens, targets), way = shifted_twin(batch, 3, nn.Identity())
    assert way == "prepended"
    assert tokens.tolist()[1] == [10, 10, 10, 10, 11, 12, 13, 14, 15, 16]
    assert targets.tolist()[1] == [-100, -100, -100, 11, 12, 13, 14, 15, 16, 17]


def test_labels_of_a_mapping_name_the_same_tokens_in_the_twin():
    inputs = torch.arange(10)[None]
    batch = shorten_batch({"input_ids": inputs, "labels": inputs, "attention_mask": torch.ones_like(inputs)}, 2)
    found, _ = shifted_twin(batch, 2, nn.Identity())
    assert batch["labels"].tolist() == [[-100, 1, 2, 3, 4, 5, 6, 7]]
    assert found["labels"].tolist() == [[-100, -100, -100, 1, 2, 3, 4, 5, 6, 7]]
    assert found["attention_mask"].tolist() == [[1] * 10]


@pytest.fixture
def llama():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=17, hidden_size=8, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, max_position_embeddings=16
    )
    return transformers.LlamaForCausalLM(config)


def test_a_model_that_takes_positions_is_given_later_ones(llama):
    tokens = torch.randint(0, 17, (2, 12), generator=torch.Generator().manual_seed(0))
    probes = FixedBatch({"input_ids": tokens, "labels": tokens}, own_loss, shift=3).read(llama, "p").probes
    assert probes["p.shifted"].shifted_by == "position_ids"
    # Rotary positions are relative: moving all of them changes nothing.
    assert math.isclose(probes["p"].loss, probes["p.shifted"].loss, rel_tol=1e-5)
    assert math.isclose(probes["p"].loss, llama(tokens[:, :9], labels=tokens[:, :9]).loss.item(), rel_tol=1e-5)


def test_images_have_no_twin(tmp_path, read):
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 5))
    images, classes = torch.rand(4, 3, 4), torch.tensor([0, 1, 2, 3])
    with Recorder(model, tmp_path, optimizer=torch.optim.SGD(model.parameters(), lr=0.1)) as recorder:
        recorder.pin((images, classes))
        recorder.step(1.0)
    assert list(read(tmp_path, 1).probes) == ["pinned"]
    assert read(tmp_path, 1).scalars["topk_mass_probe"] == pytest.approx(100)


def test_a_batch_is_copied(tiny, batches):
    inputs, targets = (part.clone() for part in batches(1)[0])
    pinned = FixedBatch((inputs, targets), own_loss, shift=0)
    inputs.zero_()
    assert pinned.batch[0].any()


def test_a_loss_that_fails_is_counted_and_leaves_the_model_in_training(tiny, batches, tmp_path, read, caplog):
    model = tiny().train()
    with Recorder(model, tmp_path) as recorder:
        recorder.pin(batches(1)[0], loss=lambda _model, _batch: 1 / 0)
        recorder.step(1.0)
        assert recorder._guard.failures == 1
    assert "pinning the batch pinned failed" in caplog.text
    assert all(module.training for module in model.modules())
    assert not read(tmp_path, 1).probes


def test_a_model_spread_over_ranks_is_not_pinned(tiny, batches, tmp_path, caplog):
    model = tiny()
    model.head.weight.ds_id = 0
    with Recorder(model, tmp_path) as recorder:
        recorder.pin(batches(1)[0])
        assert recorder.check_gradients(batches(1)[0]) is None
    assert caplog.text.count("spread over all") == 2


def test_buffers_come_back_even_where_they_were_replaced():
    model = nn.Module()
    model.register_buffer("a", torch.zeros(2))
    model.register_buffer("b", torch.zeros(2))
    model.register_buffer("none", None)
    first, second = model.a, model.b
    with no_side_effects(model):
        model.a += 1
        model.b = torch.ones(3)
        model.none = torch.ones(1)
    assert model.a is first
    assert model.b is second
    assert model.none is None
    assert first.tolist() == second.tolist() == [0, 0]


def test_a_train_method_with_effects_is_not_called():
    class Folding(nn.Linear):
        def train(self, mode=True):
            raise AssertionError

    model = Folding(2, 2)
    with no_side_effects(model):
        assert not model.training
    assert model.training


@pytest.mark.parametrize("way", ["wrapped", "in place"])
def test_a_compiled_model_is_pinned_too(tiny, batches, loss_of, tmp_path, read, way):
    def trained(folder, *, pin):
        model = tiny()
        compiled = torch.compile(model, backend="eager") if way == "wrapped" else model
        if way == "in place":
            model.compile(backend="eager")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with Recorder(compiled, folder, optimizer=optimizer) as recorder:
            if pin:
                recorder.pin(batches(1, seed=9)[0])
            for batch in batches(12):
                optimizer.zero_grad()
                loss = loss_of(compiled, batch)
                loss.backward()
                optimizer.step()
                recorder.step(loss.detach())
        assert recorder._guard.failures == 0
        return model

    bare, pinned = trained(tmp_path / "bare", pin=False), trained(tmp_path / "pinned", pin=True)
    assert all(torch.equal(a, b) for a, b in zip(bare.parameters(), pinned.parameters(), strict=True))
    scalars = read(tmp_path / "pinned", 10).scalars
    with torch.no_grad():
        p = shares(tiny()(batches(1, seed=9)[0][0]))
    assert 0 < scalars["logit_entropy_probe"] <= math.log(17)
    assert abs(scalars["logit_entropy_probe"] + (p * np.log(p)).sum(1).mean()) < 0.5


def test_inside_autocast_the_weights_of_now_are_read(tiny, batches, loss_of):
    model, pinned = tiny(), FixedBatch(batches(1)[0], own_loss, shift=0)
    with torch.autocast("cpu", torch.bfloat16):
        loss_of(model, batches(1)[0]).backward()
        with torch.no_grad():
            model.head.weight.mul_(-3)
        inside = pinned.read(model, "p").scalars["fixed_probe_loss"]
        assert torch.is_autocast_cache_enabled()
    with torch.autocast("cpu", torch.bfloat16):
        assert inside == pinned.read(model, "p").scalars["fixed_probe_loss"]
