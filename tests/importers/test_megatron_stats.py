"""Statistics that Megatron-LM writes beside its logs: sums of tensors become exact norms, tokens of experts counts."""

import json
import math
import random
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from ckaudit.audit import triage
from ckaudit.errors import CkauditError, UnreadableError
from ckaudit.importers import import_source
from tests.loops import for_each


def sums(values: np.ndarray) -> dict[str, float]:
    return {"count": float(values.size), **{f"sum_{power}": float((values**power).sum()) for power in (1, 2, 3, 4)}}


def line(step: int, stat: str, values: dict[str, np.ndarray]) -> str:
    found = {name: sums(each) for name, each in values.items()}
    return json.dumps({"iter": step, "consumed_train_samples": 4 * step, "stat": stat, "values": found}) + "\n"


def written(folder: Path, kind: str, text: str, rank: int = 0) -> Path:
    (folder / "training_stats" / kind).mkdir(parents=True, exist_ok=True)
    path = folder / "training_stats" / kind / f"rank{rank}.jsonl"
    path.write_text(text)
    return path


def test_sums_give_exact_norms_means_and_deviations(tmp_path):
    rng = np.random.default_rng(0)
    values = rng.normal(0.1, 2.0, 500)
    name = "decoder.layers.3.mlp.linear_fc2"
    written(tmp_path, "grad_raw_moments_by_param", line(10, "grad_raw_moments_by_param", {f"{name}.weight": values}))
    written(tmp_path, "param_raw_moments_by_param", line(10, "param_raw_moments_by_param", {f"{name}.weight": values}), rank=3)
    activations = {f"{name}/input0": values, f"{name}/output0": values, "decoder.layers.3/output0": values}
    written(tmp_path, "activation_raw_moments_by_layer", line(10, "activation_raw_moments_by_layer", activations))
    run = import_source(tmp_path)
    (document,) = run.documents
    gradient, weight = document["gradients"][f"{name}.weight"], document["weights"][f"{name}.weight"]
    assert gradient["norm"] == pytest.approx(np.linalg.norm(values), rel=1e-12)
    assert (gradient["mean"], gradient["std"]) == (pytest.approx(values.mean()), pytest.approx(values.std()))
    assert weight["frobenius_norm"] == gradient["norm"]
    assert set(document["activations"]) == {name, "decoder.layers.3"}
    assert document["activations"][name]["rms"] == pytest.approx(math.sqrt((values**2).mean()), rel=1e-12)
    assert (run.manifest.tensors[f"{name}.weight"].depth, run.manifest.tensors[f"{name}.weight"].kind) == (3, "mlp")


def test_a_dead_layer_is_found(tmp_path):
    text = ""
    for step in range(10, 110, 10):
        values = {f"decoder.layers.{layer}.mlp.linear_fc1.weight": np.full(9, float(layer != 1)) for layer in range(4)}
        text += line(step, "grad_raw_moments_by_param", values)
    path = written(tmp_path, "grad_raw_moments_by_param", text)
    for place in (tmp_path, tmp_path / "training_stats", path.parent, path):
        (finding,) = [each for each in triage(place).findings if each.name == "dead_parameter"]
        assert (finding.where, finding.first_step, finding.last_step) == ("decoder.layers.1.mlp.linear_fc1.weight", 10, 100)


def test_tokens_of_experts_are_summed_over_micro_batches(tmp_path):
    records = [
        {"iter": 5, "block": "decoder", "layer": 3, "tpe": [[128, 64], [96, 80]]},
        {"iter": 5, "block": "mtp", "mtp_idx": 0, "layer": 1, "tpe": [[50, 50]]},
    ]
    (tmp_path / "tokens_per_expert").mkdir()
    (tmp_path / "tokens_per_expert" / "rank0.jsonl").write_text("".join(json.dumps(each) + "\n" for each in records))
    (document,) = import_source(tmp_path).documents
    assert document["moe"] == {"layer.3": {"counts": [224.0, 144.0]}, "mtp.0.layer.1": {"counts": [50.0, 50.0]}}


def test_what_has_no_place_is_said_and_a_torn_line_is_left_out(tmp_path):
    good = line(1, "grad_raw_moments_by_param", {"a.weight": np.ones(3)})
    path = written(
        tmp_path, "x_raw_moments_by_param", good + line(1, "dgrad_raw_moments_by_layer", {"a": np.ones(3)}) + good[:40]
    )
    notes = " ".join(import_source(path).notes)
    assert "dgrad_raw_moments_by_layer" in notes
    assert "1 lines are no JSON" in notes


def test_sums_that_overflowed_are_kept_as_such(tmp_path):
    text = good = line(1, "grad_raw_moments_by_param", {"a.weight": np.ones(3)})
    text = good.replace('"sum_2": 3.0', '"sum_2": Infinity')
    assert text != good
    (document,) = import_source(written(tmp_path, "grad_raw_moments_by_param", text)).documents
    assert document["gradients"]["a.weight"]["norm"] == "Infinity"


@for_each("seed", range(30))
def test_broken_copies_give_an_error_of_ours_or_a_run(tmp_path, seed):
    source = random.Random(seed)
    text = "".join(line(step, "grad_raw_moments_by_param", {"a.weight": np.ones(3), "b.1.w": np.ones(2)}) for step in range(1, 6))
    data = bytearray(text.encode())
    for _ in range(source.choice([1, 5, 50])):
        data[source.randrange(len(data))] = source.randrange(256)
    path = tmp_path / "rank0.jsonl"
    path.write_bytes(bytes(data[: source.randrange(1, len(data))]))
    with suppress(CkauditError):
        assert import_source(path).documents


def test_a_folder_without_statistics_is_none_of_these(tmp_path):
    (tmp_path / "training_stats").mkdir()
    with pytest.raises(UnreadableError):
        import_source(tmp_path)
