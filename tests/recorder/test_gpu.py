"""The recorder on an accelerator; without one most of it is skipped.

CKAUDIT_TEST_DEVICE=cpu runs what can be run without one.
"""

import os
import socket
import warnings
from contextlib import contextmanager, nullcontext

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from torch.utils._python_dispatch import TorchDispatchMode

from ckaudit.audit import triage
from ckaudit.contract.schema.manifest import Cadence
from ckaudit.recorder import Recorder
from ckaudit.recorder.stats.arrays import dense
from tests.recorder.alike import differences, merged
from tests.recorder.trained import assert_sound

DEVICE = torch.device(os.environ.get("CKAUDIT_TEST_DEVICE", "cuda"))
on_device = pytest.mark.skipif(DEVICE.type == "cuda" and not torch.cuda.is_available(), reason="no accelerator")
on_cuda = pytest.mark.skipif(DEVICE.type != "cuda" or not torch.cuda.is_available(), reason="needs CUDA")

VOCABULARY, LENGTH = 32, 32
STEPS = 80


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        return self.out(scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.attn, self.norm2 = nn.LayerNorm(width), Attention(width, heads), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, width=64, heads=4):
        super().__init__()
        self.embed, self.places = nn.Embedding(VOCABULARY, width), nn.Parameter(0.02 * torch.randn(LENGTH, width))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens) + self.places
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def batch_of(step, rows=32):
    """Return rows in which each token follows from the one before, and noise on a tenth of the targets."""
    drawn = torch.Generator().manual_seed(step)
    first, stride = torch.randint(VOCABULARY, (rows, 1), generator=drawn), torch.randint(1, 4, (rows, 1), generator=drawn)
    tokens = (first + stride * torch.arange(LENGTH + 1)) % VOCABULARY
    noise = torch.randint(VOCABULARY, tokens.shape, generator=drawn)
    tokens = torch.where(torch.rand(tokens.shape, generator=drawn) < 0.1, noise, tokens)
    return tokens[:, :-1].contiguous().to(DEVICE), tokens[:, 1:].contiguous().to(DEVICE)


def gpt(device=DEVICE, dtype=torch.float32):
    torch.manual_seed(0)
    return GPT().to(device, dtype)


def loss_of(model, batch):
    return cross_entropy(model(batch[0]).flatten(0, 1).float(), batch[1].flatten())


def train(
    folder, model, *, steps=STEPS, optimizer=None, amp=None, scaler=None, clip=None, forward=None, watching=nullcontext, **options
):
    """Train as a user's loop does; `clip` is "torch" or "recorder"."""
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=2e-3)
    options = {"vocabulary": VOCABULARY, "cadence": [Cadence(until=None, every=20)]} | options
    with Recorder(model, folder, optimizer=optimizer, scaler=scaler, **options) as recorder, watching():
        for step in range(1, steps + 1):
            batch = batch_of(step)
            optimizer.zero_grad()
            with torch.autocast(DEVICE.type, amp) if amp else nullcontext():
                loss = loss_of(model if forward is None else forward, batch)
            (scaler.scale(loss) if scaler else loss).backward()
            if scaler:
                scaler.unscale_(optimizer)
            if clip == "torch":
                recorder.after_backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            elif clip == "recorder":
                recorder.clip_grad_norm_(1.0)
            if scaler:
                scaler.step(optimizer)
                scaler.update()
            else:
                optimizer.step()
            recorder.step(loss, batch=batch)


def plain(folder):
    train(folder, gpt())


def clipped_by_torch(folder):
    train(folder, gpt(), clip="torch", clip_norm=1.0)


def clipped_by_recorder(folder):
    train(folder, gpt(), clip="recorder")


def bfloat16_autocast(folder):
    train(folder, gpt(), amp=torch.bfloat16)


def float16_with_scaler(folder):
    train(folder, gpt(), amp=torch.float16, scaler=torch.amp.GradScaler(DEVICE.type, init_scale=1024.0))


def pure_bfloat16(folder):
    model = gpt(dtype=torch.bfloat16)
    train(folder, model, optimizer=torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True))


def capturable(folder):
    model = gpt()
    rate = torch.tensor(2e-3, device=DEVICE)
    train(folder, model, optimizer=torch.optim.AdamW(model.parameters(), lr=rate, capturable=DEVICE.type == "cuda"))


def compiled(folder):
    model = gpt()
    train(folder, model, forward=torch.compile(model), compiled=True)


def sharded_by_one(folder):
    from torch.distributed.fsdp import fully_shard

    with process_group():
        model = gpt()
        for block in model.blocks:
            fully_shard(block)
        fully_shard(model)
        train(folder, model)


def data_parallel(folder):
    with process_group():
        train(folder, nn.parallel.DistributedDataParallel(gpt()))


def convolutions(folder):
    """A CNN with BatchNorm, channels last, in bfloat16: pictures whose class is where the bright spot is."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)]
    layers += [nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(4)]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(512, 16)).to(DEVICE, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    with Recorder(model, folder, optimizer=optimizer, cadence=[Cadence(until=None, every=20)]) as recorder:
        for step in range(1, STEPS + 1):
            drawn = torch.Generator().manual_seed(step)
            labels = torch.randint(16, (64,), generator=drawn)
            pictures = torch.randn(64, 3, 16, 16, generator=drawn)
            for picture, label in zip(pictures, labels.tolist(), strict=True):
                picture[:, 4 * (label // 4) : 4 * (label // 4) + 4, 4 * (label % 4) : 4 * (label % 4) + 4] += 1
            pictures = pictures.to(DEVICE, memory_format=torch.channels_last)
            optimizer.zero_grad()
            with torch.autocast(DEVICE.type, torch.bfloat16):
                loss = cross_entropy(model(pictures), labels.to(DEVICE))
            loss.backward()
            optimizer.step()
            recorder.step(loss, batch=(pictures, labels.to(DEVICE)))


def by_the_trainer(folder):
    from transformers import Trainer, TrainingArguments

    from ckaudit.recorder.huggingface import RecorderCallback
    from tests.recorder.llama import llama, rows

    where = {"output_dir": str(folder.with_suffix(".out")), "save_strategy": "no", "report_to": [], "disable_tqdm": True}
    arguments = TrainingArguments(
        **where, use_cpu=DEVICE.type == "cpu", max_steps=60, per_device_train_batch_size=8, learning_rate=3e-3, bf16=True
    )
    callback = RecorderCallback(folder, cadence=[Cadence(until=None, every=20)])
    Trainer(llama(attention="sdpa"), arguments, train_dataset=rows(512), callbacks=[callback]).train()


@contextmanager
def process_group():
    """This process alone, as a group that exchanges over the device's own library."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    backend = "nccl" if DEVICE.type == "cuda" else "gloo"
    torch.distributed.init_process_group(backend, init_method=f"tcp://127.0.0.1:{port}", rank=0, world_size=1)
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()


TRANSFORMERS = (plain, clipped_by_torch, clipped_by_recorder, bfloat16_autocast, float16_with_scaler, pure_bfloat16, capturable)
TRANSFORMERS += (compiled, sharded_by_one, data_parallel)


@on_device
@pytest.mark.filterwarnings("default")  # what libraries of the device say is not ours
@pytest.mark.parametrize("way", [*TRANSFORMERS, convolutions, by_the_trainer], ids=lambda way: way.__name__)
def test_a_healthy_training_is_recorded_and_judged_healthy(way, tmp_path, read, lines):
    folder = tmp_path / "run"
    way(folder)
    assert_sound(folder)
    report = triage(folder)
    assert [finding.code for finding in report.findings if finding.severity in ("sev0", "sev1", "sev2")] == []
    losses = [line["train_loss_raw"] for line in lines(folder)]
    assert losses[-1] < 0.9 * losses[0]
    last = read(folder, 40)
    assert len(last.gradients) == len(last.weights)
    if way in TRANSFORMERS and way is not compiled:
        assert {*last.attention} == {"layer.0", "layer.1"}
    if DEVICE.type == "cuda":
        (line,) = (line for line in lines(folder) if line["step"] == 25)
        assert line["gpu_mem_used"] > line["gpu_mem_used/reserved"] >= line["gpu_mem_used/allocated"] > 0
        assert line["step_time"] > 0


EACH_STEP = {"cadence": [Cadence(until=None, every=1)], "budget_kb": None, "grids": "nested"}
AS_IF_AWAY = ("arrays", "batched_stats", "activation_stats", "tensor_stats")
OTHERS_AS_IF_AWAY = ("hooks.attention_hooks", "hooks.sdpa_sample", "model.weight_movement")


def without_key_biases(checkpoint):
    """A checkpoint without the tensors of which a third, the bias of the keys, has a gradient of nothing but rounding."""
    return {
        section: {name: stats for name, stats in of.items() if not name.endswith("qkv.bias")} if isinstance(of, dict) else of
        for section, of in checkpoint.items()
    }


def assert_alike(found, expected):
    """Two folders have the same checkpoints, but for rounding."""
    found, expected = merged(found), merged(expected)
    assert found.keys() == expected.keys()
    assert len(found) >= 2
    for name, checkpoint in found.items():
        assert [*differences(without_key_biases(checkpoint), without_key_biases(expected[name]))] == []
        for section in ("activations", "attention"):
            assert checkpoint.get(section, {}).keys() == expected[name].get(section, {}).keys()
            for place, stats in checkpoint.get(section, {}).items():
                assert [*differences(stats, expected[name][section][place], (section, place))] == []


@on_device
def test_the_device_says_what_the_processor_says(tmp_path, monkeypatch):
    """One step of float32 each, from the same weights: every number of the checkpoints of steps 0 and 1."""
    train(tmp_path / "device", gpt(), steps=1, **EACH_STEP)
    monkeypatch.setitem(globals(), "DEVICE", torch.device("cpu"))
    train(tmp_path / "processor", gpt("cpu"), steps=1, **EACH_STEP)
    assert_alike(tmp_path / "device", tmp_path / "processor")


@pytest.fixture
def as_if_away(monkeypatch):
    """Tensors of the processor are taken for those of a device, and matrices are small."""
    monkeypatch.setitem(globals(), "DEVICE", torch.device("cpu"))

    def begin():
        for module in (*(f"stats.{name}" for name in AS_IF_AWAY), *OTHERS_AS_IF_AWAY):
            monkeypatch.setattr(f"ckaudit.recorder.{module}.is_on_accelerator", lambda array: isinstance(array, torch.Tensor))
        for module in ("stats.batched_stats", "stats.activation_stats", "stats.tensor_stats", "model.weight_movement"):
            monkeypatch.setattr(f"ckaudit.recorder.{module}.dense_as_numpy", dense)
        monkeypatch.setattr("ckaudit.recorder.stats.attention_stats.as_numpy", lambda array: array)
        monkeypatch.setattr("ckaudit.recorder.stats.device_sums.ROW_ELEMENTS", 256)
        monkeypatch.setattr("ckaudit.recorder.stats.device_sums.MAX_ELEMENTS_TOGETHER", 4096)

    return begin


def test_what_is_done_for_a_device_gives_the_same_numbers(tmp_path, as_if_away):
    train(tmp_path / "processor", gpt("cpu"), steps=3, **EACH_STEP)
    as_if_away()
    train(tmp_path / "device", gpt("cpu"), steps=3, **EACH_STEP)
    assert_alike(tmp_path / "device", tmp_path / "processor")


class NoFloat64(TorchDispatchMode):
    """What has no float64, as Apple's accelerators have none."""

    def __torch_dispatch__(self, function, _types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        for each in made if isinstance(made, tuple | list) else (made,):
            if isinstance(each, torch.Tensor) and each.dtype == torch.float64:
                raise TypeError(f"{function} makes float64")
        return made


def test_a_device_without_float64_is_recorded_too(tmp_path, as_if_away, monkeypatch, caplog):
    train(tmp_path / "processor", gpt("cpu"), steps=3, **EACH_STEP)
    as_if_away()
    for module in ("arrays", "attention_stats"):
        monkeypatch.setattr(f"ckaudit.recorder.stats.{module}.widest_float", narrow_float)
    monkeypatch.setattr("ckaudit.recorder.model.gradient_norms.widest_float", narrow_float)
    train(tmp_path / "device", gpt("cpu"), steps=3, watching=NoFloat64, **EACH_STEP)
    assert "goes on without it" not in caplog.text
    assert_alike(tmp_path / "device", tmp_path / "processor")


def narrow_float(array):
    return torch.float32 if isinstance(array, torch.Tensor) else np.float64


@on_cuda
def test_a_plain_step_waits_for_nothing(tmp_path):
    model = gpt()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    waits = []
    batches = [batch_of(step) for step in range(1, 41)]
    with Recorder(model, tmp_path, optimizer=optimizer, vocabulary=VOCABULARY) as recorder:
        for batch in batches:
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                torch.cuda.set_sync_debug_mode("warn")
                optimizer.zero_grad()
                loss = loss_of(model, batch)
                loss.backward()
                recorder.after_backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                recorder.step(loss, batch=batch)
                torch.cuda.set_sync_debug_mode("default")
            waits.append(sum("synchronizing" in str(warning.message) for warning in seen))
    assert waits[30:39] == [0] * 9, waits


@on_cuda
def test_a_training_captured_as_a_graph_is_recorded(tmp_path, lines):
    """The gradients of a replayed graph lie where they lay; the recorder reads them there after each replay."""
    model = gpt()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, capturable=True)
    inputs, targets = (part.clone() for part in batch_of(0))
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            loss_of(model, (inputs, targets)).backward()
            model.zero_grad(set_to_none=False)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        model.zero_grad(set_to_none=False)
        loss = loss_of(model, (inputs, targets))
        loss.backward()
    with Recorder(model, tmp_path, optimizer=optimizer, vocabulary=VOCABULARY) as recorder:
        for step in range(1, STEPS + 1):
            for held, new in zip((inputs, targets), batch_of(step), strict=True):
                held.copy_(new)
            graph.replay()
            recorder.after_backward()
            optimizer.step()
            recorder.step(loss, batch=(inputs, targets))
    assert_sound(tmp_path)
    found = [line["train_loss_raw"] for line in lines(tmp_path)]
    assert found[-1] < 0.9 * found[0]
    assert len({*found}) > STEPS // 2
    assert len({line["grad_global_norm"] for line in lines(tmp_path)}) > STEPS // 2
    codes = [finding.code for finding in triage(tmp_path).findings if finding.severity in ("sev0", "sev1", "sev2")]
    assert codes == []
