"""All that the README shows is run as it stands there, in a folder with what it speaks of."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from torch import nn

import ckaudit
from tests import forked

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
TRAINER_STATE = ROOT / "fixtures" / "real" / "hf_trainer" / "mistral_lora_4ep" / "checkpoint-500" / "trainer_state.json"


def blocks(language, text=README):
    """Return the blocks of a language in their order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of somebody whose run was called healthy before."""
    state = tmp_path / "outputs" / "checkpoint-500"
    state.mkdir(parents=True)
    shutil.copy(TRAINER_STATE, state)
    rows = [f"{step},{3 - 0.02 * step}" for step in range(1, 101)]
    (tmp_path / "log.csv").write_text("\n".join(["step,my nll", *rows]), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_readme_is_a_screen_and_a_half():
    prose = re.sub(r"^```.*?^```$", "", README, flags=re.DOTALL | re.MULTILINE)
    assert len(README.splitlines()) <= 100
    assert len(prose.split()) < 450


def test_a_log_is_audited_by_the_commands_of_the_first_door(folder):
    (lines,) = [block for block in blocks("sh") if "trainer_state" in block]
    codes = {}
    for line in lines.splitlines():
        command, *words = shlex.split(line)
        assert command == "ckaudit"
        done = forked.ckaudit(*words, cwd=folder)
        codes[words[0], words[1]] = done.returncode
        assert "Traceback" not in done.stderr
    assert codes == {
        ("triage", "outputs/checkpoint-500/trainer_state.json"): 0,
        ("triage", "log.csv"): 0,
        ("report", "log.csv"): 0,
    }
    assert (folder / "report.svg").stat().st_size > 5_000


@pytest.mark.parametrize("page", ["README.md", "docs/trainers.md"])
def test_a_trainer_takes_the_callback_of_the_second_door(folder, page):
    transformers = pytest.importorskip("transformers")
    text = (ROOT / page).read_text(encoding="utf-8")
    (code,) = [block for block in blocks("python", text) if "trainer = Trainer(model" in block]
    config = transformers.GPT2Config(vocab_size=16, n_embd=8, n_layer=1, n_head=2, n_positions=8)
    rows = [{"input_ids": ids, "labels": ids} for ids in torch.randint(0, 16, (24, 8))]
    options = {"max_steps": 6, "per_device_train_batch_size": 4, "report_to": [], "use_cpu": True, "disable_tqdm": True}
    names = {
        "model": transformers.GPT2LMHeadModel(config),
        "args": transformers.TrainingArguments(str(folder / "out"), logging_steps=1, **options),
        "data": rows,
    }
    names["arguments"] = names["args"]
    exec(code, names)
    names["trainer"].train()
    audit = ckaudit.triage("run/")
    assert audit.report.files > 3
    assert ckaudit.metrics("run/", "train_loss_raw").to_arrow()["step"].to_pylist()[-1] == 6


def test_a_loop_of_ones_own_records_by_the_lines_of_the_third_door(folder):
    (code,) = [block for block in blocks("python") if "recorder.step" in block]
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(11, 8), nn.Linear(8, 11))
    tokens = torch.randint(0, 11, (30, 4, 6))

    def criterion(logits, targets):
        return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    loader = [(batch[:, :-1], batch[:, 1:]) for batch in tokens]
    exec(code, {"model": model, "optimizer": optimizer, "loader": loader, "criterion": criterion})
    steps = ckaudit.metrics("run/", "train_loss_raw").to_arrow()["step"].to_pylist()
    assert steps[0] == 1
    assert steps[-1] == 30


def test_the_action_of_the_fourth_door_has_these_inputs():
    (step,) = [yaml.safe_load(block)[0] for block in blocks("yaml")]
    inputs = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))["inputs"]
    assert step["with"].keys() <= inputs.keys()


def test_links_lead_to_files():
    links = re.findall(r"\]\(([^)#:]+)\)|(?:src|srcset)=\"([^\"]+)\"", README)
    assert not [link for pair in links for link in pair if link and not (ROOT / link).exists()]
    assert len(links) > 20
