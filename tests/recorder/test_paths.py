import copy
import weakref

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten
from torch.utils.checkpoint import checkpoint

from ckaudit.contract.manifest import TensorFacts
from ckaudit.recorder.paths import PathTrace
from ckaudit.recorder.table import tensor_table
from ckaudit.validate import validate

VIEWS = {"t", "transpose", "view", "_unsafe_view", "expand", "detach", "unsqueeze", "as_strided", "_to_copy", "select", "permute"}


class Dispatched(TorchDispatchMode):
    """Writes down which ATen operators take a tensor, or a view or a copy of it: an independent account."""

    def __init__(self, model):
        super().__init__()
        self.owner = {p.untyped_storage()._cdata: name for name, p in model.named_parameters()}
        self.kept, self.read = [], {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        own = [self.owner.get(part.untyped_storage()._cdata) for part in tree_flatten(args)[0] if isinstance(part, torch.Tensor)]
        name = function.overloadpacket.__name__
        for owner in filter(None, own):
            if name not in VIEWS:
                self.read.setdefault(owner, set()).add(name.lstrip("_"))
            elif isinstance(out, torch.Tensor):
                self.kept.append(out)
                self.owner[out.untyped_storage()._cdata] = owner
        return out


def described(model, run):
    trace = PathTrace(model, hookable=True)
    run(model)
    trace.close()
    return trace.describe({name: TensorFacts() for name, _ in model.named_parameters(remove_duplicate=False)})


@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_operators_are_those_that_dispatch_saw(tiny, batches, dtype):
    model = tiny()
    model.conv = nn.Conv1d(8, 8, 3)
    model.extra = nn.Parameter(torch.ones(8))
    plain = model.forward

    def forward(tokens):
        out = plain(tokens)
        return out, {"other": [model.conv(model.embed(tokens).transpose(1, 2)).sum() + (model.extra * 2).sum()]}

    model.forward = forward
    with Dispatched(model) as seen, torch.autocast("cpu", dtype or torch.bfloat16, enabled=dtype is not None):
        found = described(model, lambda model: model(batches(1)[0][0]))
    assert {name: set(facts.operator.split(", ")) for name, facts in found.items()} == seen.read
    assert found["blocks.0.attn.q.weight"].operator == "addmm"
    assert found["norm.weight"].backward == "NativeLayerNormBackward0"


def test_a_shared_weight_names_all_its_readers(tiny, batches):
    found = described(tiny(tied=True), lambda model: model(batches(1)[0][0]))
    assert found["embed.weight"] == found["head.weight"]
    assert set(found["head.weight"].operator.split(", ")) >= {"embedding"}
    assert len(found["head.weight"].backward.split(", ")) == 2


def test_own_functions_keep_their_names():
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, slope):
            return 2 * slope

    class Model(nn.Linear):
        def forward(self, x):
            return Doubled.apply(self.weight).sum() + x.sum()

    found = described(Model(2, 2), lambda model: model(torch.ones(2)))
    assert (found["weight"].operator, found["weight"].backward) == ("Doubled", "DoubledBackward")
    assert not found["bias"].operator


def test_frozen_and_recomputed_weights_are_not_recorded():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[0].requires_grad_(False)

    class Recomputed(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2)

        def forward(self, x):
            return self.second(checkpoint(self.first, x, use_reentrant=True))

    assert not described(model, lambda model: model(torch.ones(1, 2)))["0.weight"].operator
    found = described(Recomputed(), lambda model: model(torch.ones(1, 2, requires_grad=True)))
    assert not found["first.weight"].operator
    assert found["second.weight"].operator == "addmm"


def test_a_pass_without_gradients_is_waited_out(tiny, batches):
    def twice(model):
        with torch.no_grad():
            model(batches(1)[0][0])
        model(batches(1)[0][0])

    assert described(tiny(), twice)["head.weight"].operator


def test_no_tensor_of_the_pass_is_kept_alive(tiny, batches):
    model = tiny()
    trace = PathTrace(model, hookable=True)
    out = model(batches(1)[0][0])
    tensor = weakref.ref(out)
    del out
    assert tensor() is None
    trace.close()
    assert copy.deepcopy(model)._forward_hooks == {}


def test_a_run_says_operator_and_node_of_every_tensor(tiny, train, tmp_path, manifest):
    model = tiny()
    train(model, 3, tmp_path)
    found = manifest(tmp_path).tensors
    assert found.keys() == tensor_table(model).keys()
    assert all(facts.operator and facts.backward for facts in found.values())
    assert (found["embed.weight"].operator, found["embed.weight"].backward) == ("embedding", "EmbeddingBackward0")
    assert not validate([tmp_path]).findings
