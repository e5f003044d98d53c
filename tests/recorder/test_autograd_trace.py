import copy
import weakref
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten
from torch.utils.checkpoint import checkpoint

from ckaudit.audit import triage
from ckaudit.contract.schema.manifest import TensorFacts
from ckaudit.recorder import Recorder
from ckaudit.recorder.hooks.autograd_trace import GradientNode, PathTrace
from ckaudit.recorder.hooks.kernel_profiler import kernels_for
from ckaudit.recorder.model.tensor_table import tensor_table
from ckaudit.reports import render
from ckaudit.reports.view import View
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


class InParts(nn.Module):
    """Whose parts a training may call one by one, as `training_step` of Lightning does."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8)) for _ in range(2))
        self.head, self.idle = nn.Linear(8, 3), nn.Linear(8, 3)

    def forward(self, x):
        x = self.encoder(x)
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x)


def test_parts_that_are_called_one_by_one_are_seen_like_the_whole():
    model, x = InParts(), torch.randn(5, 4)
    assert described(model, lambda model: InParts.forward(model, x)) == described(model, lambda model: model(x))
    by_part = described(model, lambda model: model.head(model.encoder(x)) + model.encoder(x).sum())
    assert [name for name, facts in by_part.items() if facts.backward] == [
        "encoder.0.weight",
        "encoder.0.bias",
        "head.weight",
        "head.bias",
    ]


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


def profiled(model, folder, batches, loss_of, *, profile):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Recorder(model, folder, optimizer=optimizer) as recorder:
        for step, batch in enumerate(batches(4), 1):
            if profile and step == 3:
                recorder.profile_next_step()
                recorder.profile_next_step()
            optimizer.zero_grad()
            loss = loss_of(model, batch)
            loss.backward()
            recorder.after_backward()
            optimizer.step()
            recorder.step(loss.detach())
    assert recorder._guard.failures == 0
    return model


def test_a_profiled_step_names_the_kernels_of_each_tensor(tiny, batches, loss_of, tmp_path, manifest):
    bare = profiled(tiny(), tmp_path / "bare", batches, loss_of, profile=False)
    seen = profiled(tiny(), tmp_path / "seen", batches, loss_of, profile=True)
    assert all(torch.equal(a, b) for a, b in zip(bare.parameters(), seen.parameters(), strict=True))
    assert not any(module._forward_hooks for module in seen.modules())
    found = manifest(tmp_path / "seen").tensors
    assert not manifest(tmp_path / "bare").tensors["head.weight"].kernels
    assert all(facts.kernels for facts in found.values())
    # On a CPU a matrix product is its own kernel, forward and backward; the gradient of an embedding is scattered.
    assert {"aten::addmm", "aten::mm"} <= set(found["blocks.0.attn.q.weight"].kernels)
    assert {"aten::index_select", "aten::embedding_dense_backward"} <= set(found["embed.weight"].kernels)
    assert set(found["norm.weight"].kernels) & {"aten::native_layer_norm", "aten::native_layer_norm_backward"}
    assert "aten::embedding" not in found["head.weight"].kernels
    assert found["head.weight"].operator == "mm"
    assert not validate([tmp_path / "seen"]).findings


def test_a_device_names_its_own_kernels():
    """Events as the profiler makes them on a device: kernels hang below the operator that launched them."""

    def event(name, *children, kernels=()):
        return SimpleNamespace(name=name, cpu_children=list(children), kernels=[SimpleNamespace(name=each) for each in kernels])

    forward = event("aten::addmm", event("aten::expand"), event("cudaLaunchKernel", kernels=["sm90_gemm"]))
    backward = event("AddmmBackward0", event("aten::mm", kernels=["sm90_gemm_t"]), event("aten::mm", kernels=["sm90_gemm"]))
    numbered = {7: [event("aten::linear", forward), forward, backward], 8: [event("aten::addmm", kernels=["other"])]}
    assert kernels_for([GradientNode("AddmmBackward0", 7)], numbered) == ["sm90_gemm", "sm90_gemm_t"]
    assert kernels_for([GradientNode("AddmmBackward0", 9)], numbered) == []


def test_a_profile_that_no_step_ends_is_ended_by_the_close(tiny, tmp_path):
    with Recorder(tiny(), tmp_path) as recorder:
        recorder.step(1.0)
        recorder.profile_next_step()
    assert recorder._guard.failures == 0
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as another:
        torch.ones(2).sum()
    assert another.events()


def test_a_finding_leads_from_the_metric_to_the_kernel(tiny, batches, loss_of, tmp_path):
    model = tiny()
    model.blocks[1].mlp[2].weight.register_hook(torch.zeros_like)
    with Recorder(model, tmp_path, optimizer=torch.optim.SGD(model.parameters(), lr=0.1)) as recorder:
        for step, batch in enumerate(batches(60), 1):
            if step == 2:
                recorder.profile_next_step()
            model.zero_grad()
            loss = loss_of(model, batch)
            loss.backward()
            recorder.after_backward()
            recorder.step(loss.detach())
    report = triage(tmp_path)
    (finding,) = [each for each in report.findings if (each.where, each.name) == ("blocks.1.mlp.2.weight", "dead_parameter")]
    assert finding.path[:4] == ["gradient_norm", "blocks.1.mlp.2.weight", "addmm", "AddmmBackward0"]
    assert "aten::addmm" in finding.path[4]
    way = "gradient_norm -> blocks.1.mlp.2.weight -> addmm -> AddmmBackward0 -> aten::addmm"
    screen = render(report, "terminal", View(width=120, unicode=False, verbose=True))
    assert way in screen
    (dead,) = [each for each in report.diagnoses if each.cause == "dead_path"]
    assert dead.path[1] == dead.where


def test_a_profile_of_the_users_own_goes_before(tiny, batches, tmp_path, manifest):
    model = tiny()
    with Recorder(model, tmp_path) as recorder:
        recorder.step(1.0)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as own:
            recorder.profile_next_step()
            model(batches(1)[0][0]).sum().backward()
            recorder.step(1.0)
        assert not model._forward_hooks
    assert any(event.name == "aten::addmm" for event in own.events())
    assert recorder._guard.failures == 1
