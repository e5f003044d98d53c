"""What is not alike in two runs before a step is compared."""

import json
from pathlib import Path
from typing import Any

import pytest

from ckaudit.contract.schema.diff import Unlike
from ckaudit.diff.comparability import LOSSES, find_mismatches
from ckaudit.run.read import read_run
from tests.diff.pairs import PAIRS, copied, manifest, relog

BASE = PAIRS / "base"


def found(other: Path) -> dict[str, Unlike]:
    return {each.name: each for each in find_mismatches(read_run(BASE), read_run(other))}


def test_runs_that_are_alike_have_no_line() -> None:
    assert found(PAIRS / "identical") == {}


def test_another_tokenizer_leaves_no_loss_comparable_and_comes_first() -> None:
    lines = find_mismatches(read_run(BASE), read_run(PAIRS / "tokenizer"))
    assert [each.name for each in lines[:2]] == ["tokenizer_hash", "vocabulary"]
    assert all(set(each.invalidates) == set(LOSSES) for each in lines[:2])
    assert (lines[1].left, lines[1].right) == ("28", "36")
    sizes = [len(each.invalidates) for each in lines]
    assert sizes == sorted(sizes, reverse=True)


def test_another_seed_is_no_difference_but_for_exactness() -> None:
    lines = found(PAIRS / "replica")
    assert set(lines) == {"seed", "data_order"}
    assert all(each.invalidates == ["exact"] for each in lines.values())
    assert "other batches" in lines["data_order"].message


def test_a_model_that_reads_tokens_and_one_that_does_not_have_no_loss_in_common(tmp_path: Path) -> None:
    def reads_pictures(facts: dict[str, Any]) -> None:
        del facts["vocabulary"]
        for tensor in facts["tensors"].values():
            tensor["kind"] = "conv"

    line = found(manifest(copied("base", tmp_path), reads_pictures))["vocabulary"]
    assert set(line.invalidates) == set(LOSSES)
    assert "one model reads tokens and the other does not" in line.message


def test_a_setting_is_the_change_under_test_and_invalidates_nothing() -> None:
    lines = found(PAIRS / "lr_doubled")
    assert {name: each.invalidates for name, each in lines.items()} == {"config.doubled_from": []}


def test_the_same_batches_in_another_order_are_told_from_other_data(tmp_path: Path) -> None:
    def turn(lines: list[dict[str, Any]]) -> None:
        hashes = [line["batch_hash"] for line in lines]
        for line, each in zip(lines, [*hashes[:100], *reversed(hashes[100:])], strict=True):
            line["batch_hash"] = each

    line = found(relog(copied("identical", tmp_path), turn))["data_order"]
    assert "the same batches in another order" in line.message
    assert "from step 101 on" in line.message


def test_other_update_sizes_ask_for_tokens(tmp_path: Path) -> None:
    def double(lines: list[dict[str, Any]]) -> None:
        for line in lines:
            line["tokens_seen"] *= 2

    line = found(relog(copied("identical", tmp_path), double))["tokens_per_update"]
    assert (line.left, line.right) == ("512", "1024")
    assert "final_loss" in line.invalidates
    assert "loss_at_equal_tokens" not in line.invalidates


CHANGES: list[tuple[str, Any, str, list[str]]] = [
    ("eval_artifact_hashes", {"held_out": "sha256:0"}, "eval_artifact_hash/held_out", ["validation_loss"]),
    ("sessions", [{"world_size": 8}], "world_size", ["speed", "memory", "exact"]),
    ("environment", {"python": "3.11", "torch": "1.0"}, "environment.torch", ["speed", "exact"]),
    ("commit", "b" * 40, "commit", ["exact"]),
    ("clip_norm", 2.0, "clip_norm", []),
]


@pytest.mark.parametrize(("member", "value", "name", "invalidates"), CHANGES, ids=[each[0] for each in CHANGES])
def test_each_member_says_what_it_invalidates(tmp_path: Path, member: str, value: Any, name: str, invalidates: list[str]) -> None:
    def change(whole: dict[str, Any]) -> None:
        whole[member] = value
        if member == "sessions":
            whole.pop("world_size", None)

    lines = found(manifest(copied("identical", tmp_path), change))
    assert {each: line.invalidates for each, line in lines.items()} == {name: invalidates}


@pytest.mark.parametrize(
    ("field", "value", "kind"),
    [("dtype", "bfloat16", "precision"), ("shape", [25], "model"), ("tied_to", "head.weight", "model")],
)
def test_each_fact_of_a_tensor_is_compared(tmp_path: Path, field: str, value: Any, kind: str) -> None:
    run = manifest(copied("identical", tmp_path), lambda whole: whole["tensors"]["norm.weight"].update({field: value}))
    lines = found(run)
    assert {name: each.kind for name, each in lines.items()} == {f"tensors.{field}": kind}
    assert "1 tensor (norm.weight) is" in lines[f"tensors.{field}"].message


def test_another_device_of_the_same_kind_is_no_difference(tmp_path: Path) -> None:
    def on(device: str) -> Any:
        return lambda whole: [each.update(device=device) for each in whole["tensors"].values()]

    one = manifest(copied("base", tmp_path), on("cuda:0"))
    other = manifest(copied("identical", tmp_path), on("cuda:3"))
    assert find_mismatches(read_run(one), read_run(other)) == []
    lines = find_mismatches(read_run(one), read_run(manifest(other, on("cpu"))))
    assert [(each.name, each.invalidates) for each in lines] == [("tensors.device", ["speed", "memory", "exact"])]


def test_a_tensor_that_is_not_trained_in_one_run_is_told(tmp_path: Path) -> None:
    run = manifest(copied("identical", tmp_path), lambda whole: whole["tensors"]["norm.weight"].update(trainable=False))
    assert [(name, each.invalidates) for name, each in found(run).items()] == [("tensors.trainable", [])]


def test_tensors_of_another_model_are_counted(tmp_path: Path) -> None:
    run = manifest(copied("identical", tmp_path), lambda whole: whole["tensors"].pop("norm.weight"))
    line = found(run)["tensors"]
    assert "1 tensor (norm.weight) only in the first" in line.message
    assert line.invalidates == ["tensors", "exact"]


def test_what_only_one_side_says_is_not_recorded_where_it_matters(tmp_path: Path) -> None:
    def forget(whole: dict[str, Any]) -> None:
        for name in ("tokenizer_hash", "commit", "clip_norm", "eval_artifact_hashes", "config"):
            del whole[name]

    lines = found(manifest(copied("identical", tmp_path), forget))
    assert set(lines) == {"tokenizer_hash", "eval_artifact_hash/held_out", "config"}
    assert all(each.right is None and each.left and not each.invalidates for each in lines.values())
    assert "is not recorded" in lines["tokenizer_hash"].message


def test_places_names_and_times_are_not_differences(tmp_path: Path) -> None:
    settings = {"output_dir": "/a", "run_name": "x", "data": {"root": "/b/c", "num_workers": 3}, "seed": 7}

    def change(whole: dict[str, Any]) -> None:
        whole["name"], whole["config"] = "other", whole["config"] | settings

    one = manifest(copied("base", tmp_path), lambda whole: whole.update(config=whole["config"] | {"data": {"root": "/x/y"}}))
    other = manifest(copied("identical", tmp_path), change)
    assert find_mismatches(read_run(one), read_run(other)) == []


def test_runs_of_other_programs_have_few_facts_and_no_lines(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        text = "".join(json.dumps({"step": step, "train_loss_raw": 2.0 / step}) + "\n" for step in range(1, 20))
        (tmp_path / name / "scalars.jsonl").write_text(text)
    assert find_mismatches(read_run(tmp_path / "a"), read_run(tmp_path / "b")) == []
