"""Real files of real writers: what is read of them is what they were given."""

import argparse
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ckaudit.resume.catalogue import BAD_OPTIMIZER, BAD_WEIGHTS
from ckaudit.resume.check import resume_check
from ckaudit.resume.content import Content
from ckaudit.resume.open_file import OpenFile
from ckaudit.resume.safetensors_files import read_safetensors
from ckaudit.resume.tensor_files import read_torch

ROOT = Path(__file__).parents[2]
ALL = ["weights", "optimizer", "schedule", "random_state", "step", "data_position"]


def codes(report, *severities):
    return [finding.code for finding in report.findings if not severities or finding.severity in severities]


def arrays(path, content: Content):
    """Return the bytes of each tensor by name, read at the place that was found."""
    data = path.read_bytes()
    found = {}
    for tensor in content.tensors:
        start = content.ranges[tensor.at].offset + tensor.first
        found[tensor.name] = data[start : start + tensor.size]
    return found


def test_tensors_of_torch_are_where_they_are_said_to_be(torch, tmp_path):
    base = torch.arange(24.0)
    state = {
        "a": base.view(4, 6),
        "half": torch.ones(3, dtype=torch.bfloat16),
        "middle": base[6:12],
        "scalar": torch.tensor(7),
        "eight": torch.zeros(5, dtype=torch.float8_e4m3fn),
        "parameter": torch.nn.Parameter(torch.full((2,), 3.0)),
        "empty": torch.empty(0, 3),
        "nested": [torch.ones(1), {"deep": torch.ones(2)}],
    }
    torch.save(state, tmp_path / "x.pt")
    with OpenFile(tmp_path / "x.pt", "x.pt", tmp_path) as source:
        content = read_torch(source)
    found = arrays(tmp_path / "x.pt", content)
    for name in ("a", "middle", "scalar", "parameter"):
        expected = state[name].detach().contiguous().numpy()
        assert found[name] == expected.tobytes()
    assert found["nested.1.deep"] == np.ones(2, "f4").tobytes()
    assert {each.name: (each.dtype, each.shape) for each in content.tensors} == {
        "a": ("float32", (4, 6)),
        "half": ("bfloat16", (3,)),
        "middle": ("float32", (6,)),
        "scalar": ("int64", ()),
        "eight": ("float8_e4m3fn", (5,)),
        "parameter": ("float32", (2,)),
        "empty": ("float32", (0, 3)),
        "nested.0": ("float32", (1,)),
        "nested.1.deep": ("float32", (2,)),
    }


def test_tensors_of_safetensors_are_where_they_are_said_to_be(torch, tmp_path):
    save_file = pytest.importorskip("safetensors.torch").save_file
    state = {"a.weight": torch.randn(4, 6), "b": torch.ones(3, dtype=torch.bfloat16), "c": torch.tensor([True, False])}
    save_file(state, tmp_path / "x.safetensors", metadata={"format": "pt"})
    with OpenFile(tmp_path / "x.safetensors", "x", tmp_path) as source:
        content = read_safetensors(source)
    found = arrays(tmp_path / "x.safetensors", content)
    assert found["a.weight"] == state["a.weight"].numpy().tobytes()
    assert {each.name: each.dtype for each in content.tensors} == {"a.weight": "float32", "b": "bfloat16", "c": "bool"}


def test_a_loop_of_ones_own(saved):
    report = resume_check(saved).report
    assert [each.step for each in report.resume_checkpoints] == [100, 200, 300]
    entry = report.resume_checkpoints[-1]
    assert (entry.ok, entry.present, entry.absent) == (True, ALL, [])
    numbers = 16 * 16 + 16 + 16 * 4 + 4
    assert (entry.parameters, entry.weight_bytes) == (numbers, 4 * numbers)
    assert entry.optimizer_bytes == 2 * 4 * numbers + 4 * 4  # two moments, and four counters of steps
    assert not codes(report)
    assert "step_300.pt of step 300" in report.verdict


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_no_number_is_found_in_weights_and_in_moments(torch, trained, tmp_path, value):
    model, optimizer = trained
    with torch.no_grad():
        model[1].weight[2, 3] = value
    optimizer.state[model[0].bias]["exp_avg_sq"][5:7] = value
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "iter_num": 7, "best": torch.tensor(value)}
    torch.save(state, tmp_path / "ckpt.pt")
    report = resume_check(tmp_path).report
    bad = {finding.code: (finding.where, finding.value) for finding in report.findings if finding.severity == "sev0"}
    assert bad == {BAD_WEIGHTS.code: ("model.1.weight", 1), BAD_OPTIMIZER.code: ("optimizer.state.1.exp_avg_sq", 2)}
    assert report.resume_checkpoints[0].ok is False
    assert report.resume_checkpoints[0].step == 7


def test_a_mask_of_minus_infinity_and_a_view_beside_nan_are_healthy(torch, tmp_path):
    store = torch.full((8,), float("nan"))
    store[:4] = 1
    torch.save({"model": {"mask": torch.full((4, 4), float("-inf")).triu(1), "weight": store[:4]}}, tmp_path / "x.pt")
    assert not codes(resume_check(tmp_path).report, "sev0", "sev1")


def test_a_view_that_drags_its_storage_along_is_told(torch, tmp_path):
    torch.save({"model": {"weight": torch.zeros(8 * 2**20)[:4]}}, tmp_path / "x.pt")
    assert "RSM016" in codes(resume_check(tmp_path).report)


def save_distributed(folder, rank, world):
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    store = dist.FileStore(f"{folder}.store", world)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
    mesh = init_device_mesh("cpu", (world,))
    weight = distribute_tensor(torch.arange(64.0).view(8, 8), mesh, [Shard(0)])
    moment = distribute_tensor(torch.zeros(8, 8), mesh, [Shard(0)])
    state = {"model": {"weight": weight}, "optimizer": {"state": {"weight": {"exp_avg": moment}}}, "step": 40}
    state["lr_scheduler"] = {"last_epoch": 3}
    dcp.save(state, checkpoint_id=str(folder))
    dist.destroy_process_group()


def distributed(folder, world):
    """Save as a training of several ranks does; each is forked once the modules are loaded."""
    import torch.distributed.checkpoint
    import torch.distributed.tensor

    assert torch.distributed.is_available()
    children = []
    for rank in range(world):
        children.append(os.fork())
        if not children[-1]:
            code = 1
            try:
                save_distributed(folder, rank, world)
                code = 0
            finally:
                os._exit(code)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * world


@pytest.mark.filterwarnings("ignore")
def test_folders_of_distributed_checkpoint(torch, tmp_path):
    distributed(tmp_path / "step-40", 2)
    report = resume_check(tmp_path).report
    entry = report.resume_checkpoints[0]
    assert (entry.form, entry.step, entry.ok, entry.parameters) == ("distributed", 40, True, 64)
    assert entry.optimizer_bytes == 256
    assert entry.absent == ["random_state", "data_position"]
    lost = tmp_path / "step-40/__1_0.distcp"
    data = lost.read_bytes()
    lost.write_bytes(data[:-40])
    assert codes(resume_check(tmp_path).report, "sev0") == ["RSM003"]
    lost.unlink()
    assert codes(resume_check(tmp_path).report, "sev0") == ["RSM005"]
    lost.write_bytes(data)
    (tmp_path / "step-40/.metadata").unlink()
    assert codes(resume_check(tmp_path).report, "sev0") == ["RSM005"]


@pytest.mark.filterwarnings("ignore")
def test_moments_that_are_nan_in_one_process(torch, tmp_path):
    import torch.distributed.checkpoint as dcp

    moments = {"exp_avg": torch.full((8, 8), float("nan")), "exp_avg_sq": torch.ones(3)}
    dcp.save({"model": {"w": torch.ones(8, 8)}, "optimizer": {"state": {"w": moments}}}, checkpoint_id=str(tmp_path / "step-40"))
    report = resume_check(tmp_path / "step-40").report
    bad = [(each.code, each.where, each.value) for each in report.findings if each.severity == "sev0"]
    assert bad == [(BAD_OPTIMIZER.code, "optimizer.state.w.exp_avg", 64)]
    assert (report.resume_checkpoints[0].step, report.resume_checkpoints[0].ok) == (40, False)


def test_folders_of_the_hugging_face_trainer(torch, tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        n_layer=1, n_embd=16, n_head=2, vocab_size=32, n_positions=16, bos_token_id=0, eos_token_id=0, loss_type="ForCausalLMLoss"
    )
    data = [{"input_ids": torch.arange(8), "labels": torch.arange(8)} for _ in range(16)]
    asked = transformers.TrainingArguments(
        str(tmp_path / "out"),
        max_steps=6,
        save_steps=2,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        per_device_train_batch_size=2,
    )
    trainer = transformers.Trainer(transformers.GPT2LMHeadModel(config), asked, train_dataset=data)
    trainer.train()
    trainer.save_model()
    report = resume_check(tmp_path / "out").report
    last = report.resume_checkpoints[-1]
    assert [each.step for each in report.resume_checkpoints] == [None, 2, 4, 6]
    assert (last.name, last.ok, last.present, last.absent) == ("checkpoint-6", True, ALL, [])
    assert last.parameters == sum(each.numel() for each in trainer.model.parameters())
    assert not codes(report, "sev0", "sev1", "sev2")
    (tmp_path / "out/checkpoint-4/optimizer.pt").unlink()
    assert "RSM005" in codes(resume_check(tmp_path / "out").report, "sev0")


@pytest.mark.filterwarnings("ignore")
def test_checkpoints_of_lightning(torch, tmp_path):
    lightning = pytest.importorskip("lightning")

    class Net(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.save_hyperparameters({"width": 1})
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch, index):
            return self.layer(batch[0]).mean()

        def configure_optimizers(self):
            optimizer = torch.optim.AdamW(self.parameters())
            return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1)}

    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(16, 4)), batch_size=4)
    keep = lightning.pytorch.callbacks.ModelCheckpoint(save_top_k=-1, save_last="link")
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = lightning.Trainer(max_epochs=2, default_root_dir=tmp_path, accelerator="cpu", callbacks=[keep], **quiet)
    trainer.fit(Net(), data)
    report = resume_check(tmp_path).report
    assert [(each.step, each.ok) for each in report.resume_checkpoints] == [(4, True), (8, True)]
    assert report.resume_checkpoints[0].absent == ["random_state"]
    assert codes(report) == ["RSM012"]
    assert any("last.ckpt is a link to" in note for note in report.notes)


def test_files_of_one_step_are_one_checkpoint(torch, trained, tmp_path):
    model, optimizer = trained
    for step in (500, 1000):
        torch.save(model.state_dict(), tmp_path / f"model_{step:06d}.pt")
        torch.save(optimizer.state_dict(), tmp_path / f"optim_{step:06d}_rank0.pt")
        (tmp_path / f"meta_{step:06d}.json").write_text(
            f'{{"step": {step}, "dataloader_state_dict": {{"shard": 3}}, "loss": NaN}}'
        )
    report = resume_check(tmp_path).report
    assert [(each.name, each.step, each.files) for each in report.resume_checkpoints] == [
        ("model_000500.pt", 500, 3),
        ("model_001000.pt", 1000, 3),
    ]
    assert report.resume_checkpoints[0].absent == ["schedule", "random_state"]


def test_folders_of_deepspeed_and_megatron(torch, trained, tmp_path):
    model, optimizer = trained
    ranks = tmp_path / "ds/global_step500"
    ranks.mkdir(parents=True)
    torch.save(
        {"module": model.state_dict(), "global_steps": 500, "lr_scheduler": {"last": 4}}, ranks / "mp_rank_00_model_states.pt"
    )
    state = {"base_optimizer_state": {"state": {0: {"exp_avg": torch.ones(3)}}}}
    torch.save({"optimizer_state_dict": state}, ranks / "zero_pp_rank_0_mp_rank_00_optim_states.pt")
    rank = tmp_path / "megatron/iter_0000700/mp_rank_00"
    rank.mkdir(parents=True)
    everything = {"model": {"language_model": model.state_dict()}, "optimizer": optimizer.state_dict(), "iteration": 700}
    torch.save({**everything, "args": argparse.Namespace(seed=1)}, rank / "model_optim_rng.pt")
    report = resume_check(tmp_path).report
    numbers = sum(each.numel() for each in model.parameters())
    assert [(each.name, each.step, each.parameters, each.ok) for each in report.resume_checkpoints] == [
        ("ds/global_step500", 500, numbers, True),
        ("megatron/iter_0000700", 700, numbers, True),
    ]
    assert report.resume_checkpoints[0].optimizer_bytes == 12
    assert not codes(report, "sev0", "sev1", "sev2")


def test_a_whole_model_needs_its_classes(torch, trained, tmp_path):
    torch.save(trained[0], tmp_path / "model.pt")
    report = resume_check(tmp_path).report
    assert [each.where for each in report.findings if each.severity == "sev2"] == ["torch.nn.modules.container.Sequential"]
    assert report.resume_checkpoints[0].parameters == sum(each.numel() for each in trained[0].parameters())


def test_nothing_imports_torch(saved):
    code = "import sys; sys.modules['torch'] = None; from ckaudit.cli.run import run; sys.exit(run(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", code, "resume-check", str(saved)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert b"3 resume checkpoints: 3 whole" in done.stdout
