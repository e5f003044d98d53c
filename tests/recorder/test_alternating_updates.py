import pytest
import torch
from torch import nn

from ckaudit.recorder.guard import Guard
from ckaudit.recorder.model import alternating_updates
from ckaudit.recorder.model.alternating_updates import AlternatingUpdates


class TwoModels:
    """A model that is followed and another one, each with an optimizer of its own, and whether they were seen to take turns."""

    def __init__(self):
        self.guard, self.step, self.is_seen = Guard(), 0, False
        self.models = {name: nn.Linear(1, 1) for name in ("model", "other")}
        self.optimizers = {name: torch.optim.SGD(each.parameters(), lr=0.01) for name, each in self.models.items()}
        own = self.optimizers["model"]
        self.turns = AlternatingUpdates([own], self.guard, step=lambda: self.step, on_alternating=self.note_alternating)
        self.handles = [
            own.register_step_pre_hook(lambda *_: self.turns.before_update(own, is_due=False)),
            own.register_step_post_hook(lambda *_: self.turns.after_update()),
        ]

    def note_alternating(self):
        self.is_seen = True

    def update(self, name, *, against=None):
        """Update one of the two by its own loss, or by one that flows back through the other."""
        self.optimizers[name].zero_grad(set_to_none=False)  # a new tensor may lie where the one before was
        answer = self.models[name](torch.ones(1, 1))
        (answer if against is None else self.models[against](answer)).sum().backward()
        self.optimizers[name].step()

    def finish_step(self):
        self.step += 1

    def close(self):
        for handle in (*self.turns.handles, *self.handles):
            handle.remove()
        assert self.guard.failures == 0


@pytest.fixture
def two():
    models = TwoModels()
    yield models
    models.close()


ORDERS = {
    "model first": ["model", "other"],
    "other first": ["other", "model"],
    "model twice": ["model", "model", "other"],
    "other twice": ["other", "other", "model"],
    "model 4 times": [*["model"] * 4, "other"],
    "other 8 times": [*["other"] * 8, "model"],
}


def rounds(two, order, count, *, generator=None):
    """Train so many rounds; where one of the two is the generator, its loss flows back through its opponent."""
    opponent = {"model": "other", "other": "model"}
    for _ in range(count):
        for name in ORDERS[order]:
            two.update(name, against=opponent[name] if name == generator else None)
            if name == "model":
                two.finish_step()


@pytest.mark.parametrize("order", ORDERS)
def test_models_that_are_trained_side_by_side_take_no_turns(two, order):
    rounds(two, order, 140)
    assert not two.is_seen


@pytest.mark.parametrize("generator", ["model", "other"])
@pytest.mark.parametrize("order", ORDERS)
def test_turns_are_seen_however_late_they_begin(two, order, generator):
    rounds(two, order, 75)
    rounds(two, order, 35, generator=generator)
    assert two.is_seen


@pytest.mark.parametrize("order", ORDERS)
def test_models_that_go_past_each_other_are_rarely_looked_at(two, order, monkeypatch):
    rounds(two, order, 75)
    looks = []
    keep = alternating_updates._GradientsBetweenUpdates.after_own_update

    def look(gradients, tensors, step):
        watch = two.turns._other
        if gradients in (watch._model, watch._other):  # not those of a recorder that another test left open
            looks.append(step)
        keep(gradients, tensors, step)

    monkeypatch.setattr(alternating_updates._GradientsBetweenUpdates, "after_own_update", look)
    rounds(two, order, 64)
    assert 0 < len(looks) <= 64 * len(ORDERS[order]) / 8
