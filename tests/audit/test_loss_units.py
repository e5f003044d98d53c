"""The unit of a loss is that of tokens only where something says that it counts tokens."""

import json
from pathlib import Path

import numpy as np
import pytest

from ckaudit.audit import triage

CLIMB = np.concatenate([np.linspace(4, 2.4, 12), np.linspace(2.8, 11, 13)])


def _units(report: object) -> set[str]:
    found = {each.unit for each in report.findings if each.code == "LOSS004"}  # type: ignore[attr-defined]
    assert found
    return found


def _log(folder: Path, column: str = "loss") -> Path:
    path = folder / "log.csv"
    rows = (f"{100 * row + 100},{value}" for row, value in enumerate(CLIMB))
    path.write_text("\n".join([f"step,{column}", *rows]) + "\n", encoding="utf-8")
    return path


def _scalars(folder: Path, **facts: object) -> Path:
    manifest = {"schema_version": "ck.run.v1", **facts}
    (folder / "run.json").write_text(json.dumps(manifest), encoding="utf-8")
    rows = (json.dumps({"step": 100 * row + 100, "train_loss_raw": value}) for row, value in enumerate(CLIMB))
    (folder / "scalars.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return folder


@pytest.mark.parametrize("column", ["loss", "train_loss", "training_loss"])
def test_a_log_that_says_nothing_of_tokens_has_no_unit(tmp_path, column):
    assert _units(triage(_log(tmp_path, column))) == {"1"}


def test_a_run_of_a_vocabulary_has_nats_per_token(tmp_path):
    assert _units(triage(_scalars(tmp_path, vocabulary=50_257))) == {"nats/token"}


def test_a_run_whose_loss_is_another_has_none(tmp_path):
    assert _units(triage(_scalars(tmp_path, vocabulary=50_257, loss_kind="other"))) == {"1"}


def test_checkpoints_by_themselves_have_the_unit_of_their_contract(tmp_path):
    for row, value in enumerate(CLIMB):
        step = 100 * row + 100
        checkpoint = {"schema_version": "ck.analysis.v1", "step": step, "loss": value}
        (tmp_path / f"analysis_checkpoint_step_{step:08d}.json").write_text(json.dumps(checkpoint), encoding="utf-8")
    assert _units(triage(tmp_path)) == {"nats/token"}
