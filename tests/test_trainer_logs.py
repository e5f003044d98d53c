import numpy as np
import pytest

from benchmarks import trainer_logs
from ckaudit.audit import triage


def _severities(tmp_path, kind, count, draws=6):
    path = tmp_path / "trainer_state.json"
    told = []
    for draw in range(draws):
        trainer_logs.write_trainer_state(path, kind, count, np.random.default_rng([draw, count]))
        told += [finding.severity for finding in triage(path).findings]
    return told


def test_blocks_of_a_moving_average_go_together(tmp_path):
    assert not {"sev0", "sev1"} & {*_severities(tmp_path, "picture LoRA, moving average of 10", 1_000)}


@pytest.mark.parametrize("kind", ["chat, SFT", "three epochs", "DPO of close answers", "speech", "words, tagged"])
def test_healthy_fine_tunings_are_left_alone(tmp_path, kind):
    assert {*_severities(tmp_path, kind, 100)} <= {"note"}
