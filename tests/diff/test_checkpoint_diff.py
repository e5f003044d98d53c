"""Two checkpoints, value by value."""

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ckaudit.contract.schema import checkpoint
from ckaudit.diff import checkpoint_values
from ckaudit.diff.checkpoint_diff import compare_documents
from ckaudit.errors import UnreadableError
from tests.diff.pairs import CHECKPOINT, PAIRS, copied, document, rewrite

TENSOR = "blocks.1.mlp.up.weight"


def pair_of(folder: Path, *documents: dict[str, Any]) -> Any:
    names = []
    for place, whole in enumerate(documents):
        path = folder / f"{'ab'[place]}.json"
        path.write_text(json.dumps({"schema_version": "ck.analysis.v1", "step": 1} | whole))
        names.append(path)
    return compare_documents(*names)


def test_the_same_step_of_two_equal_runs_is_the_same() -> None:
    pair = compare_documents(*(PAIRS / name / CHECKPOINT.format(300) for name in ("base", "identical")))
    assert (pair.word, pair.propagation, pair.drifts, pair.unlike, pair.notes) == ("same", [], [], [], [])
    assert pair.answers[0].word == "same"


def test_equal_bytes_are_the_same(tmp_path: Path) -> None:
    assert pair_of(tmp_path, {"loss": 1.5}, {"loss": 1.5}).verdict == "the same, byte by byte"


def test_one_ulp_is_a_difference(tmp_path: Path) -> None:
    run = copied("identical", tmp_path)
    before = document(run, 300)["weights"][TENSOR]["std"]
    rewrite(run, 300, lambda whole: whole["weights"][TENSOR].update(std=math.nextafter(before, 1)))
    pair = compare_documents(*(folder / CHECKPOINT.format(300) for folder in (PAIRS / "base", run)))
    assert pair.word == "different"
    assert [(each.statistic, each.where, each.left) for each in pair.propagation] == [("weights.std", TENSOR, before)]
    assert "1 of 20 places" in pair.propagation[0].message


def test_the_sign_of_a_zero_is_a_difference(tmp_path: Path) -> None:
    assert pair_of(tmp_path, {"loss": 0.0, "scalars": {"a": 1}}, {"loss": -0.0, "scalars": {"a": 1}}).word == "different"
    rows = ({"attention": {"a": {"mass_per_head": [1.0, zero]}}} for zero in (0.0, -0.0))
    assert pair_of(tmp_path, *rows).word == "different"
    assert pair_of(tmp_path, {"loss": 1, "scalars": {"a": 0.0}}, {"loss": 1.0, "scalars": {"a": 0}}).word == "same"


def test_what_changed_most_comes_first_and_is_measured_by_its_own_size(tmp_path: Path) -> None:
    one = {"weights": {name: {"mean": 1e-9, "std": 1.0, "frobenius_norm": norm} for name, norm in (("a", 2.0), ("b", 4.0))}}
    other = {"weights": {name: {"mean": -1e-9, "std": 1.0, "frobenius_norm": norm} for name, norm in (("a", 2.1), ("b", 8.0))}}
    pair = pair_of(tmp_path, one, other)
    assert [each.statistic for each in pair.propagation] == ["weights.frobenius_norm", "weights.mean"]
    first = pair.propagation[0]
    assert (first.where, first.left, first.right) == ("b", 4.0, 8.0)
    assert "50 % apart" in first.message
    assert "2 of 2 places" in first.message


def test_nan_against_a_number_comes_before_any_change(tmp_path: Path) -> None:
    one = {"gradients": {"a": {"norm": 1.0, "max": 1.0}}}
    pair = pair_of(tmp_path, one, {"gradients": {"a": {"norm": "NaN", "max": 100.0}}})
    assert (pair.propagation[0].statistic, pair.propagation[0].left, pair.propagation[0].right) == ("gradients.norm", 1.0, "NaN")


def test_tensors_new_and_gone_are_told(tmp_path: Path) -> None:
    one, other = ({"weights": {name: {"std": 1.0} for name in names}} for names in ("ab", "bc"))
    pair = pair_of(tmp_path, one, other)
    messages = [each.message for each in pair.unlike]
    assert messages == ["weights of a stand only in the first", "weights of c stand only in the second"]
    assert pair.word == "different"
    assert all(each.invalidates == ["tensors"] for each in pair.unlike)


def test_a_value_that_one_side_lacks_is_not_equal(tmp_path: Path) -> None:
    pair = pair_of(tmp_path, {"weights": {"a": {"std": 1.0, "min": 0.5}}}, {"weights": {"a": {"std": 1.0}}})
    assert pair.word == "not_recorded"
    assert pair.notes == ["only the first has weights.min (1 place)"]


def test_nothing_in_common_is_incomparable(tmp_path: Path) -> None:
    assert pair_of(tmp_path, {"weights": {"a": {"std": 1.0}}}, {"weights": {"b": {"std": 1.0}}}).word == "incomparable"


def test_two_steps_of_a_run_are_different_and_their_steps_are_told() -> None:
    pair = compare_documents(*(PAIRS / "base" / CHECKPOINT.format(step) for step in (300, 400)))
    assert pair.notes[0] == "step 300 against step 400"
    assert pair.word == "different"
    assert pair.drifts


@pytest.mark.parametrize("text", ["[1]", "{", '{"schema_version": "ck.analysis.v2", "step": 1}', '{"step": 1}', "\xff"])
def test_what_is_no_checkpoint_is_said(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(UnreadableError):
        compare_documents(path, path)


def test_nothing_heavy_is_loaded() -> None:
    names = ["numpy", "pyarrow", "torch", "rich", "typer", "jsonschema"]
    code = f"import sys, ckaudit.diff.checkpoint_diff; print(sorted(set({names!r}) & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"


def test_members_that_are_no_objects_and_numbers_beyond_floats_are_compared_all_the_same(tmp_path: Path) -> None:
    one, other = ({"weights": {"a": each, "b": {"std": 10**400 + each, "mean": 1.0}}} for each in (5, 6))
    pair = pair_of(tmp_path, one, other)
    assert {each.statistic for each in pair.propagation} == {"weights", "weights.std"}


def test_names_are_carried_as_they_are(tmp_path: Path) -> None:
    name = "\x1b[31m<b>a</b>\u202e"
    pair = pair_of(tmp_path, {"weights": {name: {"std": 1.0}}}, {"weights": {name: {"std": 2.0}}})
    assert pair.propagation[0].where == name


def test_the_version_that_is_read_is_the_contracts() -> None:
    assert checkpoint_values.VERSION == checkpoint.VERSION
