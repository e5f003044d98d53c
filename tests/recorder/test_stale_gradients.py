"""What earlier steps leave in the gradients, against the same training by hand, with gradients taken by `torch.autograd.grad`."""

import copy
import json
import math
import pickle

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss
from torch.utils.checkpoint import checkpoint

from ckaudit.contract.schema.manifest import Cadence
from ckaudit.recorder import Recorder
from ckaudit.recorder.guard import Guard
from ckaudit.recorder.model import stale_gradients
from ckaudit.recorder.model.stale_gradients import StaleGradients

EVERY = [Cadence(until=None, every=2)]
NAME = "grad_carried_over"


def shares(folder):
    """Return {step: share} of the lines that have one."""
    lines = [json.loads(line) for line in (folder / "scalars.jsonl").read_text().splitlines()]
    return {line["step"]: line[NAME] for line in lines if NAME in line}


def failures(folder):
    return [
        session["write_errors"] + session["look_errors"] for session in json.loads((folder / "run.json").read_text())["sessions"]
    ]


def small(seed=0):
    """Return a model of four tensors, all of which are looked at."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))


def data(steps, passes=1, *, seed=1):
    source = torch.Generator().manual_seed(seed)
    return [
        [(torch.randn(6, 3, generator=source), torch.randn(6, 1, generator=source)) for _ in range(passes)] for _ in range(steps)
    ]


def run(
    folder, *, model=None, steps=8, passes=1, clear=lambda _: True, to_none=True, clip=0.5, late=False, fails=False, **options
):
    """Train by the book, but for `clear`, which tells at which steps gradients are cleared; `late`: after the step."""
    model = model or small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Recorder(model, folder, optimizer=optimizer, cadence=EVERY, **options) as recorder:
        for step, parts in enumerate(data(steps, passes), 1):
            if clear(step) and not late:
                optimizer.zero_grad(set_to_none=to_none)
            for x, y in parts:
                (mse_loss(model(x), y) / passes).backward()
            recorder.after_backward()
            if clip:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            if clear(step) and late:
                optimizer.zero_grad(set_to_none=to_none)
            recorder.step(0.0)
    assert (failures(folder) == [0]) is not fails
    return model


def by_hand(*, steps, passes, clip, model):
    """Return {step: share} where gradients are never cleared, from gradients that autograd accumulates nowhere."""
    weights, found = list(model.parameters()), {}
    held = [torch.zeros_like(each) for each in weights]
    for step, parts in enumerate(data(steps, passes), 1):
        taken = [torch.autograd.grad(mse_loss(model(x), y) / passes, weights) for x, y in parts]
        new = [sum(each) for each in zip(*taken, strict=True)]
        pairs = [
            (math.sqrt(float((a.double() ** 2).sum())), math.sqrt(float((b.double() ** 2).sum())))
            for a, b in zip(held, new, strict=True)
        ]
        found[step] = max(old / (old + fresh) for old, fresh in pairs)
        held = [a + b for a, b in zip(held, new, strict=True)]
        norm = math.sqrt(sum(float((each.double() ** 2).sum()) for each in held))
        held = [each * min(1.0, clip / (norm + 1e-6)) for each in held]
        with torch.no_grad():
            torch._foreach_sub_(weights, held, alpha=0.1)
    return found


@pytest.mark.parametrize("passes", [1, 3])
def test_gradients_that_are_never_cleared_are_counted_as_by_hand(tmp_path, passes):
    run(tmp_path, clear=lambda _: False, passes=passes)
    expected = by_hand(steps=8, passes=passes, clip=0.5, model=small())
    assert shares(tmp_path) == pytest.approx({step: expected[step] for step in (2, 4, 6, 8)}, rel=1e-4)
    assert min(shares(tmp_path).values()) > 0.2


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("to_none", [False, True])
@pytest.mark.parametrize("passes", [1, 3])
def test_cleared_gradients_are_exactly_nothing_wherever_the_call_stands(tmp_path, passes, to_none, late):
    run(tmp_path, passes=passes, to_none=to_none, late=late)
    assert shares(tmp_path) == dict.fromkeys((2, 4, 6, 8), 0.0)


def test_it_is_seen_from_the_step_on_at_which_clearing_stops_and_no_longer(tmp_path):
    run(tmp_path, steps=12, clear=lambda step: step not in (5, 6))
    assert {step for step, share in shares(tmp_path).items() if share > 0} == {6}


def test_the_checkpoint_says_it_too_and_vital_signs(tmp_path, train, tiny, read):
    train(tiny(), 30, tmp_path)
    assert shares(tmp_path) == dict.fromkeys((10, 20, 25, 30), 0.0)
    assert read(tmp_path, 20).scalars[NAME] == 0.0


def test_weights_are_those_of_a_training_that_nobody_watches(tmp_path):
    for clear in (True, False):
        watched = run(tmp_path / str(clear), clear=lambda _, clear=clear: clear)
        alone, optimizer = small(), None
        optimizer = torch.optim.SGD(alone.parameters(), lr=0.1)
        for ((x, y),) in data(8):
            if clear:
                optimizer.zero_grad()
            mse_loss(alone(x), y).backward()
            nn.utils.clip_grad_norm_(alone.parameters(), 0.5)
            optimizer.step()
        assert all(torch.equal(a, b) for a, b in zip(watched.parameters(), alone.parameters(), strict=True))


def by_recomputing(reentrant):
    def wrap(model):
        for block in model.blocks:
            block.forward = lambda x, inside=block.forward: checkpoint(inside, x, use_reentrant=reentrant)
        return model

    return wrap


def as_it_is(model):
    return model


WAYS = {
    "recomputed": by_recomputing(False),
    "recomputed inside": by_recomputing(True),
    "compiled": lambda model: torch.compile(model, backend="aot_eager"),
    "copied": lambda model: (copy.deepcopy(model), pickle.dumps(model), model)[-1],
}


@pytest.fixture(scope="module")
def plain():
    """What the trainings of a model that nothing was done to left over, by what was asked of them."""
    return {}


@pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec.*:FutureWarning")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("tied", [False, True])
@torch._dynamo.config.patch(error_on_recompile=True)
def test_recomputation_compilation_and_shared_weights_change_nothing(tmp_path, tiny, batches, plain, way, tied):
    torch._dynamo.reset()  # what other tests have compiled of the same class would count as compiled before

    def left(wrap, *, clears):
        folder, model = tmp_path / f"{wrap.__name__} {clears}", tiny(tied=tied)
        outer = wrap(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with Recorder(outer, folder, optimizer=optimizer, cadence=EVERY) as recorder:
            for inputs, targets in batches(6):
                if clears:
                    optimizer.zero_grad()
                if wrap is WAYS["copied"]:
                    wrap(model)
                cross_entropy(outer(inputs).flatten(0, 1), targets.flatten()).backward()
                optimizer.step()
                recorder.step(0.0)
        assert failures(folder) == [0]
        return shares(folder)

    for clears in (True, False):
        if (tied, clears) not in plain:
            plain[tied, clears] = left(as_it_is, clears=clears)
    assert plain[tied, True] == left(WAYS[way], clears=True) == dict.fromkeys((2, 4, 6), 0.0)
    assert plain[tied, False] == pytest.approx(left(WAYS[way], clears=False), rel=1e-4)
    assert min(plain[tied, False].values()) > 0.3


@pytest.mark.parametrize("clears", [True, False])
def test_a_loss_scaler_divides_what_is_left_by_its_scale(tmp_path, clears):
    model, scaler = small(), torch.amp.GradScaler("cpu", init_scale=1024.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Recorder(model, tmp_path, optimizer=optimizer, scaler=scaler, cadence=EVERY) as recorder:
        for step, ((x, y),) in enumerate(data(10), 1):
            if clears:
                optimizer.zero_grad()
            scaler.scale(mse_loss(model(x), y) * (math.inf if step == 5 else 1)).backward()
            scaler.unscale_(optimizer)
            recorder.after_backward()
            scaler.step(optimizer)
            scaler.update()
            recorder.step(0.0)
            optimizer.zero_grad() if step == 5 else None
    found = shares(tmp_path)
    assert found.keys() == {2, 4, 8, 10}  # no update came before step 6, and what stands then may be meant to
    assert all(share == 0 if clears else 0 < share < 0.05 for share in found.values())


def test_closures_that_go_back_several_times_are_looked_into(tmp_path):
    model = small()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4)
    with Recorder(model, tmp_path, optimizer=optimizer, cadence=EVERY) as recorder:
        for ((x, y),) in data(4):

            def closure(x=x, y=y):
                optimizer.zero_grad()
                loss = mse_loss(model(x), y)
                loss.backward()
                return loss

            recorder.step(optimizer.step(closure))
    assert shares(tmp_path) == {2: 0.0, 4: 0.0}


def test_gradients_taken_aside_are_not_those_of_the_step(tmp_path):
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Recorder(model, tmp_path, optimizer=optimizer, cadence=EVERY) as recorder:
        for ((x, y),) in data(4):
            torch.autograd.grad(mse_loss(model(x), y), list(model.parameters()))
            mse_loss(model(x), y).backward()  # a pass whose gradients nobody wants
            optimizer.zero_grad()
            mse_loss(model(x), y).backward()
            optimizer.step()
            recorder.step(0.0)
    assert shares(tmp_path) == {2: 0.0, 4: 0.0}


@pytest.mark.parametrize("forgets", [False, True])
def test_of_two_players_each_is_looked_at_before_its_own_update(tmp_path, forgets):
    torch.manual_seed(0)
    pair = nn.ModuleDict({"maker": nn.Linear(3, 3), "judge": nn.Linear(3, 1)})
    making, judging = (torch.optim.SGD(pair[name].parameters(), lr=0.1) for name in ("maker", "judge"))
    with Recorder(pair, tmp_path, optimizer=[judging, making], cadence=EVERY) as recorder:
        for ((x, _),) in data(6):
            # The pass of the maker goes through the judge, where the judge's own gradients still stand.
            making.zero_grad()
            pair["judge"](pair["maker"](x)).mean().backward()
            making.step()
            if not forgets:
                judging.zero_grad()
            (pair["judge"](x) - pair["judge"](pair["maker"](x).detach())).mean().backward()
            judging.step()
            recorder.step(0.0)
    found = shares(tmp_path)
    assert found.keys() == {2, 4, 6}
    assert all((share > 0) is forgets for share in found.values())


def test_where_it_cannot_be_known_it_is_not_recorded(tmp_path):
    run(tmp_path / "elsewhere", grad_of=lambda parameter: parameter.grad)
    copies = [nn.Parameter(each.detach().clone()) for each in small().parameters()]
    ways = {"nobody": None, "copies": torch.optim.SGD(copies, lr=0.1)}
    for name, optimizer in ways.items():
        model = small()
        with Recorder(model, tmp_path / name, optimizer=optimizer, cadence=EVERY) as recorder:
            for ((x, y),) in data(4):
                mse_loss(model(x), y).backward()
                if optimizer:
                    optimizer.step()
                recorder.step(0.0)
    assert [shares(tmp_path / name) for name in ("elsewhere", *ways)] == [{}, {}, {}]


def test_passes_before_an_update_are_accumulation_however_steps_are_counted(tmp_path):
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Recorder(model, tmp_path, optimizer=optimizer, cadence=[Cadence(until=None, every=1)]) as recorder:
        for number, ((x, y),) in enumerate(data(8), 1):
            mse_loss(model(x), y).backward()
            if number % 4 == 0:
                optimizer.step()
                optimizer.zero_grad()
            recorder.step(0.0)
    assert shares(tmp_path) == {5: 0.0}


def test_a_checkpoint_asked_for_in_the_midst_of_a_step_does_not_take_its_first_pass_for_an_earlier_step(tmp_path):
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Recorder(model, tmp_path, optimizer=optimizer, cadence=[Cadence(until=None, every=100)]) as recorder:
        for ((x, y),) in data(3):
            optimizer.zero_grad()
            mse_loss(model(x), y).backward()
            recorder.check_gradients((x, y), lambda net, batch: mse_loss(net(batch[0]), batch[1]), per_tensor=1)
            mse_loss(model(x), y).backward()
            optimizer.step()
            recorder.step(0.0)
    assert shares(tmp_path) == {}


def hooked(model):
    return [each._backward_hooks for each in model.parameters() if each._backward_hooks]


def test_hooks_are_there_for_one_step_and_leave_nothing_behind():
    model = small()
    model[0].weight.requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = StaleGradients(model.parameters(), [optimizer], Guard())
    watch.watch(7)
    assert len(optimizer._optimizer_step_pre_hooks) == 1
    model(torch.ones(2, 3)).sum().backward()
    assert watch.share(6) is None  # what was seen of step 7 is not step 6's
    watch.watch(8)
    model(torch.ones(2, 3)).sum().backward()
    assert watch.share(8) == pytest.approx(0.5)
    assert not hooked(model)
    assert not optimizer._optimizer_step_pre_hooks
    assert watch.share(8) is None


def test_tensors_are_small_spread_and_held_by_an_optimizer():
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(5)), nn.Linear(4, 400))
    held = [each for each in model.parameters() if each is not model[4].bias]
    chosen = [each for each, _ in StaleGradients(model.parameters(), [torch.optim.SGD(held)], Guard(), largest=100)._choose()]
    assert [next(name for name, p in model.named_parameters() if p is each) for each in chosen] == [
        "0.weight",
        "1.bias",
        "2.bias",
        "4.weight",
    ]
    large = [model[5].weight, model[5].bias]
    chosen = [each for each, _ in StaleGradients(large, [torch.optim.SGD(held)], Guard(), largest=100)._choose()]
    assert [each.numel() for each in chosen] == [400]


def test_sparse_and_half_precision_gradients_are_counted_too():
    table = nn.Embedding(5, 3, sparse=True)
    half = nn.Linear(3, 1, bias=False).to(torch.bfloat16)
    optimizer = torch.optim.SGD([*table.parameters(), *half.parameters()], lr=0.1)
    watch = StaleGradients([*table.parameters(), *half.parameters()], [optimizer], Guard())
    for clears, expected in ((False, 0.0), (False, 0.5), (True, 0.0)):
        optimizer.zero_grad() if clears else None
        watch.watch(1)
        (table(torch.tensor([1, 1, 4])).sum() + half(torch.ones(2, 3, dtype=torch.bfloat16)).sum().float()).backward()
        assert watch.share(1) == pytest.approx(expected)


@pytest.mark.parametrize("place", ["flat", "get_gradient_edge"])
def test_a_look_that_fails_is_counted_and_hurts_nobody(tmp_path, monkeypatch, place):
    def fail(*_args):
        raise ValueError("broken")

    expected = run(tmp_path / "whole")
    monkeypatch.setattr(stale_gradients, place, fail)
    found = run(tmp_path / "broken", fails=True)
    assert shares(tmp_path / "broken") == {}
    assert all(torch.equal(a, b) for a, b in zip(found.parameters(), expected.parameters(), strict=True))
