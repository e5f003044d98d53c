"""What a recording in the cache leaves out changes no verdict."""

from pathlib import Path

import pytest
import torch

from ckaudit.audit import triage
from ckaudit.contract.schema.report import Report
from ckaudit.lab import archive
from ckaudit.lab.cache import cached_training, keep
from ckaudit.lab.training import train
from ckaudit.lab.training_spec import recipe
from ckaudit.rules import rules
from ckaudit.validate import validate
from tests.lab.small import SMALL, made

pytestmark = pytest.mark.torch
WITH_A_CLOCK = {"recording_overhead"}  # what it finds depends on the machine


def told(folder: Path) -> list[object]:
    """Return what is found, with all its numbers, and what causes are named, with all their reasons."""
    report = triage(folder)
    findings = [each for each in report.findings if each.name not in WITH_A_CLOCK]
    return [findings, report.diagnoses, judged(report), [(each.code, each.where) for each in validate([folder]).findings]]


def judged(report: Report) -> list[tuple[str, str]]:
    return [(each.name, each.outcome) for each in report.checks if each.name not in WITH_A_CLOCK]


@pytest.mark.parametrize("name", ["healthy", "zero_proj", "nan_inject", "init_x100"])
def test_a_lean_recording_gets_the_verdicts_of_a_full_one(name: str, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    train(SMALL, made(name, strength=recipe(name, 0).amount.strength), tmp_path / "full")
    train(SMALL, made(name, strength=recipe(name, 0).amount.strength), tmp_path / "lean", grids="none")
    keep(tmp_path, recipe(name, 0), tmp_path / "lean")
    (tmp_path / "out").mkdir()
    archive.unpack(cached_training(tmp_path, recipe(name, 0)).path, tmp_path / "out")
    assert told(tmp_path / "out") == told(tmp_path / "full")
    assert list((tmp_path / "full").glob("reference.npz"))
    assert not list((tmp_path / "out").glob("reference.npz"))


def test_no_rule_reads_a_grid() -> None:
    # These look at grids where the recorder gave no number, and ours always does.
    else_sampled = {
        "head_similarity",
        "attention_evenness",
        "uniform_head_fraction",
        "sampled_upper_mass",
        "relative_movement",
        "weight_statistics_change",
        "row_spread",
    }
    read = {metric for rule in rules().values() for metric in rule.metrics if metric.name not in else_sampled}
    paths = {path for metric in read for path in metric.paths}
    assert paths
    assert not [path for path in paths if "grid" in path]
