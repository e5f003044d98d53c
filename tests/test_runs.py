"""Recorded trainings: the files show the truth their README tells, and triage says of each exactly what is expected."""

import importlib.util
import json
import math
import sys
import tomllib
from functools import cache
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

import pytest

from ckaudit.audit import triage
from ckaudit.contract.io.files import read_bytes
from ckaudit.contract.schema.report import Finding
from ckaudit.validate import validate
from tests import case_verdicts

RUNS = Path(__file__).parents[1] / "fixtures" / "runs"
NAMES = sorted(path.parent.name for path in RUNS.glob("*/expected.toml"))
CHANGED = [name for name in NAMES if name not in {"healthy", "experts_two_ranks"}]  # those of make_runs.py
MAX_BYTES = 2_000_000
NOT_A_CHANGE = {"change", "stop"}
CUT_OFF = {"attn_norm", "attn.q", "attn.k", "attn.v", "attn.out"}


@cache
def lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (RUNS / name / "scalars.jsonl").read_text().splitlines()]


@cache
def checkpoints(name: str) -> dict[int, dict[str, Any]]:
    paths = sorted((RUNS / name).glob("analysis_checkpoint_*"))
    found = [json.loads(read_bytes(path, path.name)) for path in paths]
    return {each["step"]: each for each in found if "rank" not in each}


def column(name: str, key: str) -> dict[int, float]:
    return {line["step"]: float(line[key]) for line in lines(name) if key in line}


def flagged(losses: dict[int, float], *, window: int = 50, k: float = 6.0) -> list[int]:
    values = list(losses.values())
    found = []
    for row in range(window, len(values)):
        before = values[row - window : row]
        middle = median(before)
        mad = median(abs(each - middle) for each in before)
        if values[row] > middle + k * 1.4826 * mad:
            found.append(row + 1)
    return found


def matches(finding: Finding, wanted: dict[str, Any]) -> bool:
    low, high = wanted["first"]
    same = (finding.code, finding.where) == (wanted["code"], wanted["where"])
    return same and finding.first_step is not None and low <= finding.first_step <= high


@pytest.mark.parametrize("name", NAMES)
def test_triage_says_exactly_what_is_expected(name: str) -> None:
    expected = tomllib.loads((RUNS / name / "expected.toml").read_text())
    report = triage(RUNS / name)
    left = list(expected.get("finding", []))
    for finding in (each for each in report.findings if each.severity != "note"):
        fitting = [wanted for wanted in left if matches(finding, wanted)]
        assert fitting, f"not expected: {finding.code} {finding.where} from {finding.first_step}: {finding.message}"
        left.remove(fitting[0])
        assert set(fitting[0].get("also", finding.also)) == set(finding.also)
    assert not left
    assert case_verdicts.of_run(report) == (case_verdicts.RUNS / f"{name}.txt").read_text(encoding="utf-8")
    assert (report.severity if report.severity != "note" else None) == expected.get("severity")
    assert (report.diagnoses[0].cause if report.diagnoses else None) == expected.get("cause")


@pytest.mark.parametrize("name", NAMES)
def test_a_recording_keeps_the_contract_is_small_and_names_no_place(name: str) -> None:
    assert [finding.message for finding in validate([RUNS / name]).findings] == []
    assert sum(path.stat().st_size for path in (RUNS / name).rglob("*")) < MAX_BYTES
    manifest = json.loads((RUNS / name / "run.json").read_text())
    assert 95_000 <= manifest["parameters"] <= 110_000
    assert not [text for text in texts(manifest) if "/" in text or "\\" in text]
    assert manifest["sessions"][0]["checkpoint_ok"]


def texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else []
    return [text for each in inner for text in texts(each)]


@pytest.mark.parametrize("name", CHANGED)
def test_a_run_differs_from_the_healthy_one_in_one_thing(name: str) -> None:
    healthy, other = (json.loads((RUNS / each / "run.json").read_text())["config"] for each in ("healthy", name))
    healthy = {"precision": "float32"} | healthy  # most runs are older than this setting
    assert len([key for key in healthy.keys() - NOT_A_CHANGE if healthy[key] != other.get(key, "float32")]) == 1


@pytest.mark.parametrize("name", NAMES)
def test_the_readme_quotes_the_losses_that_were_recorded(name: str) -> None:
    train, val = column(name, "train_loss_raw"), column(name, "val_loss")
    row = next(line for line in (RUNS / "README.md").read_text().splitlines() if line.startswith(f"| {name} | 3.3"))
    quoted = [cell.strip() for cell in row.split("|")[2:-1]]
    steps = [1, 50, 100, 150, 200, 300, max(train)]
    wanted = [f"{train[step]:.3f}" if step in train else "" for step in steps] + [f"{val[max(val)]:.3f}"]
    assert quoted == [text.replace("nan", "NaN") for text in wanted]


def test_the_healthy_run_learns_without_memorising_or_spiking() -> None:
    train, val = column("healthy", "train_loss_raw"), column("healthy", "val_loss")
    late = [train[step] for step in range(1901, 2001)]
    assert len(train) == 2000
    assert val[2000] < 1.01 * min(val.values()) < 0.2 * val[50]
    assert abs(val[2000] / (sum(late) / len(late)) - 1) < 0.03
    assert flagged(train) == []


def test_no_warmup_spikes_once_and_comes_back() -> None:
    train, warmed = column("no_warmup_spike", "train_loss_raw"), column("healthy", "train_loss_raw")
    flags = flagged(train)
    assert any(len([step for step in flags if start <= step < start + 5]) >= 3 for start in flags)
    assert flags[0] == 166
    assert flags[-1] < flags[0] + 25
    assert median(train[step] for step in range(200, 250)) < median(train[step] for step in range(116, 166))
    assert all(train[step] > warmed[step] for step in range(50, 401))


def test_the_zeroed_projection_takes_the_gradient_from_its_attention_alone() -> None:
    for step, checkpoint in checkpoints("zeroed_projection").items():
        dead = {tensor for tensor, stats in checkpoint.get("gradients", {}).items() if stats["norm"] == 0}
        assert dead == ({f"blocks.1.{part}.weight" for part in CUT_OFF} if step else set())


def test_the_bad_batch_breaks_loss_and_weights_at_its_own_step() -> None:
    losses = column("nan_batch", "train_loss_raw")
    weights = {step: each["weights"].values() for step, each in checkpoints("nan_batch").items()}
    broken = {step: [stats.get("nonfinite_count", 0) for stats in of_step] for step, of_step in weights.items()}
    assert [step for step, loss in losses.items() if math.isnan(loss)] == list(range(150, 201))
    assert not any(broken[100])
    assert all(broken[150])
    assert losses | dict.fromkeys(range(150, 201), 0.0) == {
        step: column("healthy", "train_loss_raw")[step] if step < 150 else 0.0 for step in losses
    }


def test_overfitting_turns_the_held_out_loss_while_training_goes_on_falling() -> None:
    train, val = column("overfit_tiny", "train_loss_raw"), column("overfit_tiny", "val_loss")
    lowest = min(val, key=val.__getitem__)
    assert 200 <= lowest <= 300
    assert all(val[step] > 1.05 * val[lowest] for step in val if step >= lowest + 150)
    assert train[600] < 0.5 * train[lowest]


def test_a_rate_too_high_saturates_attention_and_stays_behind() -> None:
    train, healthy = column("lr_too_high", "train_loss_raw"), column("healthy", "train_loss_raw")
    assert all(train[step] > healthy[step] for step in range(30, 301))
    for step in (20, 50, 100, 150):
        layer = checkpoints("lr_too_high")[step]["attention"]["layer.0"]
        assert max(layer["max_logit_per_head"]) > 100
        assert min(layer["normalized_entropy_per_head"]) < 0.1


def test_a_scale_that_doubles_meets_the_end_of_float16_and_is_halved() -> None:
    scale, good, applied = 65536.0, 0, 0
    for step in range(1, 301):
        line = lines("float16_overflow")[step - 1]
        skipped = step in {205, 258}
        applied += not skipped
        assert (line["loss_scale"], line["skipped_updates"], line["steps_seen"]) == (scale, skipped, applied)
        assert (line["grad_global_norm"] == "Infinity") == skipped
        good = 0 if skipped else good + 1
        scale = scale / 2 if skipped else scale * 2 if good == 50 else scale
        good %= 50
    half, healthy = column("float16_overflow", "train_loss_raw"), column("healthy", "train_loss_raw")
    assert all(abs(loss - healthy[step]) < 0.05 for step, loss in half.items())


def test_the_mixture_memorises_what_it_sees_often_and_goes_on_learning() -> None:
    train, val = column("experts_two_ranks", "train_loss_raw"), column("experts_two_ranks", "val_loss")
    assert list(val.values()) == sorted(val.values(), reverse=True)
    assert sum(train[step] for step in range(366, 401)) / 35 < val[400] - 0.5


@cache
def beside(name: str) -> ModuleType:
    pytest.importorskip("torch")
    spec = importlib.util.spec_from_file_location(name, RUNS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.torch
def test_training_and_held_out_sentences_never_meet() -> None:
    from random import Random

    corpus, rng = beside("corpus"), Random(1)
    seen, unseen = ({corpus.draw(rng, held=held).text for _ in range(5000)} for held in (False, True))
    assert not seen & unseen
    assert {letter for text in seen for letter in text} == set(corpus.ALPHABET) - {"\n"}


@pytest.mark.torch
def test_the_past_tense_is_english() -> None:
    corpus = beside("corpus")
    regular = "worked played walked talked listened watched studied finished started looked wanted liked"
    assert " ".join(corpus.past(verb, "she") for verb in corpus.REGULAR) == regular
    assert " ".join(corpus.past(verb, "she") for verb in corpus.IRREGULAR) == "was had did went came saw ate wrote"


@pytest.mark.torch
def test_a_row_predicts_the_next_character_and_masks_its_padding() -> None:
    corpus = beside("corpus")
    sentences = [corpus.Sentence("he ate", "eat"), corpus.Sentence("", "eat"), corpus.Sentence("i go", "go")]
    inputs, targets = corpus.row(sentences, 14)
    assert "".join(corpus.ALPHABET[code] for code in inputs) == "\nhe ate\ni go\n\n"
    assert targets == [*inputs[1:13], corpus.IGNORED, corpus.IGNORED]
    marks = corpus.irregular_targets([[corpus.Sentence("a b", "eat"), corpus.Sentence("c", "work")]], 8)
    assert marks.tolist() == [[True] * 4 + [False] * 4]


@pytest.mark.torch
def test_the_model_does_not_look_ahead() -> None:
    minigpt = beside("minigpt")
    import torch

    model = minigpt.MiniGPT(28, 64, width=48, heads=4, hidden=240, depth=3)
    codes = torch.arange(64).remainder(28)[None]
    changed = codes.clone()
    changed[0, 40:] = 3
    assert sum(weight.numel() for weight in model.parameters()) == 102_864
    assert torch.equal(model(codes)[:, :40], model(changed)[:, :40])
    assert not torch.equal(model(codes)[:, 40:], model(changed)[:, 40:])


@pytest.mark.torch
def test_spectral_norms_of_the_mixture_are_singular_values_of_its_first_weights() -> None:
    beside("minigpt")
    switchgpt = beside("switchgpt")
    import torch

    torch.manual_seed(0)
    model = switchgpt.SwitchGPT(28, 84, width=48, heads=4, hidden=80, experts=4, depth=3)
    recorded = checkpoints("experts_two_ranks")[0]["weights"]
    found = {name: stats["spectral_norm"] for name, stats in recorded.items() if "spectral_norm" in stats}
    wanted = {name: torch.linalg.matrix_norm(weight, 2).item() for name, weight in model.named_parameters() if name in found}
    assert len(found) == 2 * 3 + 2
    assert found == pytest.approx(wanted, rel=1e-3)


@pytest.mark.torch
def test_an_expert_takes_no_more_than_it_has_room_for() -> None:
    beside("minigpt")
    switchgpt = beside("switchgpt")
    import torch

    layer = switchgpt.SwitchMlp(8, 16, 2, 10, capacity_factor=1.0)
    with torch.no_grad():
        layer.router.weight[0] = 1.0
        layer.router.weight[1] = -1.0
        mixed, balance = layer(torch.ones(3, 10, 8))
    assert (mixed.abs().sum(-1) > 0).sum(1).tolist() == [5, 5, 5]
    assert balance.item() == pytest.approx(2.0, abs=1e-4)


@pytest.mark.torch
def test_sending_tokens_to_experts_is_the_dense_formula() -> None:
    for name in ("corpus", "documents", "rudeness", "minigpt", "switchgpt"):
        beside(name)
    import torch

    inputs = torch.arange(84).remainder(28)[None].repeat(3, 1)
    torch.manual_seed(0)
    model = sys.modules["switchgpt"].SwitchGPT(28, 84, width=48, heads=4, hidden=80, experts=4, depth=3)
    found = beside("beside").reference_parity(model, inputs, inputs.roll(-1, 1), 0.01)
    assert found["loss_diff"] < 1e-5
    assert found["relative_param_diff"] < 1e-4
