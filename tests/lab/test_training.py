"""What a plan asks for is what happens: a few steps each."""

import pytest
import torch
from msgspec.structs import replace

from ckaudit.audit.measure import measure
from ckaudit.lab.change import Change
from ckaudit.lab.models import build
from ckaudit.lab.models.language_models import rotate
from ckaudit.lab.plan import Gpt, Optimizer, Schedule
from ckaudit.lab.task import IGNORED
from tests.lab.trained import SHORT, SMALL, column, trained

pytestmark = pytest.mark.torch


def model_of(plan, seed=0):
    torch.manual_seed(seed)
    return build(plan, vocabulary=30, length=24)


def codes(seed=1):
    return torch.randint(30, (3, 24), generator=torch.Generator().manual_seed(seed))


def same_weights(one, other):
    mine, theirs = one.model.state_dict(), other.model.state_dict()
    return mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)


def test_accumulated_parts_make_the_update_of_the_whole_batch(tmp_path) -> None:
    whole = trained(SHORT, tmp_path / "whole")
    parts = trained(replace(SHORT, accumulate=2), tmp_path / "parts")
    assert parts.tokens == whole.tokens
    for name in ("train_loss_raw", "val_loss", "grad_global_norm"):
        assert column(tmp_path / "parts", name) == pytest.approx(column(tmp_path / "whole", name), rel=1e-5)


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_a_training_taken_up_again_goes_on_bit_for_bit(tmp_path, precision) -> None:
    plan = replace(SHORT, precision=precision)
    through = trained(plan, tmp_path / "through")
    resumed = trained(replace(plan, resume_at=3), tmp_path / "resumed")
    assert same_weights(through, resumed)
    assert column(tmp_path / "through", "train_loss_raw") == column(tmp_path / "resumed", "train_loss_raw")


def test_a_tied_model_is_tied_after_a_resume_too(tmp_path) -> None:
    training = trained(replace(SHORT, model=replace(SMALL, tied=True), resume_at=3), tmp_path / "run")
    assert training.model.head.weight is training.model.tokens.weight
    untied = sum(weight.numel() for weight in model_of(SMALL).parameters())
    assert untied - sum(weight.numel() for weight in model_of(replace(SMALL, tied=True)).parameters()) == 30 * 16


def test_bfloat16_rounds_the_forward_pass_and_leaves_weights_in_float32(tmp_path) -> None:
    trained(SHORT, tmp_path / "exact")
    rounded = trained(replace(SHORT, precision="bfloat16"), tmp_path / "rounded")
    assert {weight.dtype for weight in rounded.model.parameters()} == {torch.float32}
    losses = column(tmp_path / "exact", "train_loss_raw"), column(tmp_path / "rounded", "train_loss_raw")
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=0.01)
    with rounded.casting():
        assert rounded.model(codes()).dtype == torch.bfloat16


def test_experts_work_in_half_precision_too() -> None:
    layer, x = model_of(replace(SMALL, experts=3)).blocks[0].mlp, torch.randn(2, 10, 16)
    exact = layer(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = layer(x)
    assert rounded.dtype == torch.float32
    assert torch.allclose(rounded, exact, atol=0.02 * float(exact.detach().abs().max()))


def test_float16_scales_the_loss_and_records_gradients_without_the_scale(tmp_path) -> None:
    training = trained(replace(SHORT, precision="float16"), tmp_path / "half")
    trained(SHORT, tmp_path / "exact")
    assert training.scaler.get_scale() == 2.0**16
    assert column(tmp_path / "half", "grad_global_norm") == pytest.approx(
        column(tmp_path / "exact", "grad_global_norm"), rel=0.02
    )


def test_an_overflow_skips_the_update_and_halves_the_scale(tmp_path) -> None:
    class Overflow(Change):
        def backward(self, training, loss) -> None:
            (loss * (float("inf") if training.step == 4 else 1.0)).backward()

    training = trained(replace(SHORT, precision="float16"), tmp_path / "run", Overflow())
    assert training.scaler.get_scale() == 2.0**15


def test_fused_attention_is_attention() -> None:
    plain, fused = (model_of(replace(SMALL, fused=fused)) for fused in (False, True))
    assert torch.allclose(plain(codes()), fused(codes()), atol=1e-5)


def test_shared_keys_are_the_same_keys_for_two_heads() -> None:
    shared, full = model_of(replace(SMALL, kv_heads=2)), model_of(SMALL)
    assert shared.blocks[0].attn.k.weight.shape == (8, 16)
    weights = shared.state_dict()
    for name, weight in weights.items():
        if name.endswith(("attn.k.weight", "attn.v.weight")):
            weights[name] = weight.unflatten(0, (2, 4)).repeat_interleave(2, 0).flatten(0, 1)
    full.load_state_dict(weights)
    assert torch.allclose(shared(codes()), full(codes()), atol=1e-6)


def test_normed_queries_and_keys_bound_the_logits() -> None:
    model, seen = model_of(replace(SMALL, qk_norm=True)), []
    model.blocks[0].attn.logits.register_forward_hook(lambda *arguments: seen.append(arguments[2]))
    with torch.no_grad():
        model.blocks[0].attn.q.weight.mul_(1e3)
    model(codes())
    assert seen[0][seen[0].isfinite()].abs().max() <= 4**0.5 + 1e-5  # |q| |k| / sqrt(size), each norm being sqrt(size)


def test_dropout_acts_in_training_mode_only() -> None:
    model = model_of(replace(SMALL, dropout=0.5))
    assert not torch.equal(model(codes()), model(codes()))
    model.eval()
    assert torch.equal(model(codes()), model(codes()))


def test_products_of_rotated_vectors_depend_on_their_distance_alone() -> None:
    q, k = torch.randn(8), torch.randn(8)
    products = rotate(q.expand(1, 1, 10, 8)) @ rotate(k.expand(1, 1, 10, 8)).transpose(-1, -2)
    for distance in range(5):
        diagonal = products[0, 0].diagonal(-distance)
        assert torch.allclose(diagonal, diagonal[0].expand_as(diagonal), atol=1e-4)
    assert products[0, 0, 0, 0] == pytest.approx(float(q @ k), rel=1e-4)


@pytest.mark.parametrize("activation", ["gelu", "swiglu"])
def test_experts_work_as_a_loop_over_tokens_says(activation) -> None:
    plan = replace(SMALL, experts=3, capacity=0.8, activation=activation)
    layer, x = model_of(plan).blocks[0].mlp, torch.randn(2, 10, 16)
    out, full, dropped = layer(x), {}, 0
    for row in range(2):
        for place in range(10):
            shares = layer.router(x[row, place]).softmax(-1)
            best = int(shares.argmax())
            full[row, best] = full.get((row, best), 0) + 1
            expected = layer.experts[best](x[row, place]) * shares[best]
            if full[row, best] > 3:  # 0.8 * 10 / 3, rounded up
                expected, dropped = torch.zeros(16), dropped + 1
            assert torch.allclose(out[row, place], expected, atol=1e-6)
    assert dropped
    assert layer.expert_capacity == 3


def test_the_load_balance_loss_is_one_for_an_even_spread_and_the_number_of_experts_for_one_that_gets_all() -> None:
    layer = model_of(replace(SMALL, experts=4)).blocks[0].mlp
    even, one = torch.eye(4)[None], torch.eye(4)[[0, 0, 0, 0]][None]
    assert layer.load_balance(even, even) == 1
    assert layer.load_balance(one, one) == 4


def test_the_loss_of_training_holds_what_routers_add_and_the_held_out_loss_does_not(tmp_path) -> None:
    class Pure(Change):
        seen: float

        def loss(self, training, logits, batch):
            loss = super().loss(training, logits, batch)
            self.seen = loss.item()
            return loss

    change, plan = Pure(), replace(SHORT, model=replace(SMALL, experts=4), stop=10)
    training = trained(plan, tmp_path / "run", change)
    added = column(tmp_path / "run", "train_loss_raw")[-1] - change.seen
    assert 0.02 <= added < 0.04  # two layers, each 0.01 times a number from 1 on
    held = training.corpus.held_out()
    losses = torch.nn.functional.cross_entropy(training.model(held.inputs).flatten(0, 1), held.targets.flatten())
    assert training.evaluate()["val_loss"] == pytest.approx(losses.item(), rel=1e-5)
    found = {each.name: each.series for each in measure(tmp_path / "run", names=["moe_util_entropy", "moe_drop_rate"]).measured}
    assert 0 < found["moe_util_entropy"].values[-1, 0] <= 1
    assert 0 <= found["moe_drop_rate"].values[-1, 0] < 100


def test_ignored_targets_do_not_count(tmp_path) -> None:
    training = trained(SHORT, tmp_path / "run")
    batch = training.corpus.batch(1)
    targets = batch.targets.clone()
    targets[:, 5:] = IGNORED
    logits = training.model(batch.inputs)
    short = torch.nn.functional.cross_entropy(logits[:, :5].flatten(0, 1), batch.targets[:, :5].flatten())
    assert training.task.loss(logits, replace(batch, targets=targets)).item() == pytest.approx(short.item(), rel=1e-5)
    assert replace(batch, targets=targets).tokens == 40


def test_sgd_moves_weights_by_rate_times_gradient(tmp_path) -> None:
    optimizer = Optimizer(kind="sgd", peak=0.1, betas=(0.0, 0.0), weight_decay=0.0, clip=None)
    plan = replace(SHORT, optimizer=optimizer, schedule=Schedule(warmup=0, shape="constant"), stop=1)

    class Kept(Change):
        def gradients(self, training) -> None:
            named = training.model.named_parameters()
            self.expected = {name: weight.detach() - 0.1 * weight.grad for name, weight in named}

    change = Kept()
    training = trained(plan, tmp_path / "run", change)
    assert all(torch.allclose(weight, change.expected[name], atol=1e-7) for name, weight in training.model.named_parameters())


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ("constant", [1, 1, 1, 1]),
        ("linear", [1, 0.75, 0.5, 0]),
        ("cosine", [1, 0.8536, 0.5, 0]),
        ("plateau", [1, 1, 1, 0]),
        ("stairs", [1, 1, 0.5, 0]),
        ("restarts", [1, 0.1464, 0.5, 0]),
    ],
)
def test_schedules_run_as_drawn(shape, expected) -> None:
    schedule = Schedule(shape=shape, warmup=100, final=0.0)
    assert [schedule.factor(step, 500) for step in (100, 200, 300, 500)] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("model", [Gpt(init_std=0.5), Gpt(init_std=0.01)])
def test_weights_begin_with_the_spread_asked_for(model) -> None:
    assert model_of(model).tokens.weight.std().item() == pytest.approx(model.init_std, rel=0.1)
