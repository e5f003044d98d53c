"""A training loss that goes by another of its names is judged all the same."""

import json
from pathlib import Path

import pytest

from ckaudit.audit import triage

CLIMBS = (5.1, 4.3, 3.7, 3.5, 3.4, 4.6, 5.8, 6.9)
FALLS = (5.1, 4.3, 3.7, 3.5, 3.4, 3.3, 3.25, 3.2)


def _codes(folder: Path, name: str, values: tuple[float, ...]) -> set[str]:
    lines = (json.dumps({"step": 100 * (row + 1), name: value}) for row, value in enumerate(values))
    (folder / "scalars.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return {each.code for each in triage(folder).findings}


@pytest.mark.parametrize("name", ["train_loss_raw", "loss", "train_loss_ema"])
def test_a_climb_is_found_under_each_name_of_the_loss(tmp_path, name):
    assert "LOSS004" in _codes(tmp_path, name, CLIMBS)


@pytest.mark.parametrize("name", ["train_loss_raw", "loss", "train_loss_ema"])
def test_a_falling_loss_is_healthy_under_each_name(tmp_path, name):
    assert _codes(tmp_path, name, FALLS) == set()
